//! Secrets of a command line. Everybody on a host can read `/proc/PID/cmdline`, and nobody but the
//! user can read a process's environment.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use unruly_load::PASSWORD;
use unruly_plan::{Secret, Url};

/// Longest password of a file: 64 KiB.
const PASSWORD_BYTES_MAX: u64 = 64 << 10;

/// Starts this program again in its place without the secret of a URL among its words; the secret is
/// in its environment then. Does nothing when there is none.
///
/// # Errors
///
/// When two words hold a secret, or the program cannot be started again.
pub(crate) fn conceal() -> Result<()> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let (open, secret) = without_secrets(words)?;
    let Some(secret) = secret else {
        return Ok(());
    };
    let own = std::env::current_exe().context("the program cannot be found")?;
    let mut again = Command::new(own);
    if let Some((name, rest)) = open.split_first() {
        again.arg0(name).args(rest);
    }
    let error = again.env(PASSWORD, secret.reveal()).exec();
    Err(error).context("the program cannot be started again without the password on its command line; hint: put it in UNRULY_PASSWORD")
}

/// The words without the secret of a URL, and the secret.
fn without_secrets(words: Vec<OsString>) -> Result<(Vec<OsString>, Option<Secret>)> {
    let mut found: Option<Secret> = None;
    let mut open = Vec::with_capacity(words.len());
    for word in words {
        let Some((clean, secret)) = word.to_str().and_then(without_secret) else {
            open.push(word);
            continue;
        };
        anyhow::ensure!(
            found.as_ref().is_none_or(|it| *it == secret),
            "two words of the command line hold a password; wanted one at most; hint: put it in UNRULY_PASSWORD"
        );
        found = Some(secret);
        open.push(clean.into());
    }
    Ok((open, found))
}

/// The word without the secret of the URL that it is, or that follows a `=` in it.
pub(crate) fn without_secret(word: &str) -> Option<(String, Secret)> {
    let scheme_end = word.find("://")?;
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let kept = word[..scheme_end].trim_end_matches(letter);
    if kept.contains(char::is_whitespace) || kept.contains(':') {
        // A command: what it holds is the program's.
        return None;
    }
    // Of `--set drive.url="..."`.
    let text = word[kept.len()..].trim_end_matches(['"', '\'']);
    let quote = &word[kept.len() + text.len()..];
    let (url, secret) = Url::with_password(text).ok()?;
    Some((format!("{kept}{url}{quote}"), secret?))
}

/// The password that a file holds, without the end of its line.
///
/// # Errors
///
/// When it cannot be read, is longer than 64 KiB, is no UTF-8 or is empty.
pub(crate) fn password_of(path: &Path) -> Result<Secret> {
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

    fn words(texts: &[&str]) -> Vec<OsString> {
        texts.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_secret_leaves_the_words_wherever_its_url_stands() {
        for (given, open) in [
            (
                "redis://me:s3cr3t@h:1/0?replicas=2",
                "redis://me@h:1/0?replicas=2",
            ),
            (
                "--set=drive.url=redis://:s3cr3t@h",
                "--set=drive.url=redis://h",
            ),
            (
                "drive.url=\"redis://:s3cr3t@h:1\"",
                "drive.url=\"redis://h:1\"",
            ),
            ("http://h/?token=s3cr3t", "http://h/?token={password}"),
        ] {
            let found = without_secrets(words(&["unruly", given, "-q"]));
            let Ok((left, secret)) = found else {
                assert_eq!(given, "", "{found:?}");
                continue;
            };
            assert_eq!(left, words(&["unruly", open, "-q"]));
            assert_eq!(
                secret.as_ref().map(Secret::reveal),
                Some("s3cr3t"),
                "{given}"
            );
        }
    }

    #[test]
    fn words_without_a_secret_stay_and_two_secrets_are_refused() {
        let plain = [
            "unruly",
            "drive",
            "redis://h:1",
            "program:a redis://x:y@z",
            "a=b",
        ];
        let (left, none) = without_secrets(words(&plain)).unwrap();
        assert_eq!((left, none), (words(&plain), None));
        let two = words(&["redis://:a@h", "redis://:b@h"]);
        assert!(without_secrets(two).is_err());
    }

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
