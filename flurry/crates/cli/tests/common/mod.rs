//! Processes of the program `flurry`.

#![allow(dead_code, reason = "not every test file uses all of it")]
#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Far more than anything takes; only reached by a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A process that ends with its test, and the addresses that it printed.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Process {
    /// Starts it and waits for its `ready`.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_flurry"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let mut process = Self {
            child,
            addresses: Vec::new(),
        };
        for line in BufReader::new(out).lines() {
            let line = line.unwrap();
            if line == "ready" {
                return process;
            }
            let words = line.split([' ', ',']);
            process
                .addresses
                .extend(words.filter_map(|word| word.parse::<SocketAddr>().ok()));
        }
        panic!("{arguments:?} never became ready");
    }

    pub(crate) fn server(id: u16, controller: SocketAddr) -> Self {
        let (id, controller) = (id.to_string(), controller.to_string());
        Self::start(&["server", "--id", &id, "--controller", &controller])
    }

    pub(crate) fn controller(listen: &str, directory: &Path) -> Self {
        let directory = directory.to_str().unwrap();
        Self::start(&["controller", "--listen", listen, "--dir", directory])
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).unwrap();
        kill(Pid::from_raw(id), signal).unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.end();
    }

    pub(crate) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Exit code, and what it said.
pub(crate) fn said(output: &Output) -> (i32, &str, &str) {
    let text = |bytes| std::str::from_utf8(bytes).unwrap().trim_end();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}
