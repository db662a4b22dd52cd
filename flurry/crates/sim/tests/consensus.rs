//! A group of controllers that agree, on virtual time: delays, losses, crashes, lost disks, stalls.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a failure is the finding"
)]

use std::collections::{BTreeMap, BTreeSet};

use flurry_core::bugs::{Bug, plant};
use flurry_core::consensus::{Consensus, ConsensusParams, MemberId, Message, Output, Record};
use flurry_core::id::{DurationNs, MonoNs};
use flurry_sim::dice::Dice;

const MS: u64 = 1_000_000;
const SILENCE: DurationNs = DurationNs(200 * MS);
const MEMBERS: [MemberId; 3] = [MemberId(10), MemberId(20), MemberId(30)];

/// Number of changes that a run asks of the group.
const WRITES: u64 = 60;

enum What {
    Deliver(MemberId, Message),
    Written(u64, Record),
    Timer,
    Start,
}

struct Member {
    machine: Option<Consensus>,
    disk: Option<Record>,
    /// Number of processes that have run here.
    process: u64,
    paused_until: u64,
    offset: u64,
    drift: i64,
    /// The write that the leader asked to store, while it waits for it.
    proposed: Option<Write>,
}

/// A state: the number of the write, and which attempt at that number it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Write {
    number: u64,
    attempt: u64,
}

impl Write {
    fn of(state: &[u8]) -> Self {
        let Some((number, attempt)) = state.split_first_chunk() else {
            return Self::default();
        };
        Self {
            number: u64::from_le_bytes(*number),
            attempt: u64::from_le_bytes(attempt.try_into().unwrap()),
        }
    }

    fn bytes(self) -> bytes::Bytes {
        [self.number.to_le_bytes(), self.attempt.to_le_bytes()]
            .concat()
            .into()
    }
}

impl Member {
    fn local(&self, now: u64) -> MonoNs {
        let drift = i128::from(now) * i128::from(self.drift) / 1_000_000;
        MonoNs(u64::try_from(i128::from(now) + i128::from(self.offset) + drift).unwrap())
    }
}

struct World {
    now: u64,
    order: u64,
    dice: Dice,
    members: BTreeMap<MemberId, Member>,
    queue: BTreeMap<(u64, u64), (MemberId, What)>,
    /// No messages pass between these members until then; twice the same member means it is alone.
    cut: Option<([MemberId; 2], u64)>,
    loss: u64,
    /// Chance that a disk takes up to 1.5 s for a write.
    slow_disk: u64,
    trouble_every: u64,
    disks_may_be_lost: bool,
    healed: bool,
    /// Writes of the whole group that are stored, by their numbers; the first is none.
    history: Vec<Write>,
    attempts: u64,
    sights: BTreeSet<&'static str>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let loss = *dice.pick(&[0, 10_000, 200_000]);
        let mut world = Self {
            now: 0,
            order: 0,
            members: BTreeMap::new(),
            queue: BTreeMap::new(),
            cut: None,
            loss,
            slow_disk: *dice.pick(&[20_000, 300_000]),
            trouble_every: *dice.pick(&[60, 300]) * MS,
            disks_may_be_lost: dice.chance(500_000),
            healed: false,
            history: vec![Write::default()],
            attempts: 0,
            sights: BTreeSet::new(),
            dice,
        };
        for id in MEMBERS {
            let member = Member {
                machine: None,
                disk: None,
                process: 0,
                paused_until: 0,
                offset: world.dice.below(1_000_000 * MS),
                drift: i64::try_from(world.dice.below(40_001)).unwrap() - 20_000,
                proposed: None,
            };
            world.members.insert(id, member);
            world.start(id);
        }
        world
    }

    fn push(&mut self, delay: u64, to: MemberId, what: What) {
        self.order += 1;
        self.queue
            .insert((self.now + delay, self.order), (to, what));
    }

    fn start(&mut self, id: MemberId) {
        let seed = self.dice.number();
        let now = self.now;
        let member = self.members.get_mut(&id).unwrap();
        let params = ConsensusParams {
            me: id,
            members: MEMBERS.to_vec(),
            silence: SILENCE,
            seed,
            part_bytes_max: 3,
        };
        member.process += 1;
        member.proposed = None;
        member.machine = Some(Consensus::new(
            member.local(now),
            params,
            member.disk.clone(),
        ));
        self.push(0, id, What::Timer);
    }

    /// Carries out the outputs of a member. Returns a violation.
    fn after(&mut self, id: MemberId) -> Result<(), String> {
        loop {
            let now = self.now;
            let member = self.members.get_mut(&id).unwrap();
            let (local, process) = (member.local(now), member.process);
            let Some(machine) = &mut member.machine else {
                return Ok(());
            };
            machine.verify();
            match machine.poll_output() {
                Some(Output::Persist(record)) => {
                    let slow = !self.healed && self.dice.chance(self.slow_disk);
                    let time = self.dice.between(1, if slow { 1_500 } else { 8 }) * MS;
                    self.push(time, id, What::Written(process, record));
                }
                Some(Output::Send(to, message)) => self.transmit(id, to, message),
                Some(Output::Elected(state)) => {
                    let sure = machine.is_leader(local);
                    let found = Write::of(&state);
                    self.elected(found, sure)?;
                    self.propose(id, local, found.number + 1);
                }
                Some(Output::Stored) => {
                    let stored = member.proposed.take().unwrap();
                    self.stored(stored)?;
                    if stored.number < WRITES {
                        self.propose(id, local, stored.number + 1);
                    }
                }
                Some(Output::Deposed) => {
                    if member.proposed.take().is_some() {
                        self.sights.insert("deposed with a write under way");
                    }
                }
                None => break,
            }
        }
        let member = &self.members[&id];
        if let Some(machine) = &member.machine {
            let wait = machine.poll_timeout().since(member.local(self.now)).0;
            // Timers of slow clocks come a little late.
            self.push(wait + wait / 40 + 1, id, What::Timer);
        }
        self.one_leads_at_most()
    }

    fn propose(&mut self, id: MemberId, local: MonoNs, number: u64) {
        self.attempts += 1;
        let attempt = self.attempts;
        let write = Write { number, attempt };
        let member = self.members.get_mut(&id).unwrap();
        member.proposed = Some(write);
        member
            .machine
            .as_mut()
            .unwrap()
            .propose(local, write.bytes());
    }

    /// Checks the state that a new leader begins with. The last write of the previous leader may be
    /// stored although its leader never heard so. A candidate whose votes came late may begin while
    /// another member leads, but then it is not sure that it leads.
    fn elected(&mut self, found: Write, sure: bool) -> Result<(), String> {
        self.sights.insert("elected");
        let last = *self.history.last().unwrap();
        if sure && found.number < last.number {
            return Err(format!("elected with {found:?} though {last:?} is stored"));
        }
        self.stored(found)
    }

    fn stored(&mut self, write: Write) -> Result<(), String> {
        let index = usize::try_from(write.number).unwrap();
        match self.history.get(index) {
            Some(known) if *known == write => Ok(()),
            None if index == self.history.len() => {
                self.history.push(write);
                Ok(())
            }
            known => Err(format!("{write:?} is stored, and so is {known:?}")),
        }
    }

    fn writes(&self) -> u64 {
        self.history.len() as u64 - 1
    }

    fn one_leads_at_most(&self) -> Result<(), String> {
        let sure = self.members.values().filter(|it| {
            let machine = it.machine.as_ref();
            machine.is_some_and(|machine| machine.is_leader(it.local(self.now)))
        });
        match sure.count() {
            0 | 1 => Ok(()),
            more => Err(format!("{more} members are sure that they lead")),
        }
    }

    fn transmit(&mut self, from: MemberId, to: MemberId, message: Message) {
        let cut = self.cut.is_some_and(|([one, other], until)| {
            let between = [one, other] == [from, to] || [other, one] == [from, to];
            let alone = one == other && (one == from || one == to);
            until > self.now && (between || alone)
        });
        let lost = !self.healed && self.dice.chance(self.loss);
        if cut || lost {
            return;
        }
        let slow = !self.healed && self.dice.chance(10_000);
        let delay = self
            .dice
            .between(10_000, if slow { 900 * MS } else { 2 * MS });
        if !self.healed && self.dice.chance(20_000) {
            self.push(delay * 7, to, What::Deliver(from, message.clone()));
        }
        self.push(delay, to, What::Deliver(from, message));
    }

    fn step(&mut self) -> Result<(), String> {
        let ((at, _), (to, what)) = self.queue.pop_first().unwrap();
        self.now = self.now.max(at);
        let now = self.now;
        let member = self.members.get_mut(&to).unwrap();
        if member.paused_until > now && !matches!(what, What::Start) {
            let wait = member.paused_until - now;
            self.push(wait, to, what);
            return Ok(());
        }
        let local = member.local(now);
        match (what, &mut member.machine) {
            (What::Start, None) => {
                self.start(to);
                return Ok(());
            }
            (What::Deliver(from, message), Some(machine)) => {
                machine.handle_message(local, from, message);
            }
            (What::Written(process, record), Some(machine)) if process == member.process => {
                member.disk = Some(record);
                machine.persisted(local);
            }
            (What::Timer, Some(machine)) if machine.poll_timeout() <= local => {
                machine.handle_timeout(local);
            }
            _ => return Ok(()),
        }
        self.after(to)
    }

    fn trouble(&mut self) {
        let id = *self.dice.pick(&MEMBERS);
        match self.dice.below(5) {
            0 => {
                let up = self.members.values().filter(|it| it.machine.is_some());
                if up.count() < 2 {
                    return;
                }
                let lost = self.disks_may_be_lost && self.dice.chance(300_000);
                // One disk at a time: the other members have every stored write.
                let stored = self.writes();
                let others_have = self.members.iter().all(|(other, it)| {
                    let disk = it.disk.as_ref().map(|disk| Write::of(&disk.state));
                    *other == id || disk.is_some_and(|disk| disk.number >= stored && stored > 0)
                });
                let member = self.members.get_mut(&id).unwrap();
                member.machine = None;
                if lost && others_have {
                    member.disk = None;
                    self.sights.insert("a disk was lost");
                }
                let longest = *self.dice.pick(&[20, 800]);
                let down = self.dice.between(1, longest) * MS;
                self.push(down, id, What::Start);
            }
            1 => {
                let until = self.now + self.dice.between(1, 2_000) * MS;
                let other = *self.dice.pick(&MEMBERS);
                self.cut = Some(([id, other], until));
            }
            2 => {
                let until = self.now + self.dice.between(1, 900) * MS;
                self.members.get_mut(&id).unwrap().paused_until = until;
            }
            3 => {
                let local = self.members[&id].local(self.now);
                if let Some(machine) = &mut self.members.get_mut(&id).unwrap().machine {
                    machine.resign(local);
                    self.sights.insert("asked to resign");
                }
            }
            _ => {}
        }
    }
}

fn run(seed: u64) -> Result<BTreeSet<&'static str>, String> {
    let mut world = World::new(seed);
    let mut next_trouble = world.dice.between(100, 900) * MS;
    let end = 60_000 * MS;
    while world.now < end && world.writes() < WRITES {
        if world.now > next_trouble {
            world.trouble();
            for id in MEMBERS {
                world.after(id)?;
            }
            let every = world.trouble_every;
            next_trouble = world.now + world.dice.between(every / 4, 2 * every);
        }
        world.step()?;
    }
    world.healed = true;
    for id in MEMBERS {
        world.members.get_mut(&id).unwrap().paused_until = 0;
        if world.members[&id].machine.is_none() {
            world.start(id);
        }
    }
    let calm = world.now + 10_000 * MS;
    while world.now < calm {
        world.step()?;
    }
    let leads = world
        .members
        .values()
        .filter(|it| it.machine.as_ref().unwrap().is_leader(it.local(world.now)));
    if leads.count() != 1 {
        return Err("nobody leads though all troubles have ended".to_owned());
    }
    if world.writes() > 3 {
        world.sights.insert("several writes");
    }
    Ok(world.sights)
}

#[test]
fn no_stored_state_is_lost_and_one_member_leads_at_most() {
    plant(None);
    let mut sights = BTreeSet::new();
    for seed in 0..400 {
        sights.extend(run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}")));
    }
    let met = [
        "a disk was lost",
        "asked to resign",
        "deposed with a write under way",
        "elected",
        "several writes",
    ];
    assert_eq!(sights, BTreeSet::from(met));
}

#[test]
fn planted_bugs_of_a_member_are_found() {
    for bug in [
        Bug::OlderStateElected,
        Bug::VoteNotStored,
        Bug::OneCopyIsEnough,
    ] {
        plant(Some(bug));
        let found = (0..4_000).any(|seed| run(seed).is_err());
        plant(None);
        assert!(found, "{} is not found", bug.name());
    }
}
