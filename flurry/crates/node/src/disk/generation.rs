//! Stores all records of one incarnation of a server in a file.
//!
//! The file is a database (redb) with two tables: the records by session and key, and the state of
//! the whole. A commit has two phases, each synced, so a torn commit leaves the earlier state. The
//! opening checks every page, so damage is found before any record is believed.

use std::ops::Bound::{Excluded, Unbounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flurry_core::config::SavedLife;
use flurry_core::id::{Incarnation, Key, SessionId, WallNs};
use flurry_core::message::State;
use flurry_core::wire::{decode_record, encode_record};
use redb::{Builder, Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use crate::Error;

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const KNOWN: TableDefinition<'_, &str, u128> = TableDefinition::new("known");

/// Pages that a database keeps in memory: records are there already.
const CACHE_BYTES: usize = 16 << 20;

/// Version of the format of the tables.
const FORMAT: u128 = 1;

/// What becomes of a record.
#[derive(Debug, Clone)]
pub(super) enum Row {
    /// Write this state, unless the present one is newer.
    Is(State),
    /// It is a deletion that may go now, unless something newer is there.
    Forgotten(State),
    /// It belongs to others.
    Moved,
}

/// Records, and the last row where there may be more.
pub(super) type Slice = (Vec<(Key, State)>, Option<Vec<u8>>);

/// A file of records.
#[derive(Debug)]
pub(super) struct Generation {
    path: PathBuf,
    database: Database,
    pub(super) life: Incarnation,
    /// Up to when each shard's changes are there, by the wall clock.
    pub(super) through_ns: Vec<WallNs>,
}

fn row_key(key: &Key) -> Vec<u8> {
    [&key.session().0.to_be_bytes()[..], key.bytes()].concat()
}

fn key_of(row: &[u8]) -> Option<Key> {
    let (session, bytes) = row.split_first_chunk::<4>()?;
    let session = SessionId(u32::from_be_bytes(*session));
    Key::new(session, Bytes::copy_from_slice(bytes)).ok()
}

/// A record as it stands in a row. A page that rots while the database is open gets a checksum of its
/// own when it is written anew; so each record has one too, with its row's key.
fn sealed(row: &[u8], state: &State) -> Vec<u8> {
    let record = encode_record(state);
    let sum = crc32c::crc32c_append(crc32c::crc32c(row), &record);
    [&sum.to_le_bytes()[..], &record].concat()
}

fn unsealed(row: &[u8], value: &[u8]) -> Option<State> {
    let (sum, record) = value.split_first_chunk::<4>()?;
    let found = crc32c::crc32c_append(crc32c::crc32c(row), record);
    let whole = u32::from_le_bytes(*sum) == found;
    decode_record(Bytes::copy_from_slice(record))
        .ok()
        .filter(|_| whole)
}

/// Whatever goes wrong in a database is an error, also what its authors thought impossible.
fn guarded<T>(
    path: &Path,
    wanted: &'static str,
    act: impl FnOnce() -> Result<T, redb::Error>,
) -> Result<T, Error> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(done) => done.map_err(|error| Error::io(path.display(), wanted, &error)),
        Err(_) => Err(Error::io(path.display(), wanted, &"it is damaged")),
    }
}

fn through(shard: usize) -> String {
    format!("through {shard}")
}

impl Generation {
    /// A new file, with nothing in it.
    pub(super) fn create(path: PathBuf, life: Incarnation, shards: u8) -> Result<Self, Error> {
        let database = guarded(&path, "a new file for records", || {
            let database = Builder::new().set_cache_size(CACHE_BYTES).create(&path)?;
            let mut write = database.begin_write()?;
            write.set_two_phase_commit(true);
            write.open_table(RECORDS)?;
            let mut known = write.open_table(KNOWN)?;
            known.insert("format", FORMAT)?;
            known.insert("life", life.0)?;
            known.insert("shards", u128::from(shards))?;
            drop(known);
            write.commit()?;
            Ok(database)
        })?;
        Ok(Self {
            path,
            database,
            life,
            through_ns: vec![WallNs(0); usize::from(shards)],
        })
    }

    /// One that is there, looked at from its first page to its last.
    pub(super) fn open(path: PathBuf, shards: u8) -> Result<Self, Error> {
        let (database, known) = guarded(&path, "records that are whole", || {
            let mut builder = Builder::new();
            builder.set_cache_size(CACHE_BYTES);
            builder.set_check_integrity_on_open(true);
            let database = builder.open(&path)?;
            let read = database.begin_read()?;
            let table = read.open_table(KNOWN)?;
            let mut known = std::collections::BTreeMap::new();
            for entry in table.iter()? {
                let (name, value) = entry?;
                known.insert(name.value().to_owned(), value.value());
            }
            drop(table);
            drop(read);
            Ok((database, known))
        })?;
        let number = |name: &str| known.get(name).copied().unwrap_or(0);
        let refused = |problem: String, wanted| Err(Error::io(path.display(), wanted, &problem));
        if number("format") != FORMAT {
            let problem = format!("its format is {}", number("format"));
            return refused(problem, "one that this program writes");
        }
        if number("shards") != u128::from(shards) {
            let problem = format!("it is of a server with {} threads", number("shards"));
            return refused(problem, "as many --shards as there were");
        }
        let through_ns = (0..usize::from(shards)).map(|shard| {
            let known = number(&through(shard));
            WallNs(i64::try_from(known).unwrap_or(0))
        });
        Ok(Self {
            through_ns: through_ns.collect(),
            life: Incarnation(number("life")),
            path,
            database,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What it has: of all shards, up to where the slowest one is.
    pub(super) fn saved(&self) -> SavedLife {
        let through_ns = self.through_ns.iter().copied().min();
        SavedLife {
            life: self.life,
            through: through_ns.unwrap_or_default(),
        }
    }

    /// Writes all of these or none, on disk when this returns.
    pub(super) fn commit<'a>(
        &mut self,
        rows: impl Iterator<Item = (&'a Key, &'a Row)>,
        through_ns: &[WallNs],
    ) -> Result<(), Error> {
        let database = &self.database;
        guarded(&self.path, "to write records there", || {
            let mut write = database.begin_write()?;
            write.set_two_phase_commit(true);
            let mut records = write.open_table(RECORDS)?;
            for (key, row) in rows {
                put(&mut records, key, row)?;
            }
            drop(records);
            let mut known = write.open_table(KNOWN)?;
            for (shard, at_ns) in through_ns.iter().enumerate() {
                let at_ns = u128::try_from(at_ns.0).unwrap_or(0);
                known.insert(through(shard).as_str(), at_ns)?;
            }
            drop(known);
            write.commit()?;
            Ok(())
        })?;
        self.through_ns = through_ns.to_vec();
        Ok(())
    }

    /// Returns records behind a row, at least `bytes_max` bytes of them where there are so much,
    /// and the last row if there may be more.
    pub(super) fn read(&self, after: &[u8], bytes_max: usize) -> Result<Slice, Error> {
        let damaged = |row: &[u8]| {
            let row = row.escape_ascii().to_string();
            redb::Error::Corrupted(format!("the record {row} cannot be read"))
        };
        guarded(&self.path, "records that are whole", || {
            let read = self.database.begin_read()?;
            let table = read.open_table(RECORDS)?;
            let (mut records, mut bytes) = (Vec::new(), 0);
            for entry in table.range::<&[u8]>((Excluded(after), Unbounded))? {
                let (row, value) = entry?;
                let (row, value) = (row.value(), value.value());
                let key = key_of(row).ok_or_else(|| damaged(row))?;
                let state = unsealed(row, value).ok_or_else(|| damaged(row))?;
                records.push((key, state));
                bytes += row.len() + value.len();
                if bytes >= bytes_max {
                    let row = row.to_vec();
                    return Ok((records, Some(row)));
                }
            }
            Ok((records, None))
        })
    }
}

fn put(
    records: &mut redb::Table<'_, &[u8], &[u8]>,
    key: &Key,
    row: &Row,
) -> Result<(), redb::Error> {
    let place = row_key(key);
    let there = records.get(place.as_slice())?;
    let there = there.and_then(|it| unsealed(&place, it.value()));
    let is_newer = |state: &State| there.as_ref().is_some_and(|it| it.version > state.version);
    match row {
        Row::Is(state) if !is_newer(state) => {
            records.insert(place.as_slice(), sealed(&place, state).as_slice())?;
        }
        Row::Forgotten(state) if !is_newer(state) => {
            records.remove(place.as_slice())?;
        }
        Row::Moved => {
            records.remove(place.as_slice())?;
        }
        Row::Is(_) | Row::Forgotten(_) => {}
    }
    Ok(())
}

#[cfg(test)]
#[path = "generation_tests.rs"]
mod tests;
