//! Secrets of a command line. Everybody on a host can read `/proc/PID/cmdline`, and nobody but the
//! user can read a process's environment.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Result};
use unruly_load::PASSWORD;
use unruly_plan::{Secret, Url, header_without_secret};

/// Flags that stand before a header line in one word.
const HEADER_FLAGS: [&str; 2] = ["--headers=", "--header="];

/// Short flags without a value, which may stand before `-H` in one word.
const SHORT_FLAGS: [char; 4] = ['-', 'k', 'q', 'y'];

/// Names a file that holds a password.
const PASSWORD_FILE: &str = "--password-file";

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
    let names_file = |word: &OsString| {
        let word = word.to_string_lossy();
        word == PASSWORD_FILE || word.starts_with(&format!("{PASSWORD_FILE}="))
    };
    anyhow::ensure!(
        !open.iter().any(names_file),
        "--password-file: a word of the command line holds a secret as well; hint: give one of them"
    );
    let own = std::env::current_exe().context("the program cannot be found")?;
    let mut again = Command::new(own);
    if let Some((name, rest)) = open.split_first() {
        again.arg0(name).args(rest);
    }
    let error = again.env(PASSWORD, secret.reveal()).exec();
    Err(error).context("the program cannot be started again without the password on its command line; hint: put it in UNRULY_PASSWORD")
}

/// Returns the words of a command line without the passwords in its URLs. The program is called by
/// its name, without the folder that it is in.
pub(crate) fn command(words: impl Iterator<Item = OsString>) -> Vec<String> {
    let given = words.skip(1).map(|word| {
        let word = word.to_string_lossy().into_owned();
        without_secret(&word).map_or(word, |(open, _)| open)
    });
    std::iter::once("unruly".to_owned()).chain(given).collect()
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
            "two words of the command line hold a password; wanted one at most; hint: a request has one secret, which UNRULY_PASSWORD may hold"
        );
        found = Some(secret);
        open.push(clean.into());
    }
    Ok((open, found))
}

/// The word without the secret that it holds: of a URL, or of a header line.
fn without_secret(word: &str) -> Option<(String, Secret)> {
    url_without_secret(word).or_else(|| {
        let line = header_line(word);
        let flag = &word[..word.len() - line.len()];
        let (line, secret) = header_without_secret(line)?;
        Some((format!("{flag}{line}"), secret))
    })
}

/// The header line in a word, after the flags that stand before it.
fn header_line(word: &str) -> &str {
    if let Some(line) = HEADER_FLAGS.iter().find_map(|flag| word.strip_prefix(flag)) {
        return line;
    }
    let short = word
        .strip_prefix('-')
        .map(|it| it.trim_start_matches(SHORT_FLAGS));
    let line = short.and_then(|it| it.strip_prefix('H'));
    line.map_or(word, |it| it.strip_prefix('=').unwrap_or(it))
}

/// The word without the secret of the URL that it is, or that follows a `=` in it.
fn url_without_secret(word: &str) -> Option<(String, Secret)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(texts: &[&str]) -> Vec<OsString> {
        texts.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_secret_leaves_the_words_however_its_header_is_given() {
        for flag in ["", "-H", "-H=", "-kH", "-qkH=", "--headers=", "--header="] {
            let word = format!("{flag}Authorization: Bearer s3cr3t");
            let (open, secret) = without_secrets(words(&["unruly", &word])).unwrap();
            assert_eq!(
                open[1],
                OsString::from(format!("{flag}Authorization: {{password}}"))
            );
            assert_eq!(secret.as_ref().map(Secret::reveal), Some("Bearer s3cr3t"));
        }
        for word in [
            "-HAccept: text/html",
            "--headers=X-Id: 7",
            "program:run key: 5",
        ] {
            let (open, secret) = without_secrets(words(&[word])).unwrap();
            assert_eq!((open, secret), (words(&[word]), None));
        }
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
    fn a_command_keeps_its_words_and_loses_its_passwords() {
        let words = [
            "/a/b/unruly",
            "drive",
            "redis://me:secret@h:1/0?replicas=2",
            "-r",
            "2k/s",
        ];
        assert_eq!(
            command(words.into_iter().map(OsString::from)).join(" "),
            "unruly drive redis://me@h:1/0?replicas=2 -r 2k/s"
        );
        let words = ["unruly", "drive", "program:python3 a.py x:y@z"];
        assert_eq!(command(words.into_iter().map(OsString::from))[2], words[2]);
    }
}
