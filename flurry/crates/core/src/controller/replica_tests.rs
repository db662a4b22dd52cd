use super::*;
use crate::config::Member;
use crate::id::{ConfigNumber, DurationNs, Endpoint, Epoch, Incarnation, ServerId, ShardId};
use crate::message::{Copies, Life, Owned, Ping};

const MS: u64 = 1_000_000;
const SILENCE: DurationNs = DurationNs(100 * MS);
const PARAMS: ControllerParams = ControllerParams {
    replicas: 1,
    shards: 1,
    servers_min: 1,
    lease: SILENCE,
};

fn at(ms: u64) -> MonoNs {
    // Clocks do not begin at zero.
    MonoNs((1_000 + ms) * MS)
}

fn group(me: u32, members: &[u32]) -> Group {
    Group {
        consensus: ConsensusParams {
            me: MemberId(me),
            members: members.iter().copied().map(MemberId).collect(),
            silence: SILENCE,
            seed: u64::from(me),
            part_bytes_max: 50,
        },
        addresses: members
            .iter()
            .map(|it| format!("10.0.0.{it}:7700"))
            .collect(),
    }
}

/// A group whose disks and messages take no time.
struct Members {
    now: u64,
    running: Vec<(u32, Replica)>,
    disks: Vec<(u32, Vec<u8>)>,
    told: Vec<(u32, Message)>,
    /// Two members that do not reach each other.
    cut: Option<[u32; 2]>,
}

impl Members {
    fn start(members: &[u32]) -> Self {
        let mut all = Self {
            now: 0,
            running: Vec::new(),
            disks: Vec::new(),
            told: Vec::new(),
            cut: None,
        };
        for me in members {
            all.run(*me, members);
        }
        all
    }

    fn disk(&self, me: u32) -> Option<&[u8]> {
        let found = self.disks.iter().rev().find(|it| it.0 == me);
        found.map(|it| &*it.1)
    }

    fn run(&mut self, me: u32, members: &[u32]) {
        let replica = Replica::new(at(self.now), PARAMS, group(me, members), self.disk(me));
        self.running.push((me, replica.unwrap()));
    }

    fn stop(&mut self, me: u32) {
        self.running.retain(|it| it.0 != me);
    }

    fn get(&mut self, me: u32) -> &mut Replica {
        let found = self.running.iter_mut().find(|it| it.0 == me);
        &mut found.unwrap().1
    }

    /// Lets time pass in steps of a millisecond.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += 1;
            let mut letters = Vec::new();
            for (me, replica) in &mut self.running {
                replica.handle_timeout(at(self.now));
                while let Some(output) = replica.poll_output(at(self.now)).unwrap() {
                    match output {
                        ReplicaOutput::Persist(bytes) => {
                            self.disks.push((*me, bytes));
                            replica.persisted(at(self.now));
                        }
                        ReplicaOutput::Tell(to, message) => letters.push((*me, to.0, message)),
                        ReplicaOutput::Send(_, message) => self.told.push((*me, message)),
                        ReplicaOutput::Elected | ReplicaOutput::Deposed => {}
                    }
                }
            }
            for (from, to, message) in letters {
                let is_cut = self
                    .cut
                    .is_some_and(|it| it.contains(&from) && it.contains(&to));
                if !is_cut && self.running.iter().any(|it| it.0 == to) {
                    let now = at(self.now);
                    self.get(to).handle_message(now, 0, message);
                }
            }
        }
    }

    /// Sends all members a message of a server or an owner, and lets it take effect.
    fn say_to_all(&mut self, control: &Control) {
        self.told.clear();
        for (_, replica) in &mut self.running {
            let message = Message::Control(control.clone());
            replica.handle_message(at(self.now), 5, message);
        }
        self.pass(5);
    }

    fn last_answer(&self) -> Option<Control> {
        let (_, last) = self.told.last()?;
        match last {
            Message::Control(control) => Some(control.clone()),
            _ => None,
        }
    }

    fn leader(&self) -> Option<u32> {
        let now = at(self.now);
        let mut sure = self.running.iter();
        sure.find(|it| it.1.consensus().is_leader(now))
            .map(|it| it.0)
    }
}

#[test]
fn a_controller_that_is_alone_leads_at_once_and_from_its_own_disk() {
    let mut only = Members::start(&[1]);
    only.pass(1);
    assert_eq!(only.leader(), Some(1));
    only.stop(1);
    only.run(1, &[1]);
    only.pass(1);
    assert_eq!(only.leader(), Some(1));
}

#[test]
fn a_controller_leads_though_its_disk_is_slow() {
    let mut only = Replica::new(at(0), PARAMS, group(1, &[1]), None).unwrap();
    let mut writes = 0;
    for ms in 0..2_000 {
        only.handle_timeout(at(ms));
        while let Some(output) = only.poll_output(at(ms)).unwrap() {
            writes += u32::from(matches!(output, ReplicaOutput::Persist(_)));
        }
        // Each write takes half a second, and the disk has one at a time.
        if ms % 500 == 499 {
            only.persisted(at(ms));
        }
    }
    assert!(only.controller().is_some());
    assert_eq!(writes, 2, "its promise, and the state under it");
}

#[test]
fn a_new_group_begins_when_all_run_and_goes_on_when_most_do() {
    let mut group = Members::start(&[1, 2]);
    for me in [1, 2] {
        group.stop(me);
        group.run(me, &[1, 2, 3]);
    }
    group.pass(3_000);
    assert_eq!(group.leader(), None, "the third is not there");
    group.run(3, &[1, 2, 3]);
    group.pass(2_000);
    let first = group.leader().unwrap();
    group.stop(first);
    group.pass(1_000);
    let second = group.leader().unwrap();
    assert_ne!(first, second);
    group.stop(second);
    group.pass(3_000);
    assert_eq!(group.leader(), None, "one of three is no majority");
}

#[test]
fn one_controller_becomes_three_and_keeps_its_state() {
    let mut group = Members::start(&[1]);
    group.pass(1);
    let alone = group.get(1).consensus().durable().stamp;
    group.stop(1);
    for me in [2, 3, 1] {
        group.run(me, &[1, 2, 3]);
    }
    group.pass(2_000);
    assert_eq!(
        group.leader(),
        Some(1),
        "only the first has a state to lead with"
    );
    for me in [1, 2, 3] {
        assert!(group.get(me).consensus().durable().stamp > alone);
    }
}

#[test]
fn a_leader_that_ends_in_order_is_followed_at_once() {
    let mut group = Members::start(&[1, 2, 3]);
    group.pass(1_000);
    let first = group.leader().unwrap();
    let now = at(group.now);
    group.get(first).resign(now);
    group.pass(1);
    group.stop(first);
    // This is shorter than the silence after which the others would stand as candidates.
    group.pass(60);
    assert!(group.leader().is_some_and(|it| it != first));
}

#[test]
fn the_vote_of_an_emptied_disk_elects_nobody() {
    let members = [1, 2, 3];
    let mut group = Members::start(&members);
    group.pass(1_000);
    // The third member misses the state that the others store under their next leader.
    group.stop(3);
    while group.leader().is_none_or(|it| it == 3) {
        group.pass(1);
    }
    let now = at(group.now);
    let leader = group.leader().unwrap();
    group.get(leader).resign(now);
    group.pass(1_000);
    assert!(group.leader().is_some());
    // The second member loses its disk. The first one, which alone has the newest state, does not
    // reach the third.
    for me in [1, 2] {
        group.stop(me);
    }
    group.disks.retain(|it| it.0 != 2);
    group.cut = Some([1, 3]);
    for me in members {
        group.run(me, &members);
    }
    group.pass(5_000);
    assert_eq!(
        group.leader(),
        None,
        "the third with the second would lose a state"
    );
    group.cut = None;
    group.pass(5_000);
    assert!(group.leader().is_some(), "all have voted");
}

#[test]
fn an_emptied_member_obeys_nobody_before_it_knows_what_all_have_promised() {
    let members = [1, 2, 3];
    let mut group = Members::start(&members);
    group.pass(1_000);
    let leader = group.leader().unwrap();
    let mut others = members.into_iter().filter(|it| *it != leader);
    let (emptied, away) = (others.next().unwrap(), others.next().unwrap());
    group.stop(away);
    group.stop(emptied);
    group.disks.retain(|it| it.0 != emptied);
    group.run(emptied, &members);
    group.pass(1_000);
    assert_eq!(
        group.leader(),
        None,
        "it may have promised to obey the other one"
    );
    group.run(away, &members);
    group.pass(1_000);
    assert!(group.leader().is_some());
    let emptied = group.get(emptied);
    assert!(!emptied.consensus().is_empty());
}

#[test]
fn a_disk_of_another_group_is_refused_and_one_member_may_be_replaced() {
    let text =
        |members: &[u32]| -> Vec<String> { members.iter().map(ToString::to_string).collect() };
    let may = |old: &[u32], new: &[u32]| may_follow(&text(old), &text(new));
    assert!(may(&[1], &[1, 2, 3]), "one grows to three");
    assert!(may(&[1, 2, 3], &[1, 2, 4]), "one is replaced");
    assert!(may(&[1, 2, 3], &[1, 2, 3, 4, 5]));
    assert!(
        !may(&[1, 2, 3], &[1, 4, 5]),
        "the new ones may know nothing"
    );
    assert!(!may(&[1, 2, 3], &[1]), "it may have an old state");
    let mut one = Members::start(&[1, 2, 3]);
    one.pass(1_000);
    let refused = Replica::new(at(0), PARAMS, group(1, &[1]), one.disk(1)).unwrap_err();
    assert!(refused.to_string().contains("10.0.0.2:7700"), "{refused}");
}

#[test]
fn a_damaged_disk_is_refused() {
    let mut one = Members::start(&[1]);
    one.pass(1);
    let mut bytes = one.disk(1).unwrap().to_vec();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    for damaged in [&bytes[..], &bytes[..3], &[]] {
        let refused = Replica::new(at(0), PARAMS, group(1, &[1]), Some(damaged)).unwrap_err();
        assert!(
            refused.to_string().starts_with("controller state"),
            "{refused}"
        );
    }
}

#[test]
fn a_standby_answers_that_it_knows_nothing_and_the_leader_names_who_is_silent() {
    let mut group = Members::start(&[1, 2, 3]);
    group.pass(1_000);
    let leader = group.leader().unwrap();
    let standby = if leader == 1 { 2 } else { 1 };
    group.stop(standby);
    group.pass(1_100);
    let now = at(group.now);
    let ask = || Message::Control(Control::StatusQuery);
    for me in [1, 2, 3].into_iter().filter(|it| *it != standby) {
        group.get(me).handle_message(now, 5, ask());
    }
    group.pass(1);
    let mut empty = 0;
    for (me, message) in std::mem::take(&mut group.told) {
        let Message::Control(Control::Status(text)) = message else {
            continue;
        };
        if me == leader {
            let silent = format!("\"controllers_silent\":[\"10.0.0.{standby}:7700\"]");
            assert!(text.contains(&silent), "{text}");
        } else {
            assert_eq!(text, "");
            empty += 1;
        }
    }
    assert_eq!(empty, 1);
}

#[test]
fn what_a_leader_says_waits_for_the_write_before_it() {
    let mut leader = Leader::new(at(0), PARAMS, None).unwrap();
    let open = |nonce: u64| {
        Message::Control(Control::Open {
            names: vec![format!("session-{nonce}")],
            nonce,
            timeout: DurationNs(0),
            copies: Copies::Count(1),
        })
    };
    let join = Member {
        server: ServerId(1),
        incarnation: Incarnation(1),
        addresses: vec!["10.0.0.9:1".to_owned()],
        gone: false,
        disk: None,
    };
    let join = |proof| Message::Control(Control::Join(join.clone(), proof));
    leader.controller_mut().handle_message(at(1), 9, join(0));
    let Some(Step::Send(_, Message::Control(Control::Prove(_, proof)))) = leader.poll_step() else {
        panic!("a server is asked whether it lives");
    };
    leader
        .controller_mut()
        .handle_message(at(1), 9, join(proof));
    let Some(Step::Store(first)) = leader.poll_step() else {
        panic!("the first configuration is stored");
    };
    // Two more decisions while the disk is slow: one write has both.
    leader.controller_mut().handle_message(at(2), 9, open(1));
    leader.controller_mut().handle_message(at(3), 9, open(2));
    assert_eq!(leader.poll_step(), None);
    assert!(!leader.is_settled());
    leader.stored(at(0));
    let mut second = None;
    while let Some(step) = leader.poll_step() {
        if let Step::Store(bytes) = step {
            assert!(second.replace(bytes).is_none(), "one write for both");
        }
    }
    let second = second.expect("the sessions are stored");
    let known = |bytes: &[u8]| {
        Controller::restore(at(9), PARAMS, bytes)
            .unwrap()
            .sessions()
    };
    assert_eq!((known(&first), known(&second)), (0, 2));
}

#[test]
fn a_new_leader_knows_from_before_for_how_long_an_owner_has_been_silent() {
    let mut three = Members::start(&[1, 2, 3]);
    three.pass(500);
    let first = three.leader().unwrap();
    let member = Member {
        server: ServerId(1),
        incarnation: Incarnation(7),
        addresses: Vec::new(),
        gone: false,
        disk: None,
    };
    three.say_to_all(&Control::Join(member.clone(), 0));
    let Some(Control::Prove(_, proof)) = three.last_answer() else {
        panic!("the server is asked whether it lives");
    };
    three.say_to_all(&Control::Join(member, proof));
    three.say_to_all(&open(1, 0));
    let Some(Control::Opened(opened)) = three.last_answer() else {
        panic!("the session is new");
    };
    let owned = Owned {
        session: opened.sessions[0].session,
        epoch: opened.sessions[0].epoch,
    };
    let settled = Control::Settled(vec![owned], ConfigNumber(0), DurationNs(0));
    three.say_to_all(&settled);
    three.stop(first);
    while three.leader().is_none() {
        three.pass(1);
    }
    three.pass(1);
    // The owner is silent for longer than the controllers were, but not since this controller
    // leads.
    three.say_to_all(&open(2, SILENCE.0));
    let told = three.told.clone();
    let leader = three.leader().unwrap();
    let owner = three.get(leader).controller().unwrap().owner_of("calls");
    assert_eq!(owner.unwrap().1, Epoch(2), "{told:?}");
}

fn open(nonce: u64, timeout_ns: u64) -> Control {
    Control::Open {
        names: vec!["calls".to_owned()],
        nonce,
        timeout: DurationNs(timeout_ns),
        copies: Copies::Count(1),
    }
}

#[test]
fn a_server_is_not_silent_before_it_could_be_sent_that_it_takes_part() {
    let params = ControllerParams {
        servers_min: 3,
        ..PARAMS
    };
    let mut leader = Leader::new(at(0), params, None).unwrap();
    for id in [1, 2, 3] {
        join(&mut leader, id, 0);
    }
    let is_member = |leader: &Leader| {
        let config = leader.controller().config().unwrap();
        config.has(ServerId(4), Incarnation(7))
    };
    leader.stored(at(0));
    pass(&mut leader, 0, 20);
    join(&mut leader, 4, 20);
    // The write takes longer than a lease.
    pass(&mut leader, 20, 500);
    assert!(is_member(&leader));
    leader.stored(at(500));
    pass(&mut leader, 500, 590);
    assert!(is_member(&leader), "it may just have begun to report");
    pass(&mut leader, 590, 700);
    assert!(!is_member(&leader), "it never said anything");
}

fn join(leader: &mut Leader, id: u16, ms: u64) {
    let member = Member {
        server: ServerId(id),
        incarnation: Incarnation(7),
        addresses: Vec::new(),
        gone: false,
        disk: None,
    };
    let mut proof = 0;
    for _ in 0..2 {
        let message = Message::Control(Control::Join(member.clone(), proof));
        leader.controller_mut().handle_message(at(ms), 5, message);
        while let Some(step) = leader.poll_step() {
            if let Step::Send(_, Message::Control(Control::Prove(_, number))) = step {
                proof = number;
            }
        }
    }
}

/// Lets time pass, in which servers 1 to 3 report.
fn pass(leader: &mut Leader, from_ms: u64, to_ms: u64) {
    for ms in (from_ms..to_ms).step_by(10) {
        let number = leader.controller().config().unwrap().number;
        for id in [1, 2, 3] {
            let life = Life {
                endpoint: Endpoint {
                    server: ServerId(id),
                    shard: ShardId(0),
                },
                incarnation: Incarnation(7),
            };
            let ping = Message::Control(Control::Ping(Ping {
                life,
                number,
                sent: at(ms),
                quiet: DurationNs(0),
                unheard: DurationNs(0),
            }));
            leader.controller_mut().handle_message(at(ms), 1, ping);
        }
        leader.controller_mut().handle_timeout(at(ms));
        while leader.poll_step().is_some() {}
    }
}
