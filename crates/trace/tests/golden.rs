//! The golden files of the tables: what they hold is what their JSON says, for readers in any language.
//!
//! `UNRULY_REWRITE_GOLDEN=1 cargo test -p unruly-trace --test golden` writes them anew; read the diff.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::fs;
use std::path::PathBuf;

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Map, Value as Json, json};
use unruly_trace::{SegmentMeta, SegmentWriter, Table, Value};

fn golden(table: Table, extension: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../schema/golden");
    folder.join(format!("{}.{extension}", table.name()))
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
