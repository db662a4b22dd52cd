//! Files of records, as they are and damaged.

use std::os::unix::fs::FileExt as _;

use flurry_core::id::{Epoch, Sequence, Version};

use super::*;

const LIFE: Incarnation = Incarnation(7);

fn key(name: &str) -> Key {
    Key::new(SessionId(3), Bytes::copy_from_slice(name.as_bytes())).unwrap()
}

fn state(sequence: u64, value: Option<&str>) -> State {
    let snapshot = value.map(|it| Bytes::copy_from_slice(it.as_bytes()));
    State {
        version: Version {
            epoch: Epoch(1),
            sequence: Sequence(sequence),
        },
        written_in: Epoch(1),
        digest: flurry_core::machine::digest(snapshot.as_deref()),
        snapshot,
        answer: Bytes::from_static(b"done"),
        evicted: false,
    }
}

fn filled(path: PathBuf, count: u64) -> Generation {
    let mut generation = Generation::create(path, LIFE, 2).unwrap();
    for number in 0..count {
        let row = Row::Is(state(number + 1, Some(&format!("value {number}"))));
        let rows = [(key(&format!("k{number:03}")), row)];
        generation
            .commit(
                rows.iter().map(|(key, row)| (key, row)),
                &[WallNs(5), WallNs(4)],
            )
            .unwrap();
    }
    generation
}

fn everything(generation: &Generation) -> Vec<(Key, State)> {
    let (mut all, mut after) = (Vec::new(), Vec::new());
    loop {
        let (records, next) = generation.read(&after, 200).unwrap();
        all.extend(records);
        match next {
            Some(row) => after = row,
            None => return all,
        }
    }
}

#[test]
fn the_next_incarnation_reads_committed_records_with_their_incarnation_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records");
    drop(filled(path.clone(), 20));
    let found = Generation::open(path.clone(), 2).unwrap();
    let saved = found.saved();
    assert_eq!((saved.life, saved.through), (LIFE, WallNs(4)));
    let all = everything(&found);
    assert_eq!(all.len(), 20);
    assert_eq!(all[7], (key("k007"), state(8, Some("value 7"))));
    drop(found);
    let refused = Generation::open(path, 3).unwrap_err().to_string();
    assert!(refused.contains("a server with 2 threads"), "{refused}");
}

#[test]
fn an_older_record_never_takes_the_place_of_a_newer_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut generation = Generation::create(folder.path().join("records"), LIFE, 1).unwrap();
    let mut commit = |row: Row| {
        let rows = [(key("k"), row)];
        generation
            .commit(rows.iter().map(|(key, row)| (key, row)), &[WallNs(0)])
            .unwrap();
        everything(&generation).pop().map(|(_, state)| state)
    };
    let newer = state(2, Some("newer"));
    assert_eq!(commit(Row::Is(newer.clone())), Some(newer.clone()));
    assert_eq!(
        commit(Row::Is(state(1, Some("older")))),
        Some(newer.clone())
    );
    assert_eq!(commit(Row::Forgotten(state(1, None))), Some(newer));
    let deleted = state(3, None);
    assert_eq!(commit(Row::Is(deleted.clone())), Some(deleted.clone()));
    assert_eq!(commit(Row::Forgotten(deleted)), None);
    commit(Row::Is(state(4, Some("again"))));
    assert_eq!(commit(Row::Moved), None);
}

#[test]
fn a_record_with_a_bit_changed_or_under_another_key_is_none() {
    let (row, other) = (row_key(&key("k1")), row_key(&key("k2")));
    let state = state(7, Some("value"));
    let sealed = sealed(&row, &state);
    assert_eq!(unsealed(&row, &sealed), Some(state));
    assert_eq!(unsealed(&other, &sealed), None);
    for bit in 0..8 * sealed.len() {
        let mut damaged = sealed.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(unsealed(&row, &damaged), None, "bit {bit}");
    }
    for length in 0..sealed.len() {
        assert_eq!(unsealed(&row, &sealed[..length]), None, "{length} bytes");
    }
}

/// Returns true if a damaged file yields either an error or exactly the written records.
fn is_found_or_harmless(path: &Path, wanted: &[(Key, State)]) -> bool {
    match Generation::open(path.to_owned(), 2) {
        Err(_) => true,
        Ok(found) => {
            let (mut all, mut after) = (Vec::new(), Vec::new());
            loop {
                match found.read(&after, 1 << 20) {
                    Err(_) => return true,
                    Ok((records, next)) => {
                        all.extend(records);
                        match next {
                            Some(row) => after = row,
                            None => return all == wanted,
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn damage_anywhere_in_a_file_is_found_and_nothing_false_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records");
    let generation = filled(path.clone(), 40);
    let wanted = everything(&generation);
    drop(generation);
    let whole = std::fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged");
    let mut errors = 0;
    // Every 4 KiB one flipped bit, and every page once as zeros.
    let pages = whole.len() / 4_096;
    for (number, zeroed) in (0..pages).flat_map(|page| [(page, false), (page, true)]) {
        std::fs::write(&damaged, &whole).unwrap();
        let file = std::fs::File::options().write(true).open(&damaged).unwrap();
        let at = number * 4_096;
        if zeroed {
            file.write_all_at(&[0; 4_096], at as u64).unwrap();
        } else {
            let at = at + number * 97 % 4_096;
            file.write_all_at(&[whole[at] ^ 0x10], at as u64).unwrap();
        }
        drop(file);
        assert!(
            is_found_or_harmless(&damaged, &wanted),
            "page {number}, zeroed: {zeroed}"
        );
        errors += u32::from(Generation::open(damaged.clone(), 2).is_err());
    }
    assert!(errors > 5, "some of it matters: {errors}");
}

#[test]
fn a_file_that_was_cut_is_no_file_of_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records");
    drop(filled(path.clone(), 10));
    let length = std::fs::metadata(&path).unwrap().len();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(length - 100).unwrap();
    drop(file);
    assert!(Generation::open(path, 2).is_err());
}
