//! The load of a plan: `[mesh]` or `[drive]`.

use crate::arrivals::Arrivals;
use crate::error::PlanError;
use crate::keys::key::Key;
use crate::keys::{drive, mesh as keys, store as keys_of_a_store};
use crate::limits::*;
use crate::model::{Drive, Mesh, Run, Transport, Workload};
use crate::parse_arrivals::{arrivals, check_bursts, ramp, times};
use crate::parse_scenario::check_think;
use crate::parse_store::store;
use crate::parse_system::own_echo;
use crate::section::{Limits, Section};
use crate::store::Store;
use crate::units::{Bytes, DurationNs};

pub(crate) fn mesh(section: &Section<'_>, run: &Run) -> Result<Mesh, PlanError> {
    keys::MESH.check(section)?;
    let agents = keys::AGENTS.whole(section)?;
    let period = keys::PERIOD.read(section)?;
    let transport = keys::TRANSPORT.read(section)?;
    let body = body(section, keys::BODY, transport)?;
    let mesh = Mesh {
        agents,
        groups: groups(section, agents)?,
        period,
        regroup: regroup(section, period)?,
        workloads: workloads(section)?,
        transport,
        runtime: keys::RUNTIME.read(section)?,
        timeout: keys::TIMEOUT.read(section)?,
        in_flight: keys::IN_FLIGHT.whole(section)?,
        body,
        disk_file: disk_file(section, body)?,
        port: port(section, agents)?,
    };
    if run.duration < period {
        // The line of the period: that of the duration belongs to another table.
        let wrong = format!(
            "period is \"{period}\", longer than the run's \"{}\"",
            run.duration
        );
        let wanted = "must be at most [run] duration, or no round is measured";
        return Err(section.complain(
            keys::PERIOD.name,
            wrong,
            wanted,
            format!("in [run], duration = \"{period}\""),
        ));
    }
    Ok(mesh)
}

pub(crate) fn drive(section: &Section<'_>, run: &Run, scale: f64) -> Result<Drive, PlanError> {
    section.check_keys(&crate::keys::drive_keys())?;
    let clients = drive::CLIENTS.whole(section)?;
    let store = store(section, clients)?;
    let transport = transport(section, store.as_ref())?;
    let system = drive::SYSTEM.read(section)?.map(str::to_owned);
    let arrivals = arrivals(section, store.is_some() || system.is_some())?;
    let is_closed = matches!(arrivals, Arrivals::Closed { .. });
    let scenario = store.as_ref().and_then(Store::scenario);
    check_think(section, scenario, is_closed)?;
    check_bursts(section, &arrivals, clients, store.as_ref())?;
    Ok(Drive {
        transport,
        address: address(section)?,
        clients,
        processes: processes(section, clients, store.as_ref())?,
        ramp: ramp(section, &arrivals, clients, (run, scale))?,
        times: times(section, &arrivals)?,
        arrivals,
        payload: body(section, drive::PAYLOAD, transport)?,
        timeout: drive::TIMEOUT.read(section)?,
        in_flight: drive::IN_FLIGHT.whole(section)?,
        scheduling: drive::SCHEDULING.read(section)?,
        requests: drive::REQUESTS.optional(section)?,
        system,
        store: store.map(Box::new),
    })
}

/// How requests travel. A name server is asked by datagrams, unless the plan says otherwise.
fn transport(section: &Section<'_>, store: Option<&Store>) -> Result<Transport, PlanError> {
    let default = match store {
        Some(store) if store.url.is_dns() => Transport::Udp,
        _ => own_echo(section)?.unwrap_or(Transport::Tcp),
    };
    drive::TRANSPORT.with(|it| it.or(default)).read(section)
}

/// Each has a client at least, and a key and a connection where there are any.
fn processes(section: &Section<'_>, clients: u32, store: Option<&Store>) -> Result<u16, PlanError> {
    let key = drive::PROCESSES;
    let processes: u16 = key.whole(section)?;
    let keyed = store.filter(|it| it.has_keys());
    let http = store.and_then(|it| it.http.as_ref());
    for (name, count) in [
        (drive::CLIENTS.name, clients.into()),
        (
            keys_of_a_store::KEYS.name,
            keyed.map_or(u64::MAX, |it| it.keys),
        ),
        (
            keys_of_a_store::CONNECTIONS.name,
            http.map_or(u64::MAX, |it| it.connections.into()),
        ),
    ] {
        if u64::from(processes) > count {
            let wanted = format!("must be at most as many as there are {name}, {count}");
            return Err(section.refuse(key.name, wanted, format!("{name} = {processes}")));
        }
    }
    Ok(processes)
}

fn body(
    section: &Section<'_>,
    key: Key<Limits<Bytes>>,
    transport: Transport,
) -> Result<Bytes, PlanError> {
    let body = key.read(section)?;
    if transport == Transport::Udp && body > MAX_UDP_BODY {
        let wanted = format!("must be at most {MAX_UDP_BODY} for udp");
        return Err(section.refuse(key.name, wanted, keys::TRANSPORT.hint_text("tcp")));
    }
    Ok(body)
}

fn groups(section: &Section<'_>, agents: u16) -> Result<Vec<u16>, PlanError> {
    let key = keys::GROUPS;
    let hint = key.hint(format!("[{agents}]"));
    let wanted = "must be an array of sizes";
    let sizes = section.whole_list(key.name, 1, agents, &hint)?;
    let sizes = sizes.ok_or_else(|| section.missing(key.name, wanted, hint.clone()))?;
    if sizes.len() > usize::from(agents) {
        let wrong = format!("{} holds {} sizes", key.name, sizes.len());
        let wanted = format!("must hold at most as many as there are agents, {agents}");
        return Err(section.complain(key.name, wrong, wanted, hint));
    }
    Ok(sizes)
}

fn regroup(section: &Section<'_>, period: DurationNs) -> Result<DurationNs, PlanError> {
    let key = keys::REGROUP.with(|limits| Limits {
        default: limits.default.max(Some(period)),
        ..limits
    });
    let regroup = key.read(section)?;
    if regroup < period {
        let wanted = format!("must be at least the period, {period}");
        return Err(section.refuse(key.name, wanted, key.hint_text(key.kind.example)));
    }
    Ok(regroup)
}

fn workloads(section: &Section<'_>) -> Result<Vec<Workload>, PlanError> {
    let key = keys::WORKLOADS;
    let Some(values) = key.read(section)? else {
        return Ok(Workload::ALL.to_vec());
    };
    let mut workloads = Vec::new();
    for value in values {
        let shown = value.to_string().trim().to_owned();
        let Some(workload) = value.as_str().and_then(workload) else {
            let wanted = "must hold null, crypto, disk, network, mixed (or A to E)";
            let wrong = format!("{} holds {shown}", key.name);
            return Err(section.complain(key.name, wrong, wanted, key.example()));
        };
        if workloads.contains(&workload) {
            let wrong = format!("{} holds {} twice", key.name, workload.name());
            return Err(section.complain(key.name, wrong, "must hold each once", "remove one"));
        }
        workloads.push(workload);
    }
    Ok(workloads)
}

fn workload(word: &str) -> Option<Workload> {
    let letters = ["A", "B", "C", "D", "E"];
    let mut named = Workload::ALL.into_iter().zip(letters);
    named
        .find(|(workload, letter)| workload.name() == word || *letter == word)
        .map(|(w, _)| w)
}

fn disk_file(section: &Section<'_>, body: Bytes) -> Result<Bytes, PlanError> {
    let key = keys::DISK_FILE;
    let file = key.read(section)?;
    let least = Bytes(body.0 + DISK_RECORD_EXTRA.0);
    if file < least {
        let wanted = format!("must hold one record: body and 44 bytes, {least}");
        return Err(section.refuse(key.name, wanted, key.hint_text(key.kind.example)));
    }
    Ok(file)
}

fn port(section: &Section<'_>, agents: u16) -> Result<Option<u16>, PlanError> {
    let key = keys::PORT;
    let port: Option<u16> = key.optional(section)?;
    if port.is_some_and(|port| port.checked_add(agents - 1).is_none()) {
        let wanted = format!("must leave a port up to 65535 for each of {agents} agents");
        return Err(section.refuse(key.name, wanted, key.hint(key.kind.example)));
    }
    Ok(port)
}

fn address(section: &Section<'_>) -> Result<Option<String>, PlanError> {
    let key = drive::ADDRESS;
    let Some(text) = key.read(section)? else {
        return Ok(None);
    };
    let good = text.rsplit_once(':').is_some_and(|(host, port)| {
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let named = bare.is_some_and(|inner| !inner.is_empty()) || !host.contains(':');
        let clean =
            !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control());
        named && clean && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if good {
        Ok(Some(text.to_owned()))
    } else {
        Err(section.refuse(key.name, "must be host:port", key.example()))
    }
}
