//! A row for a watched process.
//!
//! `/proc/PID/stat` counts for the whole process, but the kernel reports two things per thread
//! only: the time waiting for a core (`schedstat`) and the context switches (`status`). The files
//! of these names in `/proc/PID` describe the first thread alone. The probe therefore reads them in
//! `/proc/PID/task/*` and adds up what each thread gained. When a thread ends, the sum misses only
//! the thread's gain since the last sample.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::cgroup::{self, CgroupCounters, CgroupFiles, Mounts};
use super::difference::{advance, gauge, scaled};
use super::file::{Buffer, Keep, KeptFile};
use super::row::ResourceRow;
use super::sampler::Watched;
use super::text::{decimal, value_of, words};

/// Threads that are read. A thread costs up to 12 us, so this many cost 0.25 % of a core at one
/// sample a second, near all that the probe may. A process with more has no run-queue wait and no
/// switches.
const THREADS_MAX: usize = 200;

/// A tick of `/proc/PID/stat`: `USER_HZ` is 100 on every architecture that we build for.
const TICK_NS: i64 = 10_000_000;

/// The counters of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Stat {
    has_ended: bool,
    minor_faults: Option<u64>,
    major_faults: Option<u64>,
    user_ticks: Option<u64>,
    system_ticks: Option<u64>,
    threads: Option<u64>,
    /// When the process started, in ticks since boot: with the number it names a process for good.
    started_ticks: Option<u64>,
}

impl Stat {
    /// The name in parentheses may itself hold blanks and parentheses, so counting begins behind
    /// the last one.
    fn parse(text: &[u8]) -> Self {
        let Some(end) = text.iter().rposition(|&byte| byte == b')') else {
            return Self::default();
        };
        let mut stat = Self::default();
        let mut state = b'?';
        for (index, word) in words(&text[end + 1..]).take(20).enumerate() {
            // `proc(5)` numbers the state 3.
            match index + 3 {
                3 => state = word[0],
                10 => stat.minor_faults = decimal(word),
                12 => stat.major_faults = decimal(word),
                14 => stat.user_ticks = decimal(word),
                15 => stat.system_ticks = decimal(word),
                20 => stat.threads = decimal(word),
                22 => stat.started_ticks = decimal(word),
                _ => {}
            }
        }
        // A first thread that ended while others run on is a zombie with threads.
        stat.has_ended = matches!(state, b'Z' | b'X') && stat.threads.unwrap_or(0) <= 1;
        stat
    }
}

/// A number of `/proc/PID/status` that is in kB, in bytes.
fn status_bytes(status: &[u8], key: &[u8]) -> Option<u64> {
    value_of(status, key)?.checked_mul(1024)
}

/// The counters that the kernel reports per thread, or their sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ThreadCounters {
    wait_ns: Option<u64>,
    voluntary_switches: Option<u64>,
    involuntary_switches: Option<u64>,
}

impl ThreadCounters {
    /// Adds what a thread gained since `before`, which becomes `now` as far as that is known. A
    /// counter that fell is of another thread under the same number: all of it is new.
    fn add_gain(&mut self, before: &mut Self, now: &Self) {
        for (sum, before, now) in [
            (&mut self.wait_ns, &mut before.wait_ns, now.wait_ns),
            (
                &mut self.voluntary_switches,
                &mut before.voluntary_switches,
                now.voluntary_switches,
            ),
            (
                &mut self.involuntary_switches,
                &mut before.involuntary_switches,
                now.involuntary_switches,
            ),
        ] {
            if let Some(now) = now {
                let gain = now.checked_sub(before.unwrap_or(0)).unwrap_or(now);
                *sum = Some(sum.unwrap_or(0).saturating_add(gain));
                *before = Some(now);
            }
        }
    }
}

/// The threads of a process, and what each had counted.
#[derive(Debug)]
struct Threads {
    folder: String,
    /// Reused for the path of each file.
    path: String,
    known: HashMap<u32, (u64, ThreadCounters)>,
    /// Number of the reading, which shows whether the thread still exists.
    round: u64,
    has_baseline: bool,
}

impl Threads {
    fn new(process: &Path) -> Self {
        let folder = process.join("task").to_string_lossy().into_owned();
        Self {
            folder,
            path: String::new(),
            known: HashMap::new(),
            round: 0,
            has_baseline: false,
        }
    }

    /// What the threads gained since the last call; nothing is known the first time.
    fn gain(&mut self, buffer: &mut Buffer) -> ThreadCounters {
        let mut sum = ThreadCounters::default();
        self.round += 1;
        if self.read_all(&mut sum, buffer).is_err() {
            self.known.clear();
            self.has_baseline = false;
            return ThreadCounters::default();
        }
        let round = self.round;
        self.known.retain(|_, (seen, _)| *seen == round);
        if std::mem::replace(&mut self.has_baseline, true) {
            sum
        } else {
            ThreadCounters::default()
        }
    }

    fn read_all(&mut self, sum: &mut ThreadCounters, buffer: &mut Buffer) -> io::Result<()> {
        for (count, entry) in fs::read_dir(&self.folder)?.enumerate() {
            if count == THREADS_MAX {
                return Err(io::Error::other("too many threads"));
            }
            let name = entry?.file_name();
            let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let now = self.read_one(thread, buffer);
            let (seen, counters) = self.known.entry(thread).or_default();
            *seen = self.round;
            sum.add_gain(counters, &now);
        }
        Ok(())
    }

    /// Reads one thread's counters. They are empty if the thread ended after it was listed.
    fn read_one(&mut self, thread: u32, buffer: &mut Buffer) -> ThreadCounters {
        let mut counters = ThreadCounters::default();
        if let Ok(text) = self.read_file(thread, "schedstat", buffer) {
            counters.wait_ns = words(text).nth(1).and_then(decimal);
        }
        if let Ok(text) = self.read_file(thread, "status", buffer) {
            counters.voluntary_switches = value_of(text, b"voluntary_ctxt_switches:");
            counters.involuntary_switches = value_of(text, b"nonvoluntary_ctxt_switches:");
        }
        counters
    }

    fn read_file<'b>(
        &mut self,
        thread: u32,
        name: &str,
        buffer: &'b mut Buffer,
    ) -> io::Result<&'b [u8]> {
        self.path.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.path, "{}/{thread}/{name}", self.folder);
        buffer.fill(&File::open(&self.path)?)
    }
}

/// Whether a watched process gave a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is there, and so was it at the reading before: there is a row.
    Row,
    /// It is there, for the first time, or could not be read this time: no row yet.
    NoRow,
    /// It has ended. There will never be a row again.
    Gone,
}

#[derive(Debug, Default)]
struct Reading {
    stat: Stat,
    rss_bytes: Option<u64>,
    swap_bytes: Option<u64>,
    cgroup: CgroupCounters,
}

/// The files of a watched process, and what they said last.
#[derive(Debug)]
pub(super) struct ProcessProbe {
    name: String,
    pid: u32,
    keep: Keep,
    stat: KeptFile,
    status: KeptFile,
    membership: KeptFile,
    /// The membership for which `cgroup` was opened.
    membership_text: Vec<u8>,
    cgroup: CgroupFiles,
    threads: Threads,
    gain: ThreadCounters,
    before: Option<Reading>,
    now: Option<Reading>,
}

impl ProcessProbe {
    pub(super) fn new(root: &Path, name: String, pid: u32, keep: Keep) -> Self {
        let folder = root.join("proc").join(pid.to_string());
        let file = |name: &str| KeptFile::new(folder.join(name), keep);
        Self {
            name,
            pid,
            keep,
            stat: file("stat"),
            status: file("status"),
            membership: file("cgroup"),
            membership_text: Vec::new(),
            cgroup: CgroupFiles::default(),
            threads: Threads::new(&folder),
            gain: ThreadCounters::default(),
            before: None,
            now: None,
        }
    }

    /// Whether it is this one, and no other life of it.
    pub(super) fn is_of(&self, watched: &Watched) -> bool {
        self.pid == watched.pid && self.name == watched.name
    }

    /// Reads everything again. The previous readings become the baseline.
    pub(super) fn read(&mut self, mounts: &Mounts, buffer: &mut Buffer) -> Outcome {
        self.before = self.now.take();
        let stat = match self.stat.read(buffer) {
            Ok(text) => Stat::parse(text),
            Err(error) if has_ended(&error) => return Outcome::Gone,
            // Out of file descriptors, say: there may be a next time.
            Err(_) => return Outcome::NoRow,
        };
        if stat.has_ended || self.is_another(&stat) {
            return Outcome::Gone;
        }
        let status = self.status.read(buffer).unwrap_or_default();
        let rss_bytes = status_bytes(status, b"VmRSS:");
        let swap_bytes = status_bytes(status, b"VmSwap:");
        let cgroup = self.read_cgroup(mounts, buffer);
        self.gain = self.threads.gain(buffer);
        self.now = Some(Reading {
            stat,
            rss_bytes,
            swap_bytes,
            cgroup,
        });
        if self.before.is_some() {
            Outcome::Row
        } else {
            Outcome::NoRow
        }
    }

    /// Whether the number was given to another process since.
    fn is_another(&self, stat: &Stat) -> bool {
        let earlier = self
            .before
            .as_ref()
            .and_then(|before| before.stat.started_ticks);
        matches!((earlier, stat.started_ticks), (Some(one), Some(other)) if one != other)
    }

    /// A process may be moved to another group, whose counters began elsewhere: no baseline then.
    fn read_cgroup(&mut self, mounts: &Mounts, buffer: &mut Buffer) -> CgroupCounters {
        let membership = self.membership.read(buffer).unwrap_or_default();
        if !cgroup::is_membership(membership) {
            return CgroupCounters::default();
        }
        if membership != self.membership_text {
            self.membership_text.clear();
            self.membership_text.extend_from_slice(membership);
            self.cgroup = CgroupFiles::of(mounts, &self.membership_text, self.keep, buffer);
            if let Some(before) = &mut self.before {
                before.cgroup = CgroupCounters::default();
            }
        }
        self.cgroup.read(buffer)
    }

    /// Writes the difference of the last two readings into `row`.
    pub(super) fn fill(&self, row: &mut ResourceRow) {
        row.watched = Some(self.name.clone());
        let (Some(before), Some(now)) = (&self.before, &self.now) else {
            return;
        };
        row.swap_used_bytes = gauge(now.swap_bytes);
        row.rss_bytes = gauge(now.rss_bytes);
        row.threads = gauge(now.stat.threads);
        row.run_queue_wait_ns = gauge(self.gain.wait_ns);
        row.voluntary_switches = gauge(self.gain.voluntary_switches);
        row.involuntary_switches = gauge(self.gain.involuntary_switches);
        let (earlier, later) = (&before.stat, &now.stat);
        row.minor_faults = advance(earlier.minor_faults, later.minor_faults);
        row.major_faults = advance(earlier.major_faults, later.major_faults);
        row.user_ns = scaled(earlier.user_ticks, later.user_ticks, TICK_NS);
        row.system_ns = scaled(earlier.system_ticks, later.system_ticks, TICK_NS);
        let (earlier, later) = (&before.cgroup, &now.cgroup);
        row.cgroup_throttled_periods = advance(earlier.throttled_periods, later.throttled_periods);
        row.cgroup_throttled_ns = advance(earlier.throttled_ns, later.throttled_ns);
        row.cgroup_memory_limit_events =
            advance(earlier.memory_limit_events, later.memory_limit_events);
    }
}

fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "42 (a (b) c) S 1 42 42 0 -1 4194304 99 5 7 6 250 75 0 0 20 0 9 0 262602 \
        3133440 394 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n";

    #[test]
    fn a_name_with_blanks_and_parentheses_moves_no_field() {
        let stat = Stat::parse(STAT.as_bytes());
        assert_eq!((stat.minor_faults, stat.major_faults), (Some(99), Some(7)));
        assert_eq!((stat.user_ticks, stat.system_ticks), (Some(250), Some(75)));
        assert_eq!((stat.threads, stat.started_ticks), (Some(9), Some(262_602)));
        assert!(!stat.has_ended);
    }

    #[test]
    fn a_zombie_has_ended_unless_other_threads_run_on() {
        assert!(!Stat::parse(STAT.replace(") S", ") Z").as_bytes()).has_ended);
        let alone = STAT
            .replace(") S", ") Z")
            .replace(" 20 0 9 0 ", " 20 0 1 0 ");
        assert!(Stat::parse(alone.as_bytes()).has_ended);
    }

    #[test]
    fn a_stat_cut_short_gives_what_it_has() {
        let stat = Stat::parse(b"42 (x) R 1 2 3 4 5 6 77");
        assert_eq!(stat.minor_faults, Some(77));
        assert_eq!(stat.user_ticks, None);
        assert_eq!(Stat::parse(b"garbage"), Stat::default());
    }

    #[test]
    fn a_recycled_thread_number_counts_from_its_own_start() {
        let mut sum = ThreadCounters::default();
        let mut before = ThreadCounters {
            wait_ns: Some(100),
            ..Default::default()
        };
        let now = ThreadCounters {
            wait_ns: Some(30),
            ..Default::default()
        };
        sum.add_gain(&mut before, &now);
        assert_eq!(sum.wait_ns, Some(30));
        assert_eq!(before.wait_ns, Some(30));
        assert_eq!(sum.voluntary_switches, None);
    }
}
