//! The effect of a reply on its operation.

use std::sync::Arc;

use super::operation::{InFlight, Phase, Progress};
use super::{Destination, Router, repair};
use crate::bugs::{Bug, planted};
use crate::id::{ConfigNumber, DurationNs, MonoNs, OperationId, ServerId, Version};
use crate::log::{Arrival, CopyEnd};
use crate::machine::ABSENT;
use crate::message::{Answer, Ask, Control, Message, Outcome, Reply, Request, State, Verdict};

/// Rounds in which every replica must report that it cannot answer before the router believes it.
/// In an earlier round the missing write may still be under way.
const EMPTY_ROUNDS: u8 = 3;

impl Router {
    pub(super) fn handle_reply(&mut self, now: MonoNs, reply: &Reply, kernel_received: i64) {
        let server = reply.from.server;
        let waited_for = self
            .operations
            .get_mut(reply.id)
            .and_then(|operation| operation.target(server))
            .is_some_and(|target| target.progress != Progress::Held);
        if let Some(rate) = self.rates.get_mut(&server) {
            let earns = waited_for && reply.verdict != Verdict::Busy;
            rate.heard(now, reply.busy, earns);
        }
        if let Verdict::WrongConfig(number) = reply.verdict {
            self.wrong_config(now, reply, number);
        }
        let id = reply.id;
        let current = reply.config == self.number() || planted(Bug::AnyConfiguration);
        let Some(operation) = self.operations.get_mut(id) else {
            if current {
                self.repaired(now, reply);
            }
            return;
        };
        let Some(target) = operation.target(server) else {
            return;
        };
        let sent = target.take_sent(reply.attempt);
        let first_sent = target.first_sent;
        // The last number stands for all later attempts too: which of them it was is not known.
        if let Some(sent) = sent
            && reply.attempt < repair::ATTEMPT
            && let Some(rate) = self.rates.get_mut(&server)
        {
            rate.observe(now.since(sent.at));
        }
        // The server may have been counted out while the reply was under way, and the others may
        // have gone on without its write. That cannot happen within the time that was left of its
        // lease.
        let asked = match sent {
            Some(sent) => Some(sent.at),
            None if reply.attempt == repair::ATTEMPT => self.repair_sent(reply),
            None => Some(first_sent),
        };
        let under_way = asked.map_or(DurationNs(u64::MAX), |asked| now.since(asked));
        let distrusted = asked.is_some_and(|asked| asked < self.trusts_since);
        let late = (under_way > reply.lease_left || distrusted)
            && matches!(
                reply.verdict,
                Verdict::Done(_) | Verdict::Held | Verdict::State(_)
            );
        self.counts.late += u64::from(late);
        let before = self.operations.get(id).is_some_and(|it| it.answered);
        let end = end_of(&reply.verdict);
        let row = sent.and_then(|sent| self.row(id, server, sent));
        let counts = current && !late;
        let wrong = counts && self.is_divergent(reply);
        if counts && !wrong {
            self.take(now, reply);
        }
        if let Some(row) = row {
            let after = self.operations.get(id).is_none_or(|it| it.answered);
            let end = if wrong { CopyEnd::Wrong } else { end };
            self.arrivals.push_back(Arrival {
                received: Some(now),
                end,
                answered: after && !before && end == CopyEnd::Ok,
                stamps: reply.stamps,
                kernel_received,
                ..row
            });
        }
        self.finish(now, id);
    }

    fn wrong_config(&mut self, now: MonoNs, reply: &Reply, number: ConfigNumber) {
        if number > self.number() {
            self.want_config(now);
        } else if let (true, Some(config)) = (number < self.number(), &self.config) {
            // The server has missed the change. It may learn the configuration from any part.
            let told = Message::Control(Control::Config(Arc::clone(config)));
            self.outbox
                .push_back((Destination::Server(reply.from), told));
        }
    }

    /// Returns whether the reply contradicts an earlier one. Two replicas that executed the same
    /// operation at the same version must agree.
    fn is_divergent(&mut self, reply: &Reply) -> bool {
        let Verdict::Done(answer) = &reply.verdict else {
            return false;
        };
        let Some(operation) = self.operations.get_mut(reply.id) else {
            return false;
        };
        let blind = matches!(
            operation.request.ask,
            Ask::Apply {
                access: crate::machine::Access::Blind,
                ..
            }
        );
        // An overtaken blind write has no state of its own to compare.
        let digest = (!blind && reply.digest != 0).then_some(reply.digest);
        let differs = match (operation.digest, digest) {
            (Some(known), Some(found)) => known != found,
            _ => false,
        } || operation
            .answer
            .as_ref()
            .is_some_and(|known| known != answer);
        if differs {
            self.counts.divergent += 1;
            return true;
        }
        if operation.digest.is_none() {
            operation.digest = digest;
        }
        operation.absent |= operation.is_write() && reply.digest == ABSENT;
        false
    }

    /// Applies a trusted reply to its operation.
    fn take(&mut self, now: MonoNs, reply: &Reply) {
        let id = reply.id;
        let server = reply.from.server;
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let write = operation.is_write();
        let version = id.version();
        let asked_stable = operation.request.stable;
        let asking = operation.phase == Phase::Asking;
        let answered = operation.answered;
        let Some(target) = operation.target(server) else {
            return;
        };
        let held = target.progress == Progress::Held;
        let forgets = reply.attempt == repair::ATTEMPT && !write && !answered;
        // A refusal counts only for the latest sending. An earlier sending knew of fewer stable
        // writes.
        let latest = reply.stable >= asked_stable;
        match &reply.verdict {
            Verdict::Done(answer) => {
                target.progress = Progress::Held;
                operation.answer.get_or_insert_with(|| answer.clone());
            }
            // A late reply to an earlier write-back of a takeover that asks anew says nothing of
            // the replica's state. Counting it would stop the router from asking this replica.
            Verdict::Held if asking => {}
            Verdict::Held if reply.have >= version || planted(Bug::AckBeforeApply) => {
                target.progress = Progress::Held;
            }
            // The replica has a later write, of the same owner or a later one, and so this one as
            // well.
            Verdict::Stale if write && !asking => target.progress = Progress::Held,
            Verdict::Stale if !held && latest => target.progress = Progress::Stale,
            // A repair asks a server that has answered a read for what the read depends on. If that
            // is a deletion that every replica has, the server may have forgotten it since. Another
            // one that forgot it earlier cannot answer. So they are asked again, and the owner hears
            // that nobody has it.
            Verdict::Behind if latest && (!held || forgets) => {
                target.progress = Progress::Behind(reply.have);
                target.next = target.next.max(now.after(super::rate::RETRY_MIN));
            }
            Verdict::Busy if !held => target.progress = Progress::Busy,
            Verdict::Evicted if !held => target.progress = Progress::Evicted,
            Verdict::State(state) if asking => target.state = Some(Box::new(state.clone())),
            // The joining server has executed no operation yet, and will know the owner before it
            // does.
            Verdict::Joining if asking && !target.replica.old => {
                target.state = Some(Box::new(State::ABSENT));
            }
            _ => {}
        }
        if forgets && matches!(reply.verdict, Verdict::Behind) && operation.held() == 0 {
            operation.answer = None;
        }
        if planted(Bug::ErrorWins)
            && matches!(reply.verdict, Verdict::Behind)
            && !operation.answered
            && !write
        {
            operation.answered = true;
            let portal = operation.portal;
            let nothing = crate::key_value::Answer::NotFound.encode();
            self.answer(portal, id, Outcome::Done(nothing));
        }
        if let Verdict::State(state) = &reply.verdict {
            self.repair_found(now, reply, state.clone());
        }
        if matches!(reply.verdict, Verdict::Held) {
            self.repaired(now, reply);
        }
        self.settle(now, id, Some(&reply.verdict));
    }

    /// Ends an operation that a refusal decides, or answers it if enough replicas have it.
    pub(super) fn settle(&mut self, now: MonoNs, id: OperationId, verdict: Option<&Verdict>) {
        let last_wipe = self.last_wipe();
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let portal = operation.portal;
        if !operation.answered {
            let all = |progress: Progress| {
                !operation.targets.is_empty()
                    && operation.targets.iter().all(|it| it.progress == progress)
            };
            let refusal = match verdict {
                Some(Verdict::Fenced(epoch)) => Some(Outcome::Fenced(*epoch)),
                Some(Verdict::Malformed) => Some(Outcome::Malformed),
                Some(Verdict::Busy) if all(Progress::Busy) => Some(Outcome::Busy),
                _ => None,
            };
            if let Some(outcome) = refusal {
                self.answer(portal, id, outcome);
                self.retire(now, id);
                return;
            }
        } else if let Some(Verdict::Fenced(epoch)) = verdict {
            // The write is acknowledged but not on every replica, and the session has another owner
            // now. The portal must know that.
            self.answer(portal, id, Outcome::Fenced(*epoch));
            self.retire(now, id);
            return;
        }
        if operation.phase == Phase::Asking {
            if let Some(state) = operation.found(last_wipe) {
                self.take_over(now, id, state);
            } else {
                operation.ask_the_joining_again();
            }
            return;
        }
        if !operation.answered && operation.level_is_met() {
            self.give_answer(now, id);
        }
    }

    fn give_answer(&mut self, now: MonoNs, id: OperationId) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let Some(outcome) = outcome_of(operation) else {
            return;
        };
        assert!(!operation.answered, "{id:?}: its owner hears one answer");
        assert!(
            operation.phase != Phase::Asking,
            "{id:?}: a takeover that still asks has found nothing"
        );
        operation.answered = true;
        let portal = operation.portal;
        let took = now.since(operation.started);
        // The other copies of a hedged write leave now, because it must reach every replica.
        for target in &mut operation.targets {
            if target.progress == Progress::Waiting {
                target.next = now;
            }
        }
        self.auto.observe(took);
        self.answer(portal, id, outcome);
    }

    /// Returns the latest configuration in which all copies of some key may have been lost
    /// together.
    fn last_wipe(&self) -> ConfigNumber {
        let config = self.config.as_deref();
        config.map_or(ConfigNumber(0), |it| it.last_wipe)
    }

    /// Returns the outcome of a takeover, with the losses that the owner must know.
    fn taken(&self, version: Version, found: &State) -> Outcome {
        let config = self.config.as_deref();
        Outcome::Taken {
            version,
            found: found.version,
            written_in: found.written_in,
            last_loss: config.map_or(ConfigNumber(0), |it| it.last_loss),
            last_majority_loss: config.map_or(ConfigNumber(0), |it| it.last_majority_loss),
            last_wipe: self.last_wipe(),
        }
    }

    /// Writes the state that a takeover found to every replica, under the owner's version.
    fn take_over(&mut self, now: MonoNs, id: OperationId, found: State) {
        let taken = self.taken(id.version(), &found);
        let last_wipe = self.last_wipe();
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let portal = operation.portal;
        assert!(
            operation.phase == Phase::Asking && !operation.answered,
            "{id:?}: a takeover writes back once, or one version would have two states"
        );
        // A takeover of an evicted value writes a deletion. No late copy can bring the value back
        // then, and every replica forgets the record once all have the deletion.
        operation.absent = found.snapshot.is_none();
        // A deletion is written back, because other replicas may have forgotten it and would lack
        // the version that the owner then depends on.
        let clean = operation.clean_since(last_wipe).is_some_and(|since| {
            let value = found.version.epoch >= since && found.snapshot.is_some();
            value || (since.0 == 1 && found.version == Version::NONE)
        });
        // A replica that has not replied may have a write that nobody has an answer for. A later
        // owner must not find it after this one found nothing.
        let absent = found.version == Version::NONE && operation.knows_all_states();
        if clean || absent || planted(Bug::NoWriteBack) {
            let taken = self.taken(found.version, &found);
            self.answer(portal, id, taken);
            self.retire(now, id);
            return;
        }
        let state = State {
            version: id.version(),
            evicted: false,
            ..found
        };
        let push = Request {
            ask: Ask::Push(state),
            ..(*operation.request).clone()
        };
        operation.phase = Phase::WritingBack {
            state: Arc::new(push),
            taken: Box::new(taken),
        };
        for target in &mut operation.targets {
            target.state = None;
            target.progress = Progress::Sent;
            target.next = now;
            target.backoff = 0;
        }
        let bytes = operation.bytes();
        self.bytes += bytes;
        let before = std::mem::replace(&mut operation.bytes_held, bytes);
        assert!(
            before <= self.bytes,
            "{id:?}: its bytes were counted before"
        );
        self.bytes -= before;
        self.drive(now, id);
    }

    /// Draws the conclusions of a reply for an operation: stability, repair, loss, or its end.
    pub(super) fn finish(&mut self, now: MonoNs, id: OperationId) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        if operation.lingers_until.is_some() {
            self.retire(now, id);
            return;
        }
        let asking = operation.phase == Phase::Asking;
        if operation.is_everywhere() && !operation.level_is_met() {
            // Level `disk` needs more replicas than are left. The next configuration may have them.
            self.want_config(now);
        } else if operation.is_write() && !asking {
            // Every replica has it, even if none knows its answer any more.
            if operation.is_everywhere() {
                // The answer is sent once more, because the first one may have been lost.
                let answer = Answer {
                    id,
                    outcome: outcome_of(operation).unwrap_or(Outcome::Unknown),
                    absent: operation.absent,
                    stable: true,
                };
                let portal = operation.portal;
                self.outbox
                    .push_back((Destination::Sender(portal), Message::Answer(answer)));
                self.retire(now, id);
                return;
            }
        } else if operation.answered && !asking {
            self.repair(now, id);
            self.retire(now, id);
            return;
        }
        if !asking {
            self.repair(now, id);
            self.notice_loss(now, id);
        }
        self.drive(now, id);
    }

    /// Reports to the portal that no replica can answer, if the router holds no copy of the missing
    /// write. The portal may hold one. Otherwise the write is lost.
    fn notice_loss(&mut self, now: MonoNs, id: OperationId) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        if !operation.nobody_can() {
            return;
        }
        let depends_on = OperationId {
            epoch: operation.request.dep.epoch,
            sequence: operation.request.dep.sequence,
            ..id
        };
        if self.operations.contains(depends_on) {
            return;
        }
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        operation.empty_rounds = operation.empty_rounds.saturating_add(1);
        // The missing write may be on a disk that has not come back yet.
        let may_come = self.config.as_ref().is_some_and(|it| it.needs_disks());
        if operation.empty_rounds < EMPTY_ROUNDS || may_come {
            for target in &mut operation.targets {
                if target.progress != Progress::Evicted {
                    target.progress = Progress::Sent;
                }
            }
            return;
        }
        let portal = operation.portal;
        let evicted = operation
            .targets
            .iter()
            .any(|target| target.progress == Progress::Evicted);
        let have = operation
            .targets
            .iter()
            .map(|target| match target.progress {
                Progress::Behind(have) => have,
                _ => Version::NONE,
            })
            .max()
            .unwrap_or(Version::NONE);
        let outcome = if evicted {
            Outcome::Evicted
        } else {
            let need = operation.request.dep;
            let stable = operation.request.stable;
            Outcome::NobodyHas { need, stable, have }
        };
        self.answer(portal, id, outcome);
        self.retire(now, id);
    }

    /// Returns a server that has an operation's write, or that answered its read.
    pub(super) fn holder_of(&self, id: OperationId) -> Option<ServerId> {
        self.operations
            .get(id)?
            .targets
            .iter()
            .find(|target| target.progress == Progress::Held)
            .map(|target| target.replica.server)
    }
}

/// Returns the outcome of an operation that enough replicas have; `None` while no replica has
/// reported the answer.
fn outcome_of(operation: &InFlight) -> Option<Outcome> {
    match (&operation.phase, &operation.answer) {
        (Phase::WritingBack { taken, .. }, _) => Some((**taken).clone()),
        (_, Some(answer)) => Some(Outcome::Done(answer.clone())),
        (_, None) if planted(Bug::AckBeforeApply) => {
            Some(Outcome::Done(crate::key_value::Answer::Stored.encode()))
        }
        (_, None) => None,
    }
}

fn end_of(verdict: &Verdict) -> CopyEnd {
    match verdict {
        Verdict::Done(_) | Verdict::Held | Verdict::State(_) => CopyEnd::Ok,
        Verdict::Behind => CopyEnd::Behind,
        Verdict::Stale | Verdict::Fenced(_) | Verdict::WrongConfig(_) => CopyEnd::Stale,
        Verdict::Unregistered
        | Verdict::Joining
        | Verdict::Busy
        | Verdict::Evicted
        | Verdict::NoLease
        | Verdict::Malformed => CopyEnd::Refused,
    }
}
