//! The keys of `[drive]`, but for those of a store.

use super::key::{Key, Row, Table, bare, key, table, text};
use super::kinds::{Choice, Real, Text};
use crate::arrivals::{Arrivals, Shape};
use crate::limits::*;
use crate::model::{Drive, Transport};
use crate::section::Limits;
use crate::stream::Scheduling;
use crate::units::{Bytes, DurationNs, RateHz};

const SECOND: u64 = 1_000_000_000;
const ON: DurationNs = DurationNs(200_000_000);
const OFF: DurationNs = DurationNs(800_000_000);
/// Arrivals that may come in bursts of an index of dispersion.
const BURSTY: &[&str] = &["mmpp", "closed"];
const BURSTY_ONLY: &str = "only mmpp and a closed loop have one";

table! {
    /// The keys of `[drive]` that are not in [`super::store::STORE`].
    DRIVE: Drive = "drive";

    TRANSPORT: Choice<Transport> = key(
        "transport",
        Choice::of(|| Transport::ALL.map(|it| (it.name(), it)).to_vec()).or(Transport::Tcp),
        "how requests travel",
    ).default_is("`\"tcp\"`; `\"udp\"` for `dns`"),
        |it| it.system.is_none().then(|| it.transport.name()).and_then(text);

    ADDRESS: Text = key("address", Text::like("127.0.0.1:7000"), "the server to call")
        .default_is("own echo server, `echo-0`")
        .also("`host:port`"), |it| it.address.as_ref().and_then(text);

    CLIENTS: Limits<u64> = key(
        "clients",
        Limits::within(1, MAX_CLIENTS as u64, 1).or(1),
        "number of clients, dealt among `processes`",
    ), |it| bare(it.clients);

    PROCESSES: Limits<u64> = key(
        "processes",
        Limits::within(1, MAX_DRIVE_PROCESSES as u64, 2).or(1),
        "processes that share the clients, `drive-0` and so on; each has one thread. They share \
         the keys, too, so that each process knows the values of its own keys. They take the \
         arrivals of one schedule in turn",
    ).also("at most as many as clients, keys and connections"), |it| bare(it.processes);

    ARRIVALS: Choice<Shape> = key(
        "arrivals",
        Choice::of(|| Shape::ALL.map(|it| (it.name(), it)).to_vec()).or(Shape::Constant),
        "the schedule of requests",
    ), |it| text(it.arrivals.name());

    RATE: Limits<RateHz> = key(
        "rate",
        Limits::above_zero(MAX_RATE, RateHz(100.0)),
        "requests of all clients together",
    ).only(&["constant", "poisson", "mmpp", "onoff"])
        .because("a closed loop and a replay have no rate of their own"),
        |it| it.arrivals.rate().and_then(text);

    RAMP: Text = key(
        "ramp",
        Text::like("30s:500, 2min:500"),
        "stages of a load that changes: each is a time, and the level at its end, to which the \
         load changes evenly. Levels are requests a second, and the first stage begins at `rate`; \
         in a closed loop they are clients, of whom `clients` is the most, and the first stage \
         begins with one. Stages begin after the warm-up, which has the level at which the first \
         stage begins. The last level stays, and a last level of 0 ends the run",
    ).scaled().default_is("").also("up to 1,000 stages, no longer than `run.duration` together")
        .only(&["constant", "poisson", "closed"])
        .because("only constant, poisson and closed arrivals change in stages"),
        |it| it.ramp.as_ref().and_then(text);

    DISPERSION: Real = key(
        "dispersion",
        Real::between(1.0, MAX_DISPERSION, 100.0),
        "index of dispersion of long counts: 1 is `poisson`. The clients of a closed loop share a \
         clock by which they think, which runs `burst_factor` times as fast in a burst; without \
         the key they have no bursts",
    ).default_is("required for mmpp").only(BURSTY).because(BURSTY_ONLY), |it| match it.arrivals {
        Arrivals::Mmpp { dispersion, .. } => bare(dispersion),
        Arrivals::Closed { bursts, .. } => bursts.and_then(|it| bare(it.dispersion)),
        _ => None,
    };

    BURST_SHARE: Real = key(
        "burst_share",
        Real::between(0.0, 1.0, 0.2).or(0.2),
        "share of time in bursts",
    ).only(BURSTY).because(BURSTY_ONLY), |it| match it.arrivals {
        Arrivals::Mmpp { burst_share, .. } => bare(burst_share),
        Arrivals::Closed { bursts, .. } => bursts.and_then(|it| bare(it.burst_share)),
        _ => None,
    };

    BURST_FACTOR: Real = key(
        "burst_factor",
        Real::between(1.0, 1e6, 3.0).or(3.0),
        "rate of a burst, as a multiple of the mean rate",
    ).also("at most 1 / `burst_share`")
        .only(BURSTY)
        .because(BURSTY_ONLY), |it| match it.arrivals {
        Arrivals::Mmpp { burst_factor, .. } => bare(burst_factor),
        Arrivals::Closed { bursts, .. } => bursts.and_then(|it| bare(it.burst_factor)),
        _ => None,
    };

    ON_TIME: Limits<DurationNs> = key(
        "on",
        Limits::above_zero(MAX_THINK, ON).or(ON),
        "mean length of a burst",
    ).only(&["onoff"]).because("only onoff has one"), |it| match it.arrivals {
        Arrivals::OnOff { on, .. } => text(on),
        _ => None,
    };

    OFF_TIME: Limits<DurationNs> = key(
        "off",
        Limits::above_zero(MAX_THINK, OFF).or(OFF),
        "mean time between bursts",
    ).only(&["onoff"]).because("only onoff has one"), |it| match it.arrivals {
        Arrivals::OnOff { off, .. } => text(off),
        _ => None,
    };

    SHAPE: Real = key(
        "shape",
        Real::between(1.0, 100.0, 1.5).or(1.5),
        "shape of the Pareto distribution of both times: below 2 they have no variance",
    ).only(&["onoff"]).because("only onoff has one"), |it| match it.arrivals {
        Arrivals::OnOff { shape, .. } => bare(shape),
        _ => None,
    };

    TIMES: Text = key(
        "times",
        Text::like("times.txt"),
        "a time in seconds on each line, in order; the first is the start of the warm-up, and the \
         run ends with the last one or with its duration, whichever is first. The path is relative \
         to the plan, and the run keeps a copy",
    ).also("a file, up to 100M times").only(&["replay"]).because("only replay has them"),
        |it| it.times.as_ref().and_then(text);

    THINK: Limits<DurationNs> = key(
        "think",
        Limits::within(DurationNs(0), MAX_THINK, DurationNs(2_000_000)).or(DurationNs(0)),
        "mean of the exponential think time",
    ).only(&["closed"]).because("only closed arrivals think"), |it| match it.arrivals {
        Arrivals::Closed { think, .. } => text(think),
        _ => None,
    };

    PAYLOAD: Limits<Bytes> = key(
        "payload",
        Limits::within(Bytes(0), MAX_TCP_BODY, Bytes(64)).or(Bytes(64)),
        "length of a body, beyond the header of 28 bytes; of a call, all of its bytes",
    ).also("at most 65KB for udp"), |it| match &it.store {
        Some(store) => store.calls.and_then(text),
        None => text(it.payload),
    };

    TIMEOUT: Limits<DurationNs> = key(
        "timeout",
        Limits::above_zero(MAX_TIMEOUT, DurationNs(10 * SECOND)).or(DurationNs(10 * SECOND)),
        "how long a client waits for a reply",
    ), |it| text(it.timeout);

    IN_FLIGHT: Limits<u64> = key(
        "in_flight",
        Limits::within(1, MAX_DRIVE_IN_FLIGHT as u64, 1_000_000).or(1_000_000),
        "most requests awaited at once",
    ), |it| bare(it.in_flight);

    SCHEDULING: Choice<Scheduling> = key(
        "scheduling",
        Choice::of(|| Scheduling::WORDS.to_vec()).or(Scheduling::Normal),
        "the scheduler's class of the load generator: `realtime` runs before every other process, \
         so that a busy host does not delay requests. The run fails where the host does not allow \
         it",
    ), |it| text(it.scheduling.name());

    REQUESTS: Limits<u64> = key(
        "requests",
        Limits::within(1, MAX_REQUESTS, 10_000),
        "a cell ends after this many measured requests, if that is before `run.duration`",
    ).default_is("no limit"), |it| it.requests.and_then(bare);

    URL: Text = key(
        "url",
        Text::like("redis://127.0.0.1:6379"),
        "the store, and which driver speaks to it. It holds no password and no token, since plans \
         are kept with their runs: `UNRULY_PASSWORD` has it, and `{password}` stands for it in \
         the path or query of `http`",
    ).default_is("").also("`scheme://[user@]host[:port],../path?name=value`, `program:COMMAND`"),
        |it| {
        let store = it.store.as_ref().filter(|store| store.url.service().is_none());
        store.and_then(|store| text(&store.url))
    };

    SYSTEM: Text = key(
        "system",
        Text::like("rmi"),
        "the middleware system that the run starts, to call its echo with `payload` bytes; `tcp` \
         and `udp` are our own echo server",
    ).default_is("").also("the name of a [system](middleware.md), or its file"),
        |it| it.system.as_ref().and_then(text);

    SERVICE: Text = key(
        "store",
        Text::like("redis"),
        "the store that the run starts for itself, instead of a `url`",
    ).default_is("").also("the name of a [service](services.md), or its file"), |it| {
        let store = it.store.as_ref().filter(|store| store.url.system().is_none());
        store.and_then(|store| store.url.service()).and_then(text)
    };
}
