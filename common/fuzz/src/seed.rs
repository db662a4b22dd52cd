//! Input that is right, made by the parts themselves.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use bytes::Bytes;
use flurry_core::config::Level;
use flurry_core::key_value::{Condition, Operation};
use flurry_core::message::Message;
use unruly_trace::{ColumnNs, Record, SCHEMA_VERSION, SpoolHeader, Status};

use crate::cluster::{Cluster, server};

/// For how many milliseconds a cluster is listened to.
const MILLISECONDS: usize = 4_000;

/// What the parts of a cluster say to each other while an owner works, a server begins anew, and another
/// owner takes over: one message of each kind and size. And the controller's file at the end.
pub(crate) fn conversation() -> (Vec<Message>, Vec<u8>) {
    let mut cluster = Cluster::open();
    let mut heard = BTreeMap::new();
    let set = Operation::Set {
        value: Bytes::from_static(b"a value"),
        expires_at: None,
        condition: Condition::Always,
    };
    for (number, level) in (0..).zip([
        Level::First,
        Level::Quorum,
        Level::All,
        Level::Auto,
        Level::Disk,
    ]) {
        let key = format!("key-{number}");
        for operation in [
            &set,
            &Operation::Get,
            &Operation::Append(Bytes::from_static(b"!")),
            &Operation::Delete { counted: true },
            &Operation::Increment(7),
        ] {
            cluster.ask(&key, operation, level);
        }
    }
    for millisecond in 0..MILLISECONDS {
        if millisecond == 20 {
            // It has to copy what the others have.
            cluster.servers[2] = server(2, 99);
        }
        if millisecond == 3_000 {
            cluster.portal = crate::cluster::portal(cluster.now, 2);
        }
        if millisecond == 3_900 && cluster.portal.is_open() {
            cluster.ask("key-0", &Operation::Get, Level::First);
        }
        cluster.tick();
        cluster.collect();
        while let Some(letter) = cluster.letters.pop_front() {
            let kind: String = format!("{:?}", letter.2).chars().take(40).collect();
            heard.entry(kind).or_insert_with(|| letter.2.clone());
            cluster.deliver(letter);
            cluster.collect();
        }
    }
    (heard.into_values().collect(), cluster.disk)
}

/// A log of three records, one of them not final.
pub(crate) fn spool() -> Result<Vec<u8>> {
    let words = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
    let header = SpoolHeader {
        schema: SCHEMA_VERSION,
        run: "run".to_owned(),
        host: "local".to_owned(),
        process: "client-0".to_owned(),
        tag: "test".to_owned(),
        cells: words(&["all"]),
        ops: words(&["read", "write"]),
        phases: words(&["warmup", "measure"]),
        tally: None,
    };
    let mut bytes = Vec::new();
    header.write(&mut bytes).context("a header")?;
    for (request, status) in (0..).zip([Status::Ok, Status::Lost, Status::Behind]) {
        Record {
            intended_ns: ColumnNs(1_000 * i64::try_from(request)?),
            request,
            status,
            provisional: request == 1,
            ..Record::empty()
        }
        .encode(&mut bytes);
    }
    Ok(bytes)
}
