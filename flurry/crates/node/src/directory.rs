//! A directory that one process writes to: its files are replaced whole, never half.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::Error;

/// Locked for as long as it lives: two on one directory would each undo what the other wrote.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Opens or creates the directory and locks the file `lock` in it. `alone` names the role of
    /// which a directory may have only one, for the error message.
    pub(crate) fn open(path: &Path, lock: &str, alone: &'static str) -> Result<Self, Error> {
        let failed =
            |error: std::io::Error| Error::io(path.display(), "a directory to write to", &error);
        fs::create_dir_all(path).map_err(failed)?;
        let lock = File::create(path.join(lock)).map_err(failed)?;
        lock.try_lock()
            .map_err(|error| Error::io(path.display(), alone, &error))?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What was last written to a file of it; `None` when nothing ever was.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(path.display(), "to read it", &error)),
        }
    }

    /// On disk when this returns.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let (path, next) = (self.path.join(name), self.path.join(format!("{name}.next")));
        let replace = || -> std::io::Result<()> {
            let mut file = File::create(&next)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&next, &path)?;
            File::open(&self.path)?.sync_all()
        };
        replace().map_err(|error| Error::io(path.display(), "to replace it", &error))
    }

    /// Gone from the disk when this returns, if it was there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.path.join(name);
        let remove = || -> std::io::Result<()> {
            match fs::remove_file(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                done => {
                    done?;
                    File::open(&self.path)?.sync_all()
                }
            }
        };
        remove().map_err(|error| Error::io(path.display(), "to remove it", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: &str = "to be the only one of this directory";

    #[test]
    fn what_was_written_last_is_read_and_nobody_else_may_write() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path(), "lock", ALONE).unwrap();
        assert_eq!(directory.read("state").unwrap(), None);
        directory.write("state", b"one").unwrap();
        directory.write("state", b"two").unwrap();
        assert_eq!(directory.read("state").unwrap().unwrap(), b"two");
        let refused = Directory::open(place.path(), "lock", ALONE).unwrap_err();
        assert!(refused.to_string().contains(ALONE), "{refused}");
        drop(directory);
        let again = Directory::open(place.path(), "lock", ALONE).unwrap();
        assert_eq!(again.read("state").unwrap().unwrap(), b"two");
        again.remove("state").unwrap();
        again.remove("state").unwrap();
        assert_eq!(again.read("state").unwrap(), None);
    }
}
