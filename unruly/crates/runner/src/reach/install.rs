//! This program on hosts that lack it: `[[host]] install = true`.
//!
//! It is copied into the cache of the user there, under a name that its checksum makes, and stays for
//! the next run. Each step is a command of the core utilities, without a character that a shell would
//! read, because ssh passes its words through one.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use unruly_plan::{Cell as PlanCell, ReachedHost, mix};
use unruly_trace::ClockPair;

use super::files;

/// Time for one command.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for the copy: a slow network has to carry some tens of megabytes.
const COPY_TIMEOUT: Duration = Duration::from_secs(300);

/// How often a command is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// The most bytes that are read of what a command prints.
const SAID_BYTES_MAX: u64 = 4_096;

/// Copies this program to the hosts of a run that want it and lack it, and names it as their program.
///
/// # Errors
///
/// When a host cannot be reached, has no room, or holds other bytes afterwards.
pub(crate) fn install(cells: &mut [PlanCell], quiet: bool) -> Result<()> {
    let say = |text: &str| {
        if !quiet {
            eprintln!("{text}");
        }
    };
    let mut own: Option<String> = None;
    let mut there: Vec<(Vec<String>, String)> = Vec::new();
    let wanted = cells.iter_mut().flat_map(|it| &mut it.plan.reached);
    for host in wanted.filter(|it| it.install) {
        if let Some((_, program)) = there.iter().find(|(reach, _)| *reach == host.reach) {
            host.program.clone_from(program);
            continue;
        }
        let digest = match &own {
            Some(digest) => digest.clone(),
            None => own.insert(digest_of_own()?).clone(),
        };
        host.program = put(host, &digest, &say)
            .with_context(|| format!("{}: unruly was not installed there", host.name))?;
        there.push((host.reach.clone(), host.program.clone()));
    }
    Ok(())
}

fn digest_of_own() -> Result<String> {
    let (_, digest) = files::digest(&mut own()?, u64::MAX, &mut std::io::sink())?;
    Ok(digest)
}

fn own() -> Result<File> {
    File::open("/proc/self/exe").context("this program cannot be read")
}

/// Copies this program to a host that does not have it. Returns its path there.
fn put(host: &ReachedHost, digest: &str, say: &dyn Fn(&str)) -> Result<String> {
    let home = step(host, &["printenv", "HOME"], None)?;
    let home = home.trim_end();
    let fits = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    ensure!(
        home.starts_with('/') && home.chars().all(fits),
        "the home directory there is {home:?}; expected a path without blanks; hint: name the program with --from-program"
    );
    let folder = format!("{home}/.cache/unruly/{}", &digest[..16]);
    let program = format!("{folder}/unruly");
    if step(host, &["sha256sum", &program], None).is_ok_and(|it| it.starts_with(digest)) {
        return Ok(program);
    }
    let megabytes = fs::metadata("/proc/self/exe")?.len() >> 20;
    say(&format!("copying unruly to {} ({megabytes} MB)", host.name));
    let now = ClockPair::now().wall_ns.0.cast_unsigned();
    let copy = format!("{program}-{:x}", mix(u64::from(std::process::id()), now));
    step(host, &["mkdir", "-p", &folder], None)?;
    if let Err(error) = copy_to(host, digest, &copy, &program) {
        let _ = step(host, &["rm", "-f", &copy], None);
        return Err(error);
    }
    Ok(program)
}

fn copy_to(host: &ReachedHost, digest: &str, copy: &str, program: &str) -> Result<()> {
    let into = format!("of={copy}");
    step(host, &["dd", &into, "bs=1M", "status=none"], Some(own()?))?;
    let found = step(host, &["sha256sum", copy], None)?;
    ensure!(
        found.starts_with(digest),
        "its checksum is {}; expected {digest}; hint: run it again",
        found.split_whitespace().next().unwrap_or_default()
    );
    step(host, &["chmod", "700", copy], None)?;
    // Whole or not at all: another run may start it at this moment.
    step(host, &["mv", copy, program], None)?;
    Ok(())
}

/// Runs a command on a host to its end. Returns what it prints.
///
/// Its output goes to files: a connection that ssh keeps open for later commands would keep a pipe
/// open as well.
fn step(host: &ReachedHost, words: &[&str], input: Option<File>) -> Result<String> {
    let most = if input.is_some() {
        COPY_TIMEOUT
    } else {
        STEP_TIMEOUT
    };
    let [mut printed, mut complained] = [tempfile::tempfile()?, tempfile::tempfile()?];
    let mut reach = host.reach.iter();
    let mut command = Command::new(reach.next().map_or("", String::as_str));
    let mut child = command
        .args(reach)
        .args(words)
        .stdin(input.map_or_else(Stdio::null, Stdio::from))
        .stdout(printed.try_clone()?)
        .stderr(complained.try_clone()?)
        .spawn()
        .with_context(|| format!("{} cannot be started", host.reach[0]))?;
    let until = Instant::now() + most;
    let ended = loop {
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        if Instant::now() > until {
            // It may run with more rights than this process.
            let _ = child.kill();
            let (word, most) = (words[0], most.as_secs());
            bail!(
                "{word} took over {most} s; hint: is the host there, and the connection fast enough?"
            );
        }
        std::thread::sleep(LOOK_PERIOD);
    };
    if !ended.success() {
        let complained = beginning(&mut complained)?;
        let lines: Vec<&str> = complained.trim().lines().collect();
        let last = lines[lines.len().saturating_sub(2)..].join("; ");
        let (reach, words) = (host.reach.join(" "), words.join(" "));
        bail!("{words} failed: {last}; hint: try it yourself: {reach} {words}");
    }
    beginning(&mut printed)
}

/// Returns the beginning of a file.
fn beginning(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(SAID_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host that is this one, with another home.
    fn host(folder: &std::path::Path) -> ReachedHost {
        let home = format!("HOME={}", folder.display());
        ReachedHost {
            name: "here".to_owned(),
            reach: vec!["env".to_owned(), home],
            address: None,
            program: "unruly".to_owned(),
            install: true,
        }
    }

    #[test]
    fn a_program_is_copied_once_and_again_when_it_was_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path());
        let digest = digest_of_own().unwrap();
        let copies = std::cell::Cell::new(0);
        let say = |_: &str| copies.set(copies.get() + 1);
        let program = put(&host, &digest, &say).unwrap();
        assert_eq!(put(&host, &digest, &say).unwrap(), program);
        assert_eq!(copies.get(), 1);
        fs::write(&program, "other bytes").unwrap();
        assert_eq!(put(&host, &digest, &say).unwrap(), program);
        assert_eq!(copies.get(), 2);
        let there = fs::read(&program).unwrap();
        assert!(there == fs::read("/proc/self/exe").unwrap());
        let all = fs::read_dir(folder.path().join(".cache/unruly")).unwrap();
        assert_eq!(all.count(), 1);
    }

    #[test]
    fn a_host_that_cannot_take_it_says_why_in_its_own_words() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path());
        let error = step(
            &host,
            &["dd", "of=/dev/full", "status=none"],
            Some(own().unwrap()),
        );
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("No space left on device; hint: try it"),
            "{error}"
        );
        fs::write(folder.path().join(".cache"), "a file").unwrap();
        let error = put(&host, &"0".repeat(64), &|_| {})
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("mkdir -p /"), "{error}");
        let home = ["env".to_owned(), "HOME=/a b".to_owned()].to_vec();
        let error = put(
            &ReachedHost {
                reach: home,
                ..host
            },
            "",
            &|_| {},
        )
        .unwrap_err();
        assert!(
            error.to_string().contains("expected a path without blanks"),
            "{error}"
        );
    }

    #[test]
    fn nothing_stays_of_a_copy_with_another_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let error = put(&host(folder.path()), &"0".repeat(64), &|_| {}).unwrap_err();
        assert!(error.to_string().starts_with("its checksum is "), "{error}");
        let left = fs::read_dir(folder.path().join(".cache/unruly/0000000000000000")).unwrap();
        assert_eq!(left.count(), 0);
    }
}
