//! One process of a run, seen from the runner.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child as OsChild, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use unruly_agent::{Job, Ready, Report};
use unruly_trace::{Counts, Exit};

/// What a child does that the runner must know: its number, and a line or its end.
pub(super) type Heard = (usize, Option<Report>);

/// Where a process writes, and what lets it into a store.
#[derive(Debug, Clone)]
pub(super) struct ChildGround {
    pub(super) directory: PathBuf,
    pub(super) password: Option<String>,
}

/// A started process.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) job: Job,
    pub(super) ready: Option<Ready>,
    pub(super) drained: bool,
    pub(super) counts: Option<Counts>,
    pub(super) exit: Option<Exit>,
    pub(super) log: PathBuf,
    process: OsChild,
    input: Option<ChildStdin>,
}

impl Child {
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
        let mut process = Command::new(words[0])
            .args(&words[1..])
            .envs(ground.password.iter().map(|it| (unruly_load::PASSWORD, it)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).with_context(failed)?)
            // Ctrl-C is for the runner, which then stops its children in order.
            .process_group_of_its_own()
            .spawn()
            .with_context(failed)?;
        let output = process.stdout.take().context("the output is piped")?;
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
        let input = process.stdin.take();
        Ok(Self {
            job,
            ready: None,
            drained: false,
            counts: None,
            exit: None,
            log,
            process,
            input,
        })
    }

    /// Process id in the runner's view.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Says a line. A child that is gone does not hear it; its end is reported on its own.
    pub(super) fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        if self.exit.is_none()
            && let Ok(pid) = i32::try_from(self.pid())
        {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Takes the exit status if the process has ended.
    pub(super) fn reap(&mut self) -> bool {
        if self.exit.is_none()
            && let Ok(Some(status)) = self.process.try_wait()
        {
            self.exit = Some(exit_of(status));
        }
        self.exit.is_some()
    }

    /// Ends the process for good.
    pub(super) fn end(&mut self) {
        self.input = None;
        if !self.reap() {
            let _ = self.process.kill();
            if let Ok(status) = self.process.wait() {
                self.exit = Some(exit_of(status));
            }
        }
    }

    /// It has ended, or will say nothing more that is waited for.
    pub(super) fn is_over(&self) -> bool {
        self.drained || self.exit.is_some()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Whatever went wrong, no process outlives its run.
        self.end();
    }
}

pub(crate) fn exit_of(status: ExitStatus) -> Exit {
    status
        .code()
        .map_or_else(|| Exit::Signal(status.signal().unwrap_or(0)), Exit::Code)
}

trait OwnGroup {
    fn process_group_of_its_own(&mut self) -> &mut Self;
}

impl OwnGroup for Command {
    fn process_group_of_its_own(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::process_group(self, 0)
    }
}
