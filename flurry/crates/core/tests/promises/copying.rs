//! A joining server receives every record whole, and no message is longer than a datagram.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::sync::Arc;

use crate::common::copies::{copy, fence, verdict};
use crate::common::{Cluster, bytes_of, server};
use bytes::Bytes;
use flurry_core::config::{ADDRESS_BYTES_MAX, Config, Level, MEMBERS_MAX, Member, SHARDS_MAX};
use flurry_core::controller::{Controller, ControllerParams, Output, ParamsError};
use flurry_core::id::{
    ConfigNumber, DurationNs, Epoch, Incarnation, MonoNs, Sequence, ServerId, WallNs,
};
use flurry_core::key_value::Operation;
use flurry_core::message::{Batch, Control, Copy, Cursor, Message, SessionState, Verdict};
use flurry_core::server::Destination;
use flurry_core::wire::DATAGRAM_BYTES_MAX;

/// Returns a blind write to a key of a session, with the session's stable number.
fn write(cluster: &Cluster, session: u32, sequence: u64, stable: u64) -> Copy {
    let set = Operation::set(Bytes::from_static(b"v"));
    let key = format!("k{sequence}");
    let mut copy = copy(cluster, (session, sequence), &key, &set);
    Arc::make_mut(&mut copy.request).stable = Sequence(stable);
    copy
}

#[test]
fn ten_thousand_sessions_are_copied_in_parts_that_fit_a_datagram() {
    const SESSIONS: u32 = 10_000;
    let mut cluster = Cluster::open();
    fence(&mut cluster, SESSIONS);
    // The last session's stable number must arrive as well, because a write below it is late.
    for index in 0..2 {
        let message = write(&cluster, SESSIONS, 100, 98);
        assert!(matches!(
            verdict(&mut cluster, index, message),
            Verdict::Done(_)
        ));
    }
    cluster.servers[2] = server(2, 77);
    cluster.longest_bytes = 0;
    cluster.pass(DurationNs::millis(4_000));
    assert!(cluster.servers[2].is_member());
    assert!(cluster.controller.config().unwrap().next.is_none());
    assert_eq!(cluster.servers[2].sessions(), SESSIONS as usize);
    assert_eq!(cluster.servers[2].records(), 1);
    let late = write(&cluster, SESSIONS, 90, 0);
    assert_eq!(verdict(&mut cluster, 2, late), Verdict::Stale);
    let longest_bytes = cluster.longest_bytes;
    assert!(
        (5_000..=DATAGRAM_BYTES_MAX).contains(&longest_bytes),
        "the longest has {longest_bytes} bytes"
    );
}

#[test]
fn parts_that_come_late_twice_or_never_are_copied_all_the_same() {
    let mut cluster = Cluster::open();
    for number in 0..20 {
        let key = format!("k{number}");
        cluster.ask(&key, &Operation::Increment(1), Level::All);
        cluster.settle();
    }
    fence(&mut cluster, 30);
    cluster.servers[2] = server(2, 77);
    for server in &mut cluster.servers {
        server.set_part_bytes_max(60);
    }
    let mut dice = 88_172_645_463_325_252_u64;
    for _ in 0..20_000 {
        cluster.tick();
        cluster.collect();
        for _ in 0..cluster.letters.len() {
            let letter = cluster.letters.pop_front().unwrap();
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            match dice % 8 {
                0 => {}
                1 => {
                    cluster.deliver(letter.clone());
                    cluster.letters.push_back(letter);
                }
                2 | 3 => cluster.letters.push_back(letter),
                _ => cluster.deliver(letter),
            }
        }
        if cluster.servers[2].is_member() && cluster.controller.config().unwrap().next.is_none() {
            break;
        }
    }
    assert!(cluster.controller.config().unwrap().next.is_none());
    assert_eq!(cluster.servers[2].sessions(), 30);
    assert_eq!(cluster.servers[2].records(), 20);
}

#[test]
fn when_the_source_of_a_copy_is_lost_joining_servers_share_what_they_have_of_it() {
    let mut cluster = Cluster::open();
    let set = Operation::set(Bytes::from_static(b"v"));
    cluster.answer("k", &set, Level::All);
    let (key, state) = cluster.servers[2].states().next().unwrap();
    let lone = |id: u16, gone: bool| Member {
        addresses: Vec::new(),
        gone,
        ..member(id, 10 + u128::from(id), "")
    };
    let config = |number: u32, gone: bool| {
        Message::Control(Control::Config(Arc::new(Config {
            number: ConfigNumber(number),
            replicas: 3,
            shards: 1,
            lease: DurationNs::millis(1_000),
            members: vec![lone(2, gone)],
            next: Some(vec![lone(0, false), lone(1, false)]),
            last_loss: ConfigNumber(0),
            last_majority_loss: ConfigNumber(0),
            last_wipe: ConfigNumber(0),
        })))
    };
    let mut joining = [server(0, 10), server(1, 11)];
    let mut now = MonoNs(1);
    for server in &mut joining {
        server.handle_message(now, 0, config(1, false));
    }
    // Only one of the two has the key when its sender is lost.
    let part = Batch {
        from: cluster.servers[2].life().endpoint,
        config: ConfigNumber(1),
        cursor: Cursor::START,
        next: Some(Cursor::Keys(1)),
        sessions: vec![SessionState {
            session: key.session(),
            epoch: Epoch(1),
            stable: Sequence(0),
            used_in: ConfigNumber(0),
            at: WallNs(0),
        }],
        entries: vec![(key.clone(), state)],
        listed: Vec::new(),
    };
    joining[0].handle_message(now, 0, Message::Control(Control::Batch(part)));
    for server in &mut joining {
        server.handle_message(now, 0, config(2, true));
    }
    for _ in 0..100 {
        now = now.after(DurationNs::millis(1));
        for from in 0..2 {
            joining[from].handle_timeout(now);
            while let Some((to, message)) = joining[from].poll_send() {
                if to != Destination::Controller {
                    joining[1 - from].handle_message(now, 0, message);
                }
            }
        }
    }
    let held: Vec<_> = joining
        .iter()
        .map(|server| server.states().next())
        .collect();
    assert_eq!(held[0].as_ref().unwrap().0, key);
    assert_eq!(held[0], held[1]);
}

fn member(id: u16, life: u128, address: &str) -> Member {
    Member {
        server: ServerId(id),
        incarnation: Incarnation(life),
        addresses: vec![address.to_owned(); SHARDS_MAX],
        gone: false,
        disk: None,
    }
}

fn largest() -> ControllerParams {
    ControllerParams {
        replicas: 3,
        shards: u8::try_from(SHARDS_MAX).unwrap(),
        servers_min: u8::try_from(MEMBERS_MAX).unwrap(),
        lease: DurationNs::millis(1_000),
    }
}

/// Sends a message to the controller, and returns the length of its longest message in reply, in
/// bytes.
fn longest(controller: &mut Controller, control: Control) -> usize {
    controller.handle_message(MonoNs(1), 0, Message::Control(control));
    let told = std::iter::from_fn(|| controller.poll_output());
    let sent = told.filter_map(|output| match output {
        Output::Send(_, message) => Some(bytes_of(&message)),
        Output::Persist(_) => None,
    });
    sent.max().unwrap_or(0)
}

/// Asks to join as a server that lives. Returns the length of the controller's longest message in
/// reply to the proof, in bytes.
fn joined(controller: &mut Controller, member: Member) -> usize {
    let ask = Control::Join(member.clone(), 0);
    controller.handle_message(MonoNs(1), 0, Message::Control(ask));
    let told = std::iter::from_fn(|| controller.poll_output());
    let question = told.last();
    if let Some(Output::Send(_, Message::Control(Control::Prove(_, number)))) = question {
        return longest(controller, Control::Join(member, number));
    }
    0
}

#[test]
fn the_largest_cluster_in_the_middle_of_a_change_fits_a_datagram() {
    let mut controller = Controller::new(MonoNs(1), largest()).unwrap();
    let address = "255.255.255.255:65535";
    assert_eq!(address.len(), ADDRESS_BYTES_MAX);
    for id in 65_435..=65_535 {
        joined(&mut controller, member(id, u128::MAX, address));
    }
    let first = controller.config().unwrap();
    assert_eq!(first.members.len(), MEMBERS_MAX);
    assert!(first.next.is_none(), "there is no room for more");
    let known = first.members[0].server.0;
    let open = Control::Open {
        names: (10..74)
            .map(|it| format!("{it}{}", "s".repeat(126)))
            .collect(),
        nonce: u64::MAX,
        timeout: DurationNs(0),
        copies: flurry_core::message::Copies::Majority,
    };
    longest(&mut controller, open.clone());
    // A server that comes back has room, even if the cluster is full.
    let again = member(known, u128::MAX - 1, address);
    let told = joined(&mut controller, again);
    let config = controller.config().unwrap();
    assert_eq!(config.next.as_ref().map(Vec::len), Some(MEMBERS_MAX));
    assert_eq!(config.members.len(), MEMBERS_MAX);
    let opened = longest(&mut controller, open);
    let status = longest(&mut controller, Control::StatusQuery);
    for bytes in [told, opened, status] {
        assert!(
            (15_000..=DATAGRAM_BYTES_MAX).contains(&bytes),
            "{told}, {opened}, {status} bytes"
        );
    }
}

#[test]
fn what_would_not_fit_is_refused() {
    let shards = u8::try_from(SHARDS_MAX + 1).unwrap();
    let refused = Controller::new(
        MonoNs(1),
        ControllerParams {
            shards,
            ..largest()
        },
    );
    assert_eq!(refused.unwrap_err(), ParamsError::Shards(shards));
    let servers_min = u8::try_from(MEMBERS_MAX + 1).unwrap();
    let refused = Controller::new(
        MonoNs(1),
        ControllerParams {
            servers_min,
            ..largest()
        },
    );
    assert_eq!(refused.unwrap_err(), ParamsError::Servers(servers_min));
    let params = ControllerParams {
        replicas: 1,
        servers_min: 1,
        ..largest()
    };
    let mut controller = Controller::new(MonoNs(1), params).unwrap();
    for address in ["1255.255.255.255:65535", "a\"b:1", "a\\:1", "a b:1"] {
        joined(&mut controller, member(1, 1, address));
        assert!(controller.config().is_none(), "{address} was taken");
    }
    joined(&mut controller, member(1, 1, "127.0.0.1:1"));
    assert!(controller.config().is_some());
}
