//! The keys that a plan may have. The parser refuses all others.

#![expect(dead_code, reason = "the sections of a plan move to tables one by one")]

pub(crate) mod compete;
pub(crate) mod jvm;
pub(crate) mod key;
mod kinds;
pub(crate) mod stream;

use compete::COMPETE;
use jvm::JVM;
use key::{Described, Table};
use stream::STREAM;

pub(crate) const PLAN: &[&str] = &[
    "name", "seed", "tag", "run", "mesh", "drive", "stream", "compete", "jvm", "probe", "fault",
    "pin", "quota", "matrix",
];
pub(crate) const RUN: &[&str] = &[
    "duration", "warmup", "repeat", "hosts", "until", "slo", "scale",
];
pub(crate) const MESH: &[&str] = &[
    "agents",
    "groups",
    "period",
    "regroup",
    "workloads",
    "transport",
    "runtime",
    "timeout",
    "in_flight",
    "body",
    "disk_file",
    "port",
];
pub(crate) const DRIVE: &[&str] = &[
    "transport",
    "address",
    "clients",
    "processes",
    "arrivals",
    "rate",
    "dispersion",
    "burst_share",
    "burst_factor",
    "on",
    "off",
    "shape",
    "times",
    "think",
    "payload",
    "timeout",
    "in_flight",
    "requests",
    "url",
    "store",
];
/// Keys of `[drive]` that mean nothing without a store.
pub(crate) const STORE: &[&str] = &[
    "operations",
    "keys",
    "order",
    "skew",
    "value",
    "level",
    "pipeline",
    "retries",
    "preload",
    "connections",
    "expect",
    "keep",
];
pub(crate) const PROBE: &[&str] = &["enabled", "period"];
pub(crate) const FAULT: &[&str] = &[
    "kind", "process", "at", "duration", "every", "cpu", "threads", "cores", "delay", "jitter",
    "loss",
];

/// The table whose keys are processes, and whose values are cores.
pub(crate) const QUOTA: &str = "quota";

/// Keys whose value is not a string, so that a factor's value must be read as TOML.
pub(crate) const NOT_TEXT: &[&str] = &[
    "seed",
    "repeat",
    "agents",
    "groups",
    "workloads",
    "in_flight",
    "port",
    "clients",
    "processes",
    "requests",
    "keys",
    "skew",
    "dispersion",
    "burst_share",
    "burst_factor",
    "shape",
    "pipeline",
    "retries",
    "preload",
    "connections",
    "keep",
    "enabled",
    "scale",
    "slo",
];

/// Every key the parser knows, as `key` or `table.key`, in the order of the manual.
#[must_use]
pub fn known_keys() -> Vec<String> {
    let tables = [
        ("run", RUN.to_vec()),
        ("mesh", MESH.to_vec()),
        ("drive", drive()),
        ("stream", STREAM.names()),
        ("compete", COMPETE.names()),
        ("jvm", JVM.names()),
        ("probe", PROBE.to_vec()),
        ("fault", FAULT.to_vec()),
    ];
    let inner = tables.iter().flat_map(|(table, keys)| paths(table, keys));
    PLAN.iter()
        .map(|key| (*key).to_owned())
        .chain(inner)
        .collect()
}

/// The sections of a plan, each with the keys that have an entry in a table.
fn sections() -> Vec<(&'static str, Vec<&'static dyn Described>)> {
    fn section<S>(table: &Table<S>) -> (&'static str, Vec<&'static dyn Described>) {
        (table.name, table.keys())
    }
    vec![section(&STREAM), section(&COMPETE), section(&JVM)]
}

/// The paths of the times that `run.scale` multiplies.
pub(crate) fn timetable() -> Vec<String> {
    let own = ["run.duration", "run.warmup"].map(str::to_owned);
    let scaled = sections().into_iter().flat_map(|(table, keys)| {
        let keys = keys.into_iter().filter(|key| key.notes().is_scaled);
        keys.map(move |key| format!("{table}.{}", key.name()))
    });
    own.into_iter().chain(scaled).collect()
}

/// Whether a value at this place is written as TOML, and not as a string.
pub(crate) fn is_bare(table: &str, key: &str) -> bool {
    let mut sections = sections().into_iter();
    let known = sections.find(|(name, _)| *name == table);
    let found = known.and_then(|(_, keys)| keys.into_iter().find(|it| it.name() == key));
    match found {
        Some(found) => found.kind().is_bare(),
        None => table == QUOTA || NOT_TEXT.contains(&key),
    }
}

/// The keys a factor may vary, for a plan whose load is the table `load`; but for the quotas of its processes.
pub(crate) fn variable_paths(load: &str) -> Vec<String> {
    let load_keys = match load {
        "mesh" => MESH.to_vec(),
        "stream" => STREAM.names(),
        _ => drive(),
    };
    // `run.repeat` is out: it counts the runs of every cell alike; and `run.scale`: its times are those
    // that were scaled.
    let own = |key: &&str| !["repeat", "scale", "slo"].contains(key);
    let run_keys: Vec<&str> = RUN.iter().copied().filter(own).collect();
    [
        paths("run", &run_keys),
        paths(load, &load_keys),
        paths("compete", &COMPETE.names()),
        paths("jvm", &JVM.names()),
        paths("probe", PROBE),
    ]
    .concat()
}

/// All keys of `[drive]`.
pub(crate) fn drive() -> Vec<&'static str> {
    [DRIVE, STORE].concat()
}

/// The process whose quota a path is.
pub(crate) fn quota_of(path: &str) -> Option<&str> {
    path.strip_prefix(QUOTA)?.strip_prefix('.')
}

fn paths(table: &str, keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| format!("{table}.{key}")).collect()
}

/// Returns the hint for an unknown name: the nearest known name, or `otherwise` when none is near.
#[must_use]
pub fn did_you_mean<'a>(
    unknown: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    let distances = known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(unknown, name), name));
    match distances.min_by_key(|(distance, _)| *distance) {
        Some((distance, name)) if distance <= name.len().max(4) / 2 => {
            format!("did you mean {name}")
        }
        _ => otherwise.to_owned(),
    }
}
