//! Loads a cluster, and records what became of every copy of every operation.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use flurry::{Client, Condition, Error, Operation, Options, Waiting};
use flurry_recording::{About, Recording};
use indicatif::{ProgressBar, ProgressStyle};
use unruly_plan::{Arrivals, Bytes, DurationNs, RateHz, mix, utc};
use unruly_program::{host_of, noise, tool};
use unruly_trace::ClockPair;

use super::keyed::Keyed;
use super::level::LevelName;
use super::{Reach, say, say_error};

/// Operations of a session that wait at most, in an open loop; more are counted as shed.
const WAITING_MAX: usize = 4_096;

/// Without a terminal a line is printed at this pace.
const LINE_PERIOD: Duration = Duration::from_secs(5);

/// Loads a cluster.
#[derive(Debug, Args)]
pub(super) struct Bench {
    #[command(flatten)]
    reach: Reach,
    /// Replies to wait for; operations take turns among several, such as first,quorum,all
    #[arg(long, value_delimiter = ',', default_value = "first")]
    level: Vec<LevelName>,
    /// Sessions, each with its own keys
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    sessions: u16,
    /// Operations a second of all sessions, on a fixed schedule (default: each session sends when its
    /// answer comes)
    #[arg(long)]
    rate: Option<RateHz>,
    /// Measured time
    #[arg(short, long, default_value = "10s")]
    duration: DurationNs,
    /// Warm-up before the measured time
    #[arg(short, long, default_value = "1s")]
    warmup: DurationNs,
    /// Keys of each session; each level uses its own share of them
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    keys: u64,
    /// Length of a value
    #[arg(long, default_value = "64B")]
    value: Bytes,
    /// Share of reads, from 0 to 1
    #[arg(long, default_value_t = 0.5)]
    reads: f64,
    /// Random seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run directory to make (default: runs/flurry-UTC)
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Print the result and record nothing
    #[arg(long, conflicts_with = "output")]
    no_log: bool,
}

/// What came of the operations of one kind, in one session.
#[derive(Debug, Default)]
struct Tally {
    took: Vec<Duration>,
    failed: BTreeMap<&'static str, u64>,
}

/// By read or write, and the level's place on the command line.
type Tallies = BTreeMap<(bool, usize), Tally>;

/// What all sessions share.
#[derive(Debug)]
struct Work {
    levels: Vec<LevelName>,
    arrivals: Option<RateHz>,
    start: Instant,
    measured: Instant,
    end: Instant,
    keys: u64,
    value: Vec<u8>,
    reads: f64,
    seed: u64,
    stop: Arc<AtomicBool>,
    done: AtomicU64,
}

impl Bench {
    pub(super) fn run(self, keyed: &Keyed) -> Result<u8> {
        self.check()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let base = self.reach.options("bench", keyed)?;
        let noise_ns = (!self.no_log).then(|| noise().floor_ns);
        let (directory, recording) = self.recording(noise_ns)?;
        let sessions: Vec<Client> = (0..self.sessions)
            .map(|number| {
                Client::open(&Options {
                    session: format!("bench-{number}"),
                    recording: recording.as_ref().map(Recording::arrivals),
                    ..base.clone()
                })
            })
            .collect::<Result<_, _>>()?;
        let start = Instant::now();
        let measured = start + Duration::from_nanos(self.warmup.0);
        let work = Work {
            start,
            measured,
            end: measured + Duration::from_nanos(self.duration.0),
            arrivals: self
                .rate
                .map(|rate| RateHz(rate.0 / f64::from(self.sessions))),
            keys: self.keys,
            value: vec![b'x'; usize::try_from(self.value.0).unwrap_or(0)],
            reads: self.reads,
            seed: self.seed,
            levels: self.level,
            stop,
            done: AtomicU64::new(0),
        };
        let tallies = load(&work, &sessions);
        let mut unstable = 0;
        for client in sessions {
            unstable += client.close().map_or(0, |closed| closed.unstable);
        }
        table(&work, &tallies)?;
        if unstable > 0 {
            say_error(&format!(
                "flurry: {unstable} writes were not on every replica at the end"
            ));
        }
        finish(&directory, recording)
    }

    fn check(&self) -> Result<()> {
        ensure!(
            (0.0..=1.0).contains(&self.reads),
            "--reads: it is {}; wanted a share from 0 to 1; hint: --reads 0.9",
            self.reads
        );
        let most = flurry::VALUE_BYTES_MAX as u64;
        ensure!(
            self.value.0 <= most,
            "--value: it is {}; wanted at most {most} bytes; hint: --value 64B",
            self.value
        );
        ensure!(
            self.rate.is_none_or(|rate| rate.0 > 0.0),
            "--rate: it is 0; wanted more; hint: --rate 1000/s"
        );
        ensure!(
            self.reach.router.is_none() || self.no_log,
            "--router: a router of its own keeps no log; wanted the router inside; hint: --no-log"
        );
        Ok(())
    }

    fn recording(
        &self,
        noise_ns: Option<unruly_trace::DurationNs>,
    ) -> Result<(PathBuf, Option<Recording>)> {
        let origin = ClockPair::now();
        let usual = || PathBuf::from("runs").join(format!("flurry-{}", utc(origin.wall_ns.0)));
        let directory = self.output.clone().unwrap_or_else(usual);
        if self.no_log {
            return Ok((directory, None));
        }
        let about = About {
            name: "flurry".to_owned(),
            tag: "bench".to_owned(),
            host: host_of("local", noise_ns),
            tool: tool(),
            seed: self.seed,
            warmup: Duration::from_nanos(self.warmup.0),
            duration: Duration::from_nanos(self.duration.0),
        };
        Ok((
            directory.clone(),
            Some(Recording::start(&directory, about)?),
        ))
    }
}

fn finish(directory: &Path, recording: Option<Recording>) -> Result<u8> {
    let Some(recording) = recording else {
        return Ok(0);
    };
    let counts = recording.finish()?;
    let copies = &counts.copies;
    say(format!(
        "{} copies of {} operations in {}{}\nnext: unruly report {}",
        copies.recorded,
        counts.requests.scheduled,
        directory.display(),
        if copies.dropped > 0 {
            format!(", {} rows dropped", copies.dropped)
        } else {
            String::new()
        },
        directory.display()
    ))?;
    Ok(0)
}

/// Runs all sessions until the end, or until somebody asks to stop.
fn load(work: &Work, sessions: &[Client]) -> Tallies {
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..)
            .zip(sessions)
            .map(|(number, client)| {
                scope.spawn(move || match work.arrivals {
                    Some(rate) => open_loop(work, client, number, rate),
                    None => closed_loop(work, client, number),
                })
            })
            .collect();
        progress(work);
        let mut all = Tallies::new();
        for session in running {
            for (kind, tally) in session.join().unwrap_or_default() {
                let sum = all.entry(kind).or_default();
                sum.took.extend(tally.took);
                for (why, count) in tally.failed {
                    *sum.failed.entry(why).or_default() += count;
                }
            }
        }
        all
    })
}

fn progress(work: &Work) {
    let whole = work.end - work.start;
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let bar = std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::new(millis(whole));
        if let Ok(style) = ProgressStyle::with_template("bench {wide_bar:.dim} {msg}") {
            bar.set_style(style);
        }
        bar
    });
    let mut shown = Instant::now();
    while Instant::now() < work.end && !work.stop.load(Ordering::Relaxed) {
        let left = work.end.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(Duration::from_millis(100)));
        let done = work.done.load(Ordering::Relaxed);
        let said = format!("{done} operations, {:.0} s left", left.as_secs_f64());
        match &bar {
            Some(bar) => {
                bar.set_position(millis(work.start.elapsed()));
                bar.set_message(said);
            }
            None if shown.elapsed() >= LINE_PERIOD => {
                shown = Instant::now();
                say_error(&format!("bench: {said}"));
            }
            None => {}
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

/// The work of one session: what its `index`th operation is.
struct Next<'a> {
    work: &'a Work,
    stream: u64,
}

impl<'a> Next<'a> {
    fn new(work: &'a Work, number: u64) -> Self {
        Self {
            work,
            stream: mix(work.seed, number),
        }
    }

    /// Key, operation, whether it writes, and the level's place.
    fn draw(&self, index: u64) -> (String, Operation, bool, usize) {
        let work = self.work;
        let drawn = mix(self.stream, index);
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let share = (drawn >> 11) as f64 / (1_u64 << 53) as f64;
        let writes = share >= work.reads;
        let operation = if writes {
            Operation::Set {
                value: work.value.clone().into(),
                expires_at: None,
                condition: Condition::Always,
            }
        } else {
            Operation::Get
        };
        // Not the index itself: levels must not take turns with reads and writes.
        let levels = work.levels.len() as u64;
        let level = mix(drawn, 2) % levels;
        let own = (mix(drawn, 1) % work.keys.div_ceil(levels)) * levels + level;
        let place = usize::try_from(level).unwrap_or(0);
        (format!("key-{own}"), operation, writes, place)
    }
}

fn note(tallies: &mut Tallies, work: &Work, kind: (bool, usize), wanted: Instant, end: End) {
    work.done.fetch_add(1, Ordering::Relaxed);
    if wanted < work.measured {
        return;
    }
    let tally = tallies.entry(kind).or_default();
    match end {
        Ok(took) => tally.took.push(took),
        Err(why) => *tally.failed.entry(why).or_default() += 1,
    }
}

/// How long it took, or in a word why it failed.
type End = Result<Duration, &'static str>;

fn word(error: &Error) -> &'static str {
    match error {
        Error::Unknown { .. } => "unknown",
        Error::DataLoss { .. } => "lost",
        Error::Fenced { .. } => "fenced",
        Error::Busy | Error::BacklogFull { .. } => "shed",
        Error::Evicted => "evicted",
        _ => "refused",
    }
}

fn closed_loop(work: &Work, client: &Client, number: u64) -> Tallies {
    let (next, mut tallies) = (Next::new(work, number), Tallies::new());
    for index in 0.. {
        let wanted = Instant::now();
        if wanted >= work.end || work.stop.load(Ordering::Relaxed) {
            break;
        }
        let (key, operation, writes, level) = next.draw(index);
        let call = client.call().at_level(work.levels[level].0);
        let end = call.wanted_at(wanted).run(key, &operation);
        let end = end.map(|done| done.took).map_err(|error| word(&error));
        let failed = end.is_err();
        note(&mut tallies, work, (writes, level), wanted, end);
        if failed {
            // A cluster that refuses at once would be asked millions of times.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    tallies
}

type Begun<'a> = (Waiting<'a>, (bool, usize), Instant);

fn open_loop(work: &Work, client: &Client, number: u64, rate: RateHz) -> Tallies {
    let schedule = Arrivals::Poisson { rate }.schedule(work.seed, number);
    let next = Next::new(work, number);
    let (hand, begun) = mpsc::sync_channel::<Begun<'_>>(WAITING_MAX);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || wait_all(work, &begun));
        let mut shed = Tallies::new();
        for (index, due_ns) in (0..).zip(schedule) {
            let wanted = work.start + Duration::from_nanos(due_ns);
            if wanted >= work.end || work.stop.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(wanted.saturating_duration_since(Instant::now()));
            let (key, operation, writes, level) = next.draw(index);
            let call = client.call().at_level(work.levels[level].0);
            let end = match call.wanted_at(wanted).start(key, &operation) {
                Ok(waiting) => match hand.try_send((waiting, (writes, level), wanted)) {
                    Ok(()) => continue,
                    // It goes on, but nobody waits for it.
                    Err(_) => "shed",
                },
                Err(error) => word(&error),
            };
            note(&mut shed, work, (writes, level), wanted, Err(end));
        }
        drop(hand);
        let mut tallies = waiter.join().unwrap_or_default();
        for (kind, tally) in shed {
            let sum = tallies.entry(kind).or_default();
            for (why, count) in tally.failed {
                *sum.failed.entry(why).or_default() += count;
            }
        }
        tallies
    })
}

/// Answers are timed where they come, so that waiting for them in order costs nothing.
fn wait_all(work: &Work, begun: &Receiver<Begun<'_>>) -> Tallies {
    let mut tallies = Tallies::new();
    while let Ok((waiting, kind, wanted)) = begun.recv() {
        let end = waiting.wait().map(|done| done.took);
        note(
            &mut tallies,
            work,
            kind,
            wanted,
            end.map_err(|error| word(&error)),
        );
    }
    tallies
}

fn table(work: &Work, tallies: &Tallies) -> Result<()> {
    let mut lines = vec![format!(
        "{:<7}{:<14}{:>9}{:>11}{:>11}{:>11}{:>11}  failed",
        "op", "level", "answered", "p50", "p99", "p99.9", "max"
    )];
    for ((writes, level), tally) in tallies {
        let mut took = tally.took.clone();
        took.sort_unstable();
        let shown = |share: f64| quantile(&took, share).map_or_else(|| "-".to_owned(), time);
        let failed: Vec<String> = tally
            .failed
            .iter()
            .map(|(why, count)| format!("{count} {why}"))
            .collect();
        lines.push(format!(
            "{:<7}{:<14}{:>9}{:>11}{:>11}{:>11}{:>11}  {}",
            if *writes { "write" } else { "read" },
            work.levels[*level].to_string(),
            took.len(),
            shown(0.5),
            shown(0.99),
            shown(0.999),
            took.last().map_or_else(|| "-".to_owned(), |it| time(*it)),
            if failed.is_empty() {
                "0".to_owned()
            } else {
                failed.join(", ")
            }
        ));
    }
    say(lines.join("\n")).context("printing the table")
}

/// The exact quantile, where at least one value is expected beyond it.
fn quantile(sorted: &[Duration], share: f64) -> Option<Duration> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts far below 2^53"
    )]
    let (rank, beyond) = {
        let count = sorted.len() as f64;
        ((share * count).ceil() as usize, count * (1.0 - share))
    };
    if beyond + 1e-9 < 1.0 {
        return None;
    }
    sorted.get(rank.max(1) - 1).copied()
}

fn time(took: Duration) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a time for people")]
    let micros = took.as_nanos() as f64 / 1e3;
    if micros < 1_000.0 {
        format!("{micros:.1} us")
    } else {
        format!("{:.2} ms", micros / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_shown_only_where_the_sample_allows_it() {
        let sorted: Vec<Duration> = (1..=1_000).map(Duration::from_nanos).collect();
        assert_eq!(quantile(&sorted, 0.5), Some(sorted[499]));
        assert_eq!(quantile(&sorted, 0.99), Some(sorted[989]));
        assert_eq!(quantile(&sorted, 0.999), Some(sorted[998]));
        assert_eq!(quantile(&sorted[..999], 0.999), None);
        assert_eq!(quantile(&[], 0.5), None);
    }
}
