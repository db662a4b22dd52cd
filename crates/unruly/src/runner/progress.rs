//! What a person sees while a run goes on: time left, and a line of what is happening.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use unruly_plan::{Load, Plan};

/// Without a terminal a line is printed at this pace.
const LINE_PERIOD: Duration = Duration::from_secs(5);

/// What the processes said since the last line.
#[derive(Debug, Default)]
struct Second {
    responses_ns: Vec<i64>,
    scheduled: u64,
    failed: u64,
    lag_ns: i64,
    /// Of a stream.
    bytes: Option<u64>,
}

/// The progress of a run.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    leg: Duration,
    legs: usize,
    number: usize,
    started: Instant,
    shown: Instant,
    second: Second,
    worst_ns: i64,
    dropped: Vec<u64>,
    scheduled: Vec<u64>,
    label: String,
}

impl Progress {
    pub(super) fn new(plan: &Plan, legs: usize, quiet: bool) -> Self {
        let leg = Duration::from_nanos(leg_ns(plan));
        let terminal = std::io::stderr().is_terminal() && !quiet;
        let bar = terminal.then(|| {
            let total = u64::try_from(leg.as_millis()).unwrap_or(u64::MAX);
            let bar = ProgressBar::new(total.saturating_mul(legs as u64));
            let style = ProgressStyle::with_template("{prefix} {wide_bar:.dim} {msg}\n{wide_msg}");
            let style = style.or_else(|_| ProgressStyle::with_template("{wide_bar} {eta}"));
            if let Ok(style) = style {
                bar.set_style(style.with_key(
                    "msg",
                    |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
                        let _ = write!(out, "{:.0} s left", state.eta().as_secs_f64());
                    },
                ));
            }
            bar.set_prefix(plan.name.clone());
            bar
        });
        let now = Instant::now();
        Self {
            bar,
            quiet,
            leg,
            legs,
            number: 0,
            started: now,
            shown: now,
            second: Second::default(),
            worst_ns: 0,
            dropped: Vec::new(),
            scheduled: Vec::new(),
            label: String::new(),
        }
    }

    /// A leg begins, with so many processes, each of which has scheduled so many copies before.
    pub(super) fn begin(&mut self, number: usize, label: &str, scheduled: Vec<u64>) {
        let processes = scheduled.len();
        self.number = number;
        self.started = Instant::now();
        self.shown = self.started;
        self.dropped = vec![0; processes];
        self.scheduled = scheduled;
        label.clone_into(&mut self.label);
        if self.legs > 1 || self.bar.is_none() {
            self.note(&format!(
                "{}/{} {label}: {processes} processes",
                number + 1,
                self.legs
            ));
        }
    }

    /// A process said how its last second was.
    pub(super) fn heard(
        &mut self,
        process: usize,
        totals: (u64, u64),
        failed: u64,
        responses_ns: &[i64],
        lag_ns: i64,
    ) {
        self.second.scheduled += totals.0.saturating_sub(self.scheduled[process]);
        self.scheduled[process] = totals.0;
        self.dropped[process] = totals.1;
        self.second.failed += failed;
        self.second.lag_ns = self.second.lag_ns.max(lag_ns);
        self.second.responses_ns.extend_from_slice(responses_ns);
        self.worst_ns = responses_ns.iter().copied().fold(self.worst_ns, i64::max);
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
        let line = self.line(second, since);
        let elapsed = self.started.elapsed().min(self.leg);
        if let Some(bar) = &self.bar {
            let done = self.leg.as_millis() * self.number as u128 + elapsed.as_millis();
            bar.set_position(u64::try_from(done).unwrap_or(u64::MAX));
            bar.set_message(line);
        } else {
            let left = self.leg.saturating_sub(elapsed).as_secs();
            self.note(&format!("{left:>4} s left  {line}"));
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
                format!("{rate:.0}/s  p50 {median}  p99 {tail}  worst so far {worst}  lag {lag}")
            }
        };
        let dropped: u64 = self.dropped.iter().sum();
        for (count, word) in [(second.failed, "failed"), (dropped, "DROPPED")] {
            if count > 0 {
                line.push_str(&format!("  {count} {word}"));
            }
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

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How long a leg takes, with what goes before it and comes after it.
fn leg_ns(plan: &Plan) -> u64 {
    let lead = plan.compete.map_or(0, |it| it.lead.0);
    let wind_down = match &plan.load {
        Load::Stream(stream) => stream.wind_down.0,
        _ => 0,
    };
    let own = plan.run.warmup.0.saturating_add(plan.run.duration.0);
    own.saturating_add(lead).saturating_add(wind_down)
}

fn write_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// A time with three significant digits and its unit.
fn human_ns(time_ns: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a time for people")]
    let value = time_ns as f64;
    let (value, unit) = match time_ns {
        ..1_000 => (value, "ns"),
        1_000..1_000_000 => (value / 1e3, "us"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let digits = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::human_ns;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        assert_eq!(human_ns(950), "950 ns");
        assert_eq!(human_ns(5_500), "5.50 us");
        assert_eq!(human_ns(25_040_000), "25.0 ms");
        assert_eq!(human_ns(1_250_000_000), "1.25 s");
    }
}
