//! The tables of a trace, read from the written contract.

use std::sync::Arc;

use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;

/// Version of the tables. Readers accept every older one; a column never changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// A table of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// A row for each reply, and for each reply that never came.
    Requests,
    /// Where the time of a request went.
    Spans,
    /// What flowed, each 100 ms.
    Intervals,
    /// Resource usage of hosts and watched processes.
    Resources,
    /// Anything with a start and a duration.
    Events,
    /// Imported latencies whose source kept no single values: a row for each bin of each interval.
    Histograms,
    /// Requests and replies of services as a tap sees them: a row for each turnaround.
    Turnarounds,
}

impl Table {
    /// All tables, in the order of a run directory.
    pub const ALL: [Self; 7] = [
        Self::Requests,
        Self::Spans,
        Self::Intervals,
        Self::Resources,
        Self::Events,
        Self::Histograms,
        Self::Turnarounds,
    ];

    /// The table's name, which is also its directory in the run.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Spans => "spans",
            Self::Intervals => "intervals",
            Self::Resources => "resources",
            Self::Events => "events",
            Self::Histograms => "histograms",
            Self::Turnarounds => "turnarounds",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Requests => include_str!("../../../schema/trace/requests.schema"),
            Self::Spans => include_str!("../../../schema/trace/spans.schema"),
            Self::Intervals => include_str!("../../../schema/trace/intervals.schema"),
            Self::Resources => include_str!("../../../schema/trace/resources.schema"),
            Self::Events => include_str!("../../../schema/trace/events.schema"),
            Self::Histograms => include_str!("../../../schema/trace/histograms.schema"),
            Self::Turnarounds => include_str!("../../../schema/trace/turnarounds.schema"),
        }
    }

    /// The Parquet type of the table.
    ///
    /// # Panics
    ///
    /// Never: the schema files are compiled in, and a test parses each of them.
    #[must_use]
    pub fn parquet_type(self) -> Arc<Type> {
        Arc::new(parse_message_type(self.message()).expect("the compiled-in schema parses"))
    }

    /// Column names in order.
    #[must_use]
    pub fn columns(self) -> Vec<String> {
        self.parquet_type()
            .get_fields()
            .iter()
            .map(|field| field.name().to_owned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_written_schema_parses_and_names_its_table() {
        for table in Table::ALL {
            assert_eq!(table.parquet_type().name(), table.name());
            assert!(table.columns().len() > 5);
        }
    }

    #[test]
    fn every_time_and_size_column_ends_with_its_unit() {
        let units = ["_ns", "_bytes", "_share", "_hz", "_pages", "_length"];
        for table in Table::ALL {
            for column in table.columns() {
                let timed = column.contains("received") || column.contains("sent");
                let counted = column.ends_with("_packets") || column.ends_with("received_bytes");
                if timed && !counted {
                    assert!(units.iter().any(|unit| column.ends_with(unit)), "{column}");
                }
            }
        }
    }
}
