//! The files of a process on another host: how they are sent, and how they are taken.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use super::HostReport;

/// The most bytes that one file may have.
const FILE_BYTES_MAX: u64 = 1 << 40;

/// Sends all files below a folder, except `skip` and those whose name begins with a dot: they are
/// locks of the folder itself. `lock` gives the output for one file. Returns how many were sent.
pub(super) fn send<W: Write>(folder: &Path, skip: &Path, lock: impl Fn() -> W) -> Result<u64> {
    let (mut folders, mut sent) = (vec![folder.to_owned()], 0);
    while let Some(place) = folders.pop() {
        for entry in fs::read_dir(&place)? {
            let entry = entry?;
            let path = entry.path();
            let is_lock = entry.file_name().as_encoded_bytes().starts_with(b".");
            // A link may lead anywhere, and a pipe has no end.
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && path != skip && !is_lock {
                send_file(folder, &path, &lock)?;
                sent += 1;
            }
        }
    }
    Ok(sent)
}

fn send_file<W: Write>(folder: &Path, path: &Path, lock: impl Fn() -> W) -> Result<()> {
    // Read once before the output is locked: answers about the clock go out meanwhile.
    let (bytes, sha256) = digest(&mut File::open(path)?, u64::MAX, &mut io::sink())?;
    let report = HostReport::File {
        path: path.strip_prefix(folder)?.display().to_string(),
        bytes,
        sha256,
    };
    let mut out = lock();
    serde_json::to_writer(&mut out, &report)?;
    out.write_all(b"\n")?;
    let copied = io::copy(&mut File::open(path)?.take(bytes), &mut out)?;
    out.flush()?;
    ensure!(copied == bytes, "{}: it became shorter", path.display());
    Ok(())
}

/// Takes the bytes of a file, and writes them below the run directory.
///
/// # Errors
///
/// When the path leaves the directory or names a file that is there, and when the bytes are not those
/// that were sent. The bytes are read in any case, so that the next line is found.
pub(crate) fn receive(
    directory: &Path,
    path: &str,
    (bytes, sha256): (u64, &str),
    input: &mut impl BufRead,
) -> Result<()> {
    ensure!(
        bytes <= FILE_BYTES_MAX,
        "{path}: {bytes} bytes are too many"
    );
    let mut input = input.take(bytes);
    let taken = place(directory, path).and_then(|place| write(&place, (bytes, sha256), &mut input));
    // Whatever went wrong, the next line is behind all of the bytes.
    io::copy(&mut input, &mut io::sink())?;
    taken.with_context(|| format!("{path}: it did not arrive"))
}

/// Writes a file under another name, and gives it its own when it is whole and on the disk.
fn write(place: &Path, (bytes, sha256): (u64, &str), input: &mut impl Read) -> Result<()> {
    ensure!(!place.exists(), "the run has such a file already");
    let folder = place.parent().context("it has no folder")?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    let (taken, found) = digest(input, bytes, &mut file)?;
    ensure!(taken == bytes, "the connection ended in the file");
    ensure!(found == sha256, "its bytes changed on the way");
    file.as_file()
        .set_permissions(Permissions::from_mode(0o644))?;
    file.as_file().sync_all()?;
    file.persist_noclobber(place)?;
    Ok(())
}

fn place(directory: &Path, path: &str) -> Result<PathBuf> {
    let relative = Path::new(path);
    let is_inside = |it: Component<'_>| matches!(it, Component::Normal(_));
    if path.is_empty() || !relative.components().all(is_inside) {
        bail!("{path:?}: it is outside the run directory");
    }
    let place = directory.join(relative);
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(place)
}

/// Copies at most `most` bytes. Returns how many, and their SHA-256.
pub(super) fn digest(
    input: &mut impl Read,
    most: u64,
    out: &mut impl Write,
) -> Result<(u64, String)> {
    let mut hash = Sha256::new();
    let (mut buffer, mut taken) = (vec![0; 64 << 10], 0);
    while taken < most {
        let left = usize::try_from(most - taken).unwrap_or(usize::MAX);
        let length = left.min(buffer.len());
        let read = input.read(&mut buffer[..length])?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        out.write_all(&buffer[..read])?;
        taken += read as u64;
    }
    let digits = hash
        .finalize()
        .iter()
        .map(|it| format!("{it:02x}"))
        .collect();
    Ok((taken, digits))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// The output of a host, which each file locks.
    #[derive(Clone, Default)]
    struct Output(Rc<RefCell<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What a host sends of a folder with one file.
    fn sent(path: &str, text: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        fs::write(folder.path().join("job.json"), "{}").unwrap();
        fs::write(folder.path().join(".writers"), "").unwrap();
        let out = Output::default();
        let job = folder.path().join("job.json");
        assert_eq!(send(folder.path(), &job, || out.clone()).unwrap(), 1);
        out.0.take()
    }

    /// Takes a file whose line is changed before.
    fn taken(sent: &[u8], change: impl Fn(String) -> String) -> (tempfile::TempDir, Result<()>) {
        let folder = tempfile::tempdir().unwrap();
        let mut input = sent;
        let mut line = String::new();
        input.read_line(&mut line).unwrap();
        let line = change(line);
        let HostReport::File {
            path,
            bytes,
            sha256,
        } = serde_json::from_str(&line).unwrap()
        else {
            panic!("{line}")
        };
        let taken = receive(folder.path(), &path, (bytes, &sha256), &mut input);
        assert!(input.is_empty(), "the next line is found");
        (folder, taken)
    }

    #[test]
    fn a_file_arrives_as_it_was() {
        let (folder, taken) = taken(&sent("requests/a.parquet", "rows"), |line| line);
        taken.unwrap();
        let text = fs::read_to_string(folder.path().join("requests/a.parquet")).unwrap();
        assert_eq!(text, "rows");
    }

    #[test]
    fn a_path_that_leaves_the_directory_is_refused() {
        for path in ["../a", "/tmp/a", "b/../../a", ""] {
            let change = |line: String| line.replace("requests/a", path);
            let (_folder, taken) = taken(&sent("requests/a", "rows"), change);
            let said = format!("{:#}", taken.unwrap_err());
            assert!(said.contains("outside the run directory"), "{said}");
        }
    }

    #[test]
    fn bytes_that_changed_on_the_way_are_refused() {
        let mut sent = sent("a", "rows");
        *sent.last_mut().unwrap() = b'z';
        let (folder, taken) = taken(&sent, |line| line);
        let said = format!("{:#}", taken.unwrap_err());
        assert!(said.contains("changed on the way"), "{said}");
        // A part of a file under its name would be read as the whole.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_file_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("manifest.json"), "ours").unwrap();
        let (bytes, sha256) = digest(&mut &b"x"[..], 9, &mut io::sink()).unwrap();
        let taken = receive(
            folder.path(),
            "manifest.json",
            (bytes, &sha256),
            &mut &b"x"[..],
        );
        assert!(taken.is_err());
        assert_eq!(
            fs::read_to_string(folder.path().join("manifest.json")).unwrap(),
            "ours"
        );
    }
}
