//! Waiting: epoll for sockets, a timer for instants, an event for other threads.
//!
//! epoll's own timeout counts milliseconds, which is longer than the latencies measured here, so
//! instants go through a timerfd. Level-triggered: a socket with more to read says so again, which
//! saves the read that would only say "nothing left".

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timer::TimerSetTimeFlags;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags};
use unruly_trace::MonoNs;

const TIMER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;
/// Connections that one wait returns at most, together with the timer and a wake-up.
pub(crate) const EVENTS_MAX: usize = 256;

/// Wakes a [`Poller`] from another thread.
#[derive(Debug, Clone)]
pub struct Wake(Arc<EventFd>);

impl Wake {
    /// Wakes the poller; many calls before it looks count as one.
    pub fn wake(&self) {
        // Fails only when the counter is full, and then the poller is awake anyway.
        let _ = self.0.write(1);
    }
}

/// Waits for sockets, an instant, and a [`Wake`].
#[derive(Debug)]
pub struct Poller {
    epoll: Epoll,
    timer: TimerFd,
    wake: Wake,
    armed_ns: Option<MonoNs>,
    events: Vec<EpollEvent>,
}

impl Poller {
    /// A poller without sockets.
    ///
    /// # Errors
    ///
    /// When the process is out of file descriptors.
    pub fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )?;
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        epoll.add(timer.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        epoll.add(wake.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let events = vec![EpollEvent::empty(); EVENTS_MAX];
        Ok(Self {
            epoll,
            timer,
            wake: Wake(Arc::new(wake)),
            armed_ns: None,
            events,
        })
    }

    /// A handle that wakes this poller.
    #[must_use]
    pub fn waker(&self) -> Wake {
        self.wake.clone()
    }

    /// Watches a socket under a token of the caller's.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn add(&self, socket: BorrowedFd<'_>, token: u64, write: bool) -> io::Result<()> {
        Ok(self
            .epoll
            .add(socket, EpollEvent::new(interest(write), token))?)
    }

    /// Changes whether the socket is also watched for room to write.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn change(&self, socket: BorrowedFd<'_>, token: u64, write: bool) -> io::Result<()> {
        let mut event = EpollEvent::new(interest(write), token);
        Ok(self.epoll.modify(socket, &mut event)?)
    }

    /// Stops watching a socket; closing it does the same.
    pub fn remove(&self, socket: BorrowedFd<'_>) {
        let _ = self.epoll.delete(socket);
    }

    /// Waits until a socket is ready, the instant `until_ns` (monotonic) has come, or a wake-up.
    /// `spin` does not sleep at all. Calls `ready(token, readable, writable)` for each socket, and
    /// returns whether a [`Wake`] was heard. It may return early with nothing.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn wait(
        &mut self,
        until_ns: Option<MonoNs>,
        spin: bool,
        ready: &mut dyn FnMut(u64, bool, bool),
    ) -> io::Result<bool> {
        let timeout = if spin {
            EpollTimeout::ZERO
        } else {
            self.arm(until_ns)?;
            EpollTimeout::NONE
        };
        let mut waited = self.epoll.wait(&mut self.events, timeout);
        // The process was stopped while it waited, so it looks again.
        if waited == Err(Errno::EINTR) {
            waited = self.epoll.wait(&mut self.events, EpollTimeout::ZERO);
        }
        let count = match waited {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let mut woken = false;
        for event in &self.events[..count] {
            match event.data() {
                TIMER => {
                    // The instant has come; the caller looks at the clock itself.
                    self.armed_ns = None;
                    let _ = self.timer.wait();
                }
                WAKE => {
                    woken = true;
                    let _ = self.wake.0.read();
                }
                token => {
                    let flags = event.events();
                    let broken = flags.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP);
                    let readable = broken || flags.contains(EpollFlags::EPOLLIN);
                    ready(
                        token,
                        readable,
                        broken || flags.contains(EpollFlags::EPOLLOUT),
                    );
                }
            }
        }
        Ok(woken)
    }

    fn arm(&mut self, until_ns: Option<MonoNs>) -> io::Result<()> {
        // A timer that goes off too early costs one look at the clock, once; setting it anew for
        // every request would cost a system call each.
        let early_enough = match (self.armed_ns, until_ns) {
            (Some(armed_ns), Some(until_ns)) => armed_ns <= until_ns,
            (armed_ns, None) => armed_ns.is_none(),
            (None, Some(_)) => false,
        };
        if early_enough {
            return Ok(());
        }
        match until_ns {
            Some(until_ns) => {
                // A time of zero would disarm the timer; one nanosecond is as much in the past.
                let at = until_ns.0.max(1);
                let time = TimeSpec::new(at / 1_000_000_000, at % 1_000_000_000);
                self.timer.set(
                    Expiration::OneShot(time),
                    TimerSetTimeFlags::TFD_TIMER_ABSTIME,
                )?;
            }
            None => self.timer.unset()?,
        }
        self.armed_ns = until_ns;
        Ok(())
    }
}

fn interest(write: bool) -> EpollFlags {
    if write {
        EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT
    } else {
        EpollFlags::EPOLLIN
    }
}
