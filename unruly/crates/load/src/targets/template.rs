//! Values that each request has of its own: a row of a data file, a number, a UUID.
//!
//! First, a text of the plan is split at its places. Second, a request's number chooses its values:
//! rows of the data file come in turn, and everything random follows from the seed, so a run can be
//! repeated. A place has one value in a request, wherever it stands, also when it is tried again.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use unruly_plan::{CAPTURED, Portion, mix};

use super::DriverError;
use super::http::Captured;

/// What stands as it is in a URL (RFC 3986, 2.3).
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Largest data file, which is held in memory.
const DATA_BYTES_MAX: u64 = 64 << 20;

/// All places, for messages.
const PLACES: &str = "{data.COLUMN}, {uuid}, {sequence}, {random:1..9} or {words:100}";

/// Most words of a place.
const WORDS_MAX: usize = 100_000;

/// Common English words, each of which most tokenizers have as one token.
const WORDS: [&str; 32] = [
    "time",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
];

/// The rows of a data file, for the requests in turn.
#[derive(Debug)]
pub(super) struct Data {
    file: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    checksum: u32,
}

impl Data {
    /// Reads a CSV file whose first line names the columns.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is too large, or is no CSV file with a row.
    pub(super) fn read(file: &str) -> Result<Self, DriverError> {
        let wrong = |wrong: String| {
            DriverError::new(
                "data",
                wrong,
                "wanted a CSV file with the names of its columns in the first line, and rows",
                "name such a file of up to 64 MB",
            )
        };
        let mut text = Vec::new();
        let opened = File::open(Path::new(file)).map_err(|it| wrong(format!("{file}: {it}")))?;
        let read = opened.take(DATA_BYTES_MAX + 1).read_to_end(&mut text);
        read.map_err(|it| wrong(format!("{file}: {it}")))?;
        if text.len() as u64 > DATA_BYTES_MAX {
            return Err(wrong(format!("{file} has more than 64 MB")));
        }
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::Headers)
            .from_reader(&text[..]);
        let of_csv = |error: csv::Error| wrong(format!("{file}: {error}"));
        let columns: Vec<String> = reader
            .headers()
            .map_err(of_csv)?
            .iter()
            .map(str::to_owned)
            .collect();
        let rows = reader
            .records()
            .map(|row| row.map(|row| row.iter().map(str::to_owned).collect()))
            .collect::<Result<Vec<Vec<String>>, _>>()
            .map_err(of_csv)?;
        if rows.is_empty() {
            return Err(wrong(format!("{file} has no row")));
        }
        Ok(Self {
            file: file.to_owned(),
            columns,
            rows,
            checksum: crc32fast::hash(&text),
        })
    }

    /// What a reader of the report must know of the file.
    pub(super) fn about(&self) -> String {
        format!(
            "{}: {} rows of {}, CRC-32 {:08x}",
            self.file,
            self.rows.len(),
            self.columns.join(", "),
            self.checksum
        )
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    fn column(&self, key: &'static str, name: &str) -> Result<usize, DriverError> {
        let found = self.columns.iter().position(|column| column == name);
        found.ok_or_else(|| {
            DriverError::new(
                key,
                format!("{{data.{name}}} is no column of {}", self.file),
                format!("wanted one of {}", self.columns.join(", ")),
                "are the names in the first line?",
            )
        })
    }
}

/// How a value is written, so that it stays one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escape {
    /// Percent-encoded.
    Url,
    /// As it is. The data file is checked before the run.
    Header,
    /// As it is, in a name, which has no braces but those of places.
    Name,
    /// As it is.
    Body,
    /// As in a string of JSON.
    Json,
    /// As in a field of a form, percent-encoded.
    Form,
}

/// Whose values are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) seed: u64,
    /// The number of the request among those of all processes.
    pub(super) number: u64,
    /// The key of its operation.
    pub(super) key: &'a str,
    /// What its user has captured, by the places of the names.
    captured: &'a [String],
    trace: Trace,
}

/// The ids of a request in its trace (W3C Trace Context, level 1).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trace {
    /// The halves of the trace's id: that of the process, and that of the request.
    id: (u64, u64),
    /// The id of the copy.
    span: u64,
}

impl Trace {
    /// The ids of a copy: all copies of a request have one trace, and a span each.
    pub(super) fn of(trace_key: u64, request: u64, copy: u64) -> Self {
        Self {
            id: (trace_key, mix(trace_key, request)),
            span: mix(!trace_key, copy),
        }
    }

    /// The value of the header `traceparent`, which asks the server to record the trace.
    pub(super) fn parent(&self) -> String {
        let (high, low) = self.id;
        format!("00-{high:016x}{low:016x}-{:016x}-01", self.span)
    }
}

impl<'a> Turn<'a> {
    /// The turn of a process's request.
    pub(super) fn new(seed: u64, portion: Portion, request: u64, key: &'a str) -> Self {
        Self {
            seed,
            number: portion.place(request),
            key,
            captured: &[],
            trace: Trace::default(),
        }
    }

    /// The same for a user who has captured these values.
    pub(super) fn of_user(self, captured: &'a [String]) -> Self {
        Self { captured, ..self }
    }

    /// The same with the ids of its trace.
    pub(super) fn traced(self, trace: Trace) -> Self {
        Self { trace, ..self }
    }

    fn drawn(&self, purpose: u64) -> u64 {
        mix(mix(self.seed, purpose), self.number)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Key,
    Column(usize),
    Captured(usize),
    TraceParent,
    Uuid,
    Sequence,
    Random { low: u64, high: u64 },
    Words(usize),
}

impl Piece {
    /// Appends its text in a request.
    fn write(&self, escape: Escape, turn: &Turn<'_>, data: Option<&Data>, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Key => out.extend_from_slice(turn.key.as_bytes()),
            Self::Column(column) => {
                if let Some(value) = data.map(|data| value(data, turn.number, *column)) {
                    escape.write(value, out);
                }
            }
            Self::Captured(place) => {
                if let Some(value) = turn.captured.get(*place) {
                    escape.write(value, out);
                }
            }
            Self::TraceParent => out.extend_from_slice(turn.trace.parent().as_bytes()),
            Self::Uuid => out.extend_from_slice(uuid(turn).as_bytes()),
            Self::Sequence => {
                let mut digits = itoa::Buffer::new();
                out.extend_from_slice(digits.format(turn.number + 1).as_bytes());
            }
            Self::Words(count) => words(turn, *count, escape, out),
            Self::Random { low, high } => {
                let mut digits = itoa::Buffer::new();
                out.extend_from_slice(digits.format(random(turn, *low, *high)).as_bytes());
            }
        }
    }
}

/// The sources of values that a place may name.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known<'a> {
    pub(super) data: Option<&'a Data>,
    pub(super) captured: Option<&'a Captured>,
}

impl<'a> From<Option<&'a Data>> for Known<'a> {
    fn from(data: Option<&'a Data>) -> Self {
        Self {
            data,
            captured: None,
        }
    }
}

/// A value of a place, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) value: Vec<u8>,
    /// It is a number of ours, and not a text of a data file.
    pub(super) is_number: bool,
}

/// A text with places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
    escape: Escape,
}

impl Template {
    /// The template of a text of the plan.
    ///
    /// # Errors
    ///
    /// When a place is malformed, is of no column, or stands in a URL and is none of ours.
    pub(super) fn parse<'a>(
        key: &'static str,
        text: &str,
        escape: Escape,
        known: impl Into<Known<'a>>,
    ) -> Result<Self, DriverError> {
        let known = known.into();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            match place(key, rest, escape, known)? {
                Some((piece, bytes)) => {
                    push_text(&mut pieces, &mut plain);
                    pieces.push(piece);
                    rest = &rest[bytes..];
                }
                None => {
                    plain.push('{');
                    rest = &rest[1..];
                }
            }
        }
        plain.push_str(rest);
        push_text(&mut pieces, &mut plain);
        Ok(Self { pieces, escape })
    }

    /// The same with every plain text put through `change`.
    pub(super) fn map_text(
        self,
        mut change: impl FnMut(String) -> Result<String, DriverError>,
    ) -> Result<Self, DriverError> {
        let pieces = self.pieces.into_iter().map(|piece| match piece {
            Piece::Text(text) => change(text).map(Piece::Text),
            other => Ok(other),
        });
        Ok(Self {
            pieces: pieces.collect::<Result<_, _>>()?,
            escape: self.escape,
        })
    }

    /// The same with a header line after it that names the trace of each request.
    pub(super) fn with_traceparent(mut self) -> Self {
        self = self.with_end("traceparent: ");
        self.pieces.push(Piece::TraceParent);
        self.with_end("\r\n")
    }

    /// The same with a plain text after it.
    pub(super) fn with_end(mut self, text: &str) -> Self {
        match self.pieces.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
        self
    }

    /// The text, where it has no places.
    pub(super) fn plain(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// How many places there are.
    pub(super) fn places(&self) -> usize {
        let plain = |it: &&Piece| !matches!(it, Piece::Text(_));
        self.pieces.iter().filter(plain).count()
    }

    /// The text with a parameter in each place, as `name` names it by its number from 1.
    pub(super) fn with_parameters(&self, name: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        let mut count = 0;
        for piece in &self.pieces {
            if let Piece::Text(plain) = piece {
                text.push_str(plain);
            } else {
                count += 1;
                text.push_str(&name(count));
            }
        }
        text
    }

    /// The values of the places of a request, in their order.
    pub(super) fn parameters(&self, turn: &Turn<'_>, data: Option<&Data>) -> Vec<Parameter> {
        let places = self
            .pieces
            .iter()
            .filter(|it| !matches!(it, Piece::Text(_)));
        let values = places.map(|piece| {
            let mut value = Vec::new();
            piece.write(self.escape, turn, data, &mut value);
            Parameter {
                value,
                is_number: matches!(piece, Piece::Sequence | Piece::Random { .. }),
            }
        });
        values.collect()
    }

    /// True if a value of the data file stands in it.
    pub(super) fn has_data(&self) -> bool {
        self.columns().next().is_some()
    }

    fn columns(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Column(column) => Some(*column),
            _ => None,
        })
    }

    /// Refuses rows with a character that cannot stand where their value stands.
    pub(super) fn check_lines(
        &self,
        data: Option<&Data>,
        place: &str,
        is_bad: fn(char) -> bool,
    ) -> Result<(), DriverError> {
        let Some(data) = data else { return Ok(()) };
        for column in self.columns() {
            let bad = |row: &Vec<String>| row[column].chars().any(is_bad);
            if let Some(row) = data.rows.iter().position(bad) {
                return Err(DriverError::new(
                    "data",
                    format!(
                        "row {} of {} has a control character in {:?}, which stands in {place}",
                        row + 1,
                        data.file,
                        data.columns[column]
                    ),
                    "wanted values of one line",
                    "remove it, or put the value into the body",
                ));
            }
        }
        Ok(())
    }

    /// Appends the text of a request.
    pub(super) fn write(&self, turn: &Turn<'_>, data: Option<&Data>, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            piece.write(self.escape, turn, data, out);
        }
    }
}

fn push_text(pieces: &mut Vec<Piece>, plain: &mut String) {
    if !plain.is_empty() {
        pieces.push(Piece::Text(std::mem::take(plain)));
    }
}

/// The place at the start of `text`, which begins with a brace, and its length. `None` if it is
/// plain text.
fn place(
    key: &'static str,
    text: &str,
    escape: Escape,
    known: Known<'_>,
) -> Result<Option<(Piece, usize)>, DriverError> {
    let wrong = |shown: &str| {
        DriverError::new(
            key,
            format!("{shown} stands for no value"),
            format!("wanted {PLACES}"),
            match key {
                "url" => "write %7B for a brace",
                _ => "see unruly/docs/https.md",
            },
        )
    };
    let Some(end) = text.find('}') else {
        return if escape.is_strict() {
            Err(wrong(text))
        } else {
            Ok(None)
        };
    };
    let (inner, bytes) = (&text[1..end], end + 1);
    let shown = &text[..bytes];
    let piece = if let Some(name) = inner.strip_prefix("data.") {
        let data = known.data.ok_or_else(|| {
            DriverError::new(
                key,
                format!("{shown} needs a data file"),
                "wanted the file of the column",
                "name it: data = \"users.csv\", or --data users.csv",
            )
        })?;
        Piece::Column(data.column(key, name)?)
    } else if let Some(name) = inner.strip_prefix(CAPTURED) {
        // Without a scenario it is a text as any other.
        let Some(captured) = known.captured else {
            return if escape.is_strict() {
                Err(wrong(shown))
            } else {
                Ok(None)
            };
        };
        Piece::Captured(captured.place(name).ok_or_else(|| wrong(shown))?)
    } else if let Some(range) = inner.strip_prefix("random:") {
        let (low, high) = range.split_once("..").ok_or_else(|| wrong(shown))?;
        match (low.parse(), high.parse()) {
            (Ok(low), Ok(high)) if low <= high => Piece::Random { low, high },
            _ => return Err(wrong(shown)),
        }
    } else if let Some(count) = inner.strip_prefix("words:") {
        let count = count.parse().ok();
        let count = count.filter(|count| (1..=WORDS_MAX).contains(count));
        Piece::Words(count.ok_or_else(|| wrong(shown))?)
    } else {
        match inner {
            "uuid" => Piece::Uuid,
            "sequence" => Piece::Sequence,
            "key" if escape == Escape::Url => Piece::Key,
            "password" if escape != Escape::Name => return Ok(None),
            _ if escape.is_strict() => return Err(wrong(shown)),
            _ => return Ok(None),
        }
    };
    Ok(Some((piece, bytes)))
}

/// The value of a column for the request of this number.
fn value(data: &Data, number: u64, column: usize) -> &str {
    let row = number % data.rows.len() as u64;
    &data.rows[usize::try_from(row).unwrap_or(0)][column]
}

/// A random UUID (RFC 9562, version 4).
fn uuid(turn: &Turn<'_>) -> String {
    let high = (turn.drawn(1) & !0xf000) | 0x4000;
    let low = (turn.drawn(2) & !(0b11 << 62)) | (0b10 << 62);
    let mut text = String::with_capacity(36);
    // Writing to memory does not fail.
    let _ = write!(
        text,
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    );
    text
}

/// A number from `low` to `high`, both included, each as likely as the others.
fn random(turn: &Turn<'_>, low: u64, high: u64) -> u64 {
    let drawn = turn.drawn(mix(low, high));
    let Some(count) = (high - low).checked_add(1) else {
        return drawn;
    };
    // The upper half of the product is uniform but for less than one part in 2^64 / count.
    let scaled = (u128::from(drawn) * u128::from(count)) >> 64;
    low + u64::try_from(scaled).unwrap_or(0)
}

/// Appends random words with a space between each two.
fn words(turn: &Turn<'_>, count: usize, escape: Escape, out: &mut Vec<u8>) {
    let seed = turn.drawn(3);
    for place in 0..count as u64 {
        if place > 0 {
            escape.write(" ", out);
        }
        let word = mix(seed, place) % WORDS.len() as u64;
        out.extend_from_slice(WORDS[usize::try_from(word).unwrap_or(0)].as_bytes());
    }
}

impl Escape {
    /// True if a brace that begins no place is an error.
    fn is_strict(self) -> bool {
        matches!(self, Self::Url | Self::Name)
    }

    fn write(self, value: &str, out: &mut Vec<u8>) {
        match self {
            Self::Url | Self::Form => {
                for part in utf8_percent_encode(value, PLAIN) {
                    out.extend_from_slice(part.as_bytes());
                }
            }
            Self::Header | Self::Name | Self::Body => out.extend_from_slice(value.as_bytes()),
            Self::Json => {
                let quoted = serde_json::to_string(value).unwrap_or_default();
                let inner = quoted.len().saturating_sub(1).max(1);
                out.extend_from_slice(&quoted.as_bytes()[1..inner]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn data(text: &str) -> Result<Data, DriverError> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("it is written");
        Data::read(file.path().to_str().expect("a path"))
    }

    fn users() -> Data {
        data("name, city\nann,\"A \"\"b\"\"\"\nbob,C&D\n").expect("a data file")
    }

    fn written(text: &str, escape: Escape, number: u64) -> String {
        let data = users();
        let template = Template::parse("body", text, escape, Some(&data)).expect("a template");
        let turn = Turn::new(7, Portion::WHOLE, number, "k");
        let mut out = Vec::new();
        template.write(&turn, Some(&data), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_rows_of_a_data_file_come_in_turn() {
        let names = [0, 1, 2].map(|number| written("hi {data.name}!", Escape::Body, number));
        assert_eq!(names, ["hi ann!", "hi bob!", "hi ann!"]);
    }

    #[test]
    fn random_words_are_as_many_as_were_asked_for_and_others_each_time() {
        let texts = [1, 2].map(|number| written("{words:20}", Escape::Json, number));
        assert!(
            texts.iter().all(|text| text.split(' ').count() == 20),
            "{texts:?}"
        );
        assert_ne!(texts[0], texts[1]);
        assert_eq!(written("{words:3}", Escape::Url, 1).split("%20").count(), 3);
    }

    #[test]
    fn a_value_is_written_so_that_it_stays_one_value() {
        let text = "{data.city}";
        assert_eq!(written(text, Escape::Url, 0), "A%20%22b%22");
        assert_eq!(written(text, Escape::Url, 1), "C%26D");
        assert_eq!(written(text, Escape::Json, 0), "A \\\"b\\\"");
        assert_eq!(written("a={data.city}&{b}", Escape::Form, 1), "a=C%26D&{b}");
        assert_eq!(written(text, Escape::Body, 0), "A \"b\"");
    }

    #[test]
    fn other_braces_are_text_but_not_in_a_url() {
        let text = "{\"a\": {\"b\": 1}} {key} {password} {";
        assert_eq!(written(text, Escape::Json, 0), text);
        assert_eq!(written("/v/{key}/{sequence}", Escape::Url, 4), "/v/k/5");
        for text in ["/{user}", "/{", "/{data}"] {
            let data = users();
            let found = Template::parse("url", text, Escape::Url, Some(&data)).unwrap_err();
            assert!(found.to_string().contains("stands for no value"), "{found}");
        }
    }

    #[test]
    fn a_place_that_cannot_be_filled_is_an_error_that_says_why() {
        let data = users();
        for (text, data, said) in [
            ("{data.age}", Some(&data), "wanted one of name, city"),
            ("{data.name}", None, "needs a data file"),
            ("{random:9..1}", None, "{random:9..1} stands for no value"),
            ("{random:a}", None, "stands for no value"),
        ] {
            let found = Template::parse("body", text, Escape::Body, data).unwrap_err();
            assert!(found.to_string().contains(said), "{found}");
        }
    }

    #[test]
    fn a_file_that_is_no_data_file_is_an_error_that_names_it() {
        for (text, said) in [
            ("", "has no row"),
            ("name\n", "has no row"),
            ("a,b\n1\n", "found record with 1 fields"),
        ] {
            let found = data(text).unwrap_err().to_string();
            assert!(found.starts_with("drive.data: "), "{found}");
            assert!(found.contains(said), "{found}");
        }
        assert!(Data::read("/nowhere.csv").is_err());
    }

    #[test]
    fn a_control_character_may_stand_in_a_body_but_not_in_a_header() {
        let data = data("a,b\nx,\"1\n2\"\n").expect("a data file");
        let of = |text| Template::parse("headers", text, Escape::Header, Some(&data)).unwrap();
        assert!(
            of("X: {data.a}")
                .check_lines(Some(&data), "a header", char::is_control)
                .is_ok()
        );
        let found = of("X: {data.b}")
            .check_lines(Some(&data), "a header", char::is_control)
            .unwrap_err();
        assert!(found.to_string().contains("row 1 of"), "{found}");
    }

    #[test]
    fn a_uuid_is_the_same_wherever_it_stands_in_a_request_and_new_in_the_next() {
        let both = written("{uuid} {uuid}", Escape::Body, 3);
        let (first, second) = both.split_once(' ').expect("two");
        assert_eq!(first, second);
        assert_ne!(first, written("{uuid}", Escape::Body, 4));
        assert_eq!((first.len(), &first[14..15]), (36, "4"), "{first}");
        assert!("89ab".contains(&first[19..20]), "{first}");
    }

    proptest! {
        #[test]
        fn a_random_number_is_within_its_limits(low in any::<u64>(), more in any::<u64>(), number in 0..1000_u64) {
            let high = low.saturating_add(more);
            let turn = Turn::new(1, Portion::WHOLE, number, "");
            prop_assert!((low..=high).contains(&random(&turn, low, high)));
        }
    }

    #[test]
    fn a_request_names_its_trace_and_its_copy_in_it() {
        let template = Template::parse("headers", "A: b\r\n", Escape::Header, None);
        let template = template.expect("a template").with_traceparent();
        let turn = Turn::new(7, Portion::WHOLE, 1, "").traced(Trace::of(0x0a, 1, 101));
        let mut out = Vec::new();
        template.write(&turn, None, &mut out);
        let wanted = format!(
            "A: b\r\ntraceparent: 00-000000000000000a{:016x}-{:016x}-01\r\n",
            mix(10, 1),
            mix(!10, 101)
        );
        assert_eq!(String::from_utf8(out), Ok(wanted));
        assert_eq!(written("{traceparent}", Escape::Header, 1), "{traceparent}");
    }

    #[test]
    fn all_numbers_of_a_range_come_up_about_equally_often() {
        let mut counts = [0_u32; 6];
        for number in 0..6000 {
            let turn = Turn::new(1, Portion::WHOLE, number, "");
            counts[usize::try_from(random(&turn, 1, 6)).unwrap() - 1] += 1;
        }
        // Five standard deviations of a fair die.
        assert!(
            counts.iter().all(|it| (856..=1144).contains(it)),
            "{counts:?}"
        );
    }
}
