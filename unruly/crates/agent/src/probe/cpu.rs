//! Processor time and scheduling of the host: `/proc/stat`, `/proc/schedstat`, cpufreq.

use super::text::{decimal, lines, words};

/// Time of one processor, or of all, in ticks: user, nice, system, idle, iowait, irq, softirq,
/// steal. The two guest columns after them are contained in user and nice already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ticks([u64; 8]);

const USER: usize = 0;
const NICE: usize = 1;
const SYSTEM: usize = 2;
const IDLE: usize = 3;
const IOWAIT: usize = 4;
const SOFTIRQ: usize = 6;
const STEAL: usize = 7;

/// The counters of `/proc/stat`.
#[derive(Debug, Clone, Default)]
pub(crate) struct CpuCounters {
    pub(crate) all: Option<Ticks>,
    /// Ticks by core number, because cores may come and go.
    pub(crate) cores: Vec<(u64, Ticks)>,
    pub(crate) context_switches: Option<u64>,
    /// Tasks that run or want to, this reader included.
    pub(crate) running: Option<u64>,
}

impl CpuCounters {
    /// Takes over what `text` says, reusing the memory of the reading before.
    pub(crate) fn parse(&mut self, text: &[u8]) {
        self.all = None;
        self.cores.clear();
        self.context_switches = None;
        self.running = None;
        for line in lines(text) {
            let mut words = words(line);
            match words.next() {
                Some(b"cpu") => self.all = Ticks::parse(words),
                Some(b"ctxt") => self.context_switches = words.next().and_then(decimal),
                Some(b"procs_running") => self.running = words.next().and_then(decimal),
                Some(word) => {
                    let core = word.strip_prefix(b"cpu").and_then(decimal);
                    if let (Some(core), Some(ticks)) = (core, Ticks::parse(words)) {
                        self.cores.push((core, ticks));
                    }
                }
                None => {}
            }
        }
    }

    /// Share of the busiest core's time that it was not idle, since `before`.
    pub(super) fn busiest_since(&self, before: &Self) -> Option<f64> {
        let busy_share = |(core, ticks): &(u64, Ticks)| {
            let (_, earlier) = before.cores.iter().find(|(other, _)| other == core)?;
            Shares::between(earlier, ticks)?.busy
        };
        self.cores.iter().filter_map(busy_share).reduce(f64::max)
    }
}

impl Ticks {
    /// Old kernels show fewer columns; four are always there.
    fn parse<'t>(words: impl Iterator<Item = &'t [u8]>) -> Option<Self> {
        let mut ticks = [0; 8];
        let mut count = 0;
        for (slot, word) in ticks.iter_mut().zip(words) {
            *slot = decimal(word)?;
            count += 1;
        }
        (count > IDLE).then_some(Self(ticks))
    }

    /// Share of the time since boot that the hypervisor gave to others.
    pub(crate) fn steal_share(&self) -> Option<f64> {
        Shares::between(&Self::default(), self)?.steal
    }

    /// Share of the time since `before` that the hypervisor gave to others.
    pub(crate) fn steal_share_since(&self, before: &Self) -> Option<f64> {
        Shares::between(before, self)?.steal
    }
}

/// Where the time went, each a share of all of it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Shares {
    pub(super) user: Option<f64>,
    pub(super) system: Option<f64>,
    pub(super) iowait: Option<f64>,
    pub(super) steal: Option<f64>,
    pub(super) softirq: Option<f64>,
    pub(super) busy: Option<f64>,
}

impl Shares {
    /// `None` when no time passed, or when the counters began anew.
    ///
    /// The kernel lets idle and iowait fall by a little now and then (it documents that). Then only
    /// that share is missing; a fall of any other is a reset and takes all of them.
    pub(super) fn between(before: &Ticks, after: &Ticks) -> Option<Self> {
        let way = |column: usize| after.0[column].checked_sub(before.0[column]);
        let mut total: u64 = 0;
        for column in 0..after.0.len() {
            let part = match way(column) {
                Some(part) => part,
                None if column == IDLE || column == IOWAIT => 0,
                None => return None,
            };
            total = total.checked_add(part)?;
        }
        if total == 0 {
            return None;
        }
        let share = |ticks: u64| ticks as f64 / total as f64;
        let (idle, iowait) = (way(IDLE), way(IOWAIT));
        let not_busy = idle.unwrap_or(0) + iowait.unwrap_or(0);
        Some(Self {
            user: Some(share(way(USER)? + way(NICE)?)),
            system: way(SYSTEM).map(share),
            iowait: iowait.map(share),
            steal: way(STEAL).map(share),
            softirq: way(SOFTIRQ).map(share),
            busy: Some(share(total - not_busy)),
        })
    }
}

/// Time that tasks of the host waited for a core: the eighth number of each core's line in
/// `/proc/schedstat`, the layout of versions 14 to 17.
pub(super) fn run_queue_wait_ns(schedstat: &[u8]) -> Option<u64> {
    let mut sum = None;
    for line in lines(schedstat) {
        let mut words = words(line);
        let core = words.next().and_then(|word| word.strip_prefix(b"cpu"));
        if core.and_then(decimal).is_none() {
            continue;
        }
        let wait = decimal(words.nth(7)?)?;
        sum = Some(sum.unwrap_or(0u64).checked_add(wait)?);
    }
    sum
}

/// A core's frequency from `scaling_cur_freq`, which is in kHz.
pub(super) fn frequency_hz(text: &[u8]) -> Option<f64> {
    let khz = decimal(words(text).next()?)?;
    Some(khz as f64 * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> CpuCounters {
        let mut counters = CpuCounters::default();
        counters.parse(text.as_bytes());
        counters
    }

    #[test]
    fn shares_are_of_all_time_and_sum_to_one() {
        let before = Ticks([100, 0, 100, 1000, 10, 0, 0, 0]);
        let after = Ticks([120, 5, 110, 1050, 20, 1, 2, 2]);
        let shares = Shares::between(&before, &after).unwrap();
        assert_eq!(shares.user, Some(0.25));
        assert_eq!(shares.system, Some(0.1));
        assert_eq!(shares.iowait, Some(0.1));
        assert_eq!(shares.softirq, Some(0.02));
        assert_eq!(shares.steal, Some(0.02));
        assert_eq!(shares.busy, Some(0.4));
    }

    #[test]
    fn iowait_that_falls_costs_only_its_own_share() {
        let before = Ticks([100, 0, 100, 1000, 10, 0, 0, 0]);
        let after = Ticks([150, 0, 100, 1050, 9, 0, 0, 0]);
        let shares = Shares::between(&before, &after).unwrap();
        assert_eq!(shares.iowait, None);
        assert_eq!(shares.user, Some(0.5));
    }

    #[test]
    fn a_reset_takes_all_shares() {
        let before = Ticks([100, 0, 100, 1000, 10, 0, 0, 0]);
        assert_eq!(
            Shares::between(&before, &Ticks([1, 0, 1, 5, 0, 0, 0, 0])),
            None
        );
        assert_eq!(Shares::between(&before, &before), None, "no time passed");
    }

    #[test]
    fn the_busiest_core_is_found_by_its_number() {
        let before = parsed("cpu 0 0 0 0\ncpu0 0 0 0 0\ncpu3 0 0 0 0\n");
        let after = parsed("cpu 80 0 0 120\ncpu2 100 0 0 0\ncpu3 80 0 0 20\ncpu0 0 0 0 100\n");
        assert_eq!(
            after.busiest_since(&before),
            Some(0.8),
            "cpu2 was not there before"
        );
    }

    #[test]
    fn a_stat_without_a_core_line_has_no_busiest_core() {
        let text = parsed("cpu 1 2 3 4 5 6 7 8 9 10\nctxt 77\nprocs_running 3\n");
        assert_eq!(text.busiest_since(&text), None);
        assert_eq!(text.context_switches, Some(77));
        assert_eq!(text.running, Some(3));
    }

    #[test]
    fn garbage_gives_none_everywhere() {
        let text = parsed("cpu one two\ncpu0 1 2\ncpuX 1 2 3 4\nctxt\nprocs_running -1\n\u{7f}\n");
        assert_eq!(text.all, None);
        assert!(text.cores.is_empty());
        assert_eq!(text.context_switches, None);
        assert_eq!(text.running, None);
    }

    #[test]
    fn waiting_is_the_eighth_number_of_each_core() {
        let text = b"version 15\ntimestamp 1\ncpu0 0 0 0 0 0 0 10 7 3\ndomain0 3 1 2\n\
                     cpu1 0 0 0 0 0 0 10 5 3\n";
        assert_eq!(run_queue_wait_ns(text), Some(12));
        assert_eq!(run_queue_wait_ns(b"version 15\n"), None);
        assert_eq!(run_queue_wait_ns(b"cpu0 1 2\n"), None);
    }
}
