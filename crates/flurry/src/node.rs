//! A thread that carries out what a state machine wants.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use flurry_core::id::MonoNs;
use flurry_core::message::Message;

use crate::Error;
use crate::clock::Clock;
use crate::link::{Link, LinkCounts, LinkView, Received, Wake};

/// Datagrams taken before timers and callers get their turn.
const BATCH: usize = 64;

/// A state machine with whatever it needs to be carried out.
pub(crate) trait Part: Send + 'static {
    /// A message came.
    fn message(&mut self, now: MonoNs, from: SocketAddrV4, message: Message);

    /// Somebody called the node's [`Wake`].
    fn woken(&mut self, _now: MonoNs) {}

    /// Time has come to [`Part::due`].
    fn timeout(&mut self, now: MonoNs);

    /// When to call [`Part::timeout`].
    fn due(&self) -> MonoNs;

    /// Does everything that the machine wants done.
    fn carry_out(&mut self, now: MonoNs, link: &mut Link) -> Result<(), Error>;
}

/// A part on its thread; dropping it ends both.
#[derive(Debug)]
pub(crate) struct Node {
    name: String,
    address: SocketAddrV4,
    view: LinkView,
    stop: Arc<AtomicBool>,
    wake: Wake,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Node {
    /// Starts what `make` makes on a thread of its own.
    pub(crate) fn start<P: Part>(
        name: &str,
        mut link: Link,
        make: impl FnOnce(MonoNs) -> Result<P, Error>,
    ) -> Result<Self, Error> {
        let clock = Clock::start();
        let mut part = make(clock.now())?;
        let wake = Wake::new()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (address, view) = (link.address(), link.view());
        let (stopped, woken) = (Arc::clone(&stop), wake.clone());
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(clock, &mut link, &mut part, &woken, &stopped))
            .map_err(|error| Error::io(name, "a thread", &error))?;
        Ok(Self {
            name: name.to_owned(),
            address,
            view,
            stop,
            wake,
            thread: Some(thread),
        })
    }

    pub(crate) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    pub(crate) fn counts(&self) -> LinkCounts {
        self.view.counts()
    }

    pub(crate) fn wake(&self) {
        self.wake.call();
    }

    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|it| !it.is_finished())
    }

    /// Waits until the thread ends by itself, which it only does for an error.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        let stopped = || Error::Stopped {
            part: self.name.clone(),
        };
        let thread = self.thread.take().ok_or_else(stopped)?;
        thread.join().map_err(|_| stopped())?
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake.call();
        if let Some(thread) = self.thread.take() {
            // How it ended was for `wait` to say.
            let _ = thread.join();
        }
    }
}

fn run(
    clock: Clock,
    link: &mut Link,
    part: &mut impl Part,
    wake: &Wake,
    stop: &AtomicBool,
) -> Result<(), Error> {
    part.carry_out(clock.now(), link)?;
    loop {
        link.wait(wake, part.due().since(clock.now()));
        if stop.load(Ordering::Acquire) {
            return Ok(());
        }
        if wake.take() {
            part.woken(clock.now());
            part.carry_out(clock.now(), link)?;
        }
        for _ in 0..BATCH {
            match link.receive() {
                Received::Nothing => break,
                Received::Damaged => {}
                Received::Message(from, message) => {
                    // Read for each one: a lease may end between two.
                    let now = clock.now();
                    part.message(now, from, message);
                    part.carry_out(now, link)?;
                }
            }
        }
        let now = clock.now();
        if part.due() <= now {
            part.timeout(now);
            part.carry_out(now, link)?;
        }
    }
}
