//! The program `unruly`, as a real process.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::process::{Command, Output};

fn unruly(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_unruly"))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn an_unknown_verb_ends_with_2_and_names_the_verb_that_was_meant() {
    let said = unruly(&["repport", "runs/demo"]);
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(2), "{text}");
    assert!(
        text.contains("'repport'") && text.contains("'report'"),
        "{text}"
    );
    assert!(said.stdout.is_empty());
}

#[test]
fn a_plan_that_is_not_there_ends_with_2_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("run");
    let said = unruly(&["run", "no-such-plan", "-o", output.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(2), "{text}");
    assert!(text.starts_with("unruly: no-such-plan"), "{text}");
    assert!(!output.exists());
}
