//! The asking side, shared by the active agent and the load generator.

use anyhow::{Context, Result};
use unruly_load::{
    Bins, Control, Ending, Engine, EngineOptions, Live, LoadSource, Outcome, Part, Peer, Phases,
    Sessions, Source, Target, Work,
};
use unruly_trace::{
    Counts, DurationNs, MonoNs, Recorder, RecorderOptions, SPOOL_ROWS_MAX, monotonic,
};

use crate::control::{Bin, ProgressLine, Report, report};
use crate::events::Events;
use crate::ground::Ground;
use crate::spans::Spans;
use crate::tidy::Tidy;

/// Everything one asking process needs.
pub(crate) struct Client<'a> {
    pub(crate) ground: Ground<'a>,
    pub(crate) options: EngineOptions,
    pub(crate) ops: Vec<String>,
    /// Its connections, and what their bytes mean.
    pub(crate) peers: Vec<(Peer, Box<dyn Target>)>,
    /// How many of them are made before the start.
    pub(crate) ready: usize,
    /// What its sessions do with a store.
    pub(crate) work: Option<Work>,
    /// Keys to be written before the start, and by whom.
    pub(crate) load: Option<(u64, Sessions)>,
    /// Removes the keys that were written.
    pub(crate) tidy: Option<Tidy>,
    /// The parts of requests are rows of `spans`.
    pub(crate) spans: bool,
}

/// A load phase that fails more often than this, and than one time in a hundred, has failed.
const LOAD_FAILURES_MAX: u64 = 100;

/// Time that a late generator has at least, after the end of its schedule, to send the remaining
/// requests.
const LATE: DurationNs = DurationNs::seconds(2);

/// The report of a requesting process at its end.
#[derive(Debug)]
pub(crate) struct ClientReport {
    counts: Counts,
    failure: Option<String>,
}

impl ClientReport {
    pub(crate) fn new(counts: Counts, failure: Option<String>) -> Self {
        Self { counts, failure }
    }
}

impl Client<'_> {
    /// Connects, waits for the start, runs the schedule, and closes the books.
    pub(crate) fn run(
        mut self,
        events: &mut Events,
        source: impl FnOnce(MonoNs) -> Box<dyn Source>,
    ) -> Result<Option<ClientReport>> {
        let mut recorder = Recorder::start(RecorderOptions {
            directory: self.ground.directory.to_owned(),
            stem: self.ground.job.stem(),
            header: self.ground.job.spool_header(self.ops.clone()),
            clock: self.ground.clock.clone(),
            spool_rows_max: SPOOL_ROWS_MAX,
        })?;
        let mut engine = Engine::new(
            self.options.clone(),
            self.ground.clock.clone(),
            &mut recorder,
            std::mem::take(&mut self.peers),
            self.work.take(),
        )
        .with_context(|| {
            format!(
                "{}: cannot send; wanted sockets; hint: raise ulimit -n",
                self.ground.job.name
            )
        })?;
        let mut spans = self
            .spans
            .then(|| Spans::new(self.ground.job, self.ground.directory));
        engine.connect(self.ready)?;
        self.ground.inbox.wake_on_stop(engine.waker());
        if let Some((keys, sessions)) = self.load {
            self.load(&mut engine, keys, sessions)?;
            add(&mut spans, engine.take_parts());
            // Failures and delays of the preload are no part of the run.
            engine.take_live();
        } else {
            report(&Report::Loaded {
                scheduled: 0,
                failed: 0,
            });
        }
        let Some(start_ns) = self.ground.inbox.start()? else {
            let written = engine.written();
            drop(engine);
            spans.into_iter().for_each(Spans::finish);
            recorder.finish(&self.ground.job.name)?;
            self.tidy_up(&written);
            return Ok(None);
        };
        let mut source = Ending::new(source(start_ns), self.ground.inbox.finish_flag());
        let latest_ns = self.latest_ns(start_ns);
        let mut said_full = false;
        engine.run(&mut source, &mut |live, recorder| {
            add(&mut spans, std::mem::take(&mut live.parts));
            say_progress(live, recorder, &self.ops);
            self.control(recorder, events, latest_ns, &mut said_full)
        })?;
        add(&mut spans, engine.take_parts());
        spans.into_iter().for_each(Spans::finish);
        let written = engine.written();
        let mut rest = engine.take_live();
        let outcome = engine.into_outcome();
        // The last part of a second, so that a live view ends with every request of the run.
        say_progress(&mut rest, &recorder, &self.ops);
        let closed = self.close(recorder, &outcome, events)?;
        self.tidy_up(&written);
        Ok(Some(closed))
    }

    /// Reports what the recorder met, and says whether to go on.
    fn control(
        &self,
        recorder: &Recorder,
        events: &mut Events,
        latest_ns: MonoNs,
        said_full: &mut bool,
    ) -> Control {
        for (at_ns, step) in recorder.take_steps() {
            let told = format!("{} ns", step.0);
            events.add("clock stepped", Some(&told), (at_ns, None));
        }
        if let Some(failure) = recorder.failure().filter(|_| !*said_full) {
            *said_full = true;
            report(&Report::Finding {
                text: failure,
                fatal: true,
            });
            return Control::Stop;
        }
        if self.ground.inbox.is_stopped() {
            Control::Stop
        } else if monotonic() > latest_ns {
            Control::Abandon
        } else {
            Control::Continue
        }
    }

    /// Removes the written keys from the store, if the plan asks for it.
    fn tidy_up(&self, written: &[u64]) {
        if let Some(tidy) = self.tidy.as_ref().filter(|_| !written.is_empty()) {
            tidy.up(written);
        }
    }

    /// When a request that was not sent yet is not sent any more: a timeout after the schedule's end
    /// nobody would wait for its answer.
    fn latest_ns(&self, start_ns: MonoNs) -> MonoNs {
        let run = &self.ground.job.plan.run;
        let end_ns = Phases::new(start_ns, run.warmup, run.duration).end_ns;
        end_ns.saturating_add(self.options.timeout_ns.max(LATE))
    }

    /// Has every key written once, before the run begins.
    fn load(&self, engine: &mut Engine<'_>, keys: u64, sessions: Sessions) -> Result<()> {
        let most = LOAD_FAILURES_MAX.max(keys / 100);
        let tries_most = most * (1 + u64::from(self.options.retries));
        let (mut tries_failed, mut gave_up) = (0, false);
        let mut source = LoadSource::new(keys, sessions, monotonic());
        engine.run(&mut source, &mut |live, recorder| {
            tries_failed += live.failed.values().sum::<u64>();
            say_progress(live, recorder, &self.ops);
            gave_up = tries_failed > tries_most;
            if self.ground.inbox.is_stopped() || gave_up {
                Control::Stop
            } else {
                Control::Continue
            }
        })?;
        let Outcome {
            requests,
            complaints,
            ..
        } = engine.outcome();
        let failed = requests.unanswered;
        // Keys that were never sent are first written during the run, whatever its mix.
        let left = if gave_up {
            keys - requests.scheduled.min(keys)
        } else {
            0
        };
        if failed + left <= most || self.ground.inbox.is_stopped() {
            let scheduled = requests.scheduled;
            report(&Report::Loaded { scheduled, failed });
            return Ok(());
        }
        let said = complaints.iter().next();
        let said = said.map_or_else(
            || "without a word of the store".to_owned(),
            |(status, (_, words))| format!("{status}: {words}"),
        );
        let first = requests.scheduled;
        let told = match failed > most {
            true => format!("{failed} of the first {first} keys could not be written"),
            false => format!("{tries_failed} tries to write the first {first} keys failed"),
        };
        let text = format!(
            "preload: {told} ({said}); wanted them in the store before the run; hint: preload = false drives it as it is"
        );
        report(&Report::Finding { text, fatal: true });
        Ok(())
    }

    /// Closes the books: every copy that the schedule asked for is accounted for.
    fn close(
        &self,
        recorder: Recorder,
        outcome: &Outcome,
        events: &mut Events,
    ) -> Result<ClientReport> {
        report(&Report::Drained);
        for (kind, count) in [
            ("stray replies", outcome.strays),
            ("reconnects", outcome.reconnects),
            ("requests sent again", outcome.resent),
            ("requests moved", outcome.moved),
            ("fail-overs not kept", outcome.fail_overs_left),
        ] {
            if count > 0 {
                events.now(kind, Some(&count.to_string()), self.ground.clock);
            }
        }
        for it in &outcome.fail_overs {
            let told = format!("client {} request {}", it.client, it.request);
            let at = |ns| self.ground.clock.column(ns);
            let (sent, answered) = (at(it.resent_ns), at(it.answered_ns));
            events.add("fail-over", Some(&told), (at(it.detected_ns), Some(sent)));
            events.add("fail-over answered", Some(&told), (sent, Some(answered)));
        }
        let (tally, recorded) = recorder.finish(&self.ground.job.name)?;
        for (status, (count, words)) in &outcome.complaints {
            let told = format!("{count} times {status}: {words}");
            events.now("complaint", Some(&told), self.ground.clock);
            report(&Report::Note { text: told });
        }
        if tally.copies.dropped > 0 {
            events.now(
                "rows dropped",
                Some(&tally.copies.dropped.to_string()),
                self.ground.clock,
            );
        }
        let counts = Counts {
            copies: tally.copies,
            requests: outcome.requests.clone(),
        };
        counts.check(&self.ground.job.name)?;
        Ok(ClientReport {
            counts,
            failure: recorded.failure,
        })
    }
}

/// Writes the parts of requests, where somebody wants them.
fn add(spans: &mut Option<Spans>, parts: Vec<Part>) {
    if let Some(spans) = spans {
        spans.add(parts);
    }
}

fn say_progress(live: &mut Live, recorder: &Recorder, ops: &[String]) {
    // The parts are for the spans, which are written from time to time.
    let parts = std::mem::take(&mut live.parts);
    let live = std::mem::replace(
        live,
        Live {
            parts,
            ..Live::default()
        },
    );
    let copies = &recorder.tally().copies;
    report(&Report::Progress(ProgressLine {
        scheduled: copies.scheduled,
        dropped: copies.dropped,
        failed: live
            .failed
            .into_iter()
            .map(|(status, count)| (status.to_owned(), count))
            .collect(),
        open: live.open,
        responses_ns: live.responses_ns,
        lag_ns: live.lag_ns,
        bins: named(&live.bins, ops),
    }));
}

/// Bins with the names of their operations.
fn named(bins: &Bins, ops: &[String]) -> Vec<Bin> {
    let name = |op: u8| ops.get(usize::from(op)).cloned().unwrap_or_default();
    bins.iter()
        .map(|((op, bin), count)| (name(*op), *bin, *count))
        .collect()
}

/// Says that all is written.
pub(crate) fn say_done(client: Option<ClientReport>) {
    let (counts, failure) =
        client.map_or((None, None), |client| (Some(client.counts), client.failure));
    report(&Report::Done { counts, failure });
}
