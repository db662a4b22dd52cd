//! The keys that a plan may have. The parser refuses all others.

pub(crate) mod compete;
pub(crate) mod drive;
pub(crate) mod fault;
pub(crate) mod host;
pub(crate) mod jvm;
pub(crate) mod key;
pub(crate) mod kinds;
pub(crate) mod mesh;
pub(crate) mod probe;
pub(crate) mod quota;
pub(crate) mod run;
pub(crate) mod store;
pub(crate) mod stream;
pub(crate) mod tap;
#[cfg(test)]
mod tests;
pub(crate) mod top;

use key::{Described, Table};

/// The table whose keys are processes, and whose values are cores.
pub(crate) const QUOTA: &str = top::QUOTA.name;

/// The table whose keys are parameters of a service.
pub(crate) const SERVICE: &str = top::SERVICE.name;

/// A section of a plan: its name and its keys.
struct SectionKeys {
    /// The name of its table in the manual.
    title: &'static str,
    name: &'static str,
    keys: Vec<&'static dyn Described>,
}

impl SectionKeys {
    fn of<S>(title: &'static str, table: &Table<S>) -> Self {
        Self {
            title,
            name: table.name,
            keys: table.keys(),
        }
    }

    /// The path of a key: `drive.rate`, or `seed` at the top.
    fn path(&self, key: &dyn Described) -> String {
        match self.name {
            "" => key.name().to_owned(),
            name => format!("{name}.{}", key.name()),
        }
    }
}

/// All sections, in the order of the manual. The keys of `[drive]` fill two of them.
fn sections() -> [SectionKeys; 13] {
    [
        SectionKeys::of("plan", &top::PLAN),
        SectionKeys::of("run", &run::RUN),
        SectionKeys::of("mesh", &mesh::MESH),
        SectionKeys::of("drive", &drive::DRIVE),
        SectionKeys::of("store", &store::STORE),
        SectionKeys::of("stream", &stream::STREAM),
        SectionKeys::of("compete", &compete::COMPETE),
        SectionKeys::of("jvm", &jvm::JVM),
        SectionKeys::of("probe", &probe::PROBE),
        SectionKeys::of("tap", &tap::TAP),
        SectionKeys::of("host", &host::HOST),
        SectionKeys::of("fault", &fault::FAULT),
        SectionKeys::of("quota", &quota::QUOTA),
    ]
}

/// The paths of the keys that `wanted` picks.
fn paths(wanted: impl Fn(&SectionKeys, &dyn Described) -> bool) -> Vec<String> {
    let sections = sections();
    let picked = sections.iter().flat_map(|section| {
        let keys = section.keys.iter().copied();
        keys.filter(|key| wanted(section, *key))
            .map(|key| section.path(key))
    });
    picked.collect()
}

/// Every key the parser knows, as `key` or `table.key`, in the order of the manual.
#[must_use]
pub fn known_keys() -> Vec<String> {
    paths(|_, _| true)
}

/// A key of a plan in words, for a manual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyWords {
    /// The table of the manual that has it: `plan`, `run`, .., and `store` for a key of `[drive]`
    /// that only a store has.
    pub table: &'static str,
    /// The path: `drive.rate`, or `seed` at the top.
    pub path: String,
    /// The type of its values.
    pub value: String,
    /// The default, or `required`.
    pub default: String,
    /// The bounds of its values; empty without any.
    pub bounds: String,
    /// The meaning.
    pub meaning: String,
}

/// Returns every key in words, in the order of [`known_keys`].
#[must_use]
pub fn key_words() -> Vec<KeyWords> {
    let sections = sections();
    let words = sections.iter().flat_map(|section| {
        section.keys.iter().map(|key| KeyWords {
            table: section.title,
            path: section.path(*key),
            value: key.kind().type_name(),
            default: key.default(),
            bounds: key.bounds(),
            meaning: key.meaning(),
        })
    });
    words.collect()
}

/// The paths of the times that `run.scale` multiplies.
pub(crate) fn timetable() -> Vec<String> {
    paths(|_, key| key.notes().is_scaled)
}

/// Whether a value at this place is written as TOML, and not as a string.
pub(crate) fn is_bare(table: &str, key: &str) -> bool {
    let sections = sections();
    let mut keys = sections
        .iter()
        .filter(|section| section.name == table)
        .flat_map(|section| &section.keys);
    let is_process = table == QUOTA && key != quota::PERIOD.name;
    is_process || keys.any(|it| it.name() == key && it.kind().is_bare())
}

/// The keys a factor may vary, for a plan whose load is the table `load`; but for the quotas of its processes.
pub(crate) fn variable_paths(load: &str) -> Vec<String> {
    let varied = [
        run::RUN.name,
        load,
        compete::COMPETE.name,
        jvm::JVM.name,
        probe::PROBE.name,
        tap::TAP.name,
        quota::QUOTA.name,
    ];
    paths(|section, key| varied.contains(&section.name) && key.notes().is_variable)
}

/// All keys of `[drive]`.
pub(crate) fn drive_keys() -> Vec<&'static str> {
    [drive::DRIVE.names(), store::STORE.names()].concat()
}

/// The process whose quota a path is.
pub(crate) fn quota_of(path: &str) -> Option<&str> {
    let process = path.strip_prefix(QUOTA)?.strip_prefix('.')?;
    (process != quota::PERIOD.name).then_some(process)
}

/// The parameter of a service that a path is.
pub(crate) fn parameter_of(path: &str) -> Option<&str> {
    path.strip_prefix(SERVICE)?.strip_prefix('.')
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
