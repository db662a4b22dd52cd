//! Copies that wait until their server may be sent a repetition again.
//!
//! The router sends few repetitions to a server that is silent or full. The other copies for it
//! wait here, in the order of their operations, and cost nothing meanwhile. A timer for each of
//! them would keep a processor busy with a server that does not answer.

use std::collections::{BTreeMap, BTreeSet};

use super::{Router, Timer};
use crate::id::{MonoNs, OperationId, ServerId};

/// The operations that wait for one server.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Parked {
    operations: BTreeSet<OperationId>,
    /// The time to which the timer is set.
    timer: Option<MonoNs>,
}

/// The operations that wait, by server.
pub(super) type ParkedByServer = BTreeMap<ServerId, Parked>;

impl Parked {
    /// Checks that every waiting copy will be woken; for the simulation.
    ///
    /// # Panics
    ///
    /// When no timer wakes them.
    pub(super) fn verify(&self, server: ServerId, timers: &BTreeSet<(MonoNs, Timer)>) {
        let timer = self.timer.map(|at| (at, Timer::Parked(server)));
        assert!(
            timer.is_some_and(|it| timers.contains(&it)),
            "{server:?}: copies that wait are woken"
        );
        assert!(
            !self.operations.is_empty(),
            "{server:?}: something waits for it"
        );
    }
}

impl Router {
    /// Puts an operation's copy for a server aside.
    pub(super) fn park(&mut self, server: ServerId, id: OperationId) {
        assert!(
            self.rates.contains_key(&server),
            "{server:?}: without a rate, nothing would wake the waiting copies"
        );
        let parked = self.parked.entry(server).or_default();
        parked.operations.insert(id);
        if parked.timer.is_none()
            && let Some(rate) = self.rates.get(&server)
        {
            let at = rate.refilled_at();
            parked.timer = Some(at);
            self.timers.insert((at, Timer::Parked(server)));
        }
    }

    /// Sends the copies that a server may be sent now, those of the oldest operations first.
    pub(super) fn unpark(&mut self, now: MonoNs, server: ServerId) {
        let Some(rate) = self.rates.get_mut(&server) else {
            return;
        };
        rate.refill(now);
        let mut left = rate.repeats_left();
        while left > 0 {
            let parked = self.parked.get_mut(&server);
            let Some(id) = parked.and_then(|it| it.operations.pop_first()) else {
                break;
            };
            // The operation may have ended meanwhile.
            let operation = self.operations.get_mut(id);
            if let Some(target) = operation.and_then(|it| it.target(server)) {
                target.next = target.next.min(now);
                self.drive(now, id);
                left -= 1;
            }
        }
        let Some(parked) = self.parked.get_mut(&server) else {
            return;
        };
        if let Some(at) = parked.timer.take() {
            self.timers.remove(&(at, Timer::Parked(server)));
        }
        debug_assert!(
            parked.operations.is_empty() || left == 0,
            "copies wait only while their server may be sent none"
        );
        if parked.operations.is_empty() {
            self.parked.remove(&server);
        } else if let Some(first) = parked.operations.first().copied() {
            self.park(server, first);
        }
    }

    /// Forgets all waiting copies, because the router assigns them anew.
    pub(super) fn unpark_all(&mut self) {
        for (server, parked) in std::mem::take(&mut self.parked) {
            if let Some(at) = parked.timer {
                self.timers.remove(&(at, Timer::Parked(server)));
            }
        }
    }
}
