//! The reader accepts any bytes without harm, and a message arrives unchanged.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use flurry_core::config::{Config, Disk, Member, SavedLife};
use flurry_core::id::{
    ConfigNumber, DurationNs, Endpoint, Epoch, Incarnation, Key, MonoNs, Sequence, ServerId,
    SessionId, ShardId, Version, WallNs,
};
use flurry_core::message::{
    Batch, Control, Copies, Cursor, Departure, FoundSession, Life, List, Listed, Message, Owned,
    Ping, Pull, SessionState,
};
use flurry_core::wire::{WireError, decode, encode};
use proptest::prelude::*;

fn bytes_of(message: &Message) -> Bytes {
    let mut bytes = BytesMut::new();
    encode(message, &mut bytes);
    bytes.freeze()
}

fn open(name: String, nonce: u64) -> Message {
    Message::Control(Control::Open {
        names: vec![name.clone(), name],
        nonce,
        timeout: DurationNs(nonce / 3),
        copies: if nonce.is_multiple_of(3) {
            Copies::Majority
        } else {
            Copies::Count(2)
        },
    })
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&Bytes::from(bytes));
    }

    #[test]
    fn any_body_behind_a_good_header_is_a_message_or_an_error(
        kind in any::<u8>(),
        level in any::<u8>(),
        body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        // A header whose checksum is right, so that the body is read.
        let mut bytes = bytes_of(&open("x".to_owned(), 1)).to_vec();
        bytes.truncate(48);
        bytes[2] = kind;
        bytes[3] = level;
        bytes.extend(body);
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..4]), &bytes[8..]);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        let read = decode(&Bytes::from(bytes));
        prop_assert!(!matches!(read, Err(WireError::Damaged { .. })), "{read:?}");
    }

    #[test]
    fn a_flipped_bit_is_noticed(name in "[a-z]{1,20}", nonce in any::<u64>(), at in any::<usize>()) {
        let mut bytes = bytes_of(&open(name, nonce)).to_vec();
        let bit = at % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode(&Bytes::from(bytes)).is_err());
    }

    #[test]
    fn what_was_sent_arrives(name in "\\PC{0,40}", nonce in any::<u64>()) {
        let message = open(name, nonce);
        prop_assert_eq!(decode(&bytes_of(&message)), Ok(message));
    }
}

fn some_life() -> Life {
    Life {
        endpoint: Endpoint {
            server: ServerId(7),
            shard: ShardId(3),
        },
        incarnation: Incarnation(u128::MAX - 5),
    }
}

#[test]
fn what_a_server_says_of_itself_arrives() {
    let life = some_life();
    let member = Member {
        server: ServerId(7),
        incarnation: life.incarnation,
        addresses: vec!["127.0.0.1:1".to_owned()],
        gone: false,
        disk: Some(Disk {
            current: Some(SavedLife {
                life: Incarnation(1),
                through: WallNs(-3),
            }),
            next: Some(SavedLife {
                life: Incarnation(u128::MAX),
                through: WallNs(4),
            }),
            lost: true,
        }),
    };
    let owned = Owned {
        session: SessionId(1),
        epoch: Epoch(2),
    };
    let question = List {
        sessions: vec![owned; 2],
        stable: Sequence(8),
        config: ConfigNumber(4),
        at: WallNs(-5),
        ended: true,
        below: u64::MAX,
        kind: Some(1),
        records: 7,
    };
    for control in [
        Control::Join(member, 77),
        Control::Prove(life.incarnation, u64::MAX),
        Control::JoinRefused(ServerId(7), "it is drained".to_owned()),
        Control::Ping(Ping {
            life,
            number: ConfigNumber(4),
            sent: MonoNs(9),
            quiet: DurationNs(7),
            unheard: DurationNs(11),
        }),
        Control::Pong(None, ConfigNumber(4), MonoNs(9)),
        Control::Pong(Some(ServerId(2)), ConfigNumber(4), MonoNs(9)),
        Control::List(question.clone()),
        Control::Listed(Listed {
            from: life.endpoint,
            question,
            next: Some(5),
            keys: vec![Bytes::from_static(b"k"), Bytes::from_static(b"l")],
        }),
        Control::Synced(life, ConfigNumber(4)),
        Control::FenceHeld(life, SessionId(1), Epoch(2), WallNs(-3)),
        Control::Close(vec![owned], true, WallNs(7)),
        Control::Closed(vec![owned, owned]),
        Control::Settled(vec![owned, owned], ConfigNumber(3), DurationNs(5)),
        Control::SettledHeard(SessionId(1), Epoch(2), ConfigNumber(3)),
        Control::Depart(ServerId(9), Departure::Drained),
        Control::DepartHeard(ServerId(9), Departure::Removed, "it is up".to_owned()),
    ] {
        arrives(control);
    }
}

/// Checks that a message is unchanged after it was encoded and decoded.
fn arrives(control: Control) {
    let message = Message::Control(control);
    assert_eq!(decode(&bytes_of(&message)), Ok(message));
}

#[test]
fn what_a_joining_server_copies_arrives() {
    let life = some_life();
    let key = Key::new(SessionId(3), Bytes::from_static(b"k")).unwrap();
    let pull = |cursor| {
        Control::Pull(Pull {
            life,
            config: ConfigNumber(4),
            cursor,
            lists: cursor != Cursor::START,
            keys: vec![key.clone()],
        })
    };
    for control in [
        pull(Cursor::START),
        pull(Cursor::Sessions(SessionId(70_000))),
        pull(Cursor::Keys(0)),
        pull(Cursor::Missing(7)),
        Control::Batch(Batch {
            from: life.endpoint,
            config: ConfigNumber(4),
            cursor: Cursor::START,
            next: Some(Cursor::Keys(9)),
            sessions: vec![SessionState {
                session: SessionId(1),
                epoch: Epoch(2),
                stable: Sequence(3),
                used_in: ConfigNumber(4),
                at: WallNs(-5),
            }],
            entries: Vec::new(),
            listed: vec![(key.clone(), Version::NONE)],
        }),
    ] {
        arrives(control);
    }
}

#[test]
fn what_is_said_of_an_owner_arrives() {
    let epoch = Epoch(3);
    let nonce = u64::MAX;
    let config = Arc::new(Config {
        number: ConfigNumber(4),
        replicas: 3,
        shards: 1,
        lease: DurationNs::millis(1_000),
        members: Vec::new(),
        next: None,
        last_loss: ConfigNumber(1),
        last_majority_loss: ConfigNumber(2),
        last_wipe: ConfigNumber(2),
    });
    for control in [
        Control::OwnerLives { nonce, epoch },
        Control::FindSession("calls".to_owned(), 5),
        Control::FoundSession(FoundSession {
            number: 5,
            session: SessionId(7),
            epoch,
            at: WallNs(-9),
            unknown_through: Epoch(2),
            config,
        }),
    ] {
        arrives(control);
    }
}

#[test]
fn a_message_of_another_protocol_is_called_foreign() {
    let found = decode(&Bytes::from_static(&[b'G'; 64]));
    assert_eq!(found, Err(WireError::Foreign(b'G', b'G')));
}

#[test]
fn equal_keys_of_two_sessions_live_in_different_places() {
    let key = |session| Key::new(SessionId(session), Bytes::from_static(b"k")).unwrap();
    assert_ne!(key(1).hash(), key(2).hash());
    assert_eq!(key(1).hash(), key(1).hash());
}
