//! Feeds almost valid input to every parser that untrusted peers can reach. No parser may panic, or
//! hold much more memory than the input is long.
//!
//! The fuzzer keeps an input with a new outcome and mutates it further, so that it reaches deeper
//! code. The seed determines a round. A failing input is written to a file, with the command that
//! reads it again.

#[path = "../../../flurry/crates/core/tests/promises/common/mod.rs"]
mod cluster;
mod memory;
mod mutate;
mod seed;
mod target;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;

use memory::most_held;
use mutate::{Dice, mutate};
use target::{Kind, Target};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Inputs that are kept for each kind.
const KEPT_MAX: usize = 4_096;

#[derive(Debug, Parser)]
#[command(
    name = "fuzz",
    about = "Feeds every parser with input that is nearly right."
)]
struct Arguments {
    /// For how long each kind is fed
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// What chance is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Kinds of input (default: all)
    #[arg(long, value_enum)]
    kind: Vec<Kind>,
    /// How many kinds at once
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Where an input that fails is written
    #[arg(long, default_value = ".")]
    output: PathBuf,
    /// Read this input alone, of the one kind that is named
    #[arg(long)]
    input: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "fuzz: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let kinds = if arguments.kind.is_empty() {
        Kind::ALL.to_vec()
    } else {
        arguments.kind.clone()
    };
    if let Some(path) = &arguments.input {
        ensure!(
            kinds.len() == 1,
            "--input: it is of {} kinds; wanted one; hint: --kind",
            kinds.len()
        );
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        let target = Target::new(kinds[0])?;
        let (end, held) = judged(&target, kinds[0], &bytes)?;
        say(&format!("{}: {end}, {held} bytes held", kinds[0].name()));
        return Ok(());
    }
    for together in kinds.chunks(arguments.threads.max(1)) {
        std::thread::scope(|scope| {
            let running: Vec<_> = together
                .iter()
                .map(|kind| scope.spawn(|| feed(arguments, *kind)))
                .collect();
            running.into_iter().try_for_each(|it| {
                it.join()
                    .map_err(|_| anyhow!("the fuzzer itself panicked"))?
            })
        })?;
    }
    Ok(())
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Reads one input, and returns its outcome and the memory held.
///
/// # Errors
///
/// Fails on a panic, or on too much memory.
fn judged(target: &Target, kind: Kind, input: &[u8]) -> Result<(String, usize)> {
    target.prepare(input)?;
    let read = AssertUnwindSafe(|| most_held(|| target.read(input)));
    let (end, held) = catch_unwind(read).map_err(|_| anyhow!("it panicked"))?;
    let most = kind.factor() * input.len() + kind.allowance_bytes();
    ensure!(
        held <= most,
        "it held {held} bytes at once; wanted at most {most}"
    );
    Ok((end, held))
}

/// Feeds one kind of input until its time is over.
fn feed(arguments: &Arguments, kind: Kind) -> Result<()> {
    let target = Target::new(kind)?;
    let mut kept = target.seeds()?;
    let mut ends = BTreeSet::new();
    for seed in &kept {
        ends.insert(
            judged(&target, kind, seed)
                .context("an input that is right")?
                .0,
        );
    }
    let mut dice = Dice::new(arguments.seed, kind as u64);
    let start = Instant::now();
    let (mut fed, mut most) = (0_u64, 0);
    while start.elapsed() < Duration::from_secs(arguments.seconds) {
        let mut input = kept[dice.below(kept.len())].clone();
        let other = kept[dice.below(kept.len())].clone();
        mutate(&mut dice, &mut input, &other, kind.bytes_max());
        // One input in eight keeps its broken frame.
        if dice.below(8) > 0 {
            target.mend(&mut input);
        }
        fed += 1;
        let (end, held) = judged(&target, kind, &input)
            .map_err(|error| written(&arguments.output, kind, &input, &error))?;
        most = most.max(held);
        if kept.len() < KEPT_MAX && ends.insert(end) {
            kept.push(input);
        }
    }
    say(&format!(
        "{}: {fed} inputs, {} different ends, at most {most} bytes held, seed {}",
        kind.name(),
        ends.len(),
        arguments.seed
    ));
    Ok(())
}

/// Keeps a failing input, and returns an error with the command that reads it again.
fn written(folder: &Path, kind: Kind, input: &[u8], error: &anyhow::Error) -> anyhow::Error {
    let path = folder.join(format!("fuzz-{}.bin", kind.name()));
    let kept = match std::fs::write(&path, input) {
        Ok(()) => format!("--input {}", path.display()),
        Err(error) => format!("(it could not be written: {error})"),
    };
    anyhow!(
        "{}: {error:#}; again: fuzz --kind {} {kept}",
        kind.name(),
        kind.name()
    )
}
