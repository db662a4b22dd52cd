//! Whether a run knows enough, which the analysis says: the method of the interval is written once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result};
use serde::Deserialize;
use unruly_agent::Bin;
use unruly_plan::Until;

/// What the analysis said at a look.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Look {
    /// The state of the stop rule in words, for the person who watches.
    pub(super) said: String,
    /// True if the run may end.
    pub(super) enough: bool,
}

/// The analysis in a process of its own, which hears every second of a run.
#[derive(Debug)]
pub(super) struct Judge {
    process: Child,
    input: Option<ChildStdin>,
    looks: Receiver<Look>,
    pub(super) last: Option<Look>,
}

impl Judge {
    /// Starts it; it is ready when this returns, so that its start is no part of the run.
    pub(super) fn start(until: Until) -> Result<Self> {
        let arguments = [until.percentile.to_string(), until.within.to_string()];
        let mut process = unruly_program::python::module("unruly.until", &arguments)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("until: the analysis cannot be started; wanted Python 3.11; hint: leave run.until out")?;
        let output = process.stdout.take().context("its output is piped")?;
        let input = process.stdin.take();
        let mut lines = BufReader::new(output).lines();
        let ready = lines.next().and_then(Result::ok);
        anyhow::ensure!(
            ready.as_deref() == Some("ready"),
            "until: the analysis says {ready:?}; wanted it ready; hint: unruly doctor"
        );
        let (sender, looks) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let look = serde_json::from_str(&line);
                if look.is_ok_and(|look| sender.send(look).is_err()) {
                    return;
                }
            }
        });
        Ok(Self {
            process,
            input,
            looks,
            last: None,
        })
    }

    /// Tells what a process has counted in its last second.
    pub(super) fn hear(&mut self, process: usize, bins: &[Bin]) {
        let line = serde_json::json!({"process": process, "bins": bins});
        if let Some(input) = &mut self.input {
            // One that is gone says nothing more, and the run lasts as long as it may.
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// What it said since it was asked last.
    pub(super) fn look(&mut self) -> Option<Look> {
        let look = self.looks.try_iter().last()?;
        self.last = Some(look.clone());
        Some(look)
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
