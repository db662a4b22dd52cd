//! The check whether this replica may answer an operation, and whether its answer is the right one.

use bytes::Bytes;

use super::Server;
use crate::bugs::{Bug, planted};
use crate::id::{Key, MonoNs, SessionId, Version};
use crate::machine::{Access, Malformed, StateMachine, digest};
use crate::message::{Ask, Copy, Reply, Request, State, Verdict};
use crate::table::Record;

/// The result of the check, and the digest of the state or of the read's answer.
type Checked = (Verdict, u64);

/// The most deletions that one operation makes the server forget. Each operation adds one deletion
/// at most, so deletions never pile up.
const BURIED_MAX: usize = 64;

impl<M: StateMachine> Server<M> {
    /// Checks and executes one copy.
    pub(super) fn execute(&mut self, now: MonoNs, copy: &Copy) -> Reply {
        let request = &*copy.request;
        self.counts.requests += 1;
        let lease_left = self.lease_left(now);
        let (verdict, digest) = match self.refusal(copy, lease_left.0 > 0) {
            Some(refusal) => (refusal, 0),
            None => self.checked(request),
        };
        match &verdict {
            Verdict::Done(_) => self.counts.done += 1,
            Verdict::Behind => self.counts.behind += 1,
            Verdict::Held | Verdict::State(_) => {}
            _ => self.counts.refused += 1,
        }
        let counts = self.counts;
        assert!(
            counts.done + counts.behind + counts.refused <= counts.requests,
            "each request has one verdict: {counts:?}"
        );
        let have = self.version(&request.key);
        self.check_verdict(request, &verdict, have);
        Reply {
            id: request.id,
            key_hash: request.key.hash(),
            from: self.params.life.endpoint,
            config: self.number(),
            attempt: copy.attempt,
            stable: request.stable,
            have,
            lease_left,
            digest,
            busy: self.busy,
            verdict,
            stamps: [0; 3],
        }
    }

    /// Checks that a verdict is true of this replica: the router acknowledges by it.
    fn check_verdict(&self, request: &Request, verdict: &Verdict, have: Version) {
        let version = request.id.version();
        match (&request.ask, verdict) {
            (Ask::Apply { access, .. }, Verdict::Done(_)) if *access != Access::Read => assert!(
                have >= version,
                "{:?}: a write that is done at {version} is there, not {have}",
                request.key
            ),
            (Ask::Fetch, Verdict::State(state)) => assert!(
                state.version >= request.dep && !state.evicted,
                "{:?}: another replica lacks the fetched state",
                request.key
            ),
            (Ask::Touch, Verdict::State(state)) => assert!(
                state.version == have,
                "{:?}: a takeover hears of {} what this replica has, {have}",
                request.key,
                state.version
            ),
            _ => {}
        }
        assert!(
            !matches!(verdict, Verdict::State(_)) || !matches!(request.ask, Ask::Apply { .. }),
            "an operation is answered by the machine, never with the state itself"
        );
        assert!(
            self.is_member() || !matches!(verdict, Verdict::Done(_) | Verdict::Held),
            "a server that does not take part confirms nothing"
        );
    }

    pub(super) fn version(&mut self, key: &Key) -> Version {
        self.table
            .find(key)
            .map_or(Version::NONE, |record| record.version)
    }

    /// Returns the verdict if the server must refuse, whatever the key's state is.
    fn refusal(&mut self, copy: &Copy, leased: bool) -> Option<Verdict> {
        let request = &*copy.request;
        let number = self.number();
        // I11: a server executes in the current configuration only. I13: only an incarnation in it
        // executes.
        let current = copy.config == number || planted(Bug::AnyConfiguration);
        let holds = self
            .config
            .as_ref()
            .is_some_and(|config| config.replicas_of(&request.key).find(self.me()).is_some());
        if !current || !holds || !self.is_member() {
            return Some(Verdict::WrongConfig(number));
        }
        if !leased {
            return Some(Verdict::NoLease);
        }
        if !self.is_ready() {
            // A kept record may count. After `Joining`, a takeover would assume that this server
            // has no record.
            let may_have = !self.kept_is_settled();
            return Some(if may_have {
                Verdict::Unregistered
            } else {
                Verdict::Joining
            });
        }
        let id = request.id;
        let Some(session) = self.sessions.get_mut(&id.session) else {
            return Some(Verdict::Unregistered);
        };
        if id.epoch < session.epoch && !planted(Bug::NoFence) {
            return Some(Verdict::Fenced(session.epoch));
        }
        if id.epoch > session.epoch {
            return Some(Verdict::Unregistered);
        }
        session.used_in = session.used_in.max(number);
        if id.epoch == session.epoch {
            session.stable = session.stable.max(request.stable);
            session.at = session.at.max(request.at);
            self.bury_some(id.session, BURIED_MAX);
        }
        None
    }

    fn checked(&mut self, request: &Request) -> Checked {
        self.bury(&request.key);
        match &request.ask {
            Ask::Apply { operation, access } => {
                if self.machine.access(operation) != Ok(*access) {
                    return (Verdict::Malformed, 0);
                }
                match access {
                    Access::Read => self.read(request, operation),
                    Access::Blind => self.blind(request, operation),
                    Access::Update => self.update(request, operation),
                }
            }
            Ask::Fetch => match self.table.find(&request.key) {
                Some(record) if record.version >= request.dep && !record.is_evicted() => {
                    (Verdict::State(record.told()), 0)
                }
                Some(record) if record.is_evicted() => (Verdict::Evicted, 0),
                _ => (Verdict::Behind, 0),
            },
            Ask::Push(state) => self.push(request, state),
            // A joining server answers as well. It may have the last write of an owner that is
            // fenced by now, and the new owner must not miss that write.
            Ask::Touch => {
                // A server that evicts may have had a value of which no record is left.
                let nothing = State {
                    evicted: self.params.evict,
                    ..State::ABSENT
                };
                let record = self.table.find(&request.key);
                let state = record.map_or(nothing, Record::told);
                (Verdict::State(state), 0)
            }
        }
    }

    /// Forgets deleted and evicted keys of a session whose version every replica has had, the
    /// oldest first. Without that, keys that are never used again would fill the memory. Returns
    /// how many were forgotten.
    pub(super) fn bury_some(&mut self, id: SessionId, most: usize) -> usize {
        let session = self.sessions.get(&id).copied();
        let Some(session) = session.filter(|_| !self.is_changing()) else {
            return 0;
        };
        if planted(Bug::TombstonesForGood) {
            return 0;
        }
        for buried in 0..most {
            let oldest = self.table.deleted_until(id, session.epoch, session.stable);
            let Some(key) = oldest else {
                return buried;
            };
            self.bury(&key);
            assert!(
                self.table.peek(&key).is_none(),
                "{key:?}: what cannot be forgotten would be found again for ever"
            );
        }
        most
    }

    /// Returns whether the members change. A joining server must then receive each deletion.
    fn is_changing(&self) -> bool {
        self.config.as_ref().is_some_and(|it| it.next.is_some())
    }

    /// Removes a tombstone that every replica has, as if the key had never been written.
    fn bury(&mut self, key: &Key) {
        let dead = self.is_dead(key) && !self.is_changing();
        let early = planted(Bug::TombstoneTooEarly)
            && self.table.find(key).is_some_and(Record::is_tombstone);
        if dead || early {
            let version = self.version(key);
            let taken = self.table.take(key);
            assert!(
                taken.is_some_and(|it| it.is_tombstone()),
                "{key:?}: a value is never forgotten like a deletion"
            );
            self.buried(key, version);
        }
    }

    /// Returns whether a key has no value, only a version that every replica has had.
    fn is_dead(&mut self, key: &Key) -> bool {
        let Some(session) = self.sessions.get(&key.session()).copied() else {
            return false;
        };
        self.table.find(key).is_some_and(|record| {
            let version = record.version;
            let everywhere = version.epoch == session.epoch && version.sequence <= session.stable;
            record.is_tombstone() && everywhere
        })
    }

    /// Returns the version that an operation with this `dep` finds. A deletion that every replica
    /// has counts as no version, because other replicas have forgotten it.
    fn found_by(&mut self, request: &Request) -> Version {
        if request.dep == Version::NONE && self.is_dead(&request.key) {
            return Version::NONE;
        }
        self.version(&request.key)
    }

    /// Returns whether a write to an absent key is late: every replica had it, and the key was
    /// deleted later.
    fn is_under_the_floor(&self, key: &Key, version: Version) -> bool {
        !planted(Bug::FloorIgnored)
            && self.sessions.get(&key.session()).is_some_and(|session| {
                version.epoch == session.epoch && version.sequence <= session.stable
            })
    }

    /// Returns whether this server has evicted the key and forgotten it: it has no record, though
    /// every replica had the version that the request depends on. It was no deletion, or the owner
    /// would know.
    fn has_dropped(&self, request: &Request) -> bool {
        self.params.evict
            && request.dep != Version::NONE
            && self.is_under_the_floor(&request.key, request.dep)
    }

    fn read(&mut self, request: &Request, operation: &[u8]) -> Checked {
        let full = self.is_full(request.key.hash());
        let at = self.time(request);
        let have = self.found_by(request);
        let dropped = self.has_dropped(request);
        let record = self.table.find(&request.key);
        if !full {
            return (Verdict::Joining, 0);
        }
        if record.is_none() && dropped {
            return (Verdict::Evicted, 0);
        }
        if have != request.dep && !planted(Bug::ReadWithoutDep) {
            let verdict = if have < request.dep {
                Verdict::Behind
            } else {
                Verdict::Stale
            };
            return (verdict, 0);
        }
        if record.is_some_and(Record::is_evicted) {
            return (Verdict::Evicted, 0);
        }
        let state = record.and_then(|record| record.state(&self.machine));
        // I4: an answer was executed at the version that it depends on.
        assert!(have == request.dep || planted(Bug::ReadWithoutDep));
        match self.machine.apply(state.as_ref(), operation, at) {
            Ok(applied) => {
                let digest = digest(Some(&applied.answer));
                (Verdict::Done(applied.answer), digest)
            }
            Err(Malformed(_)) => (Verdict::Malformed, 0),
        }
    }

    /// Returns the operation's time. The server's clock plays no part.
    fn time(&self, request: &Request) -> crate::id::WallNs {
        if planted(Bug::ServerClockExpiry) {
            // Clocks differ, so the planted bug gives each server another one.
            let skew = i64::from(self.me().0) * 50_000_000;
            return crate::id::WallNs(request.at.0 + skew);
        }
        request.at
    }

    fn blind(&mut self, request: &Request, operation: &[u8]) -> Checked {
        let version = request.id.version();
        let late = self.is_under_the_floor(&request.key, version);
        let record = self.table.find(&request.key);
        let have = record.map_or(Version::NONE, |record| record.version);
        if record.is_none() && late {
            return (Verdict::Stale, 0);
        }
        if version > have {
            return self.apply(request, operation, None);
        }
        if version.epoch == have.epoch {
            // The write was done before, or the owner's next write overtook it. The owner sees no
            // difference.
            let state = record.filter(|record| record.version == version);
            let digest = state.map_or(0, Record::digest);
            return (Verdict::Done(self.machine.blind_answer()), digest);
        }
        (Verdict::Stale, 0)
    }

    fn update(&mut self, request: &Request, operation: &[u8]) -> Checked {
        let version = request.id.version();
        let full = self.is_full(request.key.hash());
        let found = self.found_by(request);
        let Some(record) = self.table.find(&request.key) else {
            return if self.is_under_the_floor(&request.key, version) {
                (Verdict::Stale, 0)
            } else if request.dep == Version::NONE && !full {
                (Verdict::Joining, 0)
            } else if request.dep == Version::NONE || planted(Bug::UpdateWithoutDep) {
                self.apply(request, operation, None)
            } else if full && self.has_dropped(request) {
                (Verdict::Evicted, 0)
            } else {
                (Verdict::Behind, 0)
            };
        };
        let have = record.version;
        if have == version && !planted(Bug::RetryExecutesAgain) {
            if record.is_evicted() {
                // The eviction removed the answer together with the value.
                return (Verdict::Stale, 0);
            }
            // I9: a repeated operation changes nothing, and gets the stored answer.
            let answer = Bytes::copy_from_slice(record.answer());
            return (Verdict::Done(answer), record.digest());
        }
        if have > version {
            return (Verdict::Stale, 0);
        }
        if found == request.dep && record.is_evicted() {
            return (Verdict::Evicted, 0);
        }
        let again = planted(Bug::RetryExecutesAgain) && have == version;
        if found == request.dep || again || planted(Bug::UpdateWithoutDep) {
            let state = record.state(&self.machine);
            return self.apply(request, operation, state.as_ref());
        }
        (Verdict::Behind, 0)
    }

    /// Executes a write and stores the new state and the answer, if there is room.
    fn apply(&mut self, request: &Request, operation: &[u8], state: Option<&M::State>) -> Checked {
        if planted(Bug::AckBeforeApply) && !self.is_full(request.key.hash()) {
            return (Verdict::Held, 0);
        }
        let Ok(applied) = self.machine.apply(state, operation, self.time(request)) else {
            return (Verdict::Malformed, 0);
        };
        let (key, answer) = (&request.key, applied.answer);
        let snapshot = applied.state.as_ref().map(|it| self.machine.snapshot(it));
        debug_assert_eq!(
            snapshot.as_deref().map(|it| self.machine.restore(it)),
            applied.state.map(Ok),
            "a snapshot gives back what it was taken of"
        );
        if !self.make_room(key, snapshot.as_deref(), &answer) {
            return (Verdict::Busy, 0);
        }
        let (version, digest) = (request.id.version(), digest(snapshot.as_deref()));
        let again = planted(Bug::RetryExecutesAgain);
        assert!(
            self.table.peek(key).is_none_or(|it| it.version < version) || again,
            "{key:?}: {version} is executed once, and never on a later version"
        );
        let versions = (version, version.epoch);
        let record = Record::new(key, versions, snapshot.as_deref(), &answer);
        self.table.put(record);
        if self.persist.is_some() {
            let state = State {
                version,
                written_in: version.epoch,
                digest,
                snapshot,
                answer: answer.clone(),
                evicted: false,
            };
            self.changed(key, state);
        }
        (Verdict::Done(answer), digest)
    }

    fn make_room(&mut self, key: &Key, snapshot: Option<&[u8]>, answer: &[u8]) -> bool {
        // A deletion may grow the table by a version, which frees more than it takes.
        let Some(snapshot) = snapshot else {
            return true;
        };
        loop {
            // Computed in each round, because a round may forget the key's own record.
            let growth = self.table.growth(key, snapshot.len() + answer.len());
            let bytes = self.table.bytes() + self.kept_bytes();
            if growth == 0 || bytes + growth <= self.params.memory_bytes_max {
                return true;
            }
            if self.let_go_of_kept() {
                continue;
            }
            if !self.params.evict || !self.kept_is_settled() {
                return false;
            }
            // Forget evicted keys first: that costs no value.
            let forgotten = self.bury_some(key.session(), BURIED_MAX);
            if forgotten == 0 && !self.table.evict_one(key) {
                return false;
            }
        }
    }

    fn push(&mut self, request: &Request, state: &State) -> Checked {
        if planted(Bug::RepairByExecution)
            && let Some(held) = self.table.find(&request.key).cloned()
            && held.version < state.version
        {
            // The planted bug takes the version, but keeps this replica's state.
            let versions = (state.version, state.written_in);
            let record = Record::new(&request.key, versions, held.snapshot(), &state.answer);
            self.table.put(record);
            return (Verdict::Held, 0);
        }
        if self.table.find(&request.key).is_none()
            && self.is_under_the_floor(&request.key, state.version)
        {
            return (Verdict::Held, 0);
        }
        match self.install(&request.key, state) {
            Ok(true) => (Verdict::Held, 0),
            Ok(false) => (Verdict::Busy, 0),
            Err(Malformed(_)) => (Verdict::Malformed, 0),
        }
    }

    /// Installs another replica's state if it is newer. Returns whether this replica now has at
    /// least that.
    pub(super) fn install(&mut self, key: &Key, state: &State) -> Result<bool, Malformed> {
        let record = self.table.find(key);
        let have = record.map_or(Version::NONE, |record| record.version);
        let lost = record.is_some_and(Record::is_evicted) && have == state.version;
        let newer = state.version > have || (lost && !state.evicted) || planted(Bug::PushGoesBack);
        if !newer || state.version == Version::NONE {
            return Ok(have >= state.version);
        }
        // Written anew, since equal states must have equal snapshots.
        let snapshot = match &state.snapshot {
            Some(snapshot) => Some(self.machine.snapshot(&self.machine.restore(snapshot)?)),
            None => None,
        };
        if !self.make_room(key, snapshot.as_deref(), &state.answer) {
            return Ok(false);
        }
        self.counts.pushed += 1;
        let version = state.version;
        let versions = (version, state.written_in);
        let record = Record::new(key, versions, snapshot.as_deref(), &state.answer);
        self.table.put(record);
        if state.evicted {
            // Without the version, the evicted key would look as if it was never written.
            self.table.mark_evicted(key);
        }
        assert!(
            self.table.peek(key).is_some_and(|it| it.version == version),
            "{key:?}: the router that pushed {version} counts this replica as having it"
        );
        if self.persist.is_some()
            && let Some(record) = self.table.find(key)
        {
            let state = record.told();
            self.changed(key, state);
        }
        Ok(true)
    }
}
