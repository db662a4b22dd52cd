//! The progress that a person sees during a run: the remaining time, and a line about the current
//! step.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use unruly_agent::ProgressLine;
use unruly_plan::{Arrivals, Load, Plan, RateHz, quantity};
use unruly_trace::{DurationNs, grouped};

use unruly_program::printable;

use crate::live::{Begun, Live};
use crate::trial::nanoseconds;

/// Without a terminal a line is printed at this pace.
const LINE_PERIOD: Duration = Duration::from_secs(5);

/// What the processes said since the last line.
#[derive(Debug, Default)]
struct Second {
    responses_ns: Vec<DurationNs>,
    scheduled: u64,
    /// By status.
    failed: BTreeMap<String, u64>,
    lag_ns: DurationNs,
    /// Bytes of a stream.
    bytes: Option<u64>,
}

/// Send delay above which a generator cannot keep up. `BEHIND_AFTER` is the time
/// after its start from which this applies.
const BEHIND: DurationNs = DurationNs::seconds(1);
const BEHIND_AFTER: Duration = Duration::from_secs(2);

/// The measured time of a trial, after its warm-up.
#[derive(Debug, Default)]
struct Measured {
    warmup: Duration,
    seconds: u64,
}

impl Measured {
    /// Returns the measured second that a line is about which comes now: the one before it.
    fn place(&self, started: Instant) -> u64 {
        let past = started.elapsed().saturating_sub(self.warmup);
        let half = Duration::from_millis(500);
        let place = past.saturating_sub(half).as_secs();
        place.min(self.seconds.saturating_sub(1))
    }
}

/// The progress of a run.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    trial: Duration,
    trials: usize,
    number: usize,
    started: Instant,
    shown: Instant,
    second: Second,
    worst_ns: DurationNs,
    dropped: Vec<u64>,
    scheduled: Vec<u64>,
    open: Vec<usize>,
    /// Copies that were scheduled in this trial.
    sent: u64,
    /// The rate that the plan asks for.
    asked: Option<RateHz>,
    /// The measured time of this trial.
    measured: Measured,
    /// It has been said that the host cannot keep up with it.
    said_behind: bool,
    /// The page and the exports that show the run while it goes on.
    live: Option<Live>,
}

impl Progress {
    pub(super) fn new(plan: &Plan, trials: usize, quiet: bool, live: Option<Live>) -> Self {
        let trial = Duration::from_nanos(trial_ns(plan));
        let terminal = std::io::stderr().is_terminal() && !quiet;
        let bar = terminal.then(|| {
            let total = u64::try_from(trial.as_millis()).unwrap_or(u64::MAX);
            let bar = ProgressBar::new(total.saturating_mul(trials as u64));
            if let Ok(style) = ProgressStyle::with_template("{wide_bar:.dim} {prefix}\n{wide_msg}")
            {
                bar.set_style(style);
            }
            bar
        });
        let now = Instant::now();
        Self {
            bar,
            quiet,
            trial,
            trials,
            number: 0,
            started: now,
            shown: now,
            second: Second::default(),
            worst_ns: DurationNs::ZERO,
            dropped: Vec::new(),
            scheduled: Vec::new(),
            open: Vec::new(),
            sent: 0,
            asked: None,
            measured: Measured::default(),
            said_behind: false,
            live,
        }
    }

    /// Begins a trial. `scheduled` has one element per process: the copies that it has already
    /// scheduled.
    pub(super) fn begin(&mut self, number: usize, label: &str, scheduled: Vec<u64>, plan: &Plan) {
        let processes = scheduled.len();
        self.number = number;
        self.started = Instant::now();
        self.shown = self.started;
        self.dropped = vec![0; processes];
        self.scheduled = scheduled;
        self.open = vec![0; processes];
        self.sent = 0;
        self.asked = asked(plan);
        self.said_behind = false;
        self.measured = Measured {
            warmup: Duration::from_nanos(plan.run.warmup.0),
            seconds: Duration::from_nanos(plan.run.duration.0).as_secs(),
        };
        if let Some(live) = &mut self.live {
            live.begin(&Begun {
                number: number + 1,
                of: self.trials,
                cell: label,
                warmup_ns: nanoseconds(plan.run.warmup),
                duration_ns: nanoseconds(plan.run.duration),
                rate: self.asked.map(|it| it.0),
                processes,
            });
        }
        if self.trials > 1 || self.bar.is_none() {
            self.note(&format!(
                "{}/{} {label}: {processes} processes",
                number + 1,
                self.trials
            ));
        }
    }

    /// A process said how its last second was.
    pub(super) fn heard(&mut self, process: usize, line: &ProgressLine) {
        let sent = line.scheduled.saturating_sub(self.scheduled[process]);
        self.sent += sent;
        if let Some(live) = &mut self.live {
            live.hear(process, self.measured.place(self.started), sent, line);
        }
        self.second.scheduled += sent;
        self.scheduled[process] = line.scheduled;
        self.dropped[process] = line.dropped;
        self.open[process] = line.open;
        for (status, count) in &line.failed {
            *self.second.failed.entry(status.clone()).or_insert(0) += count;
        }
        self.second.lag_ns = self.second.lag_ns.max(line.lag_ns);
        // Quiet runs keep no response times, because nobody sees them and months of them would not
        // fit in memory.
        if !self.quiet {
            self.second
                .responses_ns
                .extend_from_slice(&line.responses_ns);
        }
        let responses_ns = line.responses_ns.iter().copied();
        self.worst_ns = responses_ns.fold(self.worst_ns, DurationNs::max);
        self.say_behind(line.lag_ns);
    }

    /// Says once that the host cannot send as fast as the plan asks.
    fn say_behind(&mut self, lag_ns: DurationNs) {
        let elapsed = self.started.elapsed();
        let Some(rate) = self.asked else { return };
        if self.said_behind || elapsed < BEHIND_AFTER || lag_ns < BEHIND {
            return;
        }
        self.said_behind = true;
        let reached = f64_of(self.sent) / elapsed.as_secs_f64();
        self.note(&format!(
            "this host sends {reached:.0}/s of {rate} and is {} late; hint: lower --rate, or use more --processes",
            human_ns(lag_ns)
        ));
    }

    /// So much came over a stream.
    pub(super) fn flowed(&mut self, bytes: u64) {
        *self.second.bytes.get_or_insert_default() += bytes;
    }

    /// Shows what there is to show, at most once a second, or every five without a terminal.
    pub(super) fn show(&mut self) {
        let period = if self.bar.is_some() {
            Duration::from_secs(1)
        } else {
            LINE_PERIOD
        };
        let since = self.shown.elapsed();
        if since < period || self.quiet {
            return;
        }
        self.shown = Instant::now();
        let second = std::mem::take(&mut self.second);
        let late = second.lag_ns > BEHIND;
        let line = self.line(second, since);
        let elapsed = self.started.elapsed().min(self.trial);
        if let Some(bar) = &self.bar {
            let done = self.trial.as_millis() * self.number as u128 + elapsed.as_millis();
            bar.set_position(u64::try_from(done).unwrap_or(u64::MAX));
            let later = u32::try_from(self.trials - self.number - 1).unwrap_or(u32::MAX);
            bar.set_prefix(self.left(elapsed, self.trial.saturating_mul(later), late));
            bar.set_message(line);
        } else {
            let left = self.left(elapsed, Duration::ZERO, late);
            self.note(&format!("{left:>11}  {line}"));
        }
    }

    /// What is still to come: time of this trial and of later ones, or what the trial waits for.
    fn left(&self, elapsed: Duration, later: Duration, late: bool) -> String {
        let left = self.trial.saturating_sub(elapsed);
        if !left.is_zero() {
            return format!("{} s left", left.saturating_add(later).as_secs());
        }
        let open: usize = self.open.iter().sum();
        match (late, open) {
            (true, _) => "sending late requests".to_owned(),
            (false, 0) => "ending".to_owned(),
            (false, 1) => "waiting for 1 open request".to_owned(),
            (false, open) => format!("waiting for {} open requests", grouped(open as u64)),
        }
    }

    fn line(&self, mut second: Second, since: Duration) -> String {
        second.responses_ns.sort_unstable();
        let at = |share: f64| {
            let length = second.responses_ns.len();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "an index into at most some thousand values"
            )]
            let index = ((length as f64 * share) as usize).min(length.saturating_sub(1));
            second
                .responses_ns
                .get(index)
                .map_or_else(|| "-".to_owned(), |ns| human_ns(*ns))
        };
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = second.scheduled as f64 / since.as_secs_f64();
        let (median, tail, worst) = (at(0.5), at(0.99), human_ns(self.worst_ns));
        let mut line = match second.bytes {
            Some(bytes) => {
                #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
                let rate = bytes as f64 * 8.0 / 1e6 / since.as_secs_f64();
                format!("{rate:.0} Mbit/s  p50 {median}  p99 {tail}  worst so far {worst}")
            }
            None => {
                let lag = human_ns(second.lag_ns);
                format!(
                    "{rate:.0}/s  p50 {median}  p99 {tail}  worst so far {worst}  send delay {lag}"
                )
            }
        };
        let dropped: u64 = self.dropped.iter().sum();
        if dropped > 0 {
            line.push_str(&format!("  {} rows DROPPED", grouped(dropped)));
        }
        if let Some(failed) = failed_words(&second.failed) {
            let none = second.responses_ns.is_empty();
            line.push_str(if none { "  NO REPLIES, " } else { "  " });
            line.push_str(&failed);
        }
        line
    }

    /// Something that a person should read now.
    pub(super) fn note(&self, text: &str) {
        if self.quiet {
            return;
        }
        match &self.bar {
            Some(bar) => bar.suspend(|| write_line(text)),
            None => write_line(text),
        }
    }

    /// `stopped` is true if a person ended the run before its time.
    pub(super) fn finish(&mut self, stopped: bool) {
        if let Some(live) = self.live.take() {
            live.end(stopped);
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Returns how long a trial takes, including its start and its end, in nanoseconds.
fn trial_ns(plan: &Plan) -> u64 {
    let lead = plan.compete.map_or(0, |it| it.lead.0);
    let wind_down = match &plan.load {
        Load::Stream(stream) => stream.wind_down.0,
        _ => 0,
    };
    let own = plan.run.warmup.0.saturating_add(plan.run.duration.0);
    own.saturating_add(lead).saturating_add(wind_down)
}

/// The rate that a plan asks for; none where replies set the pace.
fn asked(plan: &Plan) -> Option<RateHz> {
    let Load::Drive(drive) = &plan.load else {
        return None;
    };
    if drive.ramp.is_some() {
        return None;
    }
    match drive.arrivals {
        Arrivals::Constant { rate }
        | Arrivals::Poisson { rate }
        | Arrivals::Mmpp { rate, .. }
        | Arrivals::OnOff { rate, .. } => Some(rate),
        Arrivals::Replay | Arrivals::Closed { .. } => None,
    }
}

/// How many requests failed, and how: `1,074 failed: 1,000 refused, 74 timed out`.
fn failed_words(failed: &BTreeMap<String, u64>) -> Option<String> {
    let sum: u64 = failed.values().sum();
    let mut kinds: Vec<_> = failed.iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let words = match kinds.as_slice() {
        [] => return None,
        [(status, _)] => status_words(status).to_owned(),
        several => {
            let each = several
                .iter()
                .map(|(status, count)| format!("{} {}", grouped(**count), status_words(status)));
            each.collect::<Vec<_>>().join(", ")
        }
    };
    Some(format!("{} failed: {words}", grouped(sum)))
}

/// A status as people say it.
fn status_words(status: &str) -> &str {
    match status {
        "timeout" => "timed out",
        "error:reset" => "connection reset",
        "error:protocol" => "malformed reply",
        "error:send" => "not sent",
        "error:store" => "error reply",
        "error:denied" => "access denied",
        other => other.strip_prefix("error:").unwrap_or(other),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number for people")]
fn f64_of(number: u64) -> f64 {
    number as f64
}

fn write_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(text));
}

/// Returns a time as people read it.
fn human_ns(time_ns: DurationNs) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a time for people")]
    let ns = time_ns.0 as f64;
    quantity::duration(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_named_by_their_kind_the_most_frequent_first() {
        let failed = |kinds: &[(&str, u64)]| {
            let kinds = kinds
                .iter()
                .map(|(status, count)| ((*status).to_owned(), *count));
            failed_words(&kinds.collect())
        };
        assert_eq!(failed(&[]), None);
        let refused = failed(&[("refused", 1_074)]);
        assert_eq!(refused.as_deref(), Some("1,074 failed: refused"));
        let several = failed(&[("timeout", 74), ("error:reset", 1_000)]);
        let wanted = "1,074 failed: 1,000 connection reset, 74 timed out";
        assert_eq!(several.as_deref(), Some(wanted));
    }

    #[test]
    fn a_quiet_progress_keeps_nothing_however_long_the_run_is() {
        let mut progress = begun(Duration::from_secs(1));
        let line = ProgressLine {
            responses_ns: vec![DurationNs(1); 1_000],
            ..ProgressLine::default()
        };
        for _ in 0..100 {
            progress.heard(0, &line);
        }
        assert_eq!(progress.second.responses_ns.capacity(), 0);
    }

    /// Returns the progress of a one-second trial that began `elapsed` ago.
    fn begun(elapsed: Duration) -> Progress {
        let text = "name = \"t\"\n[run]\nduration = \"1s\"\n[drive]\nrate = \"5/s\"";
        let plan = Plan::parse("plan", text).unwrap();
        let mut progress = Progress::new(&plan, 1, true, None);
        progress.begin(0, "all", vec![0], &plan);
        progress.started -= elapsed;
        progress
    }

    #[test]
    fn after_its_time_a_run_says_what_it_waits_for() {
        let progress = begun(Duration::ZERO);
        assert_eq!(
            progress.left(Duration::ZERO, Duration::ZERO, false),
            "1 s left"
        );
        let mut progress = begun(Duration::from_secs(9));
        let left = |progress: &Progress, late| progress.left(progress.trial, Duration::ZERO, late);
        assert_eq!(left(&progress, false), "ending");
        progress.heard(
            0,
            &ProgressLine {
                open: 1_200,
                ..ProgressLine::default()
            },
        );
        assert_eq!(left(&progress, false), "waiting for 1,200 open requests");
        assert_eq!(left(&progress, true), "sending late requests");
    }

    #[test]
    fn a_host_that_cannot_keep_up_is_told_once() {
        let late = ProgressLine {
            lag_ns: BEHIND,
            ..ProgressLine::default()
        };
        let mut progress = begun(Duration::ZERO);
        progress.heard(0, &late);
        assert!(!progress.said_behind, "a start may be late");
        let mut progress = begun(BEHIND_AFTER);
        progress.heard(0, &late);
        assert!(progress.said_behind);
    }
}
