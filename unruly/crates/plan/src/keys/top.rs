//! The keys at the top of a plan.

use super::key::{Key, Row, Table, bare, key, table, text};
use super::kinds::{Other, Text};
use crate::limits::MAX_SEED;
use crate::model::Plan;
use crate::section::Limits;

const ONE_LOAD: &str = "exactly one of `mesh`, `drive` and `stream`";

table! {
    /// The keys at the top of a plan. The sections write themselves out.
    PLAN: Plan = "";

    NAME: Text = key("name", Text::like("demo"), "names the plan and its directories")
        .also("1 to 64 of `A-Z a-z 0-9 . _ -`, not `.` first"), |it| text(&it.name);

    SEED: Limits<u64> = key(
        "seed",
        Limits::within(0, MAX_SEED, 1).or(1),
        "all randomness of the run follows from it",
    ), |it| bare(it.seed);

    TAG: Text = key(
        "tag",
        Text::like("before the fix").or(""),
        "a word of yours, such as the environment",
    ).also("at most 256 characters, one line"), |it| text(&it.tag);

    RUN: Other = key("run", Other("table"), "how long, how often and where"), |_| None;

    MESH: Other = key("mesh", Other("table"), "agents that call each other in groups")
        .default_is("").also(ONE_LOAD), |_| None;

    DRIVE: Other = key("drive", Other("table"), "clients that call one server")
        .default_is("").also(ONE_LOAD), |_| None;

    STREAM: Other = key(
        "stream",
        Other("table"),
        "a writer that sends as fast as its protocol allows, and its readers",
    ).default_is("").also(ONE_LOAD), |_| None;

    COMPETE: Other = key("compete", Other("table"), "work that competes for the processors")
        .default_is("none"), |_| None;

    JVM: Other = key("jvm", Other("table"), "how the run starts a JVM")
        .default_is(""), |_| None;

    PROBE: Other = key("probe", Other("table"), "the process that watches the host")
        .default_is("on, every second"), |_| None;

    TAP: Other = key("tap", Other("table"), "the tap, which watches services from outside")
        .default_is("off"), |_| None;

    HOST: Other = key("host", Other("array of tables"), "other hosts on which load generators, agents and the ends of streams run")
        .default_is("none").also("at most 64"), |_| None;

    FAULT: Other = key("fault", Other("array of tables"), "faults of the processes")
        .default_is("none").also("at most 1,000"), |_| None;

    PIN: Other = key("pin", Other("table"), "the CPUs that a process is kept to")
        .default_is("none"), |_| None;

    QUOTA: Other = key("quota", Other("table"), "the most CPU time of a process")
        .default_is("none"), |_| None;

    SERVICE: Other = key("service", Other("table"), "the parameters of the service that the run starts")
        .default_is("those of its file"), |_| None;

    MATRIX: Other = key("matrix", Other("table"), "the factors that vary between cells")
        .default_is("none").also("at most 10,000 cells"), |_| None;
}
