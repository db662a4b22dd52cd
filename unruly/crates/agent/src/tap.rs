//! The tap of a run: it writes the turnarounds of the services that the load calls, directly or not.
//!
//! First, it opens its ring before any client connects. Second, it follows the connections until the
//! start, and writes nothing. Third, it writes each turnaround that begins after the start.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use unruly_tap::{Finished, Look, Server, Tap};
use unruly_trace::{ColumnNs, SCHEMA_VERSION, TurnaroundHeader, TurnaroundSpool};

use crate::control::{PeerLine, Report, report};
use crate::events::Events;
use crate::ground::Ground;
use crate::job::{Job, JobKind};

/// Longest wait for packets: bounds the time until the end is noticed.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn run(ground: Ground<'_>, events: &mut Events) -> Result<()> {
    let Ground {
        job, inbox, clock, ..
    } = ground;
    let named = servers(&job.taps)?;
    // Before any client connects, where the services are known by now.
    let opened = if named.is_empty() {
        None
    } else {
        Some(open(job, named, ground)?)
    };
    crate::role::say_ready(None, clock);
    let Some(peers) = inbox.peers()? else {
        crate::client::say_done(None);
        return Ok(());
    };
    let mut tap = match opened {
        Some(tap) => tap,
        None => open(job, of_peers(&peers)?, ground)?,
    };
    tap.name_askers(names(peers));
    let mut writer = Writer::new(ground, &tap);
    let mut failed = None;
    let start_ns = inbox.start_while(|| {
        if let Err(error) = writer.skip(&mut tap) {
            failed.get_or_insert(error);
            std::thread::sleep(LOOK);
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    let Some(start_ns) = start_ns else {
        crate::client::say_done(None);
        return Ok(());
    };
    report(&Report::Drained);
    writer.since_ns = clock.column(start_ns);
    while !inbox.is_stopped() {
        if let Some(peers) = inbox.peers_within(Duration::ZERO) {
            tap.name_askers(names(peers));
        }
        writer.look(&mut tap, events)?;
    }
    let look = tap.finish(&mut writer.ended)?;
    writer.note(look, tap.now(), events);
    writer.write(&tap)?;
    writer.rows.seal()?;
    report_unseen(job, &tap, writer.seen, events);
    crate::client::say_done(None);
    Ok(())
}

fn open(job: &Job, servers: Vec<Server>, ground: Ground<'_>) -> Result<Tap> {
    let interface = job.plan.tap.as_ref().and_then(|it| it.interface.as_deref());
    Tap::open(servers, interface, ground.clock).context("[tap]")
}

fn servers(texts: &[String]) -> Result<Vec<Server>> {
    let read = texts.iter().map(|text| Server::parse(text));
    read.collect::<Result<_>>().context("[tap]")
}

/// The servers of the run itself, whose addresses are known when they listen.
fn of_peers(peers: &[PeerLine]) -> Result<Vec<Server>> {
    let prefix = format!("{}-", JobKind::Echo.name());
    let own = peers.iter().filter(|it| it.name.starts_with(&prefix));
    let texts: Vec<String> = own
        .filter_map(|it| Some(format!("{}=tcp://{}", it.name, it.address.as_ref()?)))
        .collect();
    ensure!(
        !texts.is_empty(),
        "[tap]: no port to watch is known; hint: name the services, as in services = \
         [\"web=tcp://127.0.0.1:80\"]"
    );
    servers(&texts)
}

fn names(peers: Vec<PeerLine>) -> HashMap<u32, String> {
    peers.into_iter().map(|it| (it.pid, it.name)).collect()
}

/// Says what the tap did not see.
fn report_unseen(job: &Job, tap: &Tap, seen: u64, events: &mut Events) {
    let left_out = tap.tracker().left_out();
    if left_out > 0 {
        let words = format!("{left_out} connections were not followed: too many are open at once");
        events.add("tap left out", Some(&words), (tap.now(), None));
        report(&Report::Finding {
            text: words,
            fatal: false,
        });
    }
    if seen == 0 {
        let text = format!(
            "[tap]: no request to {} was seen; hint: check the addresses and the interface",
            job.taps.join(", ")
        );
        report(&Report::Finding { text, fatal: false });
    }
}

/// Writes rows of `turnarounds`.
struct Writer {
    rows: TurnaroundSpool,
    ended: Vec<Finished>,
    since_ns: ColumnNs,
    looked_ns: ColumnNs,
    seen: u64,
}

impl Writer {
    fn new(ground: Ground<'_>, tap: &Tap) -> Self {
        let Ground { job, directory, .. } = ground;
        let header = TurnaroundHeader {
            schema: SCHEMA_VERSION,
            run: job.run.clone(),
            host: job.host.clone(),
            process: job.name.clone(),
            tag: job.plan.tag.clone(),
            cell: job.cell_name().to_owned(),
            repeat: job.repeat,
            tiers: tap
                .tracker()
                .servers()
                .iter()
                .map(|it| it.name.clone())
                .collect(),
        };
        Self {
            rows: TurnaroundSpool::new(directory, &job.stem(), header),
            ended: Vec::new(),
            since_ns: tap.now(),
            looked_ns: tap.now(),
            seen: 0,
        }
    }

    /// Follows connections before the start, so that their handshakes are known.
    fn skip(&mut self, tap: &mut Tap) -> Result<()> {
        tap.look(LOOK, &mut self.ended)?;
        self.ended.clear();
        self.looked_ns = tap.now();
        Ok(())
    }

    fn look(&mut self, tap: &mut Tap, events: &mut Events) -> Result<()> {
        let look = tap.look(LOOK, &mut self.ended)?;
        let now_ns = tap.now();
        self.note(look, now_ns, events);
        self.looked_ns = now_ns;
        self.write(tap)
    }

    fn write(&mut self, tap: &Tap) -> Result<()> {
        for it in self.ended.drain(..) {
            if it.turnaround.started_ns >= self.since_ns {
                self.rows.append(&it.row(), tap.asker(&it));
                self.seen += 1;
            }
        }
        Ok(self.rows.flush()?)
    }

    fn note(&self, look: Look, now_ns: ColumnNs, events: &mut Events) {
        if look.dropped > 0 {
            let words = format!("{} packets were not seen", look.dropped);
            events.add("tap gap", Some(&words), (self.looked_ns, Some(now_ns)));
        }
        if let Some(step) = look.step {
            let words = format!("{} ns", step.0);
            events.add("clock step", Some(&words), (now_ns, None));
        }
    }
}
