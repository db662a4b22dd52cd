//! Replicas of the service, each a process, and who kills them.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use flurry::status;

/// Far longer than a replica needs to take part.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Until a replica that was killed is started again.
const AWAY: Duration = Duration::from_secs(1);

/// Running replicas; dropping them ends them.
pub(crate) struct Replicas {
    controller: SocketAddr,
    children: Vec<Child>,
}

impl Replicas {
    pub(crate) fn start(controller: SocketAddr, count: u16) -> Result<Self> {
        let children = (1..=count).map(|id| start(controller, id));
        let replicas = Self {
            controller,
            children: children.collect::<Result<_>>()?,
        };
        replicas.until_whole()?;
        Ok(replicas)
    }

    /// Kills the replicas one after the other with a pause before each, until a stop is received.
    /// Returns how many it has killed.
    pub(crate) fn kill_each(&mut self, every: Duration, stop: &Receiver<()>) -> Result<u64> {
        let mut killed = 0;
        for index in (0..self.children.len()).cycle() {
            if stop.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                break;
            }
            let child = &mut self.children[index];
            child.kill().context("killing a replica")?;
            child.wait().context("waiting for its end")?;
            killed += 1;
            let stopped = stop.recv_timeout(AWAY.min(every));
            self.children[index] = start(self.controller, u16::try_from(index + 1)?)?;
            self.until_whole()?;
            if stopped != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        Ok(killed)
    }

    fn until_whole(&self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            let seen = status(
                &self.controller.into(),
                TIMEOUT,
                &flurry::Security::default(),
            )?;
            let all_up = seen.matches("\"up\"").count() == self.children.len();
            if all_up && seen.contains("\"changing\":false") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("replicas: not all take part after {TIMEOUT:?}")
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        for child in &mut self.children {
            // One that has ended already needs no end.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// This program again, as a replica; returns when it listens.
fn start(controller: SocketAddr, id: u16) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["replica", "--id", &id.to_string()])
        .args(["--controller", &controller.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a replica")?;
    let output = child.stdout.take().context("its output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(
        line.trim() == "ready",
        "replica {id}: it said {line:?}; wanted ready"
    );
    Ok(child)
}
