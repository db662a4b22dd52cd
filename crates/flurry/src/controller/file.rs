//! The controller's memory on disk: replaced whole, never half.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::Error;

const STATE: &str = "controller.state";
const NEXT: &str = "controller.state.next";
const LOCK: &str = "controller.lock";

/// A directory that one controller writes to.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Held for as long as the controller runs: two on one file would give out epochs twice.
    _lock: File,
}

impl Directory {
    pub(super) fn open(directory: &Path) -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            Error::io(directory.display(), "a directory to write to", &error)
        };
        fs::create_dir_all(directory).map_err(failed)?;
        let path = directory.join(LOCK);
        let lock = File::create(&path).map_err(failed)?;
        lock.try_lock().map_err(|error| {
            Error::io(
                path.display(),
                "to be the only controller of this directory",
                &error,
            )
        })?;
        Ok(Self {
            path: directory.to_owned(),
            _lock: lock,
        })
    }

    /// What was written last; `None` when nothing ever was.
    pub(super) fn read(&self) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path.join(STATE);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(path.display(), "to read it", &error)),
        }
    }

    /// On disk when this returns.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let (path, next) = (self.path.join(STATE), self.path.join(NEXT));
        let replace = || -> std::io::Result<()> {
            let mut file = File::create(&next)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&next, &path)?;
            File::open(&self.path)?.sync_all()
        };
        replace().map_err(|error| Error::io(path.display(), "to replace it", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_last_is_read_and_nobody_else_may_write() {
        let place = tempfile::tempdir().unwrap();
        let store = Directory::open(place.path()).unwrap();
        assert_eq!(store.read().unwrap(), None);
        store.write(b"one").unwrap();
        store.write(b"two").unwrap();
        assert_eq!(store.read().unwrap().unwrap(), b"two");
        let refused = Directory::open(place.path()).unwrap_err().to_string();
        assert!(refused.contains("only controller"), "{refused}");
        drop(store);
        assert_eq!(
            Directory::open(place.path())
                .unwrap()
                .read()
                .unwrap()
                .unwrap(),
            b"two"
        );
    }
}
