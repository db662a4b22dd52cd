//! A live tap: packets of a ring become turnarounds of the watched services.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use unruly_time::{Clock, ClockPair, ClockWatch, ColumnNs, DurationNs, MonoNs, StepNs, monotonic};
use unruly_trace::set_scheduler;

use crate::asker::{Askers, listening};
use crate::ring::Ring;
use crate::segment::{Link, Segment, segment};
use crate::server::{SERVERS_MAX, Server};
use crate::tracker::{Finished, Tracker};

/// What a look has found besides turnarounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Look {
    /// Packets that the kernel had no room for, or whose time is unknown.
    pub dropped: u64,
    /// By how much the wall clock was stepped.
    pub step: Option<StepNs>,
}

/// A live tap.
#[derive(Debug)]
pub struct Tap {
    ring: Ring,
    tracker: Tracker,
    askers: Askers,
    clock: Clock,
    watch: ClockWatch,
    /// Until then stamps may be from either side of a step of the wall clock.
    unclear_until_ns: MonoNs,
}

impl Tap {
    /// Opens a tap on an interface; by default on all of them, or on the loopback interface if all
    /// services are there.
    ///
    /// # Errors
    ///
    /// When there are too many services, this process may not watch packets, or there is no such
    /// interface.
    pub fn open(servers: Vec<Server>, interface: Option<&str>, clock: &Clock) -> Result<Self> {
        let count = servers.len();
        do_not_push_in();
        ensure!(
            (1..=SERVERS_MAX).contains(&count),
            "{count} services; wanted 1 to {SERVERS_MAX}; hint: watch the others with a second tap"
        );
        let mut ports: Vec<u16> = servers.iter().map(|it| it.port).collect();
        ports.sort_unstable();
        ports.dedup();
        // Watching all interfaces costs every packet of the host a little.
        let is_loopback =
            |it: &Server| it.hosts.iter().all(|host| host.is_loopback()) && !it.hosts.is_empty();
        let loopback = servers.iter().all(is_loopback).then_some(Ring::LOOPBACK);
        let askers = Askers::start(servers.clone());
        Ok(Self {
            ring: Ring::open(interface.or(loopback), &ports)?,
            tracker: Tracker::new(servers),
            askers,
            clock: clock.clone(),
            watch: ClockWatch::new(clock),
            unclear_until_ns: MonoNs(i64::MIN),
        })
    }

    /// Waits for packets, and adds the turnarounds that have ended.
    ///
    /// # Errors
    ///
    /// When the interface is gone.
    pub fn look(&mut self, wait: Duration, ended: &mut Vec<Finished>) -> Result<Look> {
        self.ring.wait(wait)?;
        let step = self.watch.observe(ClockPair::now());
        let now_ns = monotonic();
        if step.is_some() {
            // Nobody knows on which side of the step a packet came that the kernel still holds.
            self.unclear_until_ns = now_ns + DurationNs::from(2 * Ring::BLOCK_TIMEOUT);
        }
        let is_clear = now_ns >= self.unclear_until_ns;
        let mut unstamped = 0;
        let (tracker, clock) = (&mut self.tracker, &self.clock);
        let dropped = self.ring.read(|stamp_ns, packet, whole| {
            let Ok(found) = segment(Link::Raw, packet, whole) else {
                return;
            };
            match clock.column_of_kernel_stamp(stamp_ns).filter(|_| is_clear) {
                Some(at_ns) => tracker.take(&canonical(found), at_ns, ended),
                None => unstamped += 1,
            }
        })?;
        let dropped = dropped + unstamped;
        if dropped > 0 || step.is_some() {
            self.tracker.miss();
        }
        let fresh = self.tracker.take_fresh();
        self.askers.look_up(fresh);
        Ok(Look { dropped, step })
    }

    /// Returns the connections.
    #[must_use]
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Gives processes, by their number, and their children other names than those of their programs.
    pub fn name_askers(&mut self, names: HashMap<u32, String>) {
        self.askers.name(names);
    }

    /// Returns the name of the process that asked, if it is known.
    #[must_use]
    pub fn asker(&self, it: &Finished) -> Option<&str> {
        self.askers.of((it.client, it.at))
    }

    /// Ends the tap: takes the packets that are on their way, and adds the turnarounds that have
    /// ended and those that are open.
    ///
    /// # Errors
    ///
    /// When the interface is gone.
    pub fn finish(&mut self, ended: &mut Vec<Finished>) -> Result<Look> {
        // The kernel keeps a block that is not full for a moment.
        std::thread::sleep(2 * Ring::BLOCK_TIMEOUT);
        let look = self.look(Duration::ZERO, ended)?;
        ended.extend(self.tracker.finish(self.now()));
        Ok(look)
    }

    /// Returns column time now.
    #[must_use]
    pub fn now(&self) -> ColumnNs {
        self.clock.column_now()
    }
}

/// Addresses of IPv4 have one form only.
fn canonical(mut segment: Segment) -> Segment {
    segment.from.set_ip(segment.from.ip().to_canonical());
    segment.to.set_ip(segment.to.ip().to_canonical());
    segment
}

/// Returns true if a program of this host listens at an address of a service.
#[must_use]
pub fn is_listening(server: &Server) -> bool {
    listening().into_iter().any(|it| server.listens_at(it))
}

/// Has this thread, and those that it starts, never interrupt another one when they wake up: a tap on
/// a busy host should not delay the requests that it measures.
fn do_not_push_in() {
    // Where it is not allowed nothing changes.
    let _ = set_scheduler(0, libc::SCHED_BATCH, 0);
}
