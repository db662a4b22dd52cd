//! Hosts that a run reaches by a command: `[[host]]`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::error::PlanError;
use crate::fault::FaultKind;
use crate::jvm::Runtime;
use crate::keys::host as keys;
use crate::limits::MAX_REACHED_HOSTS;
use crate::model::{Hosts, Load, Mesh, Plan};
use crate::section::Section;

/// The name of the host of the runner, which no other has.
pub const LOCAL_HOST: &str = "local";

/// The program on another host, unless a plan names another one.
pub const HOST_PROGRAM: &str = "unruly";

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

/// Refuses what a plan with hosts cannot have.
pub(crate) fn check(top: &Section<'_>, plan: &Plan) -> Result<(), PlanError> {
    if plan.reached.is_empty() {
        return Ok(());
    }
    let refuse =
        |wrong: &str, wanted: &str, hint: &str| Err(top.complain("host", wrong, wanted, hint));
    if plan.run.hosts != Hosts::Processes {
        let wrong = "the plan has [[host]] and run.hosts = \"namespaces\"";
        return refuse(wrong, "must have one of them", "remove run.hosts");
    }
    let drive = match &plan.load {
        Load::Drive(drive) => drive,
        Load::Mesh(mesh) => return check_mesh(top, plan, mesh),
        Load::Stream(_) => {
            let wrong = "the plan has [[host]] and [stream]";
            let wanted = "must have [drive] or [mesh]: a stream compares stamps of both ends, which have one clock here";
            return refuse(wrong, wanted, "remove [[host]]");
        }
    };
    if drive.times.is_some() {
        let wrong = "the plan has [[host]] and a replay";
        let wanted = "must send by another schedule: the file is on this host";
        return refuse(wrong, wanted, "arrivals = \"poisson\"");
    }
    if usize::from(drive.processes) < plan.reached.len() {
        let hint = format!("processes = {}", plan.reached.len());
        let wanted = "must have a process for each host";
        return refuse("the plan has [[host]] and fewer processes", wanted, &hint);
    }
    if drive.address.is_none() && drive.store.is_none() {
        let wrong = "the plan has [[host]] and its own echo server";
        let wanted = "must name a server that the hosts can reach";
        return refuse(wrong, wanted, "drive.address");
    }
    if plan.load.has_service() {
        let wanted = "must name a server that runs: a service listens on this host alone";
        return refuse(
            "the plan has [[host]] and a service",
            wanted,
            "url = \"redis://192.0.2.12\"",
        );
    }
    check_reach(top, plan)
}

/// Refuses agents that cannot reach one another, and those whose stamps of both ends are compared.
fn check_mesh(top: &Section<'_>, plan: &Plan, mesh: &Mesh) -> Result<(), PlanError> {
    let lost = plan.reached.iter().find(|it| it.address.is_none());
    let (wrong, wanted, hint) = if let Some(host) = lost {
        (
            format!("{} has no address", host.name),
            "must have one, at which the agents of other hosts reach it",
            "address = \"192.0.2.11\" in its [[host]]".to_owned(),
        )
    } else if usize::from(mesh.agents) < plan.reached.len() {
        (
            "the plan has [[host]] and fewer agents".to_owned(),
            "must have an agent for each host",
            format!("agents = {}", plan.reached.len()),
        )
    } else if plan.compete.is_some() {
        (
            "the plan has [[host]], [mesh] and [compete]".to_owned(),
            "must have no competing load on other hosts",
            "remove [compete]".to_owned(),
        )
    } else if mesh.runtime != Runtime::Native {
        (
            format!(
                "the plan has [[host]] and mesh.runtime = \"{}\"",
                mesh.runtime.name()
            ),
            "must have native agents: those of a JVM compare stamps of both ends",
            "remove mesh.runtime".to_owned(),
        )
    } else {
        return check_reach(top, plan);
    };
    Err(top.complain("host", wrong, wanted, &hint))
}

/// Refuses faults of a process on another host that are carried out on this one.
fn check_reach(top: &Section<'_>, plan: &Plan) -> Result<(), PlanError> {
    let own = plan.load.processes();
    let is_here = |kind| matches!(kind, FaultKind::Network(_) | FaultKind::Busy { .. });
    let faults = plan.faults.iter().filter(|it| is_here(it.kind));
    let mut named = faults.flat_map(|it| &it.processes);
    if let Some(process) = named.find(|it| own.contains(it)) {
        let wrong = format!("{process} is on another host");
        let wanted = "must have a fault of the kind stop, kill or quota there";
        return Err(top.complain("host", wrong, wanted, "kind = \"quota\""));
    }
    Ok(())
}
