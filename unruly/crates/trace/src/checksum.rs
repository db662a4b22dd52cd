//! The checksum of a segment: CRC-32 (the one of zlib, so that every language has it) over the whole
//! file, in which the eight digits of the checksum itself are zeros. It stands in the footer as
//! `unruly.checksum`, so a segment that is moved keeps it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use crc32fast::Hasher;

/// The name of the checksum in a footer.
pub(crate) const CHECKSUM_KEY: &str = "unruly.checksum";

/// What stands there until it is known.
pub(crate) const UNKNOWN: &str = "crc32:00000000";

/// What each checksum begins with.
const KIND: &str = "crc32:";
const DIGITS: usize = 8;

/// A Parquet file ends with the length of its footer and a mark.
const ENDING_BYTES: u64 = 8;

/// A file, and the checksum of its bytes from the first to the last.
#[derive(Debug)]
pub(crate) struct Summed {
    file: File,
    sum: Hasher,
}

impl Summed {
    pub(crate) fn new(file: File) -> Self {
        let sum = Hasher::new();
        Self { file, sum }
    }

    /// Writes the checksum into the footer, in the place of [`UNKNOWN`].
    pub(crate) fn seal(mut self) -> io::Result<File> {
        self.file.flush()?;
        let place = place_of(&mut self.file)?.ok_or(io::ErrorKind::InvalidData)?;
        self.file.seek(SeekFrom::Start(place))?;
        write!(self.file, "{:08x}", self.sum.finalize())?;
        Ok(self.file)
    }
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// True if a segment is as it was written, or is of a time before checksums.
pub(crate) fn is_whole(file: &mut File) -> bool {
    check(file).unwrap_or_default()
}

fn check(file: &mut File) -> io::Result<bool> {
    let footer = footer_of(file)?;
    let named = find(&footer, CHECKSUM_KEY.as_bytes()).is_some();
    let Some(place) = place_of(file)? else {
        return Ok(!named);
    };
    let (mut sum, mut told) = (Hasher::new(), [0; DIGITS]);
    file.seek(SeekFrom::Start(0))?;
    let read = |bytes: u64, sum: &mut Hasher, file: &mut File| {
        let mut piece = vec![0; 1 << 16];
        let mut part = file.take(bytes);
        loop {
            match part.read(&mut piece)? {
                0 => return io::Result::Ok(()),
                length => sum.update(&piece[..length]),
            }
        }
    };
    read(place, &mut sum, file)?;
    file.read_exact(&mut told)?;
    sum.update(&[b'0'; DIGITS]);
    read(u64::MAX, &mut sum, file)?;
    let wanted = format!("{:08x}", sum.finalize());
    Ok(named && wanted.as_bytes() == told)
}

/// Where the digits of the checksum begin; `None` when there is none.
fn place_of(file: &mut File) -> io::Result<Option<u64>> {
    let footer = footer_of(file)?;
    let end = file.seek(SeekFrom::End(0))?;
    let begin = end - ENDING_BYTES - footer.len() as u64;
    let digits = |at: &usize| {
        let digits = footer.get(at + KIND.len()..at + KIND.len() + DIGITS);
        digits.is_some_and(|it| it.iter().all(u8::is_ascii_hexdigit))
    };
    let found = find(&footer, KIND.as_bytes()).filter(digits);
    Ok(found.map(|at| begin + (at + KIND.len()) as u64))
}

fn footer_of(file: &mut File) -> io::Result<Vec<u8>> {
    let end = file.seek(SeekFrom::End(0))?;
    let ending = end
        .checked_sub(ENDING_BYTES)
        .ok_or(io::ErrorKind::InvalidData)?;
    file.seek(SeekFrom::Start(ending))?;
    let mut length = [0; 4];
    file.read_exact(&mut length)?;
    let length = u64::from(u32::from_le_bytes(length));
    let begin = ending
        .checked_sub(length)
        .ok_or(io::ErrorKind::InvalidData)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut footer = Vec::new();
    file.take(length).read_to_end(&mut footer)?;
    Ok(footer)
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|it| it == part)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::schema::Table;
    use crate::segment::{SegmentMeta, SegmentWriter, Value};

    #[test]
    fn every_flipped_bit_of_a_segment_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.parquet");
        let mut writer = SegmentWriter::create(Table::Events, &path).unwrap();
        let columns = Table::Events.columns();
        let value = |column: usize, row: usize| match columns[column].as_str() {
            "started_ns" | "ended_ns" => Value::Int(i64::try_from(row).unwrap() * 7_919),
            "repeat" => Value::Int(0),
            _ => Value::Text("word"),
        };
        writer.append(300, value).unwrap();
        let word = || "w".to_owned();
        let meta = SegmentMeta {
            run: word(),
            host: word(),
            process: word(),
            tag: word(),
        };
        writer.finish(&meta, None).unwrap();
        let whole = fs::read(&path).unwrap();
        assert!(is_whole(&mut File::open(&path).unwrap()));
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, bytes).unwrap();
            assert!(
                !is_whole(&mut File::open(&path).unwrap()),
                "bit {bit} of {}",
                whole.len() * 8
            );
        }
    }
}
