//! The records on the disks of servers: when they count, and when servers read them.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::collections::BTreeMap;

use crate::common::{Cluster, portal, server};
use bytes::Bytes;
use flurry_core::config::{Config, DISK_LAG_MAX, Disk, Level, Member, SavedLife};
use flurry_core::id::{ConfigNumber, DurationNs, Incarnation, Key, ServerId, WallNs};
use flurry_core::key_value::{Answer, Operation};
use flurry_core::message::State;
use flurry_core::portal::Outcome;
use flurry_core::server::{RestoreError, What};

/// A disk of a server.
#[derive(Debug, Clone, Default)]
struct Kept {
    holds: Disk,
    rows: BTreeMap<Key, State>,
}

/// Three servers with disks, which are written to when a test says so.
struct Disks {
    cluster: Cluster,
    kept: [Kept; 3],
    lives: u128,
}

impl Disks {
    fn open() -> Self {
        let disk = || Disk::default();
        let servers = (0..3).map(|id| server(id, u128::from(id) + 1).with_disk(disk()));
        let mut disks = Self {
            cluster: Cluster::of(servers.collect()),
            kept: Default::default(),
            lives: 3,
        };
        disks.pass(300);
        assert!(disks.cluster.portal.is_open(), "the session opens");
        disks
    }

    /// Writes every change of a server to its disk.
    fn write(&mut self, index: usize) {
        let (kept, server) = (&mut self.kept[index], &mut self.cluster.servers[index]);
        let (now, life) = (self.cluster.now, server.life().incarnation);
        let mut position = 0;
        while let Some(change) = server.poll_change() {
            position = change.position;
            match change.what {
                What::Is(state) | What::Buried(state) => kept.rows.insert(change.key, state),
                What::Moved => kept.rows.remove(&change.key),
            };
        }
        server.set_durable(now, life, position);
        if !kept.holds.holds(life) && server.has_copied() {
            let (records, rest) = server.scan(u64::MAX, usize::MAX);
            assert_eq!(rest, None);
            kept.rows = records.into_iter().collect();
            let through = WallNs(0);
            kept.holds.next = Some(SavedLife { life, through });
        }
        let counted = server.counted_life();
        if let Some(next) = kept.holds.next.take_if(|it| Some(it.life) == counted) {
            kept.holds.current = Some(next);
        }
        let saved = [&mut kept.holds.current, &mut kept.holds.next];
        for saved in saved.into_iter().flatten().filter(|it| it.life == life) {
            saved.through = WallNs(i64::try_from(now.0).unwrap());
        }
        server.set_disk(now, kept.holds);
    }

    /// Gives a server the records that it needs of its disk.
    fn read(&mut self, index: usize) {
        let server = &mut self.cluster.servers[index];
        if let Some(number) = server.restores() {
            for (key, state) in &self.kept[index].rows {
                server.restore(key, state).unwrap();
            }
            server.restored(self.cluster.now, number);
        }
    }

    /// Lets milliseconds pass, with all disks at work.
    fn pass(&mut self, time_ms: u64) {
        for _ in 0..time_ms {
            self.cluster.pass(DurationNs::millis(1));
            for index in 0..3 {
                self.read(index);
                self.write(index);
            }
        }
    }

    /// Ends a server, and starts it again.
    fn restart(&mut self, index: u16) {
        self.lives += 1;
        let disk = self.kept[usize::from(index)].holds;
        self.cluster.servers[usize::from(index)] = server(index, self.lives).with_disk(disk);
    }

    fn answer(&mut self, key: &str, operation: &Operation) -> Option<Outcome> {
        let number = self.cluster.ask(key, operation, Level::Disk);
        self.pass(200);
        self.cluster.outcome(number)
    }
}

fn set(value: &'static str) -> Operation {
    Operation::set(Bytes::from_static(value.as_bytes()))
}

fn done(answer: &Answer, tail_unknown: bool) -> Option<Outcome> {
    Some(Outcome::Done {
        answer: answer.encode(),
        tail_unknown,
    })
}

#[test]
fn level_disk_is_answered_when_a_majority_has_it_on_disk_and_not_before() {
    let mut disks = Disks::open();
    let number = disks.cluster.ask("k", &set("v"), Level::Disk);
    disks.cluster.pass(DurationNs::millis(50));
    assert!(disks.cluster.servers.iter().all(|it| it.records() == 1));
    assert_eq!(disks.cluster.outcome(number), None);
    disks.write(1);
    disks.cluster.pass(DurationNs::millis(50));
    assert_eq!(disks.cluster.outcome(number), None);
    disks.write(2);
    disks.cluster.pass(DurationNs::millis(50));
    assert_eq!(disks.cluster.outcome(number), done(&Answer::Stored, false));
}

#[test]
fn a_read_at_level_disk_waits_for_the_write_that_it_shows() {
    let mut disks = Disks::open();
    let written = disks.cluster.ask("k", &set("v"), Level::First);
    let read = disks.cluster.ask("k", &Operation::Get, Level::Disk);
    disks.cluster.pass(DurationNs::millis(50));
    assert_eq!(disks.cluster.outcome(written), done(&Answer::Stored, false));
    assert_eq!(disks.cluster.outcome(read), None);
    disks.write(0);
    disks.write(1);
    disks.cluster.pass(DurationNs::millis(50));
    let value = Answer::Value(Bytes::from_static(b"v"));
    assert_eq!(disks.cluster.outcome(read), done(&value, false));
}

#[test]
fn servers_without_disks_never_answer_at_level_disk() {
    let mut cluster = Cluster::open();
    let number = cluster.ask("k", &set("v"), Level::Disk);
    cluster.pass(DurationNs::millis(450));
    assert_eq!(cluster.outcome(number), None);
    cluster.pass(DurationNs::millis(100));
    assert_eq!(cluster.outcome(number), Some(Outcome::Unknown));
}

#[test]
fn after_an_end_of_all_nobody_is_served_before_a_majority_of_disks_is_back() {
    let mut disks = Disks::open();
    assert_eq!(disks.answer("k", &set("v")), done(&Answer::Stored, false));
    // One disk missed the last write to the key.
    let number = disks.cluster.ask("k", &set("w"), Level::Disk);
    disks.cluster.pass(DurationNs::millis(20));
    disks.write(0);
    disks.write(1);
    disks.cluster.pass(DurationNs::millis(20));
    assert_eq!(disks.cluster.outcome(number), done(&Answer::Stored, false));
    disks.restart(2);
    disks.kept[1] = Kept::default();
    disks.restart(1);
    disks.cluster.deaf = vec![0];
    disks.pass(5_000);
    let config = disks.cluster.controller.config().unwrap();
    assert!(config.next.is_some(), "one of three disks has come back");
    assert_eq!(config.disks_missing(), [ServerId(0), ServerId(1)]);
    disks.restart(0);
    disks.cluster.deaf.clear();
    disks.pass(2_000);
    let config = disks.cluster.controller.config().unwrap();
    assert_eq!(config.next, None);
    disks.cluster.portal = portal(disks.cluster.now, 2);
    disks.pass(300);
    let value = Answer::Value(Bytes::from_static(b"w"));
    let found = disks.answer("k", &Operation::Get);
    assert_eq!(found, done(&value, true), "later records may be missing");
    assert_eq!(
        disks.answer("other", &Operation::Get),
        done(&Answer::NotFound, true)
    );
}

#[test]
fn a_disk_says_nothing_while_a_majority_has_lived_on() {
    let mut disks = Disks::open();
    disks.answer("k", &set("v"));
    disks.cluster.deaf = vec![2];
    assert_eq!(
        disks.answer("k", &Operation::Delete { counted: true }),
        done(&Answer::Number(1), false)
    );
    disks.cluster.deaf.clear();
    disks.restart(2);
    assert_eq!(disks.kept[2].rows.len(), 1, "it still has the value");
    for _ in 0..1_000 {
        disks.cluster.pass(DurationNs::millis(1));
        assert_eq!(disks.cluster.servers[2].restores(), None);
        (0..3).for_each(|index| disks.write(index));
    }
    assert!(disks.cluster.servers[2].is_member());
    assert_eq!(
        disks.answer("k", &Operation::Get),
        done(&Answer::NotFound, false)
    );
}

#[test]
fn a_late_disk_brings_nothing_back_and_the_others_do() {
    let mut disks = Disks::open();
    disks.answer("k", &set("v"));
    let later_ns = i64::try_from(DISK_LAG_MAX.0 + disks.cluster.now.0).unwrap() + 1;
    for index in 0..2 {
        let saved = disks.kept[index].holds.current.as_mut().unwrap();
        saved.through.0 += later_ns;
    }
    (0..3).for_each(|index| disks.restart(index));
    let mut spoke = [false; 3];
    for _ in 0..2_000 {
        disks.cluster.pass(DurationNs::millis(1));
        for (index, spoke) in spoke.iter_mut().enumerate() {
            *spoke |= disks.cluster.servers[index].restores().is_some();
        }
    }
    assert_eq!(spoke, [true, true, false]);
}

#[test]
fn a_deletion_that_every_memory_had_and_no_disk_is_told_as_a_loss() {
    let mut disks = Disks::open();
    disks.answer("k", &set("v"));
    let delete = Operation::Delete { counted: true };
    let number = disks.cluster.ask("k", &delete, Level::All);
    disks.cluster.pass(DurationNs::millis(50));
    let deleted = done(&Answer::Number(1), false);
    assert_eq!(disks.cluster.outcome(number), deleted);
    // Every server drops the deletion, so the owner treats the key as never written.
    disks.cluster.ask("other", &set("v"), Level::All);
    disks.cluster.pass(DurationNs::millis(200));
    let nothing = disks.cluster.answer("k", &Operation::Get, Level::First);
    assert_eq!(nothing, Answer::NotFound);
    (0..3).for_each(|index| disks.restart(index));
    disks.pass(3_000);
    let more = disks
        .cluster
        .ask("k", &Operation::Increment(1), Level::First);
    disks.pass(400);
    let told = disks.cluster.outcome(more);
    assert!(matches!(told, Some(Outcome::DataLoss { .. })), "{told:?}");
    let read = disks.cluster.ask("k", &Operation::Get, Level::First);
    disks.pass(400);
    let value = Answer::Value(Bytes::from_static(b"v"));
    assert_eq!(disks.cluster.outcome(read), done(&value, true));
}

#[test]
fn what_a_disk_holds_and_the_memory_does_not_is_an_error() {
    let mut disks = Disks::open();
    let large = Operation::set(Bytes::from(vec![b'v'; 600_000]));
    disks.answer("large", &large);
    disks.answer("small", &set("v"));
    (0..3).for_each(|index| disks.restart(index));
    disks.cluster.pass(DurationNs::millis(2_000));
    let rows: Vec<_> = disks.kept[0].rows.clone().into_iter().collect();
    let [(first, one), (second, other)] = &rows[..] else {
        panic!("{} rows", rows.len())
    };
    let bytes = |state: &State| state.snapshot.as_ref().map_or(0, Bytes::len);
    let large = if bytes(one) > bytes(other) {
        one
    } else {
        other
    };
    let server = &mut disks.cluster.servers[0];
    assert!(server.restores().is_some());
    assert_eq!(server.restore(first, large), Ok(()));
    let refused = server.restore(second, large).unwrap_err();
    assert_eq!(refused, RestoreError::Memory(1 << 20));
}

/// Returns a configuration in which three incarnations have ended, each with a disk, and these
/// disks have come back.
fn ended(back: &[(u16, Disk)]) -> Config {
    let member = |id: u16, life: u128, gone: bool, disk: Disk| Member {
        server: ServerId(id),
        incarnation: Incarnation(life),
        addresses: Vec::new(),
        gone,
        disk: Some(disk),
    };
    let old = |id: u16| member(id, u128::from(id), true, Disk::default());
    let next = back
        .iter()
        .map(|(id, disk)| member(*id, u128::from(*id) + 100, false, *disk));
    Config {
        number: ConfigNumber(7),
        replicas: 3,
        shards: 1,
        lease: DurationNs::millis(1_000),
        members: vec![old(1), old(2), old(3)],
        next: Some(next.collect()),
        last_loss: ConfigNumber(0),
        last_majority_loss: ConfigNumber(0),
        last_wipe: ConfigNumber(0),
    }
}

#[test]
fn a_disk_that_ends_long_before_another_is_as_good_as_missing() {
    let lag_ns = i64::try_from(DISK_LAG_MAX.0).unwrap();
    let of = |life: u128, through_ns: i64| Disk {
        current: Some(SavedLife {
            life: Incarnation(life),
            through: WallNs(through_ns),
        }),
        ..Disk::default()
    };
    let in_time = ended(&[(1, of(1, lag_ns)), (2, of(2, 0))]);
    assert_eq!(in_time.disks_missing(), []);
    assert_eq!(in_time.disks_behind(), []);
    let late = ended(&[(1, of(1, lag_ns + 1)), (2, of(2, 0))]);
    assert_eq!(late.disks_missing(), [ServerId(2), ServerId(3)]);
    // Server 3 has not come back, and the disk of server 2 is too old.
    let lag = DurationNs(DISK_LAG_MAX.0 + 1);
    assert_eq!(late.disks_behind(), [(ServerId(2), lag)]);
    let of_another_life = ended(&[(1, of(9, 0)), (2, of(2, 0))]);
    assert_eq!(of_another_life.disks_missing(), [ServerId(1), ServerId(3)]);
    let lost = Disk {
        lost: true,
        ..Disk::default()
    };
    // A majority may have been on the disks of 1 and 3.
    assert_eq!(
        ended(&[(1, lost), (2, of(2, 0))]).disks_missing(),
        [ServerId(3)]
    );
    let both = [(1, lost), (2, of(2, 0)), (3, of(3, 0))];
    assert_eq!(ended(&both).disks_missing(), []);
    let two_lost = [(1, lost), (2, of(2, 0)), (3, lost)];
    assert_eq!(ended(&two_lost).disks_missing(), []);
    assert_eq!(
        ended(&[(1, lost)]).disks_missing(),
        [ServerId(2), ServerId(3)]
    );
}

#[test]
fn a_life_that_took_part_counts_before_the_next_one_is_copied() {
    let mut disks = Disks::open();
    disks.answer("k", &set("v"));
    let life = disks.cluster.servers[0].life().incarnation;
    assert_eq!(disks.cluster.servers[0].counted_life(), Some(life));
    disks.restart(0);
    // The new incarnation receives the configuration in which the earlier one is still a member.
    let mut counted = None;
    for _ in 0..3_000 {
        disks.cluster.pass(DurationNs::millis(1));
        counted = counted.or_else(|| disks.cluster.servers[0].counted_life());
        (1..3).for_each(|index| disks.write(index));
    }
    assert_eq!(counted, Some(life));
    disks.pass(100);
    let mine = disks.cluster.servers[0].life().incarnation;
    assert_eq!(disks.cluster.servers[0].counted_life(), Some(mine));
}
