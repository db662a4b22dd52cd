//! One process of a run, seen from the runner.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use unruly_agent::{Job, Ready, Report};
use unruly_trace::Counts;

use unruly_plan::Secret;

use crate::process::Process;

/// What a child does that the runner must know: its number, and a line or its end.
pub(super) type Heard = (usize, Option<Report>);

/// Where a process writes, and what lets it into a store.
#[derive(Debug, Clone)]
pub(super) struct ChildGround {
    pub(super) directory: PathBuf,
    pub(super) password: Option<Secret>,
}

/// A started process.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) job: Job,
    pub(super) ready: Option<Ready>,
    pub(super) drained: bool,
    pub(super) counts: Option<Counts>,
    pub(super) log: PathBuf,
    pub(super) process: Process,
    input: Option<ChildStdin>,
}

impl Child {
    /// The process that does its work: its own, or its virtual machine.
    pub(super) fn worker_pid(&self) -> u32 {
        self.ready
            .as_ref()
            .map_or_else(|| self.process.pid(), |it| it.pid)
    }

    /// Signals it, and the virtual machine that does its work: one whose agent is killed ends by itself, and
    /// tidies up.
    pub(super) fn signal(&self, signal: Signal) {
        let worker = self.worker_pid();
        let apart = worker != self.process.pid() && signal != Signal::SIGKILL;
        // While its agent lives, this is its number.
        if apart && self.process.exit().is_none() {
            let _ = kill(Pid::from_raw(worker.cast_signed()), signal);
        }
        self.process.signal(signal);
    }

    /// Writes the job file and starts `unruly agent` behind `prefix`.
    pub(super) fn start(
        number: usize,
        job: Job,
        ground: &ChildGround,
        prefix: &[String],
        heard: Sender<Heard>,
    ) -> Result<Self> {
        let directory = ground.directory.as_path();
        let logs = directory.join("logs");
        let job_file = logs.join(format!("{}.job.json", job.stem()));
        let log = logs.join(format!("{}.log", job.stem()));
        let failed = || {
            format!(
                "{}: cannot be started; wanted a process; hint: look at ulimit -u and the disk",
                job.name
            )
        };
        std::fs::write(&job_file, serde_json::to_vec_pretty(&job)?).with_context(failed)?;
        let program = std::env::current_exe()?;
        let mut words: Vec<&std::ffi::OsStr> = prefix.iter().map(AsRef::as_ref).collect();
        words.extend([
            program.as_os_str(),
            "agent".as_ref(),
            "--job".as_ref(),
            job_file.as_os_str(),
        ]);
        words.extend(["--out".as_ref(), directory.as_os_str()]);
        let mut process = Process::start(
            Command::new(words[0])
                .args(&words[1..])
                .envs(
                    ground
                        .password
                        .iter()
                        .map(|it| (unruly_load::PASSWORD, it.reveal())),
                )
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(File::create(&log).with_context(failed)?),
        )
        .with_context(failed)?;
        let (input, output) = process.pipes();
        let output = output.context("the output is piped")?;
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Ok(report) = serde_json::from_str(&line)
                    && heard.send((number, Some(report))).is_err()
                {
                    return;
                }
            }
            let _ = heard.send((number, None));
        });
        Ok(Self {
            job,
            ready: None,
            drained: false,
            counts: None,
            log,
            process,
            input,
        })
    }

    /// Says a line. A child that is gone does not hear it; its end is reported on its own.
    pub(super) fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// Says nothing any more, which it takes for a stop.
    pub(super) fn hang_up(&mut self) {
        self.input = None;
    }

    /// It has ended, or will say nothing more that is waited for.
    pub(super) fn is_over(&self) -> bool {
        self.drained || self.process.exit().is_some()
    }
}
