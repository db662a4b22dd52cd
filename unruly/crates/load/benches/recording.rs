//! What recording costs: a request beyond reading the clock, and the top throughput of an engine.
//!
//! Prints one JSON object. Pairs are interleaved, so that a change of the machine hits both sides.
//! The engine runs on core 0; the server and the recorder's drain thread on core 1.

#![expect(clippy::unwrap_used, reason = "a benchmark ends where a step fails")]
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use unruly_load::wire::{Codec, REQUEST_BYTES, Stamps};
use unruly_load::{
    ClosedSource, Control, Engine, EngineOptions, GroupRpc, Peer, Phases, Place, Sessions, Target,
};
use unruly_plan::{Arrivals, ClosedLoop, DurationNs as Length, Portion};
use unruly_trace::{
    Clock, ClockPair, ColumnNs, DurationNs, MonoNs, Record, Recorder, RecorderOptions,
    SCHEMA_VERSION, SPOOL_ROWS_MAX, SpoolHeader, monotonic,
};

const PAIRS: usize = 80;
/// Fewer records than the ring holds, because the benchmark measures the hot side and not a full
/// ring.
const RECORDS: u64 = 50_000;
const CONNECTIONS: usize = 16;
const DURATION_NS: u64 = 500_000_000;
const CODEC: Codec = Codec {
    cookie: 7,
    body_bytes: 0,
};

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let address = serve();
    stay_on(0);
    let (mut clock_ns, mut record_ns) = (Vec::new(), Vec::new());
    let (mut counting, mut recording) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let path = directory.path().join(pair.to_string());
        clock_ns.push(reading_clocks_ns());
        record_ns.push(recording_ns(&path.join("records")));
        let mut kept = recorder(&path.join("throughput"));
        let mut dropped = Recorder::counting();
        // Who goes first alternates.
        if pair % 2 == 0 {
            counting.push(throughput(address, &mut dropped));
            recording.push(throughput(address, &mut kept));
        } else {
            recording.push(throughput(address, &mut kept));
            counting.push(throughput(address, &mut dropped));
        }
        kept.finish("bench").unwrap();
        std::fs::remove_dir_all(&path).unwrap();
    }
    println!(
        "{}",
        serde_json::json!({
            "clock_ns": clock_ns, "clock_and_record_ns": record_ns,
            "requests_per_second_counting": counting,
            "requests_per_second_recording": recording,
            "connections": CONNECTIONS, "duration_ns": DURATION_NS, "record_bytes": size_of::<Record>(),
        })
    );
}

fn stay_on(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// A recorder whose drain thread is on core 1.
fn recorder(directory: &Path) -> Recorder {
    std::fs::create_dir_all(directory).unwrap();
    stay_on(1);
    let recorder = Recorder::start(RecorderOptions {
        directory: directory.to_owned(),
        stem: "bench-c0r0".to_owned(),
        header: SpoolHeader {
            schema: SCHEMA_VERSION,
            run: "bench".to_owned(),
            host: "local".to_owned(),
            process: "bench".to_owned(),
            tag: String::new(),
            cells: vec!["all".to_owned()],
            ops: vec!["echo".to_owned()],
            phases: ["warmup", "measure", "load"].map(str::to_owned).to_vec(),
            tally: None,
        },
        clock: Clock::new(ClockPair::now()),
        spool_rows_max: SPOOL_ROWS_MAX,
    })
    .unwrap();
    stay_on(0);
    recorder
}

/// Nanoseconds a request for its two clock readings alone.
fn reading_clocks_ns() -> f64 {
    let clock = Clock::new(ClockPair::now());
    let start_ns = monotonic();
    for request in 0..RECORDS {
        black_box(Record {
            request,
            sent_ns: clock.column(monotonic()),
            received_ns: clock.column(monotonic()),
            ..Record::empty()
        });
    }
    each_ns(start_ns)
}

/// Nanoseconds a request for the same two readings and the recorder's hot side.
fn recording_ns(directory: &Path) -> f64 {
    let clock = Clock::new(ClockPair::now());
    let mut recorder = recorder(directory);
    let start_ns = monotonic();
    for request in 0..RECORDS {
        recorder.scheduled(ColumnNs(0));
        recorder.record(black_box(&Record {
            request,
            sent_ns: clock.column(monotonic()),
            received_ns: clock.column(monotonic()),
            ..Record::empty()
        }));
    }
    let each_ns = each_ns(start_ns);
    let (tally, _) = recorder.finish("bench").unwrap();
    assert_eq!(
        tally.copies.recorded, RECORDS,
        "a drop costs less than a record"
    );
    each_ns
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 ns")]
fn each_ns(start_ns: MonoNs) -> f64 {
    (monotonic() - start_ns).0 as f64 / RECORDS as f64
}

/// Requests a second of a closed loop without think time.
fn throughput(address: SocketAddr, recorder: &mut Recorder) -> f64 {
    let options = EngineOptions {
        client: 0,
        cell: 0,
        repeat: 0,
        level: None,
        timeout_ns: DurationNs::seconds(1),
        linger_ns: DurationNs::ZERO,
        in_flight: CONNECTIONS,
        retries: 0,
        bins: false,
        spin_ns: DurationNs::ZERO,
        caller_schedules: false,
    };
    let peers = (0..CONNECTIONS).map(|_| {
        let place = Place::Stream(address);
        let target: Box<dyn Target> = Box::new(GroupRpc::new(CODEC, 0, 0));
        (Peer { id: 0, place }, target)
    });
    let clock = Clock::new(ClockPair::now());
    let mut engine = Engine::new(options, clock, recorder, peers.collect(), None).unwrap();
    engine.connect(CONNECTIONS).expect("connections open");
    let start = monotonic() + DurationNs::millis(20);
    let phases = Phases::new(start, Length(0), Length(DURATION_NS));
    let arrivals = Arrivals::Closed {
        think: Length(0),
        bursts: None,
    };
    let sessions = Sessions {
        sessions: CONNECTIONS,
        links: CONNECTIONS,
    };
    let mut source = ClosedSource::new(
        &arrivals,
        ClosedLoop::default(),
        1,
        sessions,
        0,
        phases,
        Portion::WHOLE,
    );
    engine
        .run(&mut source, &mut |_, _| Control::Continue)
        .unwrap();
    let outcome = engine.into_outcome();
    assert_eq!(outcome.requests.answered, outcome.requests.scheduled);
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and times are far below 2^52"
    )]
    let rate = outcome.requests.answered as f64 / (DURATION_NS as f64 / 1e9);
    rate
}

/// An echo server on core 1: a thread for each connection.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        stay_on(1);
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut request = [0; REQUEST_BYTES];
    let mut reply = Vec::new();
    while stream.read_exact(&mut request).is_ok() {
        let (head, _) = CODEC.decode_request(&request).unwrap().unwrap();
        reply.clear();
        CODEC.encode_reply(head, Stamps::default(), &mut reply);
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}
