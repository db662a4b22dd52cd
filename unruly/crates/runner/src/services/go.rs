//! Builds the Go program of a service in the cache of this user.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use unruly_plan::GoProgram;

use super::cache;
use super::packages::run;

/// Builds a program from its module and its `main.go`.
///
/// The binary is static, and it is moved to its place when it is whole: a build that was interrupted
/// leaves nothing that a later run would take for the program.
pub(super) fn build(name: &str, program: &GoProgram) -> Result<()> {
    let root = cache::folder()?.join("go");
    let bin = root.join("bin");
    std::fs::create_dir_all(&bin)?;
    let work = tempfile::tempdir_in(&root)?;
    std::fs::write(work.path().join("main.go"), &program.main)?;
    go(work.path(), &["mod", "init", "unruly.invalid/service"])?;
    go(work.path(), &["get", &program.module])?;
    go(work.path(), &["mod", "tidy"])?;
    go(work.path(), &["build", "-trimpath", "-o", name, "."])?;
    std::fs::rename(work.path().join(name), bin.join(name))?;
    Ok(())
}

fn go(folder: &Path, words: &[&str]) -> Result<()> {
    let mut command = Command::new("go");
    command.args(words).current_dir(folder);
    command.env("CGO_ENABLED", "0");
    run(&mut command).map(drop)
}
