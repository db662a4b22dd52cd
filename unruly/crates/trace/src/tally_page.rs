//! How many copies a recorder was asked for, in memory that outlives its process: so what a killed
//! process took with it is counted exactly, also when its runner died with it.
//!
//! The page is a file of a file system in memory. A page of a file on a disk would stop the hot side
//! each time the kernel writes it back. Layout (`unruly/schema/spool.md`): `UNRULYT1`, the number of copies,
//! the scheduled time of the last one.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::Uid;
use unruly_time::ColumnNs;

/// The file system in memory that every Linux has.
const FOLDER: &str = "/dev/shm";

const MARK: [u8; 8] = *b"UNRULYT1";
const NAME_BEGIN: &str = "unruly-tally-";
const NAME_DIGITS: usize = 32;
const BYTES: usize = size_of::<Page>();

#[repr(C)]
struct Page {
    mark: [u8; 8],
    scheduled: AtomicU64,
    intended_ns: AtomicI64,
}

/// The page of a recorder. A process that ends properly removes it; recovery removes one of a process
/// that was killed.
#[derive(Debug)]
pub(crate) struct TallyPage {
    page: NonNull<Page>,
    path: PathBuf,
    /// Says that its process lives.
    _lock: Flock<File>,
}

// SAFETY: all fields of the page that are written are atomic, and the mapping is unmapped by Drop alone.
unsafe impl Send for TallyPage {}

/// What a page said when its process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastTally {
    /// Copies that the recorder was asked for.
    pub(crate) scheduled: u64,
    /// When the last of them was scheduled, on the run's clock.
    pub(crate) intended_ns: ColumnNs,
}

impl TallyPage {
    /// Makes a page that nobody else can read; `None` where there is no file system in memory.
    pub(crate) fn make() -> Option<Self> {
        Self::make_in(Path::new(FOLDER)).ok()
    }

    fn make_in(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!("{NAME_BEGIN}{:016x}{:016x}", random(), random()));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let made = Self::map(&mut file);
        let locked = Flock::lock(file, FlockArg::LockSharedNonblock);
        let locked = locked.map_err(|(_, error)| io::Error::from(error));
        match made.and_then(|page| locked.map(|lock| (page, lock))) {
            Ok((page, lock)) => {
                let page = Self {
                    page,
                    path,
                    _lock: lock,
                };
                // The page fault of the first store is taken here, and not by the first request.
                page.note(0, ColumnNs(0));
                Ok(page)
            }
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    fn map(file: &mut File) -> io::Result<NonNull<Page>> {
        // Written, not only made longer: memory that is full is an error here and no SIGBUS later.
        let mut bytes = [0; BYTES];
        bytes[..MARK.len()].copy_from_slice(&MARK);
        file.write_all(&bytes)?;
        let length = NonZeroUsize::new(BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, where the kernel likes, of a file that is as long as the mapping and
        // that only this user can make shorter.
        let address = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &*file, 0) }?;
        Ok(address.cast())
    }

    /// The file's name, for the header of the spool.
    pub(crate) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Notes one copy more, whose scheduled time is this. Two stores to memory, and no system call.
    pub(crate) fn note(&self, scheduled: u64, intended_ns: ColumnNs) {
        // SAFETY: the mapping lives as long as self, begins on a page, and is as long as a Page.
        let page = unsafe { self.page.as_ref() };
        page.intended_ns.store(intended_ns.0, Ordering::Relaxed);
        page.scheduled.store(scheduled, Ordering::Release);
    }
}

impl Drop for TallyPage {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // SAFETY: what `map` mapped, once; nobody else has the address.
        let _ = unsafe { munmap(self.page.cast(), BYTES) };
    }
}

/// Reads the page of a process that died; `None` when there is none. A name in a run's files is
/// believed only when it is one of ours, and the file only when it is a page of this user.
pub(crate) fn read(name: &str) -> Option<LastTally> {
    read_from(Path::new(FOLDER), name)
}

/// Removes a page that [`read`] has found, unless its process lives: the run may be a copy of one that
/// goes on.
pub(crate) fn remove(name: &str) {
    remove_from(Path::new(FOLDER), name);
}

fn remove_from(folder: &Path, name: &str) {
    if read_from(folder, name).is_none() {
        return;
    }
    let path = folder.join(name);
    let unused = File::open(&path)
        .is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok());
    if unused {
        let _ = fs::remove_file(path);
    }
}

fn read_from(folder: &Path, name: &str) -> Option<LastTally> {
    let digits = name.strip_prefix(NAME_BEGIN)?;
    let ours = digits.len() == NAME_DIGITS && digits.bytes().all(|it| it.is_ascii_hexdigit());
    if !ours {
        return None;
    }
    let path = folder.join(name);
    let mut file = File::options()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(&path)
        .ok()?;
    let meta = file.metadata().ok()?;
    let whole = meta.is_file() && meta.len() == BYTES as u64;
    if !whole || meta.uid() != Uid::effective().as_raw() {
        return None;
    }
    let mut bytes = [0; BYTES];
    file.read_exact(&mut bytes).ok()?;
    let (mark, numbers) = bytes.split_first_chunk::<8>()?;
    let (scheduled, intended_ns) = numbers.split_first_chunk::<8>()?;
    if *mark != MARK {
        return None;
    }
    Some(LastTally {
        scheduled: u64::from_ne_bytes(*scheduled),
        intended_ns: ColumnNs(i64::from_ne_bytes(*intended_ns.first_chunk()?)),
    })
}

/// A number that nobody guesses: each hasher of the standard library has random keys.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_page_keeps_the_last_count_of_a_process_that_did_not_end_properly() {
        let folder = folder();
        let page = TallyPage::make_in(folder.path()).unwrap();
        page.note(1, ColumnNs(10));
        page.note(2, ColumnNs(-20));
        let name = page.name();
        std::mem::forget(page);
        let mode = fs::metadata(folder.path().join(&name))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let told = LastTally {
            scheduled: 2,
            intended_ns: ColumnNs(-20),
        };
        assert_eq!(read_from(folder.path(), &name), Some(told));
        fs::remove_file(folder.path().join(&name)).unwrap();
        assert_eq!(read_from(folder.path(), &name), None);
    }

    #[test]
    fn a_page_of_a_process_that_lives_is_not_removed() {
        let folder = folder();
        let page = TallyPage::make_in(folder.path()).unwrap();
        remove_from(folder.path(), &page.name());
        assert!(read_from(folder.path(), &page.name()).is_some());
    }

    #[test]
    fn a_process_that_ends_properly_leaves_no_page() {
        let folder = folder();
        drop(TallyPage::make_in(folder.path()).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(TallyPage::make_in(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn what_is_no_page_of_ours_is_not_read() {
        let folder = folder();
        let name = |last: char| format!("{NAME_BEGIN}{}{last}", "0".repeat(NAME_DIGITS - 1));
        let place = |name: &str| folder.path().join(name);
        let mut page = [0_u8; BYTES];
        page[..MARK.len()].copy_from_slice(&MARK);
        fs::write(place(&name('1')), &page[..BYTES - 1]).unwrap();
        fs::write(place(&name('2')), [0; BYTES]).unwrap();
        fs::write(place("elsewhere"), page).unwrap();
        symlink(place("elsewhere"), place(&name('3'))).unwrap();
        fs::create_dir(place(&name('4'))).unwrap();
        let names = ['1', '2', '3', '4', '5'].map(name);
        let strange = ["elsewhere", "", "../elsewhere", NAME_BEGIN].map(str::to_owned);
        for name in names.iter().chain(&strange) {
            assert_eq!(read_from(folder.path(), name), None, "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
    }
}
