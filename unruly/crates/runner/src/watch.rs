//! Watches services that already run: a tap writes what others ask of them, and nothing is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use unruly_program::{noise, tool};
use unruly_tap::{Capture, Finished, LAG, Look, Second, Server, Tap, Tracker, Windows, segment};
use unruly_trace::{
    Cell, Clock, ClockPair, ColumnNs, Counts, DurationNs, Manifest, Part, Process, RunLock,
    RunStatus, SCHEMA_VERSION, SegmentMeta, Table, TableSpool, TurnaroundHeader, TurnaroundSpool,
    recover_locked,
};

use crate::{make_directory, part, stop_on_signals};

/// The name of the process that taps, of its only cell, and of the run.
const PROCESS: &str = "tap-0";
const CELL: &str = "all";
const NAME: &str = "watch";

/// Longest wait for packets: bounds the time until a signal is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// What is watched, and for how long.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// The services.
    pub servers: Vec<Server>,
    /// The interface to watch; `None` for all of them.
    pub interface: Option<String>,
    /// How long; `None` until somebody stops it.
    pub duration: Option<DurationNs>,
    /// The run directory.
    pub output: Option<PathBuf>,
    /// Name of the environment.
    pub tag: String,
    /// Words of the command line that repeats it; the manifest keeps them.
    pub command: Vec<String>,
}

/// Watches services. Calls `show` with each second of all of them. Returns the run directory.
///
/// # Errors
///
/// When this process may not watch packets, the directory cannot be written, or no turnaround was
/// seen.
pub fn watch(options: &WatchOptions, show: &mut dyn FnMut(&[Second])) -> Result<PathBuf> {
    let noise_floor_ns = noise().floor_ns;
    let origin = ClockPair::now();
    let clock = Clock::new(origin);
    // Before the directory is made: who may not watch leaves nothing behind.
    let mut tap = Tap::open(
        options.servers.clone(),
        options.interface.as_deref(),
        &clock,
    )?;
    let stop = stop_on_signals()?;
    let mut watched = Watched::begin(options, part::new(origin, noise_floor_ns, &[])?)?;
    let stopped = watched.follow(&mut tap, options.duration, &stop, show)?;
    let mut rest = Vec::new();
    let since_ns = clock.column_now();
    let look = tap.finish(&mut rest)?;
    watched.write(&rest, &tap)?;
    watched.note(look, (since_ns, clock.column_now()));
    watched.note_left_out(tap.tracker());
    let status = if stopped && options.duration.is_some() {
        RunStatus::Stopped
    } else {
        RunStatus::Complete
    };
    watched.finish(status, clock.column_now(), &options.servers)
}

/// A run that is being watched.
struct Watched {
    directory: PathBuf,
    lock: RunLock,
    manifest: Manifest,
    rows: TurnaroundSpool,
    events: TableSpool,
    seen: u64,
}

#[derive(serde::Serialize)]
struct Event<'a> {
    cell: &'a str,
    repeat: u16,
    host: &'a str,
    process: &'a str,
    kind: &'a str,
    detail: Option<&'a str>,
    started_ns: ColumnNs,
    ended_ns: Option<ColumnNs>,
}

impl Watched {
    fn begin(options: &WatchOptions, part: Part) -> Result<Self> {
        let id = format!("{NAME}-{}", unruly_plan::utc(part.clock.wall_ns.0));
        let made = options.output.clone();
        let directory = made.unwrap_or_else(|| Path::new("runs").join(&id));
        make_directory(&directory)?;
        let lock = RunLock::take(&directory)?;
        let names: Vec<&str> = options.servers.iter().map(|it| it.name.as_str()).collect();
        let manifest = Manifest {
            schema: SCHEMA_VERSION,
            run: id.clone(),
            name: NAME.to_owned(),
            tag: options.tag.clone(),
            tool: tool(),
            command: Some(options.command.clone()),
            target: Some(format!(
                "watched {} from outside; nothing was sent",
                names.join(", ")
            )),
            plan_sha256: String::new(),
            seed: 0,
            status: RunStatus::Running,
            started_ns: part.started_ns,
            ended_ns: None,
            planned_ns: options.duration.unwrap_or(DurationNs::ZERO),
            missing: Vec::new(),
            broken: Vec::new(),
            hosts: vec![part.host.clone()],
            cells: vec![Cell {
                name: CELL.to_owned(),
                factors: BTreeMap::new(),
            }],
            left_out: Vec::new(),
            // It has no trials, and cannot be resumed.
            parts: Vec::new(),
            trials: Vec::new(),
            processes: vec![process()],
            counts: Counts::default(),
            merged: None,
        };
        manifest.write(&directory)?;
        Manifest::reserve(&directory)?;
        let meta = SegmentMeta {
            run: id,
            host: part.host.name,
            process: PROCESS.to_owned(),
            tag: options.tag.clone(),
        };
        Ok(Self {
            rows: TurnaroundSpool::new(&directory, &stem(), header(&meta, &options.servers)),
            events: TableSpool::new(Table::Events, &directory, &stem(), meta),
            directory,
            lock,
            manifest,
            seen: 0,
        })
    }

    /// Writes turnarounds until the time is over. Returns true if somebody stopped it before.
    fn follow(
        &mut self,
        tap: &mut Tap,
        duration: Option<DurationNs>,
        stop: &AtomicBool,
        show: &mut dyn FnMut(&[Second]),
    ) -> Result<bool> {
        let begun_ns = tap.now();
        // The first second is whole once it has ended and its late replies have come.
        let mut shown_ns = begun_ns + LAG;
        let mut looked_ns = begun_ns;
        let mut windows = Windows::new(tap.tracker().servers().len());
        let mut ended: Vec<Finished> = Vec::new();
        let mut stopped = false;
        while duration.is_none_or(|it| tap.now() - begun_ns < it) {
            if stop.load(Ordering::Relaxed) {
                stopped = true;
                break;
            }
            let look = tap.look(LOOK, &mut ended)?;
            self.write(&ended, tap)?;
            windows.add(&ended);
            ended.clear();
            let now_ns = tap.now();
            self.note(look, (looked_ns, now_ns));
            looked_ns = now_ns;
            if now_ns - shown_ns >= DurationNs::seconds(1) {
                shown_ns += DurationNs::seconds(1);
                show(&windows.second(tap.tracker(), shown_ns));
            }
        }
        // The seconds that were not over yet, as far as their replies have come.
        let last_ns = tap.now() + LAG;
        while last_ns - shown_ns >= DurationNs::seconds(1) {
            shown_ns += DurationNs::seconds(1);
            show(&windows.second(tap.tracker(), shown_ns));
        }
        Ok(stopped)
    }

    /// Writes the events of a look that took from one instant to another.
    fn note(&mut self, look: Look, (since_ns, now_ns): (ColumnNs, ColumnNs)) {
        if look.dropped > 0 {
            let told = format!("{} packets were not seen", look.dropped);
            self.event("tap gap", Some(&told), (since_ns, Some(now_ns)));
        }
        if let Some(step) = look.step {
            let told = format!("{} ns", step.0);
            self.event("clock step", Some(&told), (now_ns, None));
        }
    }

    fn write(&mut self, ended: &[Finished], tap: &Tap) -> Result<()> {
        for it in ended {
            self.rows.append(&it.row(), tap.asker(it));
        }
        self.seen += ended.len() as u64;
        Ok(self.rows.flush()?)
    }

    fn event(&mut self, kind: &str, detail: Option<&str>, at: (ColumnNs, Option<ColumnNs>)) {
        let event = Event {
            cell: CELL,
            repeat: 0,
            host: &self.manifest.hosts[0].name,
            process: PROCESS,
            kind,
            detail,
            started_ns: at.0,
            ended_ns: at.1,
        };
        // A full disk also stops the rows, which report it.
        let _ = self.events.append(&event);
    }

    fn note_left_out(&mut self, tracker: &Tracker) {
        let left_out = tracker.left_out();
        if left_out > 0 {
            let told =
                format!("{left_out} connections were not followed: too many are open at once");
            self.manifest.missing.push(told);
        }
    }

    fn finish(
        mut self,
        status: RunStatus,
        ended_ns: ColumnNs,
        servers: &[Server],
    ) -> Result<PathBuf> {
        self.rows.seal()?;
        self.events.seal()?;
        self.manifest.status = status;
        self.manifest.ended_ns = Some(ended_ns);
        self.manifest.write(&self.directory)?;
        recover_locked(&self.directory, &self.lock)?;
        Manifest::release(&self.directory);
        ensure!(self.seen > 0, "{}", nothing(servers));
        Ok(self.directory)
    }
}

/// Says why nothing was seen, as far as it is known.
fn nothing(servers: &[Server]) -> String {
    let silent = servers.iter().find(|it| !unruly_tap::is_listening(it));
    let names: Vec<&str> = servers.iter().map(|it| it.name.as_str()).collect();
    let names = names.join(", ");
    match silent {
        Some(it) => format!(
            "{names}: no request was seen; nobody listens at {} on this host; hint: ss -ltn lists the ports",
            it.name
        ),
        None => {
            format!("{names}: no request was seen; hint: watch for longer, or while somebody asks")
        }
    }
}

fn not_followed(left_out: u64) -> String {
    format!("{left_out} connections were not followed: too many are open at once")
}

fn stem() -> String {
    format!("{PROCESS}-c0r0")
}

fn process() -> Process {
    Process {
        name: PROCESS.to_owned(),
        kind: "tap".to_owned(),
        id: None,
        cell: CELL.to_owned(),
        repeat: 0,
        host: "local".to_owned(),
        pid: Some(std::process::id()),
        runtime: "native".to_owned(),
        tier: None,
        exit: None,
        counts: None,
    }
}

fn header(meta: &SegmentMeta, servers: &[Server]) -> TurnaroundHeader {
    TurnaroundHeader {
        schema: SCHEMA_VERSION,
        run: meta.run.clone(),
        host: meta.host.clone(),
        process: meta.process.clone(),
        tag: meta.tag.clone(),
        cell: CELL.to_owned(),
        repeat: 0,
        tiers: servers.iter().map(|it| it.name.clone()).collect(),
    }
}

/// What a capture has, besides turnarounds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// Turnarounds.
    pub rows: u64,
    /// What is missing, a sentence each.
    pub missing: Vec<String>,
    /// The services.
    pub tiers: Vec<String>,
}

/// Writes the turnarounds of a pcap or pcapng file into a run directory that is being made; the
/// services are those of `servers`, or the ones that connections of the file lead to.
///
/// # Errors
///
/// When the file cannot be read, or has no turnaround.
pub fn read_capture(
    file: &Path,
    servers: &[Server],
    directory: &Path,
    meta: &SegmentMeta,
) -> Result<Captured> {
    let place = file.display();
    let servers = match servers {
        [] => detect(file).with_context(|| place.to_string())?,
        servers => servers.to_vec(),
    };
    ensure!(
        !servers.is_empty(),
        "{place}: it has no TCP connection; hint: capture the port of a service"
    );
    let mut rows = TurnaroundSpool::new(directory, PROCESS, header(meta, &servers));
    let mut captured = Captured {
        tiers: servers.iter().map(|it| it.name.clone()).collect(),
        ..Captured::default()
    };
    let mut tracker = Tracker::new(servers);
    let mut short: u64 = 0;
    let mut last_ns = ColumnNs(i64::MIN);
    let mut write = |ended: &[Finished]| -> Result<()> {
        ended.iter().for_each(|it| rows.append(&it.row(), None));
        captured.rows += ended.len() as u64;
        Ok(rows.flush()?)
    };
    let mut ended = Vec::new();
    let mut capture = open(file)?;
    while let Some(packet) = capture.next_packet().with_context(|| place.to_string())? {
        last_ns = last_ns.max(packet.at_ns);
        match segment(packet.link, &packet.bytes, packet.whole) {
            Ok(found) => tracker.take(&found, packet.at_ns, &mut ended),
            Err(unruly_tap::Other::Cut) => short += 1,
            Err(unruly_tap::Other::Foreign) => {}
        }
        if ended.len() > 10_000 {
            write(&ended)?;
            ended.clear();
            // Nobody knows the programs of a capture.
            drop(tracker.take_fresh());
        }
    }
    ended.extend(tracker.finish(last_ns));
    write(&ended)?;
    rows.seal()?;
    ensure!(
        captured.rows > 0 || short == 0,
        "{place}: all of its packets are cut within their headers; hint: capture 96 bytes of each or more (tcpdump -s 96)"
    );
    ensure!(
        captured.rows > 0,
        "{place}: no request to {} is in it; hint: name the port of the service with --service",
        captured.tiers.join(", ")
    );
    if tracker.left_out() > 0 {
        captured.missing.push(not_followed(tracker.left_out()));
    }
    if capture.is_cut() {
        captured
            .missing
            .push("the file ends within a packet".to_owned());
    }
    if short > 0 {
        let told = format!("{short} packets are cut within their headers and left out");
        captured.missing.push(told);
    }
    Ok(captured)
}

fn open(file: &Path) -> Result<Capture<BufReader<File>>> {
    let place = file.display();
    let opened = File::open(file).with_context(|| place.to_string())?;
    Capture::open(BufReader::new(opened)).with_context(|| place.to_string())
}

/// The services of a file: the addresses that connections were opened to. If the file shows no
/// connection being opened, of each two addresses the one that more others talk to.
fn detect(file: &Path) -> Result<Vec<Server>> {
    let mut capture = open(file)?;
    let mut opened: BTreeSet<std::net::SocketAddr> = BTreeSet::new();
    let mut peers: BTreeMap<std::net::SocketAddr, BTreeSet<std::net::SocketAddr>> = BTreeMap::new();
    while let Some(packet) = capture.next_packet()? {
        let Ok(found) = segment(packet.link, &packet.bytes, packet.whole) else {
            continue;
        };
        if found.opens && found.acknowledged.is_none() {
            opened.insert(found.to);
        }
        for (one, other) in [(found.from, found.to), (found.to, found.from)] {
            if peers.len() < ADDRESSES_MAX || peers.contains_key(&one) {
                let known = peers.entry(one).or_default();
                if known.len() < PEERS_MAX {
                    known.insert(other);
                }
            }
        }
    }
    let rank = |it: &std::net::SocketAddr| {
        let others = peers.get(it).map_or(0, BTreeSet::len);
        (opened.contains(it), others, std::cmp::Reverse(it.port()))
    };
    let pairs = peers
        .iter()
        .flat_map(|(one, others)| others.iter().map(move |it| (one, it)));
    let found: BTreeSet<_> = pairs
        .map(|(one, other)| if rank(one) > rank(other) { one } else { other })
        .collect();
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|it| std::cmp::Reverse(rank(it)));
    ensure!(
        found.len() <= unruly_tap::SERVERS_MAX,
        "it has {} services; wanted {} at most; hint: name those to import with --service",
        found.len(),
        unruly_tap::SERVERS_MAX
    );
    found
        .into_iter()
        .map(|it| Server::parse(&format!("tcp://{it}")))
        .collect()
}

/// Peers of an address that decide whether it is a service, and addresses that are looked at.
const PEERS_MAX: usize = 1_000;
const ADDRESSES_MAX: usize = 100_000;
