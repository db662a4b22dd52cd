//! Bindings for the library of corosync's closed process groups (CPG), and the callbacks that it
//! calls.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;

use libloading::Library;

use crate::Options;
use crate::library::{function, open};

pub(super) const OK: c_int = 1;
pub(super) const TRY_AGAIN: c_int = 6;
pub(super) const AGREED: c_int = 2;
const MODEL: c_int = 1;
const ONE_NONBLOCKING: c_int = 4;

#[repr(C)]
pub(super) struct Name {
    length: u32,
    value: [u8; 128],
}

impl Name {
    /// Returns the group name of a run.
    pub(super) fn of(cookie: u32) -> Self {
        let text = format!("unruly-{cookie:08x}");
        let mut value = [0; 128];
        value[..text.len()].copy_from_slice(text.as_bytes());
        Self {
            length: u32::try_from(text.len()).unwrap_or(0),
            value,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Address {
    node: u32,
    process: u32,
    reason: u32,
}

type Deliver = unsafe extern "C" fn(u64, *const Name, u32, u32, *mut c_void, usize);
type Change = unsafe extern "C" fn(
    u64,
    *const Name,
    *const Address,
    usize,
    *const Address,
    usize,
    *const Address,
    usize,
);

#[repr(C)]
struct Model {
    model: c_int,
    deliver: Deliver,
    change: Change,
    ring_change: *const c_void,
    flags: u32,
}

/// The library functions that this module calls.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    initialize: unsafe extern "C" fn(*mut u64, c_int, *mut Model, *mut c_void) -> c_int,
    pub(super) file: unsafe extern "C" fn(u64, *mut c_int) -> c_int,
    pub(super) own_node: unsafe extern "C" fn(u64, *mut u32) -> c_int,
    pub(super) join: unsafe extern "C" fn(u64, *const Name) -> c_int,
    pub(super) leave: unsafe extern "C" fn(u64, *const Name) -> c_int,
    pub(super) multicast: unsafe extern "C" fn(u64, c_int, *const libc::iovec, u32) -> c_int,
    dispatch: unsafe extern "C" fn(u64, c_int) -> c_int,
}

impl Functions {
    pub(super) fn open(options: &Options) -> io::Result<Self> {
        // The library has global state, so it is never closed.
        let library: &Library = Box::leak(Box::new(open(options)?));
        // SAFETY: the types match the library's header.
        unsafe {
            Ok(Self {
                initialize: function(library, "cpg_model_initialize")?,
                file: function(library, "cpg_fd_get")?,
                own_node: function(library, "cpg_local_get")?,
                join: function(library, "cpg_join")?,
                leave: function(library, "cpg_leave")?,
                multicast: function(library, "cpg_mcast_joined")?,
                dispatch: function(library, "cpg_dispatch")?,
            })
        }
    }

    /// Connects to the daemon of this network namespace. Returns `None` if it does not answer yet.
    pub(super) fn connect(self) -> Option<u64> {
        let mut handle = 0;
        let mut model = Model {
            model: MODEL,
            deliver: delivered,
            change: changed,
            ring_change: ptr::null(),
            flags: 0,
        };
        // SAFETY: the call writes the handle, and reads the model before it returns.
        let said =
            unsafe { (self.initialize)(&raw mut handle, MODEL, &raw mut model, ptr::null_mut()) };
        (said == OK).then_some(handle)
    }
}

/// The membership of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) members: usize,
    /// The other members that left: node number and reason.
    pub(super) gone: Vec<(u32, u32)>,
    /// True if this member has left and all others have been notified.
    pub(super) left: bool,
}

impl View {
    /// Returns true if a member has left.
    pub(super) fn is_gone(&self, node: u32) -> bool {
        self.gone.iter().any(|(gone, _)| *gone == node)
    }
}

/// The state that the callbacks use during one dispatch. The library passes its callbacks no
/// pointer of ours.
pub(super) struct Turn<'a> {
    pub(super) own: u32,
    pub(super) view: &'a mut View,
    pub(super) take: &'a mut dyn FnMut(u32, &[u8]),
}

thread_local! {
    static TURN: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
}

impl Turn<'_> {
    /// Lets the library deliver one message or membership change, if there is one. Returns its
    /// error code.
    pub(super) fn dispatch(&mut self, functions: Functions, handle: u64) -> c_int {
        TURN.set(ptr::from_mut(self).cast());
        // SAFETY: the callbacks use this value, and nothing else uses it until they have returned.
        let said = unsafe { (functions.dispatch)(handle, ONE_NONBLOCKING) };
        TURN.set(ptr::null_mut());
        said
    }
}

/// Returns the turn that this thread is in.
///
/// # Safety
///
/// Only the library may call this, from within `dispatch`. The reference must be gone before the
/// next call.
unsafe fn turn<'a>() -> Option<&'a mut Turn<'a>> {
    // SAFETY: while the library dispatches, the cell holds the current turn or null.
    unsafe { TURN.get().cast::<Turn<'a>>().as_mut() }
}

unsafe extern "C" fn delivered(
    _handle: u64,
    _group: *const Name,
    node: u32,
    _process: u32,
    bytes: *mut c_void,
    length: usize,
) {
    // SAFETY: the library calls this from within `dispatch`.
    let turn = unsafe { turn() };
    if let Some(turn) = turn
        && !bytes.is_null()
    {
        // SAFETY: the library passed `length` bytes, which live until this returns.
        (turn.take)(node, unsafe {
            std::slice::from_raw_parts(bytes.cast(), length)
        });
    }
}

unsafe extern "C" fn changed(
    _handle: u64,
    _group: *const Name,
    _members: *const Address,
    members: usize,
    left: *const Address,
    left_length: usize,
    _joined: *const Address,
    _joined_length: usize,
) {
    // SAFETY: the library calls this from within `dispatch`.
    let Some(turn) = (unsafe { turn() }) else {
        return;
    };
    turn.view.members = members;
    for at in 0..left_length {
        // SAFETY: the library passed `left_length` addresses, which live until this returns.
        let it = unsafe { *left.add(at) };
        if it.node == turn.own {
            turn.view.left = true;
        } else {
            turn.view.gone.push((it.node, it.reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_called_after_its_run() {
        let name = Name::of(0x00AB_CDEF);
        assert_eq!(name.length, 15);
        assert_eq!(&name.value[..16], b"unruly-00abcdef\0");
    }

    #[test]
    fn what_the_library_gives_away_comes_to_the_turn_that_asked_for_it() {
        let (mut view, mut heard) = (View::default(), Vec::new());
        let mut take = |from: u32, bytes: &[u8]| heard.push((from, bytes.to_vec()));
        let mut turn = Turn {
            own: 1,
            view: &mut view,
            take: &mut take,
        };
        let members = [1, 2].map(|node| Address {
            node,
            process: 5,
            reason: 3,
        });
        let mut bytes = *b"abc";
        let none: *const Address = ptr::null();
        TURN.set(ptr::from_mut(&mut turn).cast());
        // SAFETY: each argument lives and has the length that is passed with it.
        unsafe {
            delivered(0, none.cast(), 2, 5, bytes.as_mut_ptr().cast(), 3);
            changed(0, none.cast(), none, 1, members.as_ptr(), 2, none, 0);
        }
        TURN.set(ptr::null_mut());
        // SAFETY: no turn is active, so the callback reads nothing.
        unsafe { delivered(0, none.cast(), 2, 5, bytes.as_mut_ptr().cast(), 3) };
        assert_eq!(heard, [(2, b"abc".to_vec())]);
        let wanted = View {
            members: 1,
            gone: vec![(2, 3)],
            left: true,
        };
        assert_eq!(view, wanted);
        assert!(view.is_gone(2) && !view.is_gone(1));
    }
}
