//! Commands out of a stream of bytes, as Redis reads them: arrays of bulk strings, and inline
//! words.
//!
//! A protocol error has the words of Redis, and ends its connection, because the parser cannot find
//! the next command behind it.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::decimal::decimal;

/// Memory that a word takes in addition to its bytes.
const WORD_BYTES: usize = 64;

/// The limits of one command.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most words.
    pub words_max: i64,
    /// The most bytes of one word.
    pub word_bytes_max: usize,
    /// The most bytes of all words, including the memory that holds them.
    pub bytes_max: usize,
    /// True for a client that has not authenticated. Errors then say so.
    pub stranger: bool,
}

impl Limits {
    /// The limits of a client that has not authenticated: enough for the authentication.
    pub const STRANGER: Self = Self {
        words_max: 10,
        word_bytes_max: 16 << 10,
        bytes_max: 64 << 10,
        stranger: true,
    };

    /// Returns the limits of every other client.
    #[must_use]
    pub fn with_words_up_to(bytes: usize) -> Self {
        Self {
            words_max: i64::from(i32::MAX),
            word_bytes_max: bytes,
            bytes_max: 32 * bytes,
            stranger: false,
        }
    }
}

/// The most bytes of a line that is no bulk string: an inline command or a length.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The longest word that is skipped because it is too long, in bytes; a longer one ends the stream.
/// Redis takes none that are longer.
const SKIPPED_BYTES_MAX: usize = 512 << 20;

/// A command of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Its words.
    Words(Vec<Bytes>),
    /// A word had more bytes than [`Limits::word_bytes_max`] and was skipped. The stream goes on.
    TooLong,
}

/// The reason why the rest of a stream cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// An inline command without an end.
    #[error("Protocol error: too big inline request")]
    LongLine,
    /// A length without an end.
    #[error("Protocol error: too big mbulk count string")]
    LongCount,
    /// The number of words is not a number, or too large.
    #[error("Protocol error: invalid multibulk length")]
    Count,
    /// A word begins with something else.
    #[error("Protocol error: expected '$', got '{0}'")]
    NotBulk(char),
    /// The length of a word is not a number, or too large.
    #[error("Protocol error: invalid bulk length")]
    Length,
    /// More words than a client may send before it authenticates.
    #[error("Protocol error: unauthenticated multibulk length")]
    CountOfStranger,
    /// A longer word than a client may send before it authenticates.
    #[error("Protocol error: unauthenticated bulk length")]
    LengthOfStranger,
    /// The words of a command have too many bytes together.
    #[error("Protocol error: too big command")]
    LongCommand,
    /// Quotes of an inline command do not end.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
}

/// Reads commands from the bytes that have arrived.
#[derive(Debug)]
pub struct Requests {
    /// The number of words of an array that have not arrived.
    missing: i64,
    words: Vec<Bytes>,
    /// The bytes of the words that have arrived.
    bytes: usize,
    /// The bytes that are still to be skipped, which belong to a word that is too long.
    skipped: usize,
    /// True if a word of the command was too long.
    too_long: bool,
    limits: Limits,
}

impl Requests {
    /// Returns a reader without any bytes.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            missing: 0,
            words: Vec::new(),
            bytes: 0,
            skipped: 0,
            too_long: false,
            limits,
        }
    }

    /// Sets the limits of the next command and of all later ones.
    pub fn allow(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns the bytes of the words of an incomplete command.
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        self.bytes
    }

    /// Removes the next command and returns it; `None` if it has not arrived completely.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`], after which nothing more can be read.
    pub fn take(&mut self, input: &mut BytesMut) -> Result<Option<Command>, ProtocolError> {
        loop {
            if self.skipped > 0 {
                let arrived = self.skipped.min(input.len());
                input.advance(arrived);
                self.skipped -= arrived;
                if self.skipped > 0 {
                    return Ok(None);
                }
            }
            assert!(
                self.missing > 0 || self.too_long || (self.words.is_empty() && self.bytes == 0),
                "nothing is left of a command that was taken"
            );
            if self.missing == 0 && self.too_long {
                return Ok(Some(self.whole()));
            }
            if self.missing > 0 {
                let Some(word) = self.bulk(input)? else {
                    return Ok(None);
                };
                self.bytes += word.len() + WORD_BYTES;
                if self.bytes > self.limits.bytes_max {
                    return Err(ProtocolError::LongCommand);
                }
                self.words.push(word);
                self.missing -= 1;
                assert!(
                    self.bytes >= self.words.len() * WORD_BYTES,
                    "each word counts what keeps it, also an empty one"
                );
                if self.missing == 0 && self.skipped == 0 {
                    return Ok(Some(self.whole()));
                }
                continue;
            }
            match input.first() {
                None => return Ok(None),
                Some(b'*') => {
                    let Some(line) = line(input, ProtocolError::LongCount)? else {
                        return Ok(None);
                    };
                    let count = decimal(&line[1..]).ok_or(ProtocolError::Count)?;
                    if count > self.limits.words_max {
                        return Err(if self.limits.stranger {
                            ProtocolError::CountOfStranger
                        } else {
                            ProtocolError::Count
                        });
                    }
                    // An array of zero words, or of a negative number, is no command.
                    self.missing = count.max(0);
                }
                Some(_) => {
                    let Some(line) = line(input, ProtocolError::LongLine)? else {
                        return Ok(None);
                    };
                    let words = inline(&line).ok_or(ProtocolError::Quotes)?;
                    if !words.is_empty() {
                        return Ok(Some(Command::Words(words)));
                    }
                }
            }
        }
    }

    /// Returns the command whose last word has arrived.
    fn whole(&mut self) -> Command {
        self.bytes = 0;
        let words = std::mem::take(&mut self.words);
        if std::mem::take(&mut self.too_long) {
            Command::TooLong
        } else {
            Command::Words(words)
        }
    }

    /// Removes the next word. One that is too long becomes an empty one, whose bytes are skipped as
    /// they arrive.
    fn bulk(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, ProtocolError> {
        let Some(end) = input
            .iter()
            .take(LINE_BYTES_MAX)
            .position(|it| *it == b'\r')
        else {
            return if input.len() >= LINE_BYTES_MAX {
                Err(ProtocolError::LongCount)
            } else {
                Ok(None)
            };
        };
        if input[0] != b'$' {
            return Err(ProtocolError::NotBulk(char::from(input[0])));
        }
        let length = decimal(&input[1..end])
            .and_then(|length| usize::try_from(length).ok())
            .ok_or(ProtocolError::Length)?;
        // The line's end, the word, and its end.
        let begin = end + 2;
        if length > self.limits.word_bytes_max {
            if self.limits.stranger {
                return Err(ProtocolError::LengthOfStranger);
            }
            if length > SKIPPED_BYTES_MAX {
                return Err(ProtocolError::Length);
            }
            self.too_long = true;
            self.skipped = begin + length + 2;
            return Ok(Some(Bytes::new()));
        }
        if input.len() < begin + length + 2 {
            return Ok(None);
        }
        input.advance(begin);
        let word = input.split_to(length).freeze();
        input.advance(2);
        Ok(Some(word))
    }
}

/// Removes the first line, and returns it without its end.
fn line(input: &mut BytesMut, too_long: ProtocolError) -> Result<Option<Bytes>, ProtocolError> {
    let Some(end) = input
        .iter()
        .take(LINE_BYTES_MAX)
        .position(|it| *it == b'\n')
    else {
        return if input.len() >= LINE_BYTES_MAX {
            Err(too_long)
        } else {
            Ok(None)
        };
    };
    let mut line = input.split_to(end).freeze();
    input.advance(1);
    if line.last() == Some(&b'\r') {
        line.truncate(line.len() - 1);
    }
    Ok(Some(line))
}

/// Returns the words of a line, which are separated by spaces, and plain or quoted like strings of
/// C.
fn inline(line: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        let spaces = rest
            .iter()
            .take_while(|it| it.is_ascii_whitespace() || **it == 0x0b);
        rest = &rest[spaces.count()..];
        // A zero ends the line, as it ends a string of C.
        let Some(first) = rest.first().filter(|it| **it != 0) else {
            return Some(words);
        };
        let (word, after) = match first {
            b'"' => quoted(&rest[1..])?,
            b'\'' => plain(&rest[1..])?,
            _ => bare(rest)?,
        };
        words.push(word);
        rest = after;
    }
}

/// A word without quotes, which may turn into one with quotes in its middle.
fn bare(text: &[u8]) -> Option<(Bytes, &[u8])> {
    let mut word = BytesMut::new();
    let mut rest = text;
    while let Some(first) = rest.first() {
        let (part, after) = match first {
            b'"' => quoted(&rest[1..])?,
            b'\'' => plain(&rest[1..])?,
            it if it.is_ascii_whitespace() || *it == 0 => break,
            _ => (Bytes::copy_from_slice(&rest[..1]), &rest[1..]),
        };
        let ended = matches!(first, b'"' | b'\'');
        word.extend_from_slice(&part);
        rest = after;
        if ended {
            break;
        }
    }
    Some((word.freeze(), rest))
}

/// Returns the text up to the closing quote, behind which a space must follow.
fn plain(text: &[u8]) -> Option<(Bytes, &[u8])> {
    let mut word = BytesMut::new();
    let mut rest = text;
    loop {
        match rest {
            [b'\\', b'\'', after @ ..] => {
                word.extend_from_slice(b"'");
                rest = after;
            }
            [b'\'', after @ ..] => return ends(word, after),
            [byte, after @ ..] => {
                word.extend_from_slice(&[*byte]);
                rest = after;
            }
            [] => return None,
        }
    }
}

fn quoted(text: &[u8]) -> Option<(Bytes, &[u8])> {
    let mut word = BytesMut::new();
    let mut rest = text;
    loop {
        let (byte, after) = match rest {
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high) << 4 | hex(*low), after)
            }
            [b'\\', escaped, after @ ..] => {
                let byte = match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                };
                (byte, after)
            }
            [b'"', after @ ..] => return ends(word, after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        word.extend_from_slice(&[byte]);
        rest = after;
    }
}

fn ends(word: BytesMut, after: &[u8]) -> Option<(Bytes, &[u8])> {
    let separate = after.first().is_none_or(u8::is_ascii_whitespace);
    separate.then(|| (word.freeze(), after))
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1_000;

    type Words = Vec<Vec<Bytes>>;

    fn words(all: &[&[&str]]) -> Words {
        let word = |word: &&str| Bytes::copy_from_slice(word.as_bytes());
        all.iter()
            .map(|words| words.iter().map(word).collect())
            .collect()
    }

    /// Returns all commands of a stream and its end, which must be the same for every division into
    /// chunks.
    fn read(stream: &[u8]) -> (Words, Option<ProtocolError>) {
        let whole = cut(stream, stream.len().max(1));
        for bytes in [1, 3, 7] {
            assert_eq!(cut(stream, bytes), whole, "in parts of {bytes}");
        }
        whole
    }

    fn cut(stream: &[u8], bytes: usize) -> (Words, Option<ProtocolError>) {
        let (found, error) = commands(stream, bytes);
        let words = |command| match command {
            Command::Words(words) => words,
            Command::TooLong => panic!("a word is too long"),
        };
        (found.into_iter().map(words).collect(), error)
    }

    fn commands(stream: &[u8], bytes: usize) -> (Vec<Command>, Option<ProtocolError>) {
        let mut requests = Requests::new(Limits::with_words_up_to(MAX));
        let mut input = BytesMut::new();
        let mut found = Vec::new();
        for part in stream.chunks(bytes) {
            input.extend_from_slice(part);
            loop {
                match requests.take(&mut input) {
                    Ok(Some(command)) => found.push(command),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn commands_follow_each_other_in_both_forms() {
        let stream = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nSET k  v\r\n*1\r\n$4\r\nPING\r\n\r\n*0\r\n*-1\r\nPING\n";
        let wanted = words(&[&["GET", "k"], &["SET", "k", "v"], &["PING"], &["PING"]]);
        assert_eq!(read(stream), (wanted, None));
        let binary = b"*1\r\n$6\r\n\r\n\0*$ \r\n";
        assert_eq!(read(binary), (words(&[&["\r\n\0*$ "]]), None));
        assert_eq!(read(b"*2\r\n$3\r\nGET\r\n$1\r\n"), (Vec::new(), None));
    }

    #[test]
    fn quotes_are_read_as_a_shell_of_redis_writes_them() {
        for (line, wanted) in [
            (r#"SET "a b" 'c d'"#, &["SET", "a b", "c d"][..]),
            (r#"SET "\x41\n\"" 'it\'s'"#, &["SET", "A\n\"", "it's"]),
            (r#"a"b c""#, &["ab c"]),
            (r#""" ''"#, &["", ""]),
            ("a\0b c", &["a"]),
        ] {
            let stream = format!("{line}\r\n");
            assert_eq!(read(stream.as_bytes()), (words(&[wanted]), None), "{line}");
        }
        for line in ["\"a", "'a", "\"a\"b", "'a'b"] {
            let stream = format!("{line}\r\n");
            let found = read(stream.as_bytes());
            assert_eq!(found, (Vec::new(), Some(ProtocolError::Quotes)), "{line}");
        }
    }

    #[test]
    fn what_is_no_command_ends_the_stream_with_its_reason() {
        let long = [b"*".as_slice(), &[b'1'; LINE_BYTES_MAX]].concat();
        let text = vec![b'a'; LINE_BYTES_MAX];
        let large = format!("*1\r\n${}\r\n", SKIPPED_BYTES_MAX + 1);
        for (stream, wanted) in [
            (&b"*x\r\n"[..], ProtocolError::Count),
            (b"*2147483648\r\n", ProtocolError::Count),
            (b"*1\r\nGET\r\n", ProtocolError::NotBulk('G')),
            (b"*1\r\n$-1\r\n", ProtocolError::Length),
            (b"*1\r\n$01\r\n", ProtocolError::Length),
            (large.as_bytes(), ProtocolError::Length),
            (&long, ProtocolError::LongCount),
            (&text, ProtocolError::LongLine),
        ] {
            let mut requests = Requests::new(Limits::with_words_up_to(MAX));
            let found = requests.take(&mut BytesMut::from(stream));
            assert_eq!(found, Err(wanted));
        }
        let head = b"*1\r\n$4\r\nPING\r\n*1\r\n!";
        let (before, after) = read(&[head.as_slice(), b"\r\n"].concat());
        assert_eq!(
            (before, after),
            (words(&[&["PING"]]), Some(ProtocolError::NotBulk('!')))
        );
    }

    #[test]
    fn a_word_that_is_too_long_is_skipped_and_the_stream_goes_on() {
        let word = "v".repeat(MAX + 1);
        let set = format!("*3\r\n$3\r\nSET\r\n${}\r\n{word}\r\n$1\r\nk\r\n", MAX + 1);
        let last = format!("*2\r\n$3\r\nGET\r\n${}\r\n{word}\r\n", MAX + 1);
        let ping = "*1\r\n$4\r\nPING\r\n";
        let stream = [&set, ping, &last, ping].concat();
        let pinged = || Command::Words(words(&[&["PING"]]).remove(0));
        let wanted = vec![Command::TooLong, pinged(), Command::TooLong, pinged()];
        for bytes in [1, 7, 64, stream.len()] {
            assert_eq!(commands(stream.as_bytes(), bytes), (wanted.clone(), None));
        }
        // Nothing of it is kept meanwhile.
        let mut requests = Requests::new(Limits::with_words_up_to(MAX));
        let mut input = BytesMut::from(&set.as_bytes()[..MAX]);
        assert_eq!(requests.take(&mut input), Ok(None));
        assert!(input.is_empty());
    }
}
