//! A server's files: one of records that counts, perhaps one of a later life that may count soon, and
//! perhaps one that is being made.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::directory::Directory;

/// Names the file that counts.
const CURRENT: &str = "current";
/// Names that of a later life, while it is not known whether it counts.
const CANDIDATE: &str = "candidate";
/// Marks that a server with this directory has met a cluster that had just begun. At the next start that
/// cluster would no longer look new.
const REFUSED: &str = "refused";
const RECORDS: &str = "records";
const LOCK: &str = "server.lock";
const ALONE: &str = "to be the only server of this directory";

#[derive(Debug)]
pub(super) struct Files(Directory);

impl Files {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        Directory::open(path, LOCK, ALONE).map(Self)
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The file of records that counts, and that of a later life; all others are removed.
    pub(super) fn found(&self) -> Result<[Option<PathBuf>; 2], Error> {
        let mut names = [self.name(CURRENT)?, self.name(CANDIDATE)?];
        if names[0] == names[1] {
            // It took its place, and the power failed before its other name was gone.
            names[1] = None;
        }
        let failed = |error: std::io::Error| Error::io(self.path().display(), "to read it", &error);
        for entry in fs::read_dir(self.path()).map_err(failed)? {
            let found = entry.map_err(failed)?.file_name();
            let found = found.to_string_lossy();
            let counts = names.iter().flatten().any(|name| *name == found);
            if found.starts_with(RECORDS) && !counts {
                // What was begun and never counted.
                let _ = fs::remove_file(self.path().join(found.as_ref()));
            }
        }
        Ok(names.map(|name| name.map(|name| self.path().join(name))))
    }

    fn name(&self, of: &str) -> Result<Option<String>, Error> {
        let name = self.0.read(of)?;
        Ok(name.map(|it| String::from_utf8_lossy(&it).trim().to_owned()))
    }

    /// Where another file of records may be made.
    pub(super) fn another(&self, number: u128) -> PathBuf {
        self.path().join(format!("{RECORDS}.{number:032x}"))
    }

    /// Makes a file of records that of a life which may count soon; on disk when this returns.
    pub(super) fn make_candidate(&self, records: &Path) -> Result<(), Error> {
        self.write_name(CANDIDATE, records)
    }

    /// Makes a file of records the one that counts; on disk when this returns.
    pub(super) fn make_current(&self, records: &Path) -> Result<(), Error> {
        self.write_name(CURRENT, records)?;
        self.0.remove(CANDIDATE)
    }

    fn write_name(&self, of: &str, records: &Path) -> Result<(), Error> {
        let name = records.file_name().unwrap_or_default().to_string_lossy();
        self.0.write(of, name.as_bytes())
    }

    /// Whether a server with this directory has refused to serve a cluster that knows nothing of it. With
    /// `lost` that does not matter any more.
    pub(super) fn has_refused(&self, lost: bool) -> Result<bool, Error> {
        if lost {
            self.0.remove(REFUSED)?;
        }
        Ok(self.0.read(REFUSED)?.is_some())
    }

    /// Has the next start refuse as well.
    pub(super) fn refuse(&self) -> Result<(), Error> {
        self.0.write(REFUSED, b"")
    }
}

#[cfg(test)]
mod tests {
    use flurry_core::config::SavedLife;
    use flurry_core::id::Incarnation;

    use super::*;
    use crate::disk::ServerDisk;
    use crate::disk::generation::Generation;

    /// A directory with files of these lives, by the names of those that name them.
    fn with(names: &[(&str, &str, u128)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (of, name, life) in names {
            let path = folder.path().join(name);
            if !path.exists() {
                Generation::create(path, Incarnation(*life), 1).unwrap();
            }
            fs::write(folder.path().join(of), name).unwrap();
        }
        folder
    }

    fn life_of(saved: Option<SavedLife>) -> Option<Incarnation> {
        saved.map(|it| it.life)
    }

    #[test]
    fn a_file_with_both_names_is_the_one_that_counts() {
        let folder = with(&[(CURRENT, "records.1", 1), (CANDIDATE, "records.1", 1)]);
        let found = ServerDisk::open(folder.path(), 1, false).unwrap().found();
        assert_eq!(
            (life_of(found.current), found.next),
            (Some(Incarnation(1)), None)
        );
    }

    #[test]
    fn of_two_files_of_one_life_the_later_copy_counts() {
        let folder = with(&[(CURRENT, "records.1", 1), (CANDIDATE, "records.2", 1)]);
        let found = ServerDisk::open(folder.path(), 1, false).unwrap().found();
        assert_eq!(
            (life_of(found.current), found.next),
            (Some(Incarnation(1)), None)
        );
        let current = fs::read_to_string(folder.path().join(CURRENT)).unwrap();
        assert_eq!(current, "records.2");
    }

    #[test]
    fn a_directory_that_was_refused_once_is_refused_until_it_is_said_to_be_lost() {
        let folder = with(&[(CURRENT, "records.1", 1)]);
        Files::open(folder.path()).unwrap().refuse().unwrap();
        let refused = ServerDisk::open(folder.path(), 1, false).unwrap_err();
        assert!(refused.to_string().contains("another cluster"), "{refused}");
        assert!(ServerDisk::open(folder.path(), 1, true).is_ok());
        assert!(ServerDisk::open(folder.path(), 1, false).is_ok());
    }
}
