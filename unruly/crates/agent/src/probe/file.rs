//! A kernel text file that is read again and again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Most bytes that are read of one file. `/proc/stat` of a host with thousands of interrupts stays
/// below this. A longer file is cut, so no file can make the probe grow without limit.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Memory for one file's text, shared by all files: they are parsed one after the other.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; 16 << 10],
        }
    }

    /// Reads the whole of `file` from its beginning.
    pub(super) fn fill(&mut self, file: &File) -> io::Result<&[u8]> {
        let mut used = 0;
        loop {
            if used == self.bytes.len() {
                if used >= FILE_BYTES_MAX {
                    break;
                }
                self.bytes.resize(used * 2, 0);
            }
            match file.read_at(&mut self.bytes[used..], used as u64) {
                // A short read is not the end: the kernel hands out a page at a time.
                Ok(0) => break,
                Ok(count) => used += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&self.bytes[..used])
    }
}

/// Whether files stay open between samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// Opened once. Also binds a file of `/proc/PID` to that very process: after its end the read
    /// fails, even if the number has been given to another.
    Open,
    /// Opened for each reading, for canned trees whose files come and go.
    Reopen,
}

/// A file by its path, open from the first reading on.
#[derive(Debug)]
pub(super) struct KeptFile {
    path: PathBuf,
    file: Option<File>,
    keep: Keep,
}

impl KeptFile {
    pub(super) fn new(path: PathBuf, keep: Keep) -> Self {
        Self {
            path,
            file: None,
            keep,
        }
    }

    /// Reads the whole file. After an error it is opened anew the next time.
    pub(super) fn read<'b>(&mut self, buffer: &'b mut Buffer) -> io::Result<&'b [u8]> {
        let file = match self.file.take() {
            Some(file) if self.keep == Keep::Open => file,
            _ => File::open(&self.path)?,
        };
        let text = buffer.fill(&file)?;
        self.file = Some(file);
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_longer_than_the_buffer_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        std::fs::write(&path, vec![b'x'; 100_000]).unwrap();
        let mut file = KeptFile::new(path, Keep::Open);
        let mut buffer = Buffer::new();
        assert_eq!(file.read(&mut buffer).unwrap().len(), 100_000);
        assert_eq!(file.read(&mut buffer).unwrap().len(), 100_000);
    }

    #[test]
    fn a_file_beyond_the_bound_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge");
        std::fs::write(&path, vec![b'x'; FILE_BYTES_MAX + 5]).unwrap();
        let mut file = KeptFile::new(path, Keep::Open);
        assert_eq!(file.read(&mut Buffer::new()).unwrap().len(), FILE_BYTES_MAX);
    }

    #[test]
    fn a_kept_file_shows_what_changed_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counter");
        let mut file = KeptFile::new(path.clone(), Keep::Open);
        let mut buffer = Buffer::new();
        assert!(file.read(&mut buffer).is_err(), "not there yet");
        std::fs::write(&path, "100").unwrap();
        assert_eq!(file.read(&mut buffer).unwrap(), b"100");
        std::fs::write(&path, "7").unwrap();
        assert_eq!(file.read(&mut buffer).unwrap(), b"7");
    }
}
