//! A live tap: packets of a ring become turnarounds of the watched services.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use unruly_time::{Clock, ClockPair, ClockWatch, ColumnNs, DurationNs, MonoNs, StepNs, monotonic};

use crate::asker::{Askers, listening};
use crate::ring::Ring;
use crate::segment::{Link, Segment, segment};
use crate::server::{SERVERS_MAX, Server};
use crate::tracker::{Finished, Tracker};

/// How often the wall clock, by which the kernel stamps packets, is read again.
const PAIR_PERIOD: DurationNs = DurationNs::seconds(1);

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
    pair_ns: MonoNs,
}

impl Tap {
    /// Opens a tap on an interface, or on all of them.
    ///
    /// # Errors
    ///
    /// When there are too many services, this process may not watch packets, or there is no such
    /// interface.
    pub fn open(servers: Vec<Server>, interface: Option<&str>, clock: &Clock) -> Result<Self> {
        let count = servers.len();
        ensure!(
            (1..=SERVERS_MAX).contains(&count),
            "{count} services; wanted 1 to {SERVERS_MAX}; hint: watch the others with a second tap"
        );
        let mut ports: Vec<u16> = servers.iter().map(|it| it.port).collect();
        ports.sort_unstable();
        ports.dedup();
        Ok(Self {
            ring: Ring::open(interface, &ports)?,
            tracker: Tracker::new(servers),
            askers: Askers::start(),
            clock: clock.clone(),
            watch: ClockWatch::new(clock),
            pair_ns: monotonic(),
        })
    }

    /// Waits for packets, and adds the turnarounds that have ended.
    ///
    /// # Errors
    ///
    /// When the interface is gone.
    pub fn look(&mut self, wait: Duration, ended: &mut Vec<Finished>) -> Result<Look> {
        let mut unstamped = 0;
        let (tracker, clock) = (&mut self.tracker, &self.clock);
        let dropped = self.ring.look(wait, |stamp_ns, packet| {
            let Ok(found) = segment(Link::Raw, packet) else {
                return;
            };
            match clock.column_of_kernel_stamp(stamp_ns) {
                Some(at_ns) => ended.extend(tracker.take(&canonical(found), at_ns)),
                None => unstamped += 1,
            }
        })?;
        let dropped = dropped + unstamped;
        if dropped > 0 {
            self.tracker.miss();
        }
        let step = self.watch_clock();
        let fresh = self.tracker.take_fresh();
        self.askers.look_up(fresh);
        Ok(Look { dropped, step })
    }

    fn watch_clock(&mut self) -> Option<StepNs> {
        let now_ns = monotonic();
        if now_ns - self.pair_ns < PAIR_PERIOD {
            return None;
        }
        self.pair_ns = now_ns;
        self.watch.observe(ClockPair::now())
    }

    /// Returns the connections.
    #[must_use]
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Returns the name of the program that asks from this address, if it is known.
    #[must_use]
    pub fn asker(&self, client: SocketAddr) -> Option<&str> {
        self.askers.of(client)
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
        ended.extend(self.tracker.finish());
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
    let of_service =
        |it: SocketAddr| it.port() == server.port && (it.ip().is_unspecified() || server.is_at(it));
    listening().into_iter().any(of_service)
}
