//! Hosts that a run reaches by a command: `[[host]]`.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use toml_edit::{DocumentMut, Item, value};

use crate::error::PlanError;
use crate::fault::{Fault, FaultKind};
use crate::jvm::Runtime;
use crate::keys::{host as keys, run, stream as keys_of_stream};
use crate::limits::MAX_REACHED_HOSTS;
use crate::model::{Drive, Hosts, Load, Mesh, Plan};
use crate::section::Section;
use crate::stream::Stream;

/// The name of the host of the runner, which no other has.
pub const LOCAL_HOST: &str = "local";

/// The program on another host, unless a plan names another one.
pub const HOST_PROGRAM: &str = "unruly";

/// How the processes of a competing load are called.
const COMPETE: &str = "compete-";

/// A host on which a run starts processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachedHost {
    /// Its name in the rows.
    pub name: String,
    /// The command that starts a program there and passes its standard input and output on, such as
    /// `ssh node-1`.
    pub reach: Vec<String>,
    /// The address at which other hosts reach it, and at which its agents listen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The program `unruly` there.
    pub program: String,
    /// The run copies its own program there first.
    pub install: bool,
}

/// Reads the hosts of a plan.
pub(crate) fn hosts(top: &Section<'_>) -> Result<Vec<ReachedHost>, PlanError> {
    let most = MAX_REACHED_HOSTS;
    let sections = top.tables("host", "[[host]]", most, "measure from fewer hosts")?;
    let mut hosts: Vec<ReachedHost> = Vec::with_capacity(sections.len());
    for section in &sections {
        let host = host(section)?;
        if hosts.iter().any(|it| it.name == host.name) {
            let wrong = format!("two hosts have the name {:?}", host.name);
            let key = keys::NAME;
            return Err(section.complain(key.name, wrong, "must differ", key.example()));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

fn host(section: &Section<'_>) -> Result<ReachedHost, PlanError> {
    keys::HOST.check(section)?;
    let key = keys::NAME;
    let Some(name) = key.read(section)? else {
        return Err(section.missing(key.name, "must be a name", key.example()));
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 64 || name == LOCAL_HOST || !name.chars().all(fits) {
        let wanted = "must be 1 to 64 of A-Z a-z 0-9 . _ -, and not local";
        return Err(section.refuse(key.name, wanted, key.example()));
    }
    let program = keys::PROGRAM.read(section)?.unwrap_or_default().to_owned();
    let install = keys::INSTALL.read(section)?;
    if install && program != HOST_PROGRAM {
        let wrong = format!("the program is {program:?}, and install is true");
        let wanted = "must have one of them: the run chooses where it installs";
        return Err(section.complain(keys::PROGRAM.name, wrong, wanted, "remove program"));
    }
    let key = keys::ADDRESS;
    let address = key.read(section)?.filter(|it| !it.is_empty());
    if address.is_some_and(|it| !it.parse().is_ok_and(is_of_a_host)) {
        let wanted = "must be an IP address of the host, such as `ip addr` shows it there";
        return Err(section.refuse(key.name, wanted, key.example()));
    }
    Ok(ReachedHost {
        name: name.to_owned(),
        reach: reach(section)?,
        address: address.map(str::to_owned),
        program,
        install,
    })
}

/// Whether a process can listen on an address and others can reach it there.
fn is_of_a_host(address: IpAddr) -> bool {
    let is_of_a_link = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !address.is_unspecified() && !address.is_multicast() && !is_of_a_link
}

fn reach(section: &Section<'_>) -> Result<Vec<String>, PlanError> {
    let key = keys::REACH;
    let hint = key.hint("[\"ssh\", \"node-1\"]");
    let values = section.list(key.name, &hint)?;
    let values =
        values.ok_or_else(|| section.missing(key.name, "must be a command", hint.clone()))?;
    let words = values.into_iter().map(|value| {
        let word = value.as_str().filter(|it| !it.is_empty());
        word.map(str::to_owned)
            .ok_or_else(|| section.refuse(key.name, "must hold words", hint.clone()))
    });
    words.collect()
}

/// Puts hosts into the text of a plan.
pub(crate) fn place(document: &mut DocumentMut, hosts: &[ReachedHost]) {
    for (table, key) in [("run", "hosts"), ("stream", "link"), ("stream", "mtu")] {
        let table = document.get_mut(table).and_then(Item::as_table_like_mut);
        table.map(|it| it.remove(key));
    }
    let count = i64::try_from(hosts.len()).unwrap_or(i64::MAX);
    if let Some(drive) = document.get_mut("drive").and_then(Item::as_table_like_mut) {
        for key in ["processes", "clients"] {
            let own = drive.get(key).and_then(Item::as_integer);
            if own.unwrap_or(1) < count {
                drive.insert(key, value(count));
            }
        }
    }
    let lines = hosts
        .iter()
        .map(|it| format!("[[host]]\n{}", keys::HOST.lines(it)));
    let placed: DocumentMut = lines.collect::<String>().parse().unwrap_or_default();
    if let Some(tables) = placed.get("host") {
        document.insert("host", tables.clone());
    }
}

/// Reads the address of the host of the runner.
pub(crate) fn own_listen(section: &Section<'_>) -> Result<Option<Ipv4Addr>, PlanError> {
    let key = run::LISTEN;
    let Some(text) = key.read(section)?.filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let address: Option<Ipv4Addr> = text.parse().ok();
    let fits = address.filter(|it| is_of_a_host(IpAddr::V4(*it)));
    fits.map(Some).ok_or_else(|| {
        let wanted = "must be an IPv4 address of this host, such as `ip addr` shows it here";
        section.refuse(key.name, wanted, key.example())
    })
}

/// Refuses what a plan with hosts cannot have.
pub(crate) fn check(top: &Section<'_>, plan: &Plan) -> Result<(), PlanError> {
    if plan.reached.is_empty() {
        return Ok(());
    }
    if plan.run.hosts != Hosts::Processes {
        let wrong = "the plan has [[host]] and run.hosts = \"namespaces\"";
        return Err(top.complain("host", wrong, "must have one of them", "remove run.hosts"));
    }
    match &plan.load {
        Load::Drive(drive) => check_drive(top, plan, drive)?,
        Load::Mesh(mesh) => check_mesh(top, plan, mesh)?,
        Load::Stream(stream) => check_stream(top, plan, stream)?,
    }
    check_reach(top, plan)
}

/// Refuses load generators that do not reach their server.
fn check_drive(top: &Section<'_>, plan: &Plan, drive: &Drive) -> Result<(), PlanError> {
    let is_own = plan.load.has_echo();
    let (wrong, wanted, hint) = if drive.times.is_some() {
        (
            "a replay",
            "must send by another schedule: the file is on this host",
            "arrivals = \"poisson\"".to_owned(),
        )
    } else if usize::from(drive.processes) < plan.reached.len() {
        (
            "fewer processes",
            "must have a process for each host",
            format!("processes = {}", plan.reached.len()),
        )
    } else if drive.system.is_some() {
        (
            "a middleware system",
            "must name a server that runs: the program that calls it is on this host",
            "remove [[host]]".to_owned(),
        )
    } else if plan.run.listen.is_none() && (is_own || plan.load.has_service()) {
        (
            if is_own {
                "its own echo server"
            } else {
                "a service"
            },
            "must have run.listen, at which the hosts reach it, or name a server that runs",
            "in [run], listen = \"192.0.2.10\"".to_owned(),
        )
    } else {
        return check_relays(top, plan);
    };
    let wrong = format!("the plan has [[host]] and {wrong}");
    Err(top.complain("host", wrong, wanted, &hint))
}

/// Refuses a relay before a service: its address is on the loopback network.
fn check_relays(top: &Section<'_>, plan: &Plan) -> Result<(), PlanError> {
    let own = plan.load.processes();
    let mut faults = plan.faults.iter();
    let is_relayed = |fault: &Fault| {
        let of_service = |name: &String| !own.contains(name);
        matches!(fault.kind, FaultKind::Network(_)) && fault.processes.iter().any(of_service)
    };
    if !faults.any(is_relayed) {
        return Ok(());
    }
    let wrong = "the plan has [[host]] and a fault of the network of a service";
    let wanted = "must have another fault: what delays messages stands on this host's loopback";
    Err(top.complain("fault", wrong, wanted, "kind = \"stop\""))
}

/// Refuses agents that cannot reach one another, and those whose stamps of both ends are compared.
fn check_mesh(top: &Section<'_>, plan: &Plan, mesh: &Mesh) -> Result<(), PlanError> {
    let (wrong, wanted, hint) = if let Some(complaint) = unaddressed(plan, "the agents") {
        complaint
    } else if usize::from(mesh.agents) < plan.reached.len() {
        (
            "the plan has [[host]] and fewer agents".to_owned(),
            "must have an agent for each host".to_owned(),
            format!("agents = {}", plan.reached.len()),
        )
    } else if plan.compete.is_some() {
        (
            "the plan has [[host]], [mesh] and [compete]".to_owned(),
            "must have no competing load on other hosts".to_owned(),
            "remove [compete]".to_owned(),
        )
    } else if mesh.runtime != Runtime::Native {
        (
            format!(
                "the plan has [[host]] and mesh.runtime = \"{}\"",
                mesh.runtime.name()
            ),
            "must have native agents: those of a JVM compare stamps of both ends".to_owned(),
            "remove mesh.runtime".to_owned(),
        )
    } else {
        return Ok(());
    };
    Err(top.complain("host", wrong, wanted, &hint))
}

/// Refuses a stream whose ends do not reach one another, and hosts without an end.
fn check_stream(top: &Section<'_>, plan: &Plan, stream: &Stream) -> Result<(), PlanError> {
    let ends = usize::from(stream.readers) + 1;
    let hosts = plan.reached.len();
    let (wrong, wanted, hint) = if let Some(complaint) = unaddressed(plan, "the ends") {
        complaint
    } else if ends < hosts {
        (
            format!("the plan has {hosts} [[host]] and a stream of {ends} ends"),
            "must have an end for each host".to_owned(),
            format!("name {ends} hosts"),
        )
    } else if let Some(host) = plan.reached.iter().find(|it| !is_ipv4(it)) {
        (
            format!("the address of {} is of IPv6", host.name),
            "must be of IPv4: protocols of streams need it".to_owned(),
            "address = \"192.0.2.11\"".to_owned(),
        )
    } else if let Some(why) = stream.protocol.needs_hosts().filter(|_| ends > hosts) {
        (
            format!("the plan has {hosts} [[host]] for {ends} ends"),
            format!(
                "must have a host for each end of {}: {why}",
                stream.protocol.name()
            ),
            format!("name {ends} hosts"),
        )
    } else {
        return check_ends(top, plan, stream);
    };
    Err(top.complain("host", wrong, wanted, &hint))
}

fn is_ipv4(host: &ReachedHost) -> bool {
    let address = host.address.as_ref();
    address.is_none_or(|it| it.parse::<Ipv4Addr>().is_ok())
}

/// Refuses settings that have no effect on the ends of a stream on other hosts.
fn check_ends(top: &Section<'_>, plan: &Plan, stream: &Stream) -> Result<(), PlanError> {
    const SHAPED: [&str; 2] = ["stream.mtu", "stream.link"];
    let varied = plan.matrix.iter().map(|it| it.path.as_str());
    let shaped = varied.clone().find(|it| SHAPED.contains(it));
    let usual = keys_of_stream::MTU.kind.default;
    let is_set = Some(u64::from(stream.mtu)) != usual;
    let shaped = shaped.or_else(|| is_set.then_some(SHAPED[0]));
    let limited = plan.quotas.keys().map(String::as_str).chain(varied);
    let mut limited = limited.map(|it| it.trim_start_matches("quota."));
    let (wrong, wanted, hint) = if let Some(key) = shaped {
        (
            format!("the plan has [[host]] and sets {key}"),
            "must leave it out: the link of these hosts is what it is",
            format!("remove {key}"),
        )
    } else if let Some(load) = limited.find(|it| it.starts_with(COMPETE)) {
        (
            format!("the plan has [[host]] and a quota of {load}"),
            "must have none: its processes are on another host",
            "compete.occupancy says how much they use".to_owned(),
        )
    } else if !plan.run.slo.is_empty() && plan.reached.len() > 1 {
        (
            "the plan has [[host]], [stream] and run.slo".to_owned(),
            "must have no target: the latency of a message between two hosts is not measured",
            "remove run.slo".to_owned(),
        )
    } else {
        return Ok(());
    };
    Err(top.complain("host", wrong, wanted, &hint))
}

/// Returns the complaint about the first host without an address.
fn unaddressed(plan: &Plan, who: &str) -> Option<(String, String, String)> {
    let host = plan.reached.iter().find(|it| it.address.is_none())?;
    Some((
        format!("{} has no address", host.name),
        format!("must have one, at which {who} on other hosts reach it"),
        "address = \"192.0.2.11\" in its [[host]]".to_owned(),
    ))
}

/// Refuses faults of a process on another host that are carried out on this one.
fn check_reach(top: &Section<'_>, plan: &Plan) -> Result<(), PlanError> {
    let own = plan.load.processes();
    let streams = matches!(plan.load, Load::Stream(_));
    // The run's own echo server stays here, and what competes with a stream is beside its ends.
    let is_there = |name: &&String| {
        (own.contains(name) && *name != "echo-0") || (streams && name.starts_with(COMPETE))
    };
    let is_here = |kind| matches!(kind, FaultKind::Network(_) | FaultKind::Busy { .. });
    let faults = plan.faults.iter().filter(|it| is_here(it.kind));
    let mut named = faults.flat_map(|it| &it.processes);
    if let Some(process) = named.find(is_there) {
        let wrong = format!("{process} is on another host");
        let wanted = "must have a fault of the kind stop, kill or quota there";
        return Err(top.complain("host", wrong, wanted, "kind = \"quota\""));
    }
    Ok(())
}
