//! A member of a group: the library of corosync's closed process groups, and what it calls.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use libloading::Library;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::daemon::{Daemon, Place};
use crate::Options;
use crate::library::{function, open};

const OK: c_int = 1;
const TRY_AGAIN: c_int = 6;
const MODEL: c_int = 1;
const AGREED: c_int = 2;
const ONE_NONBLOCKING: c_int = 4;
/// Until the clock is looked at again.
const MESSAGES_A_TURN: u32 = 64;
/// For the others, to be heard once more before this end goes.
const LEAVE_PATIENCE: Duration = Duration::from_millis(500);

#[repr(C)]
struct Name {
    length: u32,
    value: [u8; 128],
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

/// The functions of the library that are used.
#[derive(Clone, Copy)]
struct Functions {
    initialize: unsafe extern "C" fn(*mut u64, c_int, *mut Model, *mut c_void) -> c_int,
    finalize: unsafe extern "C" fn(u64) -> c_int,
    file: unsafe extern "C" fn(u64, *mut c_int) -> c_int,
    own_node: unsafe extern "C" fn(u64, *mut u32) -> c_int,
    join: unsafe extern "C" fn(u64, *const Name) -> c_int,
    leave: unsafe extern "C" fn(u64, *const Name) -> c_int,
    multicast: unsafe extern "C" fn(u64, c_int, *const libc::iovec, u32) -> c_int,
    dispatch: unsafe extern "C" fn(u64, c_int) -> c_int,
}

impl Functions {
    fn open(options: &Options) -> io::Result<Self> {
        // It has state of its own, and is never closed.
        let library: &Library = Box::leak(Box::new(open(options)?));
        // SAFETY: the types are those of the library's header.
        unsafe {
            Ok(Self {
                initialize: function(library, "cpg_model_initialize")?,
                finalize: function(library, "cpg_finalize")?,
                file: function(library, "cpg_fd_get")?,
                own_node: function(library, "cpg_local_get")?,
                join: function(library, "cpg_join")?,
                leave: function(library, "cpg_leave")?,
                multicast: function(library, "cpg_mcast_joined")?,
                dispatch: function(library, "cpg_dispatch")?,
            })
        }
    }

    /// Connects to the daemon of this network namespace, if it answers yet.
    fn connect(self) -> Option<u64> {
        let mut handle = 0;
        let mut model = Model {
            model: MODEL,
            deliver: delivered,
            change: changed,
            ring_change: ptr::null(),
            flags: 0,
        };
        // SAFETY: the handle is written, and the model is read before it returns.
        let said = unsafe {
            (self.initialize)(&raw mut handle, MODEL, &raw mut model, ptr::null_mut())
        };
        (said == OK).then_some(handle)
    }
}

/// Who is in a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) members: usize,
    /// Why another went last.
    pub(super) gone: Option<u32>,
    /// This end has left, and all others heard so.
    left: bool,
}

/// What is called while the library gives messages away: it hands its callbacks nothing of ours.
struct Turn<'a> {
    own: u32,
    view: &'a mut View,
    take: &'a mut dyn FnMut(u32, &[u8]),
}

thread_local! {
    static TURN: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
}

/// The turn that this thread is in.
///
/// # Safety
///
/// It is called by the library out of `dispatch`, and the reference is gone before the next call.
unsafe fn turn<'a>() -> Option<&'a mut Turn<'a>> {
    // SAFETY: while the library dispatches, it is the turn that was put there, or nothing.
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
    // SAFETY: the library calls this out of `dispatch`.
    let turn = unsafe { turn() };
    if let Some(turn) = turn
        && !bytes.is_null()
    {
        // SAFETY: the library gave so many bytes, which stay until this returns.
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
    // SAFETY: the library calls this out of `dispatch`.
    let Some(turn) = (unsafe { turn() }) else {
        return;
    };
    turn.view.members = members;
    for at in 0..left_length {
        // SAFETY: the library gave so many addresses, which stay until this returns.
        let it = unsafe { *left.add(at) };
        if it.node == turn.own {
            turn.view.left = true;
        } else {
            turn.view.gone = Some(it.reason);
        }
    }
}

/// A member of the group of a run, with its daemon.
pub(super) struct Group {
    functions: Functions,
    handle: u64,
    file: RawFd,
    name: Name,
    /// The number of this host.
    pub(super) own: u32,
    pub(super) view: View,
    /// The daemon does not answer any more: it is not asked for anything either.
    broken: bool,
    daemon: Daemon,
}

impl Group {
    /// Starts a daemon on this address, and joins the group of this run.
    pub(super) fn join(options: &Options, place: Place, patience: Duration) -> io::Result<Self> {
        let until = Instant::now() + patience;
        let functions = Functions::open(options)?;
        let connect = move || Ok(functions.connect());
        let (daemon, handle) =
            Daemon::start(place, options.library.as_deref(), patience, connect)?;
        let (mut file, mut own) = (0, 0);
        // SAFETY: both are written.
        unsafe {
            done((functions.file)(handle, &raw mut file), "it has no file")?;
            done((functions.own_node)(handle, &raw mut own), "it has no number")?;
        }
        let group = Self {
            functions,
            handle,
            file,
            name: name(options.cookie),
            own,
            view: View::default(),
            broken: false,
            daemon,
        };
        loop {
            // SAFETY: the name is read before it returns.
            let said = unsafe { (functions.join)(handle, &raw const group.name) };
            if said != TRY_AGAIN || Instant::now() >= until {
                return done(said, "the group cannot be joined").map(|()| group);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(super) fn daemon(&self) -> u32 {
        self.daemon.pid()
    }

    /// Sends to all members, this one included. Returns whether it was taken: the daemon takes no more than
    /// its ring brings away.
    pub(super) fn multicast(&mut self, message: &[u8]) -> io::Result<bool> {
        let part = libc::iovec {
            iov_base: message.as_ptr().cast_mut().cast(),
            iov_len: message.len(),
        };
        // SAFETY: the message is copied before it returns, and not written.
        let said = unsafe { (self.functions.multicast)(self.handle, AGREED, &raw const part, 1) };
        match said {
            OK => Ok(true),
            TRY_AGAIN => Ok(false),
            other => self.lost("a message was refused", other),
        }
    }

    /// Gives messages away, some at most; waits for the first at most for `patience`. Returns whether
    /// there were any, or a change of the view.
    pub(super) fn turn(
        &mut self,
        patience: Duration,
        take: &mut dyn FnMut(u32, &[u8]),
    ) -> io::Result<bool> {
        if self.drain(take)? {
            return Ok(true);
        }
        if patience.is_zero() {
            return Ok(false);
        }
        let over = self.wait(patience)?;
        let came = self.drain(take)?;
        if over && !came {
            return self.lost("its daemon is gone", OK);
        }
        Ok(came)
    }

    fn drain(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> io::Result<bool> {
        let mut turn = Turn {
            own: self.own,
            view: &mut self.view,
            take,
        };
        let mut came = false;
        for _ in 0..MESSAGES_A_TURN {
            TURN.set((&raw mut turn).cast());
            // SAFETY: the callbacks find the turn, which lives until they have returned.
            let said = unsafe { (self.functions.dispatch)(self.handle, ONE_NONBLOCKING) };
            TURN.set(ptr::null_mut());
            match said {
                OK => came = true,
                TRY_AGAIN => return Ok(came),
                other => return self.lost("nothing comes any more", other),
            }
        }
        Ok(came)
    }

    /// Waits until something is there. Returns whether the daemon's end of it is closed.
    fn wait(&self, patience: Duration) -> io::Result<bool> {
        // SAFETY: the file is the library's, and open as long as its handle.
        let file = unsafe { BorrowedFd::borrow_raw(self.file) };
        let mut files = [PollFd::new(file, PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(patience.max(Duration::from_millis(1)));
        match poll(&mut files, timeout.unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let over = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        Ok(files[0].revents().is_some_and(|it| it.intersects(over)))
    }

    fn lost<T>(&mut self, what: &str, said: c_int) -> io::Result<T> {
        self.broken = true;
        let text = format!("{what} (cs_error {said})");
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.broken {
            return;
        }
        // A daemon that ends at once is missed only after seconds: so the others hear of the end first.
        let until = Instant::now() + LEAVE_PATIENCE;
        // SAFETY: the name is read before it returns.
        let said = unsafe { (self.functions.leave)(self.handle, &raw const self.name) };
        while said == OK && !self.view.left && Instant::now() < until {
            if self.turn(Duration::from_millis(10), &mut |_, _| {}).is_err() {
                return;
            }
        }
        // SAFETY: nothing uses the handle any more.
        unsafe { (self.functions.finalize)(self.handle) };
    }
}

/// The group of a run.
fn name(cookie: u32) -> Name {
    let text = format!("unruly-{cookie:08x}");
    let mut value = [0; 128];
    value[..text.len()].copy_from_slice(text.as_bytes());
    Name {
        length: u32::try_from(text.len()).unwrap_or(0),
        value,
    }
}

fn done(said: c_int, what: &str) -> io::Result<()> {
    if said == OK {
        return Ok(());
    }
    Err(io::Error::other(format!("{what} (cs_error {said})")))
}
