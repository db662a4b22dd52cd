//! A segment holds the values that it was given, repeated ones and nulls among them.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use proptest::prelude::*;
use unruly_trace::{SegmentMeta, SegmentWriter, Table, TraceError, Value};

/// A row of `events`, without the columns that are the same everywhere.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    kind: String,
    detail: Option<String>,
    started_ns: i64,
    ended_ns: Option<i64>,
}

fn value(event: &Event, column: usize) -> Value<'_> {
    match column {
        0 | 2 | 3 => Value::Text("same"),
        1 => Value::Int(7),
        4 => Value::Text(&event.kind),
        5 => event.detail.as_deref().map_or(Value::Null, Value::Text),
        6 => Value::Int(event.started_ns),
        _ => event.ended_ns.map_or(Value::Null, Value::Int),
    }
}

/// Writes each part by a call of its own.
fn write(path: &Path, parts: &[&[Event]]) -> Result<u64, TraceError> {
    let mut writer = SegmentWriter::create(Table::Events, path)?;
    for events in parts {
        writer.append(events.len(), |column, row| value(&events[row], column))?;
    }
    let meta = SegmentMeta {
        run: "run".to_owned(),
        host: "local".to_owned(),
        process: "agent-0".to_owned(),
        tag: "test".to_owned(),
    };
    writer.finish(&meta, None)
}

fn reader(path: &Path) -> SerializedFileReader<File> {
    SerializedFileReader::new(File::open(path).unwrap()).unwrap()
}

fn read(path: &Path) -> Vec<Event> {
    let reader = reader(path);
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| {
        let row = row.unwrap();
        let same = [0, 2, 3].map(|column| row.get_string(column).unwrap().as_str());
        assert_eq!((same, row.get_ushort(1).unwrap()), (["same"; 3], 7));
        Event {
            kind: row.get_string(4).unwrap().clone(),
            detail: row.get_string(5).ok().cloned(),
            started_ns: row.get_long(6).unwrap(),
            ended_ns: row.get_long(7).ok(),
        }
    })
    .collect()
}

/// Runs of equal rows: short ones, and some longer than the writer takes at once.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let word = prop_oneof![3 => "[a-c]", 1 => "[a-z]{0,12}", 1 => Just("\u{b5}s".to_owned())];
    let detail = prop_oneof![Just(None), word.clone().prop_map(Some)];
    let count = prop_oneof![4 => 1..4_usize, 1 => 1_000..2_100_usize];
    let run = (word, detail, any::<i64>(), any::<Option<i64>>(), count);
    let run = run.prop_map(|(kind, detail, started_ns, ended_ns, count)| {
        let event = Event {
            kind,
            detail,
            started_ns,
            ended_ns,
        };
        vec![event; count]
    });
    prop::collection::vec(run, 0..24).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_come_back_as_they_were_given(parts in prop::collection::vec(events(), 1..3)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.parquet");
        let slices: Vec<&[Event]> = parts.iter().map(Vec::as_slice).collect();
        let all = parts.concat();
        prop_assert_eq!(write(&path, &slices).unwrap(), all.len() as u64);
        prop_assert_eq!(read(&path), all);
    }
}

#[test]
fn a_row_group_has_at_most_32_768_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.parquet");
    let events: Vec<Event> = (0..70_000)
        .map(|number| Event {
            kind: "fault".to_owned(),
            detail: (number % 3 > 0).then(|| number.to_string()),
            started_ns: number,
            ended_ns: None,
        })
        .collect();
    write(&path, &[&events]).unwrap();
    let groups = reader(&path).metadata().row_groups().to_vec();
    let rows: Vec<i64> = groups.iter().map(|it| it.num_rows()).collect();
    assert_eq!(rows, [32_768, 32_768, 4_464]);
    assert_eq!(read(&path), events);
}

#[test]
fn a_value_that_its_column_cannot_have_is_named_with_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.parquet");
    for (wrong, said) in [
        (Value::Null, "column kind: row 1 is Null"),
        (Value::Int(3), "column kind: row 1 is Int(3)"),
    ] {
        let mut writer = SegmentWriter::create(Table::Events, &path).unwrap();
        let event = Event {
            kind: "fault".to_owned(),
            detail: None,
            started_ns: 1,
            ended_ns: None,
        };
        let refused = writer.append(3, |column, row| {
            if (column, row) == (4, 1) {
                wrong
            } else {
                value(&event, column)
            }
        });
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(said), "{text}");
    }
}
