//! Components that a run starts for itself: which there are, and how they are started and ended.

mod cache;
mod child;
mod go;
pub mod held;
mod names;
mod packages;
mod pauses;
mod roles;
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;
use unruly_plan::{Cell, Load, PlanError, ServiceFile, Setting, did_you_mean};

pub(crate) use names::check_processes;
pub use packages::install;
pub(crate) use packages::library;
pub(crate) use pauses::pauses;
pub(crate) use running::{Ground, MYSQL, Services};

/// The services that come with the program.
const SHIPPED: [(&str, &str); 11] = [
    ("board", include_str!("../../../../services/board.toml")),
    (
        "cassandra",
        include_str!("../../../../services/cassandra.toml"),
    ),
    ("etcd", include_str!("../../../../services/etcd.toml")),
    (
        "etcd-3.7",
        include_str!("../../../../services/etcd-3.7.toml"),
    ),
    ("flurry", include_str!("../../../../services/flurry.toml")),
    (
        "flurry-disk",
        include_str!("../../../../services/flurry-disk.toml"),
    ),
    (
        "memcached",
        include_str!("../../../../services/memcached.toml"),
    ),
    ("redis", include_str!("../../../../services/redis.toml")),
    ("garage", include_str!("../../../../services/garage.toml")),
    (
        "redis-replicated",
        include_str!("../../../../services/redis-replicated.toml"),
    ),
    (
        "redis-replicated-disk",
        include_str!("../../../../services/redis-replicated-disk.toml"),
    ),
];

/// The middleware systems that come with the program, in the same format.
const SYSTEMS: [(&str, &str); 15] = [
    ("aeron", include_str!("../../../../systems/aeron.toml")),
    (
        "corosync-cpg",
        include_str!("../../../../systems/corosync-cpg.toml"),
    ),
    ("ejb", include_str!("../../../../systems/ejb.toml")),
    ("grpc", include_str!("../../../../systems/grpc.toml")),
    (
        "grpc-java",
        include_str!("../../../../systems/grpc-java.toml"),
    ),
    ("http", include_str!("../../../../systems/http.toml")),
    ("jacorb", include_str!("../../../../systems/jacorb.toml")),
    ("jgroups", include_str!("../../../../systems/jgroups.toml")),
    ("jvm-nio", include_str!("../../../../systems/jvm-nio.toml")),
    ("jvm-tcp", include_str!("../../../../systems/jvm-tcp.toml")),
    ("omniorb", include_str!("../../../../systems/omniorb.toml")),
    ("rmi", include_str!("../../../../systems/rmi.toml")),
    ("sctp", include_str!("../../../../systems/sctp.toml")),
    (
        "three-tier",
        include_str!("../../../../systems/three-tier.toml"),
    ),
    ("wildfly", include_str!("../../../../systems/wildfly.toml")),
];

/// The middleware systems that are our own echo server: its transports.
pub const OWN_SYSTEMS: [&str; 2] = ["tcp", "udp"];

/// The names of all shipped services, each with its text.
pub fn shipped() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHIPPED.into_iter()
}

/// The names of all shipped middleware systems, each with its text.
pub fn systems() -> impl Iterator<Item = (&'static str, &'static str)> {
    SYSTEMS.into_iter()
}

/// The text of a service, by its name or from its file.
pub(crate) fn text(name: &str) -> Result<String> {
    if let Some((_, text)) = shipped().chain(systems()).find(|(known, _)| *known == name) {
        return Ok(text.to_owned());
    }
    std::fs::read_to_string(Path::new(name)).map_err(|error| {
        if error.kind() != ErrorKind::NotFound {
            return anyhow::anyhow!("{name}: cannot be read ({error}); hint: give a file of text");
        }
        unknown(name)
    })
}

/// Returns the error for a service that there is not.
fn unknown(name: &str) -> anyhow::Error {
    let known = SHIPPED.map(|(name, _)| name);
    let all = format!(
        "use one of {}, or give the file of a service",
        known.join(", ")
    );
    let systems = SYSTEMS.map(|(name, _)| name);
    let hint = did_you_mean(name, [&known[..], &systems].concat(), &all);
    anyhow::anyhow!("service:{name}: there is no such service; hint: {hint}")
}

/// Returns the text of a shipped service.
///
/// # Errors
///
/// When there is no such service.
pub fn shipped_text(name: &str) -> Result<&'static str> {
    let mut all = shipped().chain(systems());
    let found = all.find(|(known, _)| *known == name);
    found.map(|(_, text)| text).ok_or_else(|| unknown(name))
}

/// Reads the file of a service, by its name or its path.
///
/// # Errors
///
/// When there is none, or it is not one.
pub fn service(name: &str) -> Result<ServiceFile> {
    Ok(ServiceFile::parse(name, &text(name)?)?)
}

/// Reads the file of a middleware system, by its name or its path.
///
/// # Errors
///
/// When there is none, or it is not one.
pub fn system(name: &str) -> Result<ServiceFile> {
    let is_shipped = systems().any(|(known, _)| known == name);
    if is_shipped || Path::new(name).is_file() {
        return service(name);
    }
    let known: Vec<&str> = OWN_SYSTEMS
        .into_iter()
        .chain(SYSTEMS.map(|it| it.0))
        .collect();
    let all = format!("use one of {}, or give the file of one", known.join(", "));
    let hint = match shipped().any(|(known, _)| known == name) {
        true => format!("store = \"{name}\" starts the service of this name"),
        false => did_you_mean(name, known, &all),
    };
    anyhow::bail!("system:{name}: there is no such middleware system; hint: {hint}")
}

/// The file of the service or middleware system that a cell starts, if it starts one, and the values
/// that the cell chooses for its parameters. Where a plan compares systems, each takes the
/// parameters that it has.
fn started(cell: &Cell) -> Result<Option<(ServiceFile, BTreeMap<String, Setting>)>> {
    let Load::Drive(drive) = &cell.plan.load else {
        return Ok(None);
    };
    let Some(name) = drive.store.as_ref().and_then(|it| it.url.service()) else {
        return Ok(None);
    };
    if drive.system.is_none() {
        return Ok(Some((service(name)?, cell.plan.service.clone())));
    }
    let file = system(name)?;
    let chosen = own_settings(&file, &cell.plan.service);
    Ok(Some((file, chosen)))
}

/// The values of these that are parameters of a system.
fn own_settings(
    file: &ServiceFile,
    settings: &BTreeMap<String, Setting>,
) -> BTreeMap<String, Setting> {
    let has = |name: &String| file.parameters.iter().any(|it| it.name == *name);
    let own = settings.iter().filter(|(name, _)| has(name));
    own.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns the values that a plan chooses for the service or system that it starts.
pub(crate) fn settings_of(
    name: &str,
    is_system: bool,
    settings: &BTreeMap<String, Setting>,
) -> Result<BTreeMap<String, Setting>> {
    if is_system {
        return Ok(own_settings(&system(name)?, settings));
    }
    Ok(settings.clone())
}

/// Refuses a parameter that no system of a sweep has.
pub(crate) fn check_parameters(cells: &[Cell]) -> Result<()> {
    let mut known = BTreeSet::new();
    for cell in cells.iter().filter(|it| system_of(it).is_some()) {
        let found = started(cell)?;
        let files = found.iter().flat_map(|(file, _)| &file.parameters);
        known.extend(files.map(|it| it.name.clone()));
    }
    let is_call = |cell: &&Cell| matches!(&cell.plan.load, Load::Drive(it) if it.system.is_some());
    for cell in cells.iter().filter(is_call) {
        let mut chosen = cell.plan.service.iter();
        let Some((name, setting)) = chosen.find(|(name, _)| !known.contains(*name)) else {
            continue;
        };
        let words = known.iter().map(String::as_str);
        return Err(PlanError {
            place: setting.place.0.clone(),
            key: format!("service.{name}"),
            wrong: format!("no system of the plan has the parameter {name:?}"),
            wanted: "must be one of unruly services show SYSTEM".to_owned(),
            hint: did_you_mean(name, words, "remove it"),
        }
        .into());
    }
    Ok(())
}

/// Checks the service of a cell, and the parameters that the cell chooses for it.
pub(crate) fn configure(cell: &Cell) -> Result<()> {
    let Some((file, settings)) = started(cell)? else {
        return Ok(());
    };
    check_spans(cell)?;
    let configured = file.with(&settings).and_then(|mut service| {
        let address = cell.plan.run.listen;
        address.map_or(Ok(()), |it| service.listen_on(it))
    });
    configured.map_err(|error| {
        let wrong = match cell.factors.len() {
            0 => error.wrong,
            _ => format!("in cell {:?}, {}", cell.name, error.wrong),
        };
        PlanError { wrong, ..error }.into()
    })
}

/// Refuses to wait for the spans of a system that exports none.
fn check_spans(cell: &Cell) -> Result<()> {
    let Some(name) = system_of(cell) else {
        return Ok(());
    };
    let Load::Drive(drive) = &cell.plan.load else {
        return Ok(());
    };
    if drive.spans().is_some() && !text(name)?.contains("{{ spans") {
        anyhow::bail!(
            "drive.spans: the system {name} exports no spans; wanted one that does, such as \
             three-tier; hint: remove spans"
        );
    }
    Ok(())
}

/// Returns why a cell cannot be measured: two parameters that the matrix varies cannot have their
/// values together. Any other fault is an error of the plan, which [`configure`] finds.
pub(crate) fn impossible(cell: &Cell) -> Result<Option<String>> {
    let Some((file, settings)) = started(cell)? else {
        return Ok(None);
    };
    let found = file.impossible(&settings);
    let varied = |name: &String| cell.factors.contains_key(&format!("service.{name}"));
    let found = found.filter(|it| it.parameters.iter().all(varied));
    Ok(found.map(|it| it.told))
}

/// The middleware system that a cell starts, if it starts one.
pub(crate) fn system_of(cell: &Cell) -> Option<&str> {
    let Load::Drive(drive) = &cell.plan.load else {
        return None;
    };
    drive.store.as_ref()?.url.system()
}

/// Fetches what the middleware systems of these cells need. Returns those that cannot be measured
/// here, each with the reason.
pub(crate) fn missing_systems(
    cells: &[Cell],
    say: &dyn Fn(&str),
) -> Result<BTreeMap<String, String>> {
    let mut missing = BTreeMap::new();
    let mut obtained = BTreeSet::new();
    for cell in cells {
        let Some(name) = system_of(cell).filter(|name| obtained.insert((*name).to_owned())) else {
            continue;
        };
        let Some((file, settings)) = started(cell)? else {
            continue;
        };
        let service = file.with(&settings)?;
        if let Err(error) = running::obtain(name, &service, say) {
            missing.insert(name.to_owned(), format!("{error:#}"));
        }
    }
    Ok(missing)
}

/// A service or system could not be started.
#[derive(Debug)]
pub(crate) struct NotStarted(pub(crate) String);

impl std::fmt::Display for NotStarted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} could not be started", self.0)
    }
}

#[cfg(test)]
mod tests {
    use unruly_plan::Plan;

    use super::*;

    /// What the command of a process holds, with these parameters of its service.
    fn command(name: &str, parameters: &[(&str, &str)], process: &str) -> Vec<String> {
        let settings: BTreeMap<String, Setting> = parameters
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Setting::from((*value).to_owned())))
            .collect();
        let service = service(name).unwrap().with(&settings).unwrap();
        let places = service.places(|_| 7, "/run", "/log-");
        let process = service.processes.iter().find(|it| it.name == process);
        let words = process.unwrap().command.iter();
        let words = words.map(|word| places.render(Some(&process.unwrap().name), word).unwrap());
        words.collect()
    }

    /// Returns the cells of a plan for Flurry that have a reason to be left out.
    fn left_out(lines: &str) -> Vec<(String, String)> {
        let head = "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\nstore = \"flurry\"\n";
        let plan = Plan::parse("plan.toml", &format!("{head}{lines}")).unwrap();
        let cells = plan.cells().unwrap().into_iter();
        let told = cells.filter_map(|cell| Some((cell.name.clone(), impossible(&cell).unwrap()?)));
        told.collect()
    }

    #[test]
    fn a_cell_with_more_copies_than_nodes_is_left_out_only_if_the_matrix_varies_both() {
        let both = "[matrix]\n\"service.nodes\" = [1, 3]\n\"service.replicas\" = [1, 3]";
        let told = "replicas is 3 and nodes is 1".to_owned();
        assert_eq!(left_out(both), [("nodes=1 replicas=3".to_owned(), told)]);
        let one = "[service]\nnodes = 2\n[matrix]\n\"service.replicas\" = [1, 3]";
        assert_eq!(left_out(one), []);
        let copies = "[matrix]\n\"service.nodes\" = [1, 3]";
        assert_eq!(left_out(copies), []);
    }

    #[test]
    fn copies_are_as_many_as_the_nodes_where_nobody_has_chosen_them() {
        let words = command("flurry", &[("nodes", "2")], "controller");
        let place = words.iter().position(|it| it == "--replicas").unwrap();
        assert_eq!(words[place + 1], "2");
    }

    /// Checks every cell of a plan of nine lines, of which these are the last.
    fn configured(lines: &str) -> Result<()> {
        let head = "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\nstore = \"redis\"\n";
        let plan = Plan::parse("plan.toml", &format!("{head}{lines}")).unwrap();
        plan.cells().unwrap().iter().try_for_each(configure)
    }

    #[test]
    fn a_process_that_no_cell_has_is_refused_before_anything_is_started() {
        let named = |lines: &str| {
            let head = "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\nstore = \"redis\"\n";
            let plan = Plan::parse("plan.toml", &format!("{head}{lines}")).unwrap();
            check_processes(&plan.cells().unwrap()).map_err(|it| it.to_string())
        };
        let both = "[matrix]\n\"drive.store\" = [\"redis\", \"memcached\"]\n";
        named(&format!("[pin]\nservice = [0]\nmemcached-1 = [1]\n{both}")).unwrap();
        named("[[fault]]\nkind = \"stop\"\nprocess = [\"etcd-2\", \"redis-1\"]\nat = \"1s\"\nduration = \"1s\"")
            .unwrap();
        for (lines, key) in [
            ("[pin]\nredis-0 = [0]", "pin"),
            ("[quota]\nredis-0 = 0.5", "quota"),
            (
                "[[fault]]\nkind = \"stop\"\nprocess = \"redis-0\"\nat = \"1s\"\nduration = \"1s\"",
                "fault.process",
            ),
        ] {
            assert_eq!(
                named(lines).unwrap_err(),
                format!(
                    "{key}: no cell has the process redis-0; known: drive-0, probe-0, redis-1; hint: did you mean redis-1"
                )
            );
        }
    }

    #[test]
    fn a_parameter_that_the_service_of_a_cell_lacks_is_told_before_anything_is_started() {
        configured("[service]\nio_threads = 4").unwrap();
        configured("[matrix]\n\"service.io_threads\" = [1, 4]").unwrap();
        for (lines, wanted) in [
            (
                "[service]\nio_thread = 4",
                "plan.toml:7: service redis has no parameter \"io_thread\"; known: io_threads, memory; hint: did you mean io_threads",
            ),
            (
                "[matrix]\n\"service.io_threads\" = [1, 65]",
                "plan.toml:7: in cell \"io_threads=65\", io_threads is 65; must be at most 64; hint: io_threads = 1",
            ),
            (
                "[matrix]\n\"drive.store\" = [\"redis\", \"etcd\"]\n\"service.io_threads\" = [4]",
                "plan.toml:8: in cell \"store=etcd io_threads=4\", service etcd has no parameter \"io_threads\"; known: nodes; hint: unruly services show etcd",
            ),
        ] {
            assert_eq!(configured(lines).unwrap_err().to_string(), wanted);
        }
    }

    #[test]
    fn the_nodes_of_cassandra_divide_the_ring_of_tokens() {
        for (nodes, node, token) in [
            ("1", "cassandra-1", "-9223372036854775808"),
            ("3", "cassandra-1", "-9223372036854775808"),
            ("3", "cassandra-2", "-3074457345618258603"),
            ("3", "cassandra-3", "3074457345618258602"),
            ("16", "cassandra-16", "8070450532247928832"),
        ] {
            let words = command("cassandra", &[("nodes", nodes)], node);
            assert_eq!(words[1], format!("-Dcassandra.initial_token={token}"));
        }
    }

    #[test]
    fn a_shipped_service_without_parameters_is_what_it_was() {
        let redis = "redis-server --bind 127.0.0.1 --port 7 --save  --appendonly no --dir /run/redis-1 --io-threads 1 --maxmemory 0 --protected-mode no";
        assert_eq!(command("redis", &[], "redis-1").join(" "), redis);
        let flurry = command("flurry-disk", &[], "flurry-3").join(" ");
        assert!(flurry.ends_with("server --id 3 --controller 127.0.0.1:7 --listen 127.0.0.1:7 --announce 127.0.0.1 --memory 1000000000B --disk /run/flurry-3/disk"), "{flurry}");
        let few = command("flurry", &[("nodes", "1")], "controller").join(" ");
        assert!(few.ends_with("--servers 1 --replicas 1"), "{few}");
        let etcd = command("etcd", &[], "etcd-2").join(" ");
        assert!(etcd.ends_with("--initial-cluster etcd-1=http://127.0.0.1:7,etcd-2=http://127.0.0.2:7,etcd-3=http://127.0.0.3:7"), "{etcd}");
    }

    #[test]
    fn every_shipped_service_is_one_and_all_in_the_folder_are_shipped() {
        let mut names: Vec<String> = shipped().map(|(name, _)| name.to_owned()).collect();
        for name in &names {
            service(name).unwrap_or_else(|error| panic!("{error}"));
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../services");
        let files = std::fs::read_dir(folder)
            .unwrap()
            .map(|it| it.unwrap().path());
        let mut found: Vec<String> = files
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        found.sort_unstable();
        names.sort_unstable();
        assert_eq!(found, names);
    }

    #[test]
    fn every_system_is_a_service_whose_calls_a_program_makes_and_all_in_the_folder_are_shipped() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems");
        let files = std::fs::read_dir(folder).unwrap();
        let mut found: Vec<String> = files
            .map(|it| it.unwrap().path())
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let mut names: Vec<String> = systems().map(|(name, _)| name.to_owned()).collect();
        for (name, text) in systems() {
            service(name).unwrap_or_else(|error| panic!("{error}"));
            assert!(text.contains("program:"), "{name}");
        }
        found.sort_unstable();
        names.sort_unstable();
        assert_eq!(found, names);
    }

    #[test]
    fn a_service_that_there_is_not_is_told_with_those_that_there_are() {
        let said = service("oracle").unwrap_err().to_string();
        assert!(
            said.starts_with(
                "service:oracle: there is no such service; hint: use one of board, cassandra, etcd, "
            ),
            "{said}"
        );
    }
}
