//! The door to the Python side: which interpreter, and how to hand over to it.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use nix::sys::resource::{Resource, getrlimit};

/// Address space of an analysis at least: its libraries alone map most of that.
const ADDRESS_SPACE_BYTES_MIN: u64 = 1 << 30;

/// Where the package comes from, at the end of an error.
pub const HOW_TO_INSTALL: &str = concat!(
    "pip install unruly-",
    env!("CARGO_PKG_VERSION"),
    "-*.whl of the same release"
);

/// Looks for the package without importing it, which takes a hundred times as long.
/// Keeps the working directory out of the module path: a folder `unruly` there may be anybody's.
const SAFE_PATH: &str = "-P";
const HAS_PACKAGE: &str =
    "import sys, importlib.util; sys.exit(importlib.util.find_spec('unruly') is None)";

/// An interpreter that has the package `unruly`.
///
/// # Errors
///
/// When there is none; the error says how to install it.
pub fn find() -> Result<PathBuf> {
    for candidate in candidates() {
        let imports = Command::new(&candidate)
            .args([SAFE_PATH, "-c", HAS_PACKAGE])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if imports.is_ok_and(|status| status.success()) {
            return Ok(candidate);
        }
    }
    bail!(
        "analysis: no Python here has the package unruly; \
         hint: {HOW_TO_INSTALL}, or name a Python that has it in UNRULY_PYTHON"
    )
}

/// `$UNRULY_PYTHON`, the Python beside the binary, `.venv` in the folders above it, `python3` of the path.
/// Never one of the working directory: that may be anybody's.
fn candidates() -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some(named) = std::env::var_os("UNRULY_PYTHON") {
        return vec![PathBuf::from(named)];
    }
    if let Ok(binary) = std::env::current_exe() {
        found.extend(binary.parent().map(|folder| folder.join("python3")));
        // A binary in a build folder belongs to the checkout above it.
        found.extend(
            binary
                .ancestors()
                .map(|folder| folder.join(".venv/bin/python3")),
        );
    }
    found.extend(on_path("python3"));
    found.retain(|path| path.exists());
    found
}

/// Where a program may be on the path. An empty or relative part of the path means the working directory,
/// and is left out.
#[must_use]
pub fn on_path(program: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).filter(|it| it.is_absolute());
    places.map(|it| it.join(program)).collect()
}

/// Replaces this process with `python -m unruly VERB ARGUMENTS`.
///
/// # Errors
///
/// When there is no such interpreter or it cannot be started.
pub fn become_verb(verb: &str, arguments: &[impl AsRef<OsStr>]) -> Result<()> {
    let error = command(verb, arguments)?.exec();
    bail!("python: cannot be started ({error}); wanted Python 3.11; hint: set UNRULY_PYTHON")
}

/// Runs a verb as a child. Returns its exit code.
///
/// # Errors
///
/// When there is no such interpreter or it cannot be started.
pub fn run_verb(verb: &str, arguments: &[&OsStr]) -> Result<i32> {
    let status = command(verb, arguments)?.status()?;
    Ok(status.code().unwrap_or(2))
}

/// A module of the package as a child, that is spoken to.
///
/// # Errors
///
/// When there is no such interpreter, or its address space is too small for the analysis.
pub fn module(name: &str, arguments: &[impl AsRef<OsStr>]) -> Result<Command> {
    ensure_address_space()?;
    let mut command = Command::new(find()?);
    command.args([SAFE_PATH, "-m", name]).args(arguments);
    Ok(command)
}

/// Refuses an address space in which the libraries of the analysis loop for ever or abort.
fn ensure_address_space() -> Result<()> {
    let granted = getrlimit(Resource::RLIMIT_AS).map_or(u64::MAX, |(soft, _)| soft);
    anyhow::ensure!(
        granted >= ADDRESS_SPACE_BYTES_MIN,
        "python: the address space is limited to {} MiB; wanted {} MiB or more; hint: ulimit -v unlimited",
        granted >> 20,
        ADDRESS_SPACE_BYTES_MIN >> 20
    );
    Ok(())
}

fn command(verb: &str, arguments: &[impl AsRef<OsStr>]) -> Result<Command> {
    ensure_address_space()?;
    let mut command = Command::new(find()?);
    command
        .args([SAFE_PATH, "-m", "unruly", verb])
        .args(arguments);
    // The Python side calls back for recovery; it must find this very program.
    if let Ok(binary) = std::env::current_exe() {
        command.env("UNRULY_BINARY", binary);
    }
    Ok(command)
}
