//! The golden files of tables, manifest and spool. Readers in any language can rely on their
//! content.
//!
//! `UNRULY_REWRITE_GOLDEN=1 cargo test -p unruly-trace --test golden` rewrites them. Read the diff.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::fs;
use std::path::PathBuf;

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Map, Value as Json, json};
use unruly_trace::{
    ColumnNs, Counts, Level, Manifest, Record, SegmentMeta, SegmentWriter, SpoolHeader,
    SpoolReader, Status, Table, Value,
};

fn folder_of_golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../schema/golden")
}

fn golden(table: Table, extension: &str) -> PathBuf {
    folder_of_golden().join(format!("{}.{extension}", table.name()))
}

/// Two rows: one with every column, one with every optional column null.
fn made(table: Table) -> Vec<Map<String, Json>> {
    let schema = table.parquet_type();
    let value = |position: usize, column: &parquet::schema::types::Type| {
        use parquet::basic::Type;
        match column.get_physical_type() {
            Type::BOOLEAN => json!(true),
            Type::DOUBLE => json!(0.25),
            Type::BYTE_ARRAY => json!(format!("{} \u{b5}", column.name())),
            Type::INT32 => json!(position + 1),
            _ => json!(1_795_212_671_000_000_000_i64 + i64::try_from(position).unwrap()),
        }
    };
    let optional = |column: &parquet::schema::types::Type| {
        column.get_basic_info().repetition() == parquet::basic::Repetition::OPTIONAL
    };
    let row = |empty: bool| {
        let fields = schema.get_fields().iter().enumerate();
        fields
            .map(|(position, column)| {
                let null = empty && optional(column);
                let json = if null {
                    Json::Null
                } else {
                    value(position, column)
                };
                (column.name().to_owned(), json)
            })
            .collect()
    };
    vec![row(false), row(true)]
}

fn write(table: Table) {
    let rows = made(table);
    let columns = table.columns();
    let mut writer = SegmentWriter::create(table, &golden(table, "parquet")).unwrap();
    writer
        .append(rows.len(), |column, row| {
            match &rows[row][&columns[column]] {
                Json::Bool(flag) => Value::Bool(*flag),
                Json::String(text) => Value::Text(text),
                Json::Number(number) => number
                    .as_i64()
                    .map_or_else(|| Value::Float(number.as_f64().unwrap()), Value::Int),
                _ => Value::Null,
            }
        })
        .unwrap();
    let meta = SegmentMeta {
        run: "golden".to_owned(),
        host: "local".to_owned(),
        process: "agent-0".to_owned(),
        tag: "golden".to_owned(),
    };
    writer.finish(&meta, None).unwrap();
    let text = serde_json::to_string_pretty(&rows).unwrap();
    fs::write(golden(table, "json"), text + "\n").unwrap();
}

#[test]
fn the_golden_files_hold_what_their_json_says() {
    for table in Table::ALL {
        if std::env::var_os("UNRULY_REWRITE_GOLDEN").is_some() {
            write(table);
        }
        let text = fs::read_to_string(golden(table, "json")).unwrap();
        let expected: Vec<Map<String, Json>> = serde_json::from_str(&text).unwrap();
        assert_eq!(
            expected,
            made(table),
            "{}: the columns changed",
            table.name()
        );
        let file = fs::File::open(golden(table, "parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let found: Vec<Json> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().to_json_value())
            .collect();
        let expected: Vec<Json> = expected.into_iter().map(Json::Object).collect();
        assert_eq!(found, expected, "{}", table.name());
    }
}

#[test]
fn the_golden_manifest_is_read_and_written_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(folder_of_golden().join("manifest.json")).unwrap();
    fs::write(folder.path().join(Manifest::FILE), &text).unwrap();
    let manifest = Manifest::read(folder.path()).unwrap();
    let read: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_value(&manifest).unwrap(), read);
    manifest.counts.check("golden").unwrap();
    let mut sum = Counts::default();
    for process in &manifest.processes {
        if let Some(counts) = &process.counts {
            counts.check(&process.name).unwrap();
            sum.add(counts);
        }
    }
    assert_eq!(sum, manifest.counts);
}

/// A final record with a key, a provisional one, and the one that supersedes it.
fn records() -> Vec<Record> {
    let first = Record {
        intended_ns: ColumnNs(1_795_212_671_000_000_001),
        sent_ns: ColumnNs(1_795_212_671_000_000_102),
        received_ns: ColumnNs(1_795_212_671_000_001_003),
        kernel_received_ns: ColumnNs(1_795_212_671_000_001_002),
        request: 1,
        key: Some(258),
        connection: 3,
        sent_bytes: 28,
        received_bytes: 44,
        cell: 0,
        repeat: 1,
        client: 2,
        server: 3,
        op: 1,
        phase: 1,
        attempt: 0,
        level: Some(Level::All),
        status: Status::Ok,
        answered: true,
        ..Record::empty()
    };
    let open = Record {
        request: 2,
        status: Status::Unfinished,
        answered: false,
        provisional: true,
        ..first
    };
    let late = Record {
        status: Status::Timeout,
        provisional: false,
        supersedes: true,
        code: Some(503),
        waited: true,
        ..open
    };
    vec![first, open, late]
}

#[test]
fn the_golden_spool_holds_the_records_that_are_written_down_here() {
    let path = folder_of_golden().join("requests.spool");
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    let header = SpoolHeader {
        schema: 1,
        run: "golden".to_owned(),
        host: "local".to_owned(),
        process: "agent-2".to_owned(),
        tag: "golden".to_owned(),
        cells: words(&["all"]),
        ops: words(&["null", "disk"]),
        phases: words(&["warmup", "measure"]),
        tally: None,
    };
    let mut bytes = Vec::new();
    header.write(&mut bytes).unwrap();
    records()
        .iter()
        .for_each(|record| record.encode(&mut bytes));
    if std::env::var_os("UNRULY_REWRITE_GOLDEN").is_some() {
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let reader = SpoolReader::open(&path).unwrap();
    assert_eq!(reader.header, header);
    assert_eq!(reader.collect::<Vec<_>>(), records());
}
