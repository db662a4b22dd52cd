//! A thread that carries out what a state machine wants.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flurry_core::id::{DurationNs, MonoNs};

use crate::link::{Letter, Link, LinkCounts, LinkView, Wake};
use crate::looking::Looking;
use crate::metrics::{Board, Page};
use crate::teller::Teller;
use crate::{Error, clock};
use tracing::warn;

/// Messages taken before timers and callers get their turn.
const BATCH: usize = 64;

/// A state machine with everything that its thread needs to run it.
pub(crate) trait Part: Send + 'static {
    /// A message came.
    fn message(&mut self, now: MonoNs, letter: Letter);

    /// Time has come to [`Part::due`].
    fn timeout(&mut self, now: MonoNs);

    /// The machine slept, or its clock was set: what depends on time is asked for anew.
    fn clock_jumped(&mut self, _now: MonoNs) {}

    /// When to call [`Part::timeout`].
    fn due(&self) -> MonoNs;

    /// Tells how it is, on a page that has its name.
    fn report(&self, _page: &mut Page) {}

    /// For how much of the last moments the thread was busy, in 255ths.
    fn was_busy(&mut self, _share: u8) {}

    /// Does everything that the machine wants done.
    fn carry_out(&mut self, now: MonoNs, link: &mut Link) -> Result<(), Error>;

    /// Sends its last messages; its thread is about to end.
    fn ended(&mut self, _now: MonoNs, _link: &mut Link) -> Result<(), Error> {
        Ok(())
    }

    /// Whether what it has beside its link has something for it.
    fn has_clients(&self) -> bool {
        false
    }

    /// Whether its work is done: then its thread ends.
    fn is_over(&self) -> bool {
        false
    }

    /// Once in each turn, after its messages: whatever the part has beside its link, which may have
    /// something when `clients` says so. Says how much there was.
    fn serve(&mut self, _now: MonoNs, _clients: bool, _link: &mut Link) -> Result<usize, Error> {
        Ok(0)
    }
}

/// How a part's thread goes about its work.
#[derive(Debug, Default)]
pub(crate) struct NodeOptions {
    /// How long it looks for messages before it sleeps.
    pub(crate) spin: Duration,
    /// The place where the thread publishes its metrics.
    pub(crate) board: Option<Board>,
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
        options: NodeOptions,
        make: impl FnOnce(MonoNs) -> Result<P, Error>,
    ) -> Result<Self, Error> {
        let mut part = make(clock::now())?;
        let wake = link.wake().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let (address, view) = (link.address(), link.view());
        let stopped = Arc::clone(&stop);
        let mut teller = Teller::new(name, options.board, link.view());
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let looking = Looking::new(options.spin);
                run(&mut link, &mut part, &looking, &mut teller, &stopped)
            })
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

    /// What has the thread take a turn.
    pub(crate) fn wake(&self) -> Wake {
        self.wake.clone()
    }

    pub(crate) fn stopper(&self) -> Stopper {
        Stopper {
            stop: Arc::clone(&self.stop),
            wake: self.wake.clone(),
        }
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

/// Has the thread of a node end.
#[derive(Debug, Clone)]
pub(crate) struct Stopper {
    stop: Arc<AtomicBool>,
    wake: Wake,
}

impl Stopper {
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.call();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stopper().stop();
        if let Some(thread) = self.thread.take() {
            // How it ended was for `wait` to say.
            let _ = thread.join();
        }
    }
}

/// How long a thread waits, over windows that are short beside a change of load.
struct Load {
    began: MonoNs,
    idle: DurationNs,
}

impl Load {
    const WINDOW: DurationNs = DurationNs::millis(20);

    fn new(now: MonoNs) -> Self {
        Self {
            began: now,
            idle: DurationNs(0),
        }
    }

    /// Notes a wait. At the end of a window says for how much of it the thread was busy, in 255ths.
    fn waited(&mut self, from: MonoNs, to: MonoNs) -> Option<u8> {
        self.idle.0 += to.since(from).0;
        let window = to.since(self.began);
        if window < Self::WINDOW {
            return None;
        }
        let busy_ns = window.0.saturating_sub(self.idle.0);
        *self = Self::new(to);
        u8::try_from(busy_ns * 255 / window.0).ok()
    }
}

/// When something has to be done, if nothing comes before.
pub(crate) fn due(link: &Link, part: &impl Part) -> MonoNs {
    part.due().min(link.due().unwrap_or(MonoNs(u64::MAX)))
}

/// Has the part let go of what depends on time if the clocks have jumped.
fn watch_clocks(link: &mut Link, part: &mut impl Part) -> Result<(), Error> {
    if let Some(jump) = link.clocks().look() {
        let now = clock::now();
        let jump_ms = jump / unruly_time::DurationNs::millis(1);
        warn!(jump_ms, "the clock has jumped, or the machine slept");
        part.clock_jumped(now);
        part.carry_out(now, link)?;
    }
    Ok(())
}

/// Lets the part have a message.
fn take(link: &mut Link, part: &mut impl Part, letter: Letter) -> Result<(), Error> {
    // Read for each one: a lease may end between two.
    let now = clock::now();
    part.message(now, letter);
    part.carry_out(now, link)
}

/// Does what there is to do now, without waiting for more; how many messages had come.
pub(crate) fn turn(link: &mut Link, part: &mut impl Part) -> Result<usize, Error> {
    if let Some(pause) = link.pause(clock::now()) {
        std::thread::sleep(pause);
    }
    link.take_wake();
    watch_clocks(link, part)?;
    let mut letters = 0;
    while letters < BATCH {
        let Some(letter) = link.receive() else { break };
        letters += 1;
        take(link, part, letter)?;
    }
    let now = clock::now();
    if part.due() <= now {
        part.timeout(now);
        part.carry_out(now, link)?;
    }
    let clients = link.take_clients();
    letters += part.serve(now, clients, link)?;
    link.flush();
    Ok(letters)
}

/// Busy-polls until a message arrives, another source than the link is ready (returned as `None`
/// inside), something is due, or the time is over. It yields meanwhile, since the thread that it
/// waits for may need this core.
fn look(link: &mut Link, part: &impl Part, looking: &Looking) -> Option<Option<Letter>> {
    if !looking.begins() {
        return None;
    }
    let until = clock::now().after(looking.most).min(due(link, part));
    while clock::now() < until {
        link.look_for_messages();
        let letter = link.receive();
        if letter.is_some() || part.has_clients() {
            looking.ended(true);
            return Some(letter);
        }
        std::thread::yield_now();
    }
    looking.ended(false);
    None
}

fn run(
    link: &mut Link,
    part: &mut impl Part,
    looking: &Looking,
    teller: &mut Teller,
    stop: &AtomicBool,
) -> Result<(), Error> {
    part.carry_out(clock::now(), link)?;
    link.flush();
    let mut load = Load::new(clock::now());
    loop {
        let idle_since = clock::now();
        let found = look(link, part, looking);
        if found.is_none() {
            link.wait(due(link, part).since(clock::now()));
        }
        if let Some(share) = load.waited(idle_since, clock::now()) {
            part.was_busy(share);
        }
        if stop.load(Ordering::Acquire) {
            part.ended(clock::now(), link)?;
            link.flush();
            return Ok(());
        }
        teller.publish(clock::now(), part);
        if let Some(found) = found {
            if let Some(letter) = found {
                watch_clocks(link, part)?;
                take(link, part, letter)?;
            }
            // What else is there, also by the ways that were not looked at.
            link.wait(DurationNs(0));
        }
        turn(link, part)?;
        if part.is_over() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waited_for_a_quarter_was_busy_for_three() {
        let at = |ms: u64| MonoNs(ms * 1_000_000);
        let mut load = Load::new(at(0));
        assert_eq!(load.waited(at(5), at(10)), None, "the window is not over");
        assert_eq!(load.waited(at(20), at(20)), Some(191));
        assert_eq!(load.waited(at(20), at(60)), Some(0), "a window of its own");
    }
}
