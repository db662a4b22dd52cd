//! A process whose disk can be made to stall: what it asks to be safe on disk waits until we let it.
//!
//! The kernel asks us before each such call (a seccomp filter with a listener), and we say "go on", at
//! once or later. No rights are needed for it, and nothing of the system is changed; a process that is
//! started so can gain no rights itself. When we are gone so is the process.

use std::convert::Infallible;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::prctl::set_no_new_privs;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::unistd::dup2_stdin;
use unruly_agent::DISK_CALLS;

/// The verb that starts a process so, on the command line.
pub(crate) const VERB: &str = "held";

/// The answer that lets the kernel carry out the system call.
const GO_ON: u32 = 1;
const _: () = assert!(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE == 1);

/// Interval in milliseconds at which waiting calls are checked for release.
const HELD_LOOK_MS: u8 = 5;

/// Otherwise so often whether it is over.
const LOOK_MS: u8 = 100;

/// Lets the calls of a process go on, at once or later.
#[derive(Debug)]
pub(crate) struct Holder {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    holds: AtomicBool,
    over: AtomicBool,
    held: AtomicU64,
}

impl Holder {
    /// Hears the process at the other end of `socket`, which was started by [`run`].
    pub(crate) fn of(socket: &UnixStream) -> Result<Self> {
        let listener = received(socket)?;
        let state = Arc::new(State::default());
        let of_thread = Arc::clone(&state);
        let thread = std::thread::spawn(move || answer(&listener, &of_thread));
        Ok(Self {
            state,
            thread: Some(thread),
        })
    }

    /// From now on calls wait, or no longer.
    pub(crate) fn set(&self, holds: bool) {
        self.state.holds.store(holds, Ordering::Release);
    }

    /// How many calls have waited so far.
    pub(crate) fn held(&self) -> u64 {
        self.state.held.load(Ordering::Relaxed)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Becomes the program of `words`, whose calls the other end of our standard input answers.
///
/// # Errors
///
/// When the kernel does not do this, or there is no such program.
pub fn run(words: &[String]) -> Result<Infallible> {
    let (program, rest) = words
        .split_first()
        .context("held: no program is given; wanted one; hint: unruly run starts it")?;
    set_no_new_privs().context(REFUSED)?;
    let listener = listen()?;
    let stdin = std::io::stdin();
    let number = [listener.as_raw_fd()];
    let words = [IoSlice::new(b"l")];
    let right = [ControlMessage::ScmRights(&number)];
    sendmsg::<()>(stdin.as_raw_fd(), &words, &right, MsgFlags::empty(), None).context(
        "held: standard input is no socket; wanted that of a run; hint: unruly run starts it",
    )?;
    drop(listener);
    dup2_stdin(File::open("/dev/null")?)?;
    let error = Command::new(program).args(rest).exec();
    bail!("{program}: {error}; wanted a program; hint: unruly/docs/services.md")
}

const REFUSED: &str = "fault disk: the kernel does not let calls be held; wanted seccomp with a listener (Linux 5.5); hint: leave the fault out";

/// Makes the kernel ask about [`DISK_CALLS`] from now on. Returns the descriptor on which it asks.
fn listen() -> Result<OwnedFd> {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    // The call's number is the first word that the filter is given.
    let mut filter = vec![statement(load, 0, 0)?];
    for (place, call) in DISK_CALLS.iter().enumerate() {
        let others = u8::try_from(DISK_CALLS.len() - place)?;
        filter.push(statement(equal, u32::try_from(*call)?, others)?);
    }
    filter.push(statement(answer, libc::SECCOMP_RET_ALLOW, 0)?);
    filter.push(statement(answer, libc::SECCOMP_RET_USER_NOTIF, 0)?);
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len())?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program points to `filter`, which lives until the call has returned; the kernel
    // copies and checks it.
    let number = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    ensure!(
        number >= 0,
        "{REFUSED}: {}",
        std::io::Error::last_os_error()
    );
    // SAFETY: the call has just made this descriptor, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(number)?) })
}

/// Returns a step of the filter. It skips `jump` steps if its condition is true.
fn statement(code: u32, value: u32, jump: u8) -> Result<libc::sock_filter> {
    Ok(libc::sock_filter {
        code: u16::try_from(code)?,
        jt: jump,
        jf: 0,
        k: value,
    })
}

/// The descriptor that the process at the other end has sent.
fn received(socket: &UnixStream) -> Result<OwnedFd> {
    let mut byte = [0; 1];
    let mut words = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(i32);
    let message = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut words,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let found = message.cmsgs()?.find_map(|it| match it {
        ControlMessageOwned::ScmRights(numbers) => numbers.first().copied(),
        _ => None,
    });
    let number = found.context(REFUSED)?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Answers until the process has ended, or the holder is dropped.
fn answer(listener: &OwnedFd, state: &State) {
    let mut waiting: Vec<u64> = Vec::new();
    loop {
        let over = state.over.load(Ordering::Acquire);
        if over || !state.holds.load(Ordering::Acquire) {
            for id in waiting.drain(..) {
                go_on(listener.as_fd(), id);
            }
        }
        if over {
            return;
        }
        let timeout = if waiting.is_empty() {
            LOOK_MS
        } else {
            HELD_LOOK_MS
        };
        let mut watched = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut watched, timeout);
        let seen = watched[0].revents().unwrap_or(PollFlags::empty());
        if seen.contains(PollFlags::POLLIN) {
            let Some(id) = next(listener.as_fd()) else {
                continue;
            };
            if state.holds.load(Ordering::Acquire) {
                state.held.fetch_add(1, Ordering::Relaxed);
                waiting.push(id);
            } else {
                go_on(listener.as_fd(), id);
            }
        } else if seen.contains(PollFlags::POLLHUP) {
            return;
        }
    }
}

/// The next call that waits, by its number; none when who made it has ended meanwhile.
fn next(listener: BorrowedFd<'_>) -> Option<u64> {
    // SAFETY: all zeros is a value of this struct of integers, and what the kernel wants of us.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one struct of this type to where we point.
    let done = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV,
            &raw mut call,
        )
    };
    (done == 0).then_some(call.id)
}

/// Lets a call go on. Who made it may have ended; then there is nothing to do.
fn go_on(listener: BorrowedFd<'_>, id: u64) {
    let mut said = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: 0,
        flags: GO_ON,
    };
    // SAFETY: the kernel reads one struct of this type from where we point.
    unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            &raw mut said,
        )
    };
}
