//! The effects of the router's answers on callers and keys.

use std::sync::Arc;

use super::chain::Known;
use super::{Event, Life, Operation, Outcome, Portal};
use crate::bugs::{Bug, planted};
use crate::id::{
    ConfigNumber, DurationNs, Epoch, Key, MonoNs, OperationId, Sequence, SessionId, Version,
};
use crate::machine::Access;
use crate::message::{Answer, Ask, Outcome as Routed, Owned, Request};

/// The most operations that are sent to the router again at once.
const AGAIN_MAX: usize = 1_024;

/// The latest configurations in which copies were lost.
#[derive(Debug, Clone, Copy)]
struct Losses {
    /// The latest loss of as many copies as earlier owners' writes had.
    last: ConfigNumber,
    /// The latest loss of perhaps all copies of some key.
    wipe: ConfigNumber,
}

impl Portal {
    pub(super) fn handle_answer(&mut self, now: MonoNs, answer: Answer) {
        let Answer {
            id,
            outcome,
            absent,
            stable,
        } = answer;
        let (session, epoch) = (id.session, id.epoch);
        if !self.owns(Owned { session, epoch }) {
            return;
        }
        if let Routed::Fenced(epoch) = outcome {
            self.fenced(session, epoch);
            return;
        }
        self.take(now, id, outcome, absent);
        if stable {
            self.handle_stable(now, id, absent);
        }
        self.try_close(now);
    }

    fn take(&mut self, now: MonoNs, id: OperationId, outcome: Routed, absent: bool) {
        let Some(operation) = self.operations.get(id.sequence) else {
            return;
        };
        // After an answer, the only news is that the replicas that had the write are gone, or that
        // the router has no record of a takeover.
        if operation.answered && !matches!(outcome, Routed::NobodyHas { .. }) {
            if operation.takeover && outcome == Routed::Forgotten {
                self.take_over_again(now, id.sequence);
            }
            return;
        }
        let key = operation.request.key.clone();
        // Each kind of operation has its own answers: another kind would count a missing operation.
        let fits = match outcome {
            Routed::Done(_) => !operation.takeover,
            Routed::Taken { .. } | Routed::Forgotten => operation.takeover,
            _ => true,
        };
        if !fits {
            return;
        }
        match outcome {
            Routed::Done(bytes) => {
                if let Some(index) = self.done(id.sequence, bytes, absent) {
                    self.pump_at(now, &key, index);
                }
                return;
            }
            Routed::Taken { .. } => self.took_over(id, &key, &outcome, absent),
            Routed::NobodyHas { need, stable, have } => {
                // The answer counts only for the latest sending. A late answer may belong to an
                // earlier one.
                let request = &operation.request;
                if request.dep == need && request.stable == stable {
                    self.nobody_has(now, id.sequence, have);
                } else {
                    let dep = request.dep;
                    self.drive_with(now, id.sequence, dep);
                }
            }
            Routed::Unknown => self.give_up(now, id.sequence),
            Routed::Busy if operation.seen => {
                let dep = operation.request.dep;
                self.drive_with(now, id.sequence, dep);
            }
            Routed::Busy => self.refused(id.sequence, Outcome::Busy),
            Routed::TooFewCopies if operation.seen => {}
            Routed::TooFewCopies => self.refused(id.sequence, Outcome::TooFewCopies),
            Routed::Evicted => self.evicted(id.sequence),
            Routed::Forgotten => self.forgotten(id.sequence),
            Routed::Malformed => self.refused(id.sequence, Outcome::Malformed),
            Routed::Fenced(_) => {}
        }
        self.pump(now, &key);
    }

    /// Applies the result of a takeover: the version that the owner goes on from, and whether the
    /// last writes to the key may be lost.
    fn took_over(&mut self, id: OperationId, key: &Key, outcome: &Routed, absent: bool) {
        let Routed::Taken {
            version,
            found,
            written_in,
            last_loss,
            last_majority_loss,
            last_wipe,
        } = *outcome
        else {
            return;
        };
        let part = self.part(id.session);
        let last_loss = if part.is_some_and(|it| it.earlier_have_majorities) {
            last_majority_loss
        } else {
            last_loss
        };
        let unheard = self.keys.get(key).is_some_and(|it| it.unheard);
        let written_in = if self.has_buried(key, id.epoch, found) {
            id.epoch
        } else {
            written_in
        };
        // An earlier sending of this takeover wrote it back. The version before that is no longer
        // known.
        let taken_before = found.epoch == id.epoch && found.sequence.is_takeover();
        let own = found == id.version() || (unheard && taken_before);
        let found = if own { Version::NONE } else { found };
        let losses = Losses {
            last: last_loss,
            wipe: last_wipe,
        };
        let lossy = self.is_lossy(id.session, found, written_in, losses);
        self.taken(id.sequence, version, absent, lossy);
        self.was_executed(id.sequence, found, own);
    }

    /// Notes the answer of an operation, and returns the index of its key's chain.
    fn done(&mut self, sequence: Sequence, answer: bytes::Bytes, absent: bool) -> Option<usize> {
        let operation = self.operations.get_mut(sequence)?;
        let version = operation.request.id.version();
        assert!(
            !operation.answered && !operation.takeover,
            "an answer is counted once, for an operation of a caller"
        );
        operation.answered = true;
        let (access, tail_unknown) = (operation.access, operation.tail_unknown);
        let told = operation.told;
        let dep = operation.request.dep;
        if access != Access::Blind
            && dep.epoch == version.epoch
            && let Some(shown) = self.operations.get_mut(dep.sequence)
        {
            shown.seen = true;
        }
        let operation = self.operations.get(sequence);
        let index = operation.and_then(|it| self.index_of(it));
        if let Some(index) = index {
            let chain = &mut self.keys[index];
            if !told {
                chain.tail_unknown = false;
            }
            match access {
                Access::Read => chain.end_read(),
                Access::Update => chain.end_update(),
                Access::Blind => {}
            }
            if access != Access::Read && absent {
                // Noted even while later writes are under way, because they depend on the deletion.
                chain.deleted_at = chain.deleted_at.max(Some(version));
            }
        }
        let outcome = Outcome::Done {
            answer,
            tail_unknown,
        };
        self.notify(sequence, outcome);
        if access == Access::Read {
            self.drop_operation(sequence);
        }
        index
    }

    /// Returns whether a takeover found nothing of this owner's own deletion, because every replica
    /// had it. The owner has seen the key since it opened, so nothing of earlier owners is in doubt.
    fn has_buried(&self, key: &Key, epoch: Epoch, found: Version) -> bool {
        let deleted = self.keys.get(key).and_then(|it| it.deleted_at);
        found == Version::NONE && deleted.is_some_and(|it| it.epoch == epoch)
    }

    /// Returns whether the last writes to a key, found at this version, may have been lost, and no
    /// notified caller has written the key since.
    fn is_lossy(
        &self,
        session: SessionId,
        found: Version,
        written_in: Epoch,
        losses: Losses,
    ) -> bool {
        let Some(part) = self.part(session) else {
            return false;
        };
        let clean = part
            .clean_since
            .is_some_and(|since| found.epoch >= since || since == Epoch(1));
        // A write of a later epoch ends a doubt only if its caller was notified before.
        let untold = !self.params.tells_first || written_in <= part.unknown_through;
        let earlier = part.unknown_through > Epoch(0) && untold || losses.last > part.opened_in;
        let wiped = losses.wipe > part.opened_in;
        // It may be a key in doubt that the portal forgot before it notified a caller.
        let forgot = self.forgot_untold && found.epoch == part.owned.epoch;
        wiped || forgot || (!clean && found.epoch < part.owned.epoch && earlier)
    }

    fn taken(&mut self, sequence: Sequence, version: Version, absent: bool, lossy: bool) {
        let Some(operation) = self.operations.get_mut(sequence) else {
            return;
        };
        let written_back = version == operation.request.id.version();
        assert!(
            !operation.answered && operation.takeover,
            "a key is the owner's once for each takeover"
        );
        operation.answered = true;
        if let Some(chain) = self.keys.get_mut(&operation.request.key)
            && chain.known == Known::Taking
        {
            chain.known = Known::At(version);
            chain.unheard = false;
            chain.deleted_at = absent.then_some(version);
            if lossy {
                chain.tail_unknown = true;
                chain.tail_unknown_through = self.last;
            }
        }
        if !written_back {
            self.drop_operation(sequence);
        }
    }

    fn nobody_has(&mut self, now: MonoNs, sequence: Sequence, have: Version) {
        let Some(operation) = self.operations.get(sequence) else {
            return;
        };
        let (key, dep, access) = (
            operation.request.key.clone(),
            operation.request.dep,
            operation.access,
        );
        let stable = self.stable();
        // The replicas may have received the write since they replied. Only replies from now on
        // prove a loss.
        let epoch = operation.request.id.epoch;
        let unproven = dep.epoch == epoch && dep.sequence > operation.request.stable;
        let buried = dep.epoch == epoch && dep.sequence <= stable && have == Version::NONE;
        let Some(chain) = self.keys.get_mut(&key) else {
            return;
        };
        // If the write that it depends on was refused meanwhile, a takeover finds the present
        // state.
        let answered = self.operations.get(sequence).is_some_and(|it| it.answered);
        // Or a late copy of a refused write was executed. Then a key that was never written has
        // lost nothing. Or the write-back of a takeover is gone, but other replicas may have the
        // original.
        let taken_over = dep.epoch == epoch && dep.sequence.is_takeover() && !unproven;
        // Or every replica had the deletion and has ended since, and a late disk brought back the
        // old value.
        let is_older = |it: &Version| Version::NONE < have && have < *it;
        let back = chain
            .deleted_at
            .filter(|it| dep == Version::NONE && is_older(it));
        if back.is_none()
            && (chain.refused.contains(&dep) || dep == Version::NONE || taken_over)
            && !answered
        {
            if access == Access::Read {
                chain.end_read();
                if chain.known == Known::At(dep) {
                    chain.refuse(dep);
                    chain.known = Known::Unknown;
                }
                self.requeue(sequence, &key);
            } else {
                // The write is refused as well, because under one number it could be executed on
                // two states.
                let chain = self.keys.get(&key);
                let refused = chain.filter(|chain| chain.refused.contains(&dep));
                let outcome = if let Some(chain) = refused {
                    if chain.too_few {
                        Outcome::TooFewCopies
                    } else {
                        Outcome::Busy
                    }
                } else {
                    Outcome::Unknown
                };
                self.refused(sequence, outcome);
            }
            return;
        }
        let deleted = chain.deleted_at == Some(dep);
        if unproven {
            self.drive_with(now, sequence, dep);
        } else if buried && deleted {
            // Every replica has forgotten the deletion that the operation depends on, so that the
            // key has no version any more.
            if chain.known == Known::At(dep) {
                chain.known = Known::At(Version::NONE);
            }
            self.drive_with(now, sequence, Version::NONE);
        } else if answered {
            // Every server that had this acknowledged write has lost it. Operations that depend on
            // it report the loss; the next owner must hear of it too.
            self.never_settles = true;
            self.drop_operation(sequence);
        } else if planted(Bug::LossHidden) {
            let nothing = crate::key_value::Answer::NotFound.encode();
            self.done(sequence, nothing, false);
        } else {
            let need = back.unwrap_or(dep);
            self.refused(sequence, Outcome::DataLoss { need, have });
        }
    }

    fn drive_with(&mut self, now: MonoNs, sequence: Sequence, dep: Version) {
        // Read before the operation is removed, because the stable number depends on the sent
        // operations.
        let stable = self.stable();
        let Some(operation) = self.operations.remove(sequence) else {
            return;
        };
        let request = Request {
            dep,
            stable,
            ..(*operation.request).clone()
        };
        let was_done = (operation.answered || operation.seen) && !operation.takeover;
        let operation = Operation {
            request: Arc::new(request),
            driven: now,
            ..operation
        };
        if was_done {
            self.send_again(sequence, operation);
        } else {
            self.drive(now, sequence, operation);
        }
    }

    /// Puts an operation back into its key's queue, in its order, so that a takeover precedes it.
    pub(super) fn requeue(&mut self, sequence: Sequence, key: &Key) {
        let Some(operation) = self.operations.remove(sequence) else {
            return;
        };
        let Ask::Apply {
            operation: asked,
            access,
        } = operation.request.ask.clone()
        else {
            return;
        };
        assert!(
            !operation.takeover && !operation.told,
            "{sequence:?}: a caller waits for it, or it would be done for nobody"
        );
        let bytes = key.bytes().len() + asked.len();
        let pending = super::Pending {
            sequence,
            deadline: operation.deadline,
            submission: super::Submission {
                key: key.bytes().clone(),
                operation: asked,
                access,
                level: operation.request.level,
                at: operation.request.at,
                timeout: operation.request.timeout,
                sequence: None,
                refuses_doubt: operation.refuses_doubt,
            },
        };
        self.unstable.insert(sequence, bytes);
        self.waiting.insert(sequence, key.clone());
        if let Some(chain) = self.keys.get_mut(key) {
            // Reads that were under way together return in any order. A takeover has the number
            // below that of the first operation, so the first must have the lowest number.
            let place = chain.waiting.partition_point(|it| it.sequence < sequence);
            assert!(
                place == 0 || access == Access::Read,
                "{sequence:?}: no write was under way while an earlier operation waits"
            );
            chain.waiting.insert(place, pending);
        }
    }

    /// Ends an operation that, as far as the portal can know, was not done.
    pub(super) fn refused(&mut self, sequence: Sequence, outcome: Outcome) {
        let Some(operation) = self.operations.get(sequence) else {
            return;
        };
        let version = operation.request.id.version();
        let (access, dep, takeover) = (operation.access, operation.request.dep, operation.takeover);
        let key = operation.request.key.clone();
        let mut waits = None;
        if let Some(chain) = self.keys.get_mut(&key) {
            match access {
                Access::Read => chain.end_read(),
                Access::Update if !takeover => chain.end_update(),
                _ => {}
            }
            if takeover {
                chain.known = Known::Unknown;
                // The operation that waits for the takeover gets the same outcome.
                waits = chain.waiting.pop_front();
            }
            // Another replica may have executed the operation, even if this one had evicted the
            // value.
            let perhaps = matches!(
                outcome,
                Outcome::Busy | Outcome::TooFewCopies | Outcome::Unknown | Outcome::Evicted
            );
            if access == Access::Blind || (access == Access::Update && !takeover && perhaps) {
                chain.refuse(version);
                chain.too_few = outcome == Outcome::TooFewCopies;
            }
            if !takeover && access != Access::Read && chain.known == Known::At(version) {
                // A replica may still execute a late copy of a write that was refused for lack of
                // room.
                let doubtful = chain.refused.contains(&dep) || access == Access::Blind;
                chain.known = if perhaps || doubtful {
                    Known::Unknown
                } else {
                    Known::At(dep)
                };
            }
        }
        if let Some(pending) = waits {
            self.waiting.remove(&pending.sequence);
            self.end_waiting(&pending, outcome.clone());
        }
        self.notify(sequence, outcome);
        self.drop_operation(sequence);
    }

    /// Reports the outcome of a queued operation, which was never sent under its number.
    pub(super) fn end_waiting(&mut self, pending: &super::Pending, outcome: Outcome) {
        assert!(
            !self.operations.contains(pending.sequence),
            "{:?} was sent: its outcome is not known yet",
            pending.sequence
        );
        let number = self.number_told(pending.sequence);
        self.let_go(pending.sequence);
        self.deadlines.remove(&(pending.deadline, pending.sequence));
        self.events.push_back(Event::Answered(number, outcome));
    }

    fn handle_stable(&mut self, now: MonoNs, id: OperationId, absent: bool) {
        let Some(operation) = self.operations.get(id.sequence) else {
            return;
        };
        // A read changes no replica, so it is never stable.
        if operation.access == Access::Read {
            return;
        }
        let (key, takeover) = (operation.request.key.clone(), operation.takeover);
        let version = id.version();
        if let Some(chain) = self.keys.get_mut(&key)
            && absent
        {
            chain.deleted_at = chain.deleted_at.max(Some(version));
        }
        if !operation.answered {
            // Every replica has the write, and none knows its answer any more.
            if let Some(chain) = self.keys.get_mut(&key)
                && operation.access == Access::Update
                && !takeover
            {
                chain.end_update();
            }
            self.notify(id.sequence, Outcome::Unknown);
        }
        let number = self.number_told(id.sequence);
        let index = self.drop_operation(id.sequence);
        if !takeover {
            self.events.push_back(Event::Stable(number));
        }
        match index {
            Some(index) => self.pump_at(now, &key, index),
            None => self.pump(now, &key),
        }
        self.settle(now);
    }

    pub(super) fn give_up(&mut self, now: MonoNs, sequence: Sequence) {
        if let Some(operation) = self.operations.get(sequence) {
            let key = operation.request.key.clone();
            let read = operation.access == Access::Read;
            self.notify(sequence, Outcome::Unknown);
            if read {
                if let Some(chain) = self.keys.get_mut(&key) {
                    chain.end_read();
                }
                self.drop_operation(sequence);
                self.pump(now, &key);
            }
            return;
        }
        // It still waits for other operations on its key, and was never sent.
        let Some(key) = self.waiting.remove(&sequence) else {
            return;
        };
        if let Some(chain) = self.keys.get_mut(&key) {
            chain.waiting.retain(|pending| pending.sequence != sequence);
        }
        let number = self.number_told(sequence);
        self.let_go(sequence);
        self.events
            .push_back(Event::Answered(number, Outcome::Unknown));
    }

    /// Sends the operations that are not answered or not stable to the router again, which may have
    /// forgotten them.
    pub(super) fn drive_all_again(&mut self, now: MonoNs, period: DurationNs) {
        let due = self.operations.values();
        let due = due.filter(|operation| now.since(operation.driven) >= period);
        let mut due: Vec<Sequence> = due.map(|it| it.request.id.sequence).collect();
        if due.len() > AGAIN_MAX {
            due.select_nth_unstable(AGAIN_MAX);
            due.truncate(AGAIN_MAX);
        }
        due.sort_unstable();
        for sequence in due {
            let Some(operation) = self.operations.get(sequence) else {
                continue;
            };
            if operation.takeover && operation.answered {
                if planted(Bug::TakeoversPileUp) {
                    self.take_over_again(now, sequence);
                    continue;
                }
                if self.is_overtaken(sequence) {
                    self.drop_operation(sequence);
                    continue;
                }
            }
            let renumber = planted(Bug::RetryRenumbers)
                && operation.access == Access::Update
                && !operation.takeover
                && !operation.answered;
            let mut operation = operation.clone();
            if renumber {
                let again = Sequence(self.last.0 + 2);
                self.last = again;
                let mut request = (*operation.request).clone();
                request.id.sequence = again;
                let copy = crate::message::Copy {
                    request: Arc::new(request),
                    config: ConfigNumber(0),
                    attempt: 0,
                };
                let message = crate::message::Message::Request(copy);
                self.outbox.push_back((super::Destination::Router, message));
            }
            operation.driven = now;
            self.send_again(sequence, operation);
        }
    }

    /// Returns whether a later write makes the write-back of a takeover unnecessary.
    fn is_overtaken(&self, sequence: Sequence) -> bool {
        let Some(operation) = self.operations.get(sequence) else {
            return true;
        };
        let known = Known::At(operation.request.id.version());
        let chain = self.keys.get(&operation.request.key);
        chain.is_none_or(|chain| chain.known != known)
    }

    /// Replaces a takeover whose write-back is not stable, because the router has no record of it.
    /// Repeating it could find a newer state and give it the number of the first one, so the portal
    /// takes the key over under a new number. A router that still has the write-back keeps it until
    /// each replica has it. A new takeover for each repetition would fill that router while one
    /// server is silent or full.
    fn take_over_again(&mut self, now: MonoNs, sequence: Sequence) {
        if self.is_overtaken(sequence) {
            self.drop_operation(sequence);
            return;
        }
        let Some(operation) = self.operations.get(sequence) else {
            return;
        };
        let key = operation.request.key.clone();
        let chain = self.keys.get(&key);
        if chain.is_some_and(|chain| chain.reads > 0 || !chain.waiting.is_empty()) {
            return;
        }
        self.last = Sequence(self.last.0 + 2);
        let again = Sequence(self.last.0 - 1);
        self.drop_operation(sequence);
        self.take_over(now, &key, again, false);
    }

    /// Ends the operations of a session that another owner has now. The other sessions go on.
    pub(super) fn fenced(&mut self, session: SessionId, epoch: Epoch) {
        if !self.is_alive() {
            return;
        }
        let Some(index) = self.fence_part(session, epoch) else {
            return;
        };
        if self.has_lost_all() {
            self.life = Life::Fenced(epoch);
            self.events.push_back(Event::Fenced(epoch));
        } else {
            self.events.push_back(Event::PartFenced(index, epoch));
            self.end_closing();
        }
        let gone = |of: SessionId| of == session;
        let mut open: Vec<Sequence> = Vec::new();
        let mut driven: Vec<Sequence> = Vec::new();
        for (sequence, operation) in self.operations.in_order() {
            if gone(operation.request.key.session()) {
                driven.push(sequence);
                if !operation.told {
                    open.push(sequence);
                }
            }
        }
        let waiting = self.waiting.iter().filter(|(_, key)| gone(key.session()));
        open.extend(waiting.map(|(sequence, _)| *sequence));
        open.sort_unstable();
        for sequence in &open {
            let number = self.number_told(*sequence);
            let fenced = Event::Answered(number, Outcome::Fenced(epoch));
            self.events.push_back(fenced);
        }
        self.waiting.retain(|_, key| !gone(key.session()));
        self.keys.retain(|key, _| !gone(key.session()));
        self.moves += 1;
        for sequence in open.into_iter().chain(driven) {
            self.operations.remove(sequence);
            self.let_go(sequence);
        }
        let under_way =
            |it: &Sequence| self.operations.contains(*it) || self.waiting.contains_key(it);
        self.deadlines.retain(|(_, sequence)| under_way(sequence));
    }

    fn notify(&mut self, sequence: Sequence, outcome: Outcome) {
        if let Some(operation) = self.operations.get_mut(sequence)
            && !operation.told
        {
            operation.told = true;
            self.deadlines.remove(&(operation.deadline, sequence));
            let number = self.number_told(sequence);
            self.events.push_back(Event::Answered(number, outcome));
        }
    }

    /// Forgets an operation. Returns the index of its key's chain, if it was a caller's write.
    pub(super) fn drop_operation(&mut self, sequence: Sequence) -> Option<usize> {
        let mut index = None;
        if let Some(operation) = self.operations.remove(sequence) {
            if !operation.told {
                self.deadlines.remove(&(operation.deadline, sequence));
            }
            if operation.access != Access::Read && !operation.takeover {
                index = self.index_of(&operation);
            }
        }
        if let Some(index) = index {
            self.keys[index].end_write();
        }
        self.let_go(sequence);
        index
    }
}
