//! Repair: a replica that missed a write, or that evicted the value before it, gets the state from
//! another.
//!
//! The router pushes the state, and never executes the operation again. It repairs a key once at a
//! time. Repairs are at most a tenth of the traffic, so that they do not bury a server that comes
//! back.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::operation::Progress;
use super::{Destination, Router, Timer};
use crate::id::{Endpoint, MonoNs, OperationId, ServerId, Version};
use crate::message::{Ask, Copy, Message, Reply, Request, State};

/// The tokens that a repair costs. Every operation earns one.
pub(super) const COST: u32 = 10;

/// The most tokens, which are enough for twenty repairs at once.
pub(super) const TOKENS_MAX: u32 = 20 * COST;

const _: () = assert!(TOKENS_MAX >= COST, "a repair can be paid for");

/// Attempts before a repair is given up. The next operation on the key starts another one.
const TRIES: u8 = 4;

/// The attempt in the copies of a repair, which distinguishes them from the operation's own copies.
pub(super) const ATTEMPT: u8 = 31;

// A reply has five bits for its attempt. The highest number is reserved for repairs.
const _: () = assert!(ATTEMPT == (1 << 5) - 1);

/// A key under repair, by its hash.
pub(super) type RepairKey = (crate::id::SessionId, u64);

/// A repair.
#[derive(Debug, Clone, Hash)]
pub(super) struct Repair {
    request: Arc<Request>,
    need: Version,
    source: ServerId,
    behind: Vec<ServerId>,
    state: Option<State>,
    tries: u8,
    sent: MonoNs,
    timer: MonoNs,
}

impl Repair {
    /// Checks that the repair goes on and will end; for the simulation.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub(super) fn verify(&self, key: RepairKey, timers: &BTreeSet<(MonoNs, Timer)>) {
        assert!(
            timers.contains(&(self.timer, Timer::Repair(key))),
            "{key:?}: a repair goes on, or nobody could begin another"
        );
        assert!(
            self.tries <= TRIES && !self.behind.is_empty(),
            "{key:?}: a repair ends when nobody is behind, or after some tries"
        );
        let state = self.state.as_ref();
        assert!(
            state.is_none_or(|it| it.version >= self.need),
            "{key:?}: a pushed state is no older than the missed one"
        );
    }
}

impl Router {
    /// Starts a repair if one replica has a write that another lacks.
    pub(super) fn repair(&mut self, now: MonoNs, id: OperationId) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        let behind: Vec<ServerId> = operation
            .targets
            .iter()
            .filter(|target| match target.progress {
                Progress::Behind(_) => true,
                // The replica can never execute the write. After a read it needs no repair, because
                // another replica answered.
                Progress::Evicted => operation.is_write(),
                _ => false,
            })
            .map(|target| target.replica.server)
            .collect();
        let Some(source) = self.holder_of(id).filter(|_| !behind.is_empty()) else {
            return;
        };
        let key = (id.session, operation.request.key.hash());
        if self.repairs.contains_key(&key) {
            return;
        }
        if now.since(self.repair_refilled) >= super::rate::RETRY_MAX {
            // Without traffic a repair must still become possible.
            self.repair_refilled = now;
            self.repair_tokens = self.repair_tokens.max(COST);
        }
        if self.repair_tokens < COST {
            self.counts.repairs_put_off += 1;
            return;
        }
        self.repair_tokens -= COST;
        self.counts.repairs += 1;
        assert!(
            u64::from(self.repair_tokens) <= self.counts.operations + u64::from(COST),
            "repairs are earned by operations"
        );
        let need = if operation.is_write() {
            id.version()
        } else {
            operation.request.dep
        };
        let request = Arc::new(Request {
            dep: need,
            ask: Ask::Fetch,
            ..(*operation.request).clone()
        });
        let repair = Repair {
            request,
            need,
            source,
            behind,
            state: None,
            tries: 0,
            sent: now,
            timer: now,
        };
        self.repairs.insert(key, repair);
        self.repair_again(now, key);
    }

    /// Sends a repair's next step, the first time or once more.
    pub(super) fn repair_again(&mut self, now: MonoNs, key: RepairKey) {
        let Some(config) = self.config.clone() else {
            return;
        };
        let Some(repair) = self.repairs.get_mut(&key) else {
            return;
        };
        self.timers.remove(&(repair.timer, Timer::Repair(key)));
        repair.tries += 1;
        if repair.tries > TRIES || repair.behind.is_empty() {
            self.repairs.remove(&key);
            return;
        }
        let shard = config.shard_of(&repair.request.key);
        let (request, to) = match &repair.state {
            None => (Arc::clone(&repair.request), vec![repair.source]),
            Some(state) => {
                let push = Request {
                    ask: Ask::Push(state.clone()),
                    ..(*repair.request).clone()
                };
                (Arc::new(push), repair.behind.clone())
            }
        };
        for server in to {
            let copy = Copy {
                request: Arc::clone(&request),
                config: config.number,
                attempt: ATTEMPT,
            };
            let to = Endpoint { server, shard };
            self.outbox
                .push_back((Destination::Server(to), Message::Request(copy)));
        }
        assert!(
            repair.tries <= TRIES && !repair.behind.is_empty(),
            "a repair ends: nobody is behind any more, or it was tried often enough"
        );
        repair.sent = now;
        repair.timer = now.after(super::rate::RETRY_MIN);
        self.timers.insert((repair.timer, Timer::Repair(key)));
    }

    /// Returns the time at which the step that a reply answers was sent.
    pub(super) fn repair_sent(&self, reply: &Reply) -> Option<MonoNs> {
        let key = (reply.id.session, reply.key_hash);
        self.repairs.get(&key).map(|repair| repair.sent)
    }

    /// Notes the state that a fetch has returned.
    pub(super) fn repair_found(&mut self, now: MonoNs, reply: &Reply, state: State) {
        let key = (reply.id.session, reply.key_hash);
        if let Some(repair) = self.repairs.get_mut(&key)
            && repair.state.is_none()
            && state.version >= repair.need
        {
            repair.state = Some(state);
            repair.tries = 0;
            self.repair_again(now, key);
        }
    }

    /// Notes the reply to a fetch or a push, even if the operation is no longer here.
    pub(super) fn repaired(&mut self, now: MonoNs, reply: &Reply) {
        if let crate::message::Verdict::State(state) = &reply.verdict {
            self.repair_found(now, reply, state.clone());
            return;
        }
        let key = (reply.id.session, reply.key_hash);
        let Some(repair) = self.repairs.get_mut(&key) else {
            return;
        };
        if reply.have >= repair.need {
            repair.behind.retain(|server| *server != reply.from.server);
        }
        if repair.behind.is_empty() {
            let timer = (repair.timer, Timer::Repair(key));
            self.timers.remove(&timer);
            self.repairs.remove(&key);
        }
    }
}
