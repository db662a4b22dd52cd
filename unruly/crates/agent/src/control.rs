//! The lines between the runner and a process: JSON out, words in.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use unruly_load::Wake;
use unruly_trace::{ClockPair, Counts, DurationNs, MonoNs, monotonic};

/// What a process says of itself before the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Version of these lines.
    pub protocol: u32,
    /// Version of the tool.
    pub version: String,
    /// The process that does the work: its own, or its virtual machine's.
    pub pid: u32,
    /// Where it listens, if it does.
    pub address: Option<String>,
    /// Its clocks.
    pub clock: ClockPair,
    /// Kernel receive stamps work here.
    pub kernel_stamps: bool,
}

/// A peer, as the runner reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerLine {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: Option<u16>,
    /// Its host.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Where it listens.
    pub address: Option<String>,
}

/// An operation, a bin of response times as in [`unruly_load::bin`], and how often it was met.
pub type Bin = (String, u32, u32);

/// What a process that asks says each second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressLine {
    /// Copies scheduled so far.
    pub scheduled: u64,
    /// Rows dropped so far.
    pub dropped: u64,
    /// Copies in the last second that did not end well, by status.
    pub failed: BTreeMap<String, u64>,
    /// Copies that are open.
    pub open: usize,
    /// Response times in the last second.
    pub responses_ns: Vec<DurationNs>,
    /// The longest send lag in the last second.
    pub lag_ns: DurationNs,
    /// Measured requests of the last second by bin, where a stop rule or a live view wants them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bins: Vec<Bin>,
}

/// A line that a process writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// It can start.
    Ready(Ready),
    /// What happened in the last second.
    Progress(ProgressLine),
    /// What came over a stream in the last second.
    Flowed {
        /// Its bytes.
        bytes: u64,
    },
    /// Something that the reader of the run must know.
    Finding {
        /// What happened.
        text: String,
        /// The run cannot go on.
        fatal: bool,
    },
    /// A message for the person who watches the run.
    Note {
        /// What happened.
        text: String,
    },
    /// The connections are opened and every key is written; it waits for the start.
    Loaded {
        /// Copies scheduled so far.
        scheduled: u64,
        /// Those that could not be written.
        failed: u64,
    },
    /// The schedule is over and nothing is open; the process still serves others.
    Drained,
    /// All is written; the process ends.
    Done {
        /// Its counts, if it makes requests.
        counts: Option<Counts>,
        /// What stopped the recording, if anything did.
        failure: Option<String>,
    },
}

/// Writes a line to standard output. A runner that is gone is no error: the closed input ends us.
pub(crate) fn report(report: &Report) {
    let Ok(mut line) = serde_json::to_vec(report) else {
        return;
    };
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(&line).and_then(|()| out.flush());
}

/// A line that a process reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Who takes part.
    Peers(Vec<PeerLine>),
    /// When to start, on this process's monotonic clock.
    Start(MonoNs),
    /// Send no more requests, and wait for the open ones.
    Finish,
    /// End now. A closed standard input means the same.
    Stop,
}

impl Message {
    fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "peers" => serde_json::from_str(rest).ok().map(Self::Peers),
            "start" => rest.trim().parse().ok().map(|ns| Self::Start(MonoNs(ns))),
            "finish" => Some(Self::Finish),
            "stop" => Some(Self::Stop),
            _ => None,
        }
    }
}

/// Reads standard input on its own thread.
#[derive(Debug)]
pub(crate) struct Inbox {
    messages: Receiver<Message>,
    stop: Arc<AtomicBool>,
    finish: Arc<AtomicBool>,
    wakes: Arc<Mutex<Vec<Wake>>>,
}

impl Inbox {
    pub(crate) fn open() -> Self {
        let (sender, messages) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let finish = Arc::new(AtomicBool::new(false));
        let wakes = Arc::new(Mutex::new(Vec::new()));
        let (thread_stop, thread_wakes) = (Arc::clone(&stop), Arc::clone(&wakes));
        let thread_finish = Arc::clone(&finish);
        std::thread::spawn(move || listen(&sender, &thread_finish, &thread_stop, &thread_wakes));
        Self {
            messages,
            stop,
            finish,
            wakes,
        }
    }

    /// The flag that `stop`, or a closed input, sets.
    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// The flag that `finish` sets.
    pub(crate) fn finish_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.finish)
    }

    /// Whoever sleeps in this poller is woken when the flag is set.
    pub(crate) fn wake_on_stop(&self, wake: Wake) {
        if let Ok(mut wakes) = self.wakes.lock() {
            wakes.push(wake);
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Waits for the peers.
    pub(crate) fn peers(&self) -> Result<Option<Vec<PeerLine>>> {
        match self.messages.recv() {
            Ok(Message::Peers(peers)) => Ok(Some(peers)),
            Ok(Message::Finish | Message::Stop) | Err(_) => Ok(None),
            Ok(Message::Start(_)) => {
                bail!(
                    "standard input: start came before peers; wanted peers first; hint: see unruly/schema/job.md"
                )
            }
        }
    }

    /// Waits for the start.
    pub(crate) fn start(&self) -> Result<Option<MonoNs>> {
        match self.messages.recv() {
            Ok(Message::Start(start_ns)) => Ok(Some(start_ns)),
            Ok(Message::Finish | Message::Stop) | Err(_) => Ok(None),
            Ok(Message::Peers(_)) => {
                bail!(
                    "standard input: peers came twice; wanted start; hint: see unruly/schema/job.md"
                )
            }
        }
    }

    /// Waits for the start while `meanwhile` does what must be done before it, again and again.
    pub(crate) fn start_while(&self, mut meanwhile: impl FnMut()) -> Result<Option<MonoNs>> {
        loop {
            match self.messages.try_recv() {
                Ok(Message::Start(start_ns)) => return Ok(Some(start_ns)),
                Ok(Message::Finish | Message::Stop) | Err(TryRecvError::Disconnected) => {
                    return Ok(None);
                }
                Ok(Message::Peers(_)) => {
                    bail!(
                        "standard input: peers came twice; wanted start; hint: see unruly/schema/job.md"
                    )
                }
                Err(TryRecvError::Empty) => meanwhile(),
            }
        }
    }

    /// Waits for the end, at most until a monotonic instant. Returns whether it came.
    pub(crate) fn stopped_until(&self, at_ns: MonoNs) -> bool {
        self.stopped_within((at_ns - monotonic()).to_std())
    }

    /// Waits for the end, at most until a monotonic instant, with something to do in turns that take a while.
    /// Returns whether it came.
    pub(crate) fn stopped_while(&self, at_ns: MonoNs, mut turn: impl FnMut(Duration)) -> bool {
        while !self.is_stopped() {
            let left = (at_ns - monotonic()).to_std();
            if left.is_zero() {
                return false;
            }
            turn(left);
        }
        true
    }

    /// Waits for the end, at most for `timeout`. Returns whether it came.
    pub(crate) fn stopped_within(&self, timeout: Duration) -> bool {
        self.is_stopped() || {
            let _ = self.messages.recv_timeout(timeout);
            self.is_stopped()
        }
    }

    /// Waits for other peers than before, or the end, at most for `timeout`.
    pub(crate) fn peers_within(&self, timeout: Duration) -> Option<Vec<PeerLine>> {
        if self.is_stopped() {
            return None;
        }
        match self.messages.recv_timeout(timeout) {
            Ok(Message::Peers(peers)) => Some(peers),
            _ => None,
        }
    }

    /// Waits for the end.
    pub(crate) fn wait_for_stop(&self) {
        while !self.is_stopped() && self.messages.recv().is_ok() {}
    }
}

fn listen(
    sender: &Sender<Message>,
    finish: &AtomicBool,
    stop: &AtomicBool,
    wakes: &Mutex<Vec<Wake>>,
) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        // A word of a newer runner is not for us.
        let Some(message) = Message::parse(line.trim()) else {
            continue;
        };
        if message == Message::Stop {
            break;
        }
        if message == Message::Finish {
            finish.store(true, Ordering::Release);
            continue;
        }
        if sender.send(message).is_err() {
            break;
        }
    }
    stop.store(true, Ordering::Release);
    let _ = sender.send(Message::Stop);
    if let Ok(wakes) = wakes.lock() {
        wakes.iter().for_each(Wake::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_understood_and_others_are_not() {
        assert_eq!(Message::parse("start 12"), Some(Message::Start(MonoNs(12))));
        assert_eq!(Message::parse("stop"), Some(Message::Stop));
        assert_eq!(Message::parse("finish"), Some(Message::Finish));
        assert_eq!(Message::parse("peers []"), Some(Message::Peers(Vec::new())));
        assert_eq!(Message::parse("start soon"), None);
        assert_eq!(Message::parse("dance"), None);
    }

    #[test]
    fn a_report_line_reads_back() {
        let line = Report::Finding {
            text: "disk full".to_owned(),
            fatal: true,
        };
        let json = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), line);
    }
}
