//! A process that we have started: in a group of its own, signalled, waited for, and gone when we are done.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use unruly_trace::Exit;

/// A started process. Dropping it kills the process and its descendants.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    exit: Option<Exit>,
}

impl Process {
    /// Starts it. In a group of its own, since Ctrl-C is for the runner, which stops the others in order.
    pub(crate) fn start(command: &mut Command) -> std::io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        Ok(Self { child, exit: None })
    }

    /// What it reads and writes, where those are pipes.
    pub(crate) fn pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>) {
        (self.child.stdin.take(), self.child.stdout.take())
    }

    /// Its number, as we see it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, as far as was looked.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// Sends a signal, unless it has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.living() {
            // It may have ended just now; then there is nobody to hear it.
            let _ = kill(pid, signal);
        }
    }

    /// Looks whether it has ended.
    pub(crate) fn reap(&mut self) -> bool {
        if self.exit.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.exit = Some(exit_of(status));
        }
        self.exit.is_some()
    }

    /// Kills the process and its descendants.
    pub(crate) fn end(&mut self) {
        if self.reap() {
            return;
        }
        if let Some(pid) = self.living() {
            let _ = killpg(pid, Signal::SIGKILL);
        }
        if let Ok(status) = self.child.wait() {
            self.exit = Some(exit_of(status));
        }
    }

    /// Its number while that is surely its own.
    fn living(&self) -> Option<Pid> {
        let pid = i32::try_from(self.pid()).ok()?;
        self.exit.is_none().then(|| Pid::from_raw(pid))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Whatever went wrong, no process outlives its run.
        self.end();
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    status
        .code()
        .map_or_else(|| Exit::Signal(status.signal().unwrap_or(0)), Exit::Code)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn what_a_process_has_started_ends_with_it() {
        let words = "sleep 60 & echo $!; wait";
        let mut command = Command::new("sh");
        command.args(["-c", words]).stdout(Stdio::piped());
        let mut process = Process::start(&mut command).unwrap();
        let mut said = String::new();
        let output = process.pipes().1.unwrap();
        BufReader::new(output).read_line(&mut said).unwrap();
        let grandchild = Pid::from_raw(said.trim().parse().unwrap());
        assert!(kill(grandchild, None).is_ok());
        drop(process);
        // Whoever inherits it may take a moment to look.
        let folder = format!("/proc/{grandchild}/stat");
        let state = || std::fs::read_to_string(&folder).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z ") {
            std::thread::yield_now();
        }
    }

    #[test]
    fn how_it_ended_is_known_once_it_was_looked_at() {
        let mut process = Process::start(Command::new("sh").args(["-c", "exit 3"])).unwrap();
        assert_eq!(process.exit(), None);
        while !process.reap() {
            std::thread::yield_now();
        }
        assert_eq!(process.exit(), Some(Exit::Code(3)));
        let mut killed = Process::start(Command::new("sleep").arg("60")).unwrap();
        killed.end();
        assert_eq!(killed.exit(), Some(Exit::Signal(9)));
    }
}
