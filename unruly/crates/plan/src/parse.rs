//! From text to a checked plan.

use toml_edit::DocumentMut;

use crate::error::PlanError;
use crate::goodput::Goodput;
use crate::host::{self, ReachedHost};
use crate::keys;
use crate::limits::*;
use crate::matrix::set;
use crate::model::{Load, Place, Plan, Probe, Run};
use crate::parse_extras::{Processes, check_scale, matrix, pins, quota_period, quotas, service};
use crate::parse_fault::faults;
use crate::parse_load::{drive, mesh};
use crate::parse_stream::{compete, jvm, scaled, stream};
use crate::section::{Section, Source};
use crate::slo::{Slo, SloError};
use crate::tap::tap;
use crate::until::Until;

impl Plan {
    /// Reads a plan and checks it, with every cell of its matrix.
    ///
    /// `path_for_messages` is what errors call the text; nothing is opened.
    ///
    /// # Errors
    ///
    /// Returns the first problem with its line: text that is not TOML, an unknown or missing key, a
    /// value of the wrong type or out of bounds, values that contradict each other, or a cell of
    /// the matrix with any of these problems.
    pub fn parse(path_for_messages: &str, text: &str) -> Result<Self, PlanError> {
        let source = Source {
            path: path_for_messages,
            text,
        };
        let (plan, matrix_offset_bytes) = read(source)?;
        if let Err(error) = plan.cells() {
            return Err(PlanError {
                place: source.place(matrix_offset_bytes),
                ..error
            });
        }
        Ok(plan)
    }
}

impl Plan {
    /// The plan of values by their paths, `("drive.rate", "100/s")`: what a command line amounts to.
    ///
    /// # Errors
    ///
    /// As [`Plan::parse`]; `place` stands for the lines that there are none of.
    pub fn of_values<'a>(
        place: &str,
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, PlanError> {
        let mut document = DocumentMut::new();
        for (path, value) in values {
            set(&mut document, path, value);
        }
        let place = place.to_owned();
        Self::parse(&place, &document.to_string()).map_err(|error| PlanError { place, ..error })
    }
}

impl Plan {
    /// A plan with other values for some of its keys: `("drive.rate", "100/s")`, or `("rate", "100/s")`
    /// where no other key ends so. A key that its matrix varies is varied no more.
    ///
    /// # Errors
    ///
    /// As [`Plan::parse`], and for a key that there is not.
    pub fn parse_with(
        path_for_messages: &str,
        text: &str,
        values: &[(&str, &str)],
    ) -> Result<Self, PlanError> {
        Self::parse_on(path_for_messages, text, values, &[])
    }

    /// The same on these hosts, where there are any, instead of the plan's own. They also take the
    /// place of namespaces, whose links a plan may shape. Each has a process of `[drive]`.
    ///
    /// # Errors
    ///
    /// As [`Plan::parse_with`].
    pub fn parse_on(
        path_for_messages: &str,
        text: &str,
        values: &[(&str, &str)],
        hosts: &[ReachedHost],
    ) -> Result<Self, PlanError> {
        // What is wrong with the text itself has its line.
        let document = Source {
            path: path_for_messages,
            text,
        };
        document.document("see unruly/docs/plan-format.md")?;
        let mut document: DocumentMut = text.parse().unwrap_or_default();
        for (key, value) in values {
            let path = path_of(key, &document).map_err(|(wanted, hint)| PlanError {
                place: "--set".to_owned(),
                key: String::new(),
                wrong: format!("there is no key {key:?}"),
                wanted,
                hint,
            })?;
            set(&mut document, &path, value);
            if let Some(matrix) = document
                .get_mut("matrix")
                .and_then(|it| it.as_table_like_mut())
            {
                matrix.remove(&path);
                if matrix.is_empty() {
                    document.remove("matrix");
                }
            }
        }
        if !hosts.is_empty() {
            host::place(&mut document, hosts);
        }
        let mut plan = Self::parse(path_for_messages, &document.to_string())?;
        for parameter in values.iter().filter_map(|(key, _)| keys::parameter_of(key)) {
            if let Some(setting) = plan.service.get_mut(parameter) {
                setting.place = Place("--set".to_owned());
            }
        }
        Ok(plan)
    }
}

/// Returns the full path of a key that a person wrote in full or by its last part, which may be a
/// key of another load, too. Otherwise returns the expected keys and a hint.
fn path_of(key: &str, plan: &DocumentMut) -> Result<String, (String, String)> {
    let known = keys::known_keys();
    let known = known
        .iter()
        .filter(|path| !path.starts_with("fault") && !path.starts_with("host"));
    let loads = [
        keys::mesh::MESH.name,
        keys::drive::DRIVE.name,
        keys::stream::STREAM.name,
    ];
    let is_of_plan = |path: &&String| {
        let table = path.split('.').next().unwrap_or("");
        !loads.contains(&table) || plan.contains_key(table)
    };
    let ends = |path: &&String| path.rsplit('.').next() == Some(key);
    // Their keys are processes and parameters, of which only the plan and the service know.
    let open = keys::quota_of(key).or_else(|| keys::parameter_of(key));
    if open.is_some() || known.clone().any(|path| path == key) {
        return Ok(key.to_owned());
    }
    let found: Vec<&String> = known.clone().filter(ends).filter(is_of_plan).collect();
    match found.as_slice() {
        [path] => Ok((*path).clone()),
        [] => Err(("must be a key of the plan".to_owned(), {
            let ends = known.filter_map(|path| path.rsplit('.').next());
            keys::did_you_mean(key, ends, "see unruly/docs/plan-format.md")
        })),
        several => {
            let names: Vec<&str> = several.iter().map(|path| path.as_str()).collect();
            Err((
                format!("must be one of {}", names.join(", ")),
                format!("--set {}=..", names[0]),
            ))
        }
    }
}

/// Reads a plan without trying its cells; also the place of its matrix.
pub(crate) fn read(source: Source<'_>) -> Result<(Plan, usize), PlanError> {
    let document = source.document("see unruly/docs/plan-format.md")?;
    plan(&source.top(&document, "the plan"))
}

fn plan(top: &Section<'_>) -> Result<(Plan, usize), PlanError> {
    keys::top::PLAN.check(top)?;
    let name = name(top)?;
    let seed = keys::top::SEED.read(top)?;
    let tag = tag(top)?;
    let Some(run_section) = top.child("run", "[run]")? else {
        return Err(top.missing(
            "[run]",
            "must be a table",
            "[run] with duration = \"60s\"".into(),
        ));
    };
    let (run, scale) = run(&run_section)?;
    let reached = host::hosts(top)?;
    let (load, load_name) = load(top, &run, scale, !reached.is_empty())?;
    let jvm = jvm(top)?;
    let compete = compete(top, jvm, scale)?;
    let tap = tap(top, &load)?;
    let processes = Processes::of(&load, compete.as_ref(), &run, tap.is_some(), reached.len());
    let matrix_section = top.child("matrix", "[matrix]")?;
    if let Some(section) = &matrix_section {
        check_scale(section, scale)?;
    }
    let faults = faults(top, &processes, &run)?;
    let plan = Plan {
        compete,
        jvm,
        probe: probe(top)?,
        tap,
        reached,
        pins: pins(top, &processes)?,
        service: service(top, matrix_section.as_ref(), &load)?,
        quotas: quotas(top, &processes, &faults)?,
        quota_period: quota_period(top)?,
        faults,
        matrix: matrix_section.map_or(Ok(Vec::new()), |section| {
            matrix(&section, load_name, &load, &processes)
        })?,
        name,
        seed,
        tag,
        run,
        load,
    };
    host::check(top, &plan)?;
    Ok((
        plan,
        matrix_section.map_or(0, |section| section.offset_bytes),
    ))
}

fn name(top: &Section<'_>) -> Result<String, PlanError> {
    let key = keys::top::NAME;
    let wanted = format!("must be 1 to {MAX_NAME_CHARS} of A-Z a-z 0-9 . _ -, not . first");
    let Some(name) = key.read(top)? else {
        return Err(top.missing(key.name, &wanted, key.example()));
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let short = (1..=MAX_NAME_CHARS).contains(&name.len());
    if !short || name.starts_with('.') || !name.chars().all(fits) {
        return Err(top.refuse(key.name, wanted, key.example()));
    }
    Ok(name.to_owned())
}

fn tag(top: &Section<'_>) -> Result<String, PlanError> {
    let key = keys::top::TAG;
    let tag = key.read(top)?.unwrap_or("");
    if tag.chars().count() > MAX_TAG_CHARS || tag.chars().any(char::is_control) {
        let wanted = format!("must be at most {MAX_TAG_CHARS} characters on one line");
        return Err(top.refuse(key.name, wanted, key.example()));
    }
    Ok(tag.to_owned())
}

/// How long and how often; and the scale of its times, which are scaled already.
fn run(section: &Section<'_>) -> Result<(Run, f64), PlanError> {
    keys::run::RUN.check(section)?;
    let scale = keys::run::SCALE.read(section)?;
    let run = Run {
        duration: scaled(keys::run::DURATION.read(section)?, scale),
        warmup: scaled(keys::run::WARMUP.read(section)?, scale),
        repeat: keys::run::REPEAT.whole(section)?,
        hosts: keys::run::HOSTS.read(section)?,
        listen: host::own_listen(section)?,
        until: until(section)?,
        slo: slo(section)?,
        goodput: goodput(section)?,
    };
    Ok((run, scale))
}

fn until(section: &Section<'_>) -> Result<Option<Until>, PlanError> {
    let key = keys::run::UNTIL;
    let Some(text) = key.read(section)? else {
        return Ok(None);
    };
    let wanted = "must be a percentile from p1 and how well it is to be known";
    let until = text.parse::<Until>();
    until
        .map(Some)
        .map_err(|()| section.refuse(key.name, wanted, key.example()))
}

fn goodput(section: &Section<'_>) -> Result<Option<Goodput>, PlanError> {
    let key = keys::run::GOODPUT;
    let Some(text) = key.read(section)? else {
        return Ok(None);
    };
    let goodput = text.parse::<Goodput>();
    goodput
        .map(Some)
        .map_err(|error| section.refuse(key.name, error.to_string(), key.example()))
}

fn slo(section: &Section<'_>) -> Result<Vec<Slo>, PlanError> {
    let key = keys::run::SLO;
    let values = key.read(section)?.unwrap_or_default();
    let read = values.into_iter().map(|value| {
        let slo = value.as_str().ok_or(SloError).and_then(str::parse);
        slo.map_err(|error: SloError| {
            let wrong = format!("{} holds {}", key.name, value.to_string().trim());
            section.complain(key.name, wrong, error.to_string(), key.example())
        })
    });
    read.collect()
}

fn load(
    top: &Section<'_>,
    run: &Run,
    scale: f64,
    has_hosts: bool,
) -> Result<(Load, &'static str), PlanError> {
    const WANTED: &str = "must have exactly one of [mesh], [drive] and [stream]";
    const NAMES: [(&str, &str); 3] = [
        ("mesh", "[mesh]"),
        ("drive", "[drive]"),
        ("stream", "[stream]"),
    ];
    let mut found = Vec::new();
    for (key, name) in NAMES {
        found.extend(top.child(key, name)?.map(|section| (key, section)));
    }
    let (load, section) = match found.as_slice() {
        [one] => *one,
        [(first, _), (second, later), ..] => {
            let wrong = format!("the plan has both [{first}] and [{second}]");
            return Err(later.complain("", wrong, WANTED, "remove one, or make two plans"));
        }
        [] => {
            let wrong = "the plan has none of [mesh], [drive] and [stream]";
            let hint = "add [drive] with rate = \"100/s\"";
            return Err(top.complain("", wrong, WANTED, hint));
        }
    };
    if run.until.is_some() && load != "drive" {
        let wrong = format!("[run] has until, and the load is a {load}");
        let wanted = "must be left out: only requests of clients are counted while it runs";
        let hint = "remove until, or measure with [drive]";
        return Err(section.complain("", wrong, wanted, hint));
    }
    if run.goodput.is_some() && load != "drive" {
        let wrong = format!("[run] has goodput, and the load is a {load}");
        let wanted = "must be left out: it is about the requests of clients";
        let hint = "remove goodput, or measure with [drive]";
        return Err(section.complain("", wrong, wanted, hint));
    }
    let read = match load {
        "mesh" => Load::Mesh(mesh(&section, run)?),
        "drive" => Load::Drive(drive(&section, run, scale)?),
        _ => Load::Stream(stream(&section, run, scale, has_hosts)?),
    };
    Ok((read, load))
}

fn probe(top: &Section<'_>) -> Result<Option<Probe>, PlanError> {
    let key = keys::probe::PERIOD;
    let Some(section) = top.child("probe", "[probe]")? else {
        return Ok(key.kind.default.map(|period| Probe { period }));
    };
    keys::probe::PROBE.check(&section)?;
    let period = key.read(&section)?;
    let enabled = keys::probe::ENABLED.read(&section)?;
    Ok(enabled.then_some(Probe { period }))
}
