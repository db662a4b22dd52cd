//! A password from a file, which nobody but its owner need be able to read.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use unruly_plan::Secret;

/// Longest password of a file: 64 KiB.
const PASSWORD_BYTES_MAX: u64 = 64 << 10;

/// Returns the password that a file holds, without the end of its line.
///
/// # Errors
///
/// When it cannot be read, is longer than 64 KiB, is no UTF-8 or is empty.
pub fn password_of(path: &Path) -> Result<Secret> {
    let place = path.to_string_lossy();
    let mut text = String::new();
    let read = File::open(path)
        .and_then(|file| file.take(PASSWORD_BYTES_MAX + 1).read_to_string(&mut text));
    read.with_context(|| {
        format!(
            "--password-file: {place:?} cannot be read; wanted a file with a password; hint: printf %s PASSWORD > FILE"
        )
    })?;
    let password = text.trim_end_matches(['\r', '\n']);
    let fits = !password.is_empty() && password.len() as u64 <= PASSWORD_BYTES_MAX;
    anyhow::ensure!(
        fits && !password.chars().any(char::is_control),
        "--password-file: {place:?} holds no password; wanted one line of 64 KiB at most; hint: printf %s PASSWORD > FILE"
    );
    Ok(Secret::new(password.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_password_is_one_line_of_a_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"s3 cr3t\r\n").unwrap();
        assert_eq!(password_of(file.path()).unwrap().reveal(), "s3 cr3t");
        for bytes in [&b""[..], b"\n", b"a\nb", b"\xff", &[b'a'; 70_000]] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            let said = format!("{:#}", password_of(file.path()).unwrap_err());
            assert!(!said.contains("aaaa"), "{said}");
        }
        assert!(password_of(Path::new("/nonexistent/file")).is_err());
    }
}
