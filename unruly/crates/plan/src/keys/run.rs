//! The keys of `[run]`.

use super::key::{Key, Row, Table, bare, key, list, quoted, table, text};
use super::kinds::{Choice, List, Real, Text};
use crate::limits::*;
use crate::model::{Hosts, Run};
use crate::section::Limits;
use crate::units::DurationNs;

const SECOND: u64 = 1_000_000_000;

table! {
    /// The keys of `[run]`.
    RUN: Run = "run";

    DURATION: Limits<DurationNs> = key(
        "duration",
        Limits::above_zero(MAX_DURATION, DurationNs(60 * SECOND)),
        "measured time of a cell",
    ).also("at least one period of a mesh").scaled(), |it| text(it.duration);

    WARMUP: Limits<DurationNs> = key(
        "warmup",
        Limits::within(DurationNs(0), MAX_WARMUP, DurationNs(3 * SECOND)).or(DurationNs(0)),
        "time under load before that, additional and not measured",
    ).scaled(), |it| text(it.warmup);

    // It counts the runs of every cell alike.
    REPEAT: Limits<u64> = key(
        "repeat",
        Limits::within(1, MAX_REPEAT as u64, 5).or(1),
        "how often each cell is run",
    ).fixed(), |it| bare(it.repeat);

    HOSTS: Choice<Hosts> = key(
        "hosts",
        Choice::of(|| Hosts::ALL.map(|it| (it.name(), it)).to_vec()).or(Hosts::Processes),
        "what represents a host: processes on loopback, or network namespaces",
    ), |it| text(it.hosts.name());

    LISTEN: Text = key(
        "listen",
        Text::like("192.0.2.10"),
        "the IPv4 address of this host at which the hosts of `[[host]]` reach it; the service or echo \
         server that the run starts listens there",
    ).default_is("none")
        .fixed(), |it| it.listen.map(|it| quoted(&it.to_string()));

    UNTIL: Text = key(
        "until",
        Text::like("p99 within 10%"),
        "`\"p99 within 10%\"`: a cell of a drive ends when both bounds of the percentile's \
         interval, for each operation, are that near to it, after 30 s at the earliest and its \
         duration at the latest",
    ).default_is("none")
        .also("p1 to p99.99.., within 0.1 % to 100 %"), |it| it.until.and_then(text);

    SLO: List = key(
        "slo",
        List { of: "strings", example: "[\"p99 < 20ms\"]" },
        "targets of the run: a percentile (p50 to p99.99), `mean`, `max` or the failed share, of \
         all operations or of one; a missed target makes the exit code 1",
    ).default_is("none")
        .also("`\"p99 < 20ms\"`, `\"read p99.9 < 50ms\"`, `\"failed < 0.1%\"`")
        .fixed(), |it| {
        let texts = it.slo.iter().map(|slo| quoted(&slo.to_string()));
        (!it.slo.is_empty()).then(|| list(texts))
    };

    GOODPUT: Text = key(
        "goodput",
        Text::like("ttft < 500ms, tpot < 50ms, e2e < 5s"),
        "limits that a good request meets: `ttft`, the time to the first token or message, from the \
         scheduled time; `tpot`, the mean time of each other one of the reply; `gap`, the longest \
         of these; `e2e`, the response time. The report counts the good requests",
    ).default_is("none").fixed(), |it| it.goodput.as_ref().and_then(text);

    // The times of a written plan are scaled already.
    SCALE: Real = key(
        "scale",
        Real::between(MIN_SCALE, MAX_SCALE, 0.05).or(1.0),
        "multiplies `run.duration`, `run.warmup`, the times of `drive.ramp`, `stream.wind_down` \
         and `compete.lead`. The plan that is kept with the run has the multiplied times. With a \
         scale, a `[matrix]` cannot vary any of these",
    ).fixed(), |_| None;
}
