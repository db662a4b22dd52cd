//! A member of a group, with its daemon.

use std::ffi::c_int;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::daemon::{Daemon, Places, lacking};
use super::functions::{AGREED, Functions, Name, OK, TRY_AGAIN, Turn, View};
use crate::Options;

/// Messages between two checks of the clock.
const MESSAGES_A_TURN: u32 = 64;
/// Time limit for the other members to receive this member's departure.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);
const LEAVE_LOOK: Duration = Duration::from_millis(10);

/// A member of the group of a run, with its daemon.
pub(super) struct Group {
    functions: Functions,
    handle: u64,
    file: RawFd,
    name: Name,
    /// The node number of this host.
    pub(super) own: u32,
    pub(super) view: View,
    /// True if the daemon no longer answers. This member then sends it no more requests.
    broken: bool,
    daemon: Daemon,
}

impl Group {
    /// Starts a daemon on this host, and joins the group of this run.
    pub(super) fn join(
        functions: Functions,
        options: &Options,
        places: &Places,
        timeout: Duration,
    ) -> io::Result<Self> {
        let until = Instant::now() + timeout;
        let connect = move || Ok(functions.connect());
        let (daemon, handle) = Daemon::start(places, options.library.as_deref(), timeout, connect)?;
        let (mut file, mut own) = (0, 0);
        // SAFETY: the calls write both values.
        unsafe {
            done((functions.file)(handle, &raw mut file), "it has no file")?;
            done(
                (functions.own_node)(handle, &raw mut own),
                "it has no number",
            )?;
        }
        let group = Self {
            functions,
            handle,
            file,
            name: Name::of(options.cookie),
            own,
            view: View::default(),
            broken: false,
            daemon,
        };
        loop {
            // SAFETY: the call reads the name before it returns.
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

    /// Sends a message to all members, including this one. Returns true if the daemon took it. The
    /// daemon takes no more than its ring can carry.
    pub(super) fn multicast(&mut self, message: &[u8]) -> io::Result<bool> {
        let part = libc::iovec {
            iov_base: message.as_ptr().cast_mut().cast(),
            iov_len: message.len(),
        };
        // SAFETY: the call copies the message before it returns, and does not write to it.
        let said = unsafe { (self.functions.multicast)(self.handle, AGREED, &raw const part, 1) };
        match said {
            OK => Ok(true),
            TRY_AGAIN => Ok(false),
            other => Err(self.lost(&format!("a message was refused (cs_error {other})"))),
        }
    }

    /// Passes some of the available messages to `take`. Waits at most `timeout` for the first one.
    /// Returns true if there was a message or a membership change.
    pub(super) fn turn(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(u32, &[u8]),
    ) -> io::Result<bool> {
        if self.drain(take)? {
            return Ok(true);
        }
        if timeout.is_zero() {
            return Ok(false);
        }
        let over = self.wait(timeout)?;
        let came = self.drain(take)?;
        if over && !came {
            return Err(self.lost("its daemon is gone"));
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
            match turn.dispatch(self.functions, self.handle) {
                OK => came = true,
                TRY_AGAIN => return Ok(came),
                other => {
                    let text = format!("nothing comes any more (cs_error {other})");
                    return Err(self.lost(&text));
                }
            }
        }
        Ok(came)
    }

    /// Waits until something is available. Returns true if the daemon has closed its end.
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        // SAFETY: the file belongs to the library and is open as long as its handle.
        let file = unsafe { BorrowedFd::borrow_raw(self.file) };
        let mut files = [PollFd::new(file, PollFlags::POLLIN)];
        let poll_timeout = PollTimeout::try_from(timeout.max(Duration::from_millis(1)));
        match poll(&mut files, poll_timeout.unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let over = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        Ok(files[0].revents().is_some_and(|it| it.intersects(over)))
    }

    fn lost(&mut self, what: &str) -> io::Error {
        self.broken = true;
        let lacking = lacking(what, "a daemon that serves");
        io::Error::new(io::ErrorKind::ConnectionAborted, lacking.to_string())
    }
}

impl Drop for Group {
    /// Leaves the group if another member remains. The others notice a daemon that simply ends only
    /// after seconds. The handle is not closed, because closing waits for the ring, and the daemon
    /// releases its end of the handle itself.
    fn drop(&mut self) {
        let alone = !self.view.gone.is_empty() && self.view.members < 2;
        if self.broken || alone {
            return;
        }
        let until = Instant::now() + LEAVE_TIMEOUT;
        // SAFETY: the call reads the name before it returns.
        let said = unsafe { (self.functions.leave)(self.handle, &raw const self.name) };
        let mut heard = said == OK;
        while heard && !self.view.left && Instant::now() < until {
            heard = self.turn(LEAVE_LOOK, &mut |_, _| {}).is_ok();
        }
    }
}

fn done(said: c_int, what: &str) -> io::Result<()> {
    if said == OK {
        return Ok(());
    }
    let what = format!("{what} (cs_error {said})");
    Err(lacking(&what, "a daemon that serves"))
}
