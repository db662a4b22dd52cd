//! The load of a plan: `[mesh]` or `[drive]`.

use crate::error::PlanError;
use crate::jvm::Runtime;
use crate::keys;
use crate::limits::*;
use crate::model::{Drive, Mesh, Run, Transport, Workload};
use crate::parse_arrivals::{arrivals, times};
use crate::parse_store::store;
use crate::section::{Limits, Section};
use crate::store::Store;
use crate::units::{Bytes, DurationNs};

const SECOND: DurationNs = DurationNs(1_000_000_000);
const DAY: DurationNs = DurationNs(86_400 * SECOND.0);

pub(crate) fn mesh(section: &Section<'_>, run: &Run) -> Result<Mesh, PlanError> {
    section.check_keys(keys::MESH)?;
    let agents = section.whole(
        "agents",
        &Limits {
            default: None,
            least: Some(1),
            most: MAX_AGENTS.into(),
            example: 7,
        },
    )?;
    let period = Limits {
        default: Some(SECOND),
        least: Some(MIN_MESH_PERIOD),
        most: MAX_MESH_PERIOD,
        example: SECOND,
    };
    let period = section.number("period", &period)?;
    let transport = transport(section)?;
    let body = body(section, "body", Bytes(50_000), transport)?;
    let mesh = Mesh {
        agents,
        groups: groups(section, agents)?,
        period,
        regroup: regroup(section, period)?,
        workloads: workloads(section)?,
        transport,
        runtime: section.choice(
            "runtime",
            &Runtime::ALL.map(|it| (it.name(), it)),
            Some(Runtime::Native),
        )?,
        timeout: timeout(section, SECOND)?,
        in_flight: in_flight(section, 4_096, MAX_MESH_IN_FLIGHT)?,
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
            "period",
            wrong,
            wanted,
            format!("in [run], duration = \"{period}\""),
        ));
    }
    Ok(mesh)
}

pub(crate) fn drive(section: &Section<'_>) -> Result<Drive, PlanError> {
    section.check_keys(&keys::drive())?;
    let transport = transport(section)?;
    let clients = Limits {
        default: Some(1),
        least: Some(1),
        most: MAX_CLIENTS.into(),
        example: 1,
    };
    let clients = section.whole("clients", &clients)?;
    let store = store(section, clients)?;
    let arrivals = arrivals(section, store.is_some())?;
    Ok(Drive {
        transport,
        address: address(section)?,
        clients,
        processes: processes(section, clients, store.as_ref())?,
        times: times(section, &arrivals)?,
        arrivals,
        payload: body(section, "payload", Bytes(64), transport)?,
        timeout: timeout(section, DurationNs(10 * SECOND.0))?,
        in_flight: in_flight(section, 1_000_000, MAX_DRIVE_IN_FLIGHT)?,
        requests: requests(section)?,
        store: store.map(Box::new),
    })
}

/// Each has a client at least, and a key and a connection where there are any.
fn processes(section: &Section<'_>, clients: u32, store: Option<&Store>) -> Result<u16, PlanError> {
    let limits = Limits {
        default: Some(1),
        least: Some(1),
        most: MAX_DRIVE_PROCESSES.into(),
        example: 2,
    };
    let processes: u16 = section.whole("processes", &limits)?;
    let keyed = store.filter(|it| it.has_keys());
    let http = store.and_then(|it| it.http.as_ref());
    for (name, count) in [
        ("clients", clients.into()),
        ("keys", keyed.map_or(u64::MAX, |it| it.keys)),
        (
            "connections",
            http.map_or(u64::MAX, |it| it.connections.into()),
        ),
    ] {
        if u64::from(processes) > count {
            let wanted = format!("must be at most as many as there are {name}, {count}");
            return Err(section.refuse("processes", wanted, format!("{name} = {processes}")));
        }
    }
    Ok(processes)
}

fn requests(section: &Section<'_>) -> Result<Option<u64>, PlanError> {
    let limits = Limits {
        default: None,
        least: Some(1),
        most: MAX_REQUESTS,
        example: 10_000,
    };
    section.optional("requests", &limits)
}

fn transport(section: &Section<'_>) -> Result<Transport, PlanError> {
    let words = [("tcp", Transport::Tcp), ("udp", Transport::Udp)];
    section.choice("transport", &words, Some(Transport::Tcp))
}

fn timeout(section: &Section<'_>, default: DurationNs) -> Result<DurationNs, PlanError> {
    let limits = Limits {
        default: Some(default),
        least: None,
        most: MAX_TIMEOUT,
        example: default,
    };
    section.number("timeout", &limits)
}

fn in_flight(section: &Section<'_>, default: u32, most: u32) -> Result<u32, PlanError> {
    let limits = Limits {
        default: Some(default.into()),
        least: Some(1),
        most: most.into(),
        example: default.into(),
    };
    section.whole("in_flight", &limits)
}

fn body(
    section: &Section<'_>,
    key: &str,
    default: Bytes,
    transport: Transport,
) -> Result<Bytes, PlanError> {
    let limits = Limits {
        default: Some(default),
        least: Some(Bytes(0)),
        most: MAX_TCP_BODY,
        example: default,
    };
    let body = section.number(key, &limits)?;
    if transport == Transport::Udp && body > MAX_UDP_BODY {
        let wanted = format!("must be at most {MAX_UDP_BODY} for udp");
        return Err(section.refuse(key, wanted, "transport = \"tcp\""));
    }
    Ok(body)
}

fn groups(section: &Section<'_>, agents: u16) -> Result<Vec<u16>, PlanError> {
    let hint = format!("groups = [{agents}]");
    let wanted = "must be an array of sizes";
    let sizes = section.whole_list("groups", 1, agents, &hint)?;
    let sizes = sizes.ok_or_else(|| section.missing("groups", wanted, hint.clone()))?;
    if sizes.len() > usize::from(agents) {
        let wrong = format!("groups holds {} sizes", sizes.len());
        let wanted = format!("must hold at most as many as there are agents, {agents}");
        return Err(section.complain("groups", wrong, wanted, hint));
    }
    Ok(sizes)
}

fn regroup(section: &Section<'_>, period: DurationNs) -> Result<DurationNs, PlanError> {
    let limits = Limits {
        default: Some(DAY.max(period)),
        least: None,
        most: MAX_DURATION,
        example: DAY,
    };
    let regroup = section.number("regroup", &limits)?;
    if regroup < period {
        let wanted = format!("must be at least the period, {period}");
        return Err(section.refuse("regroup", wanted, "regroup = \"1d\""));
    }
    Ok(regroup)
}

fn workloads(section: &Section<'_>) -> Result<Vec<Workload>, PlanError> {
    const HINT: &str = "workloads = [\"null\", \"crypto\"]";
    let Some(values) = section.list("workloads", HINT)? else {
        return Ok(Workload::ALL.to_vec());
    };
    let mut workloads = Vec::new();
    for value in values {
        let shown = value.to_string().trim().to_owned();
        let Some(workload) = value.as_str().and_then(workload) else {
            let wanted = "must hold null, crypto, disk, network, mixed (or A to E)";
            return Err(section.complain(
                "workloads",
                format!("workloads holds {shown}"),
                wanted,
                HINT,
            ));
        };
        if workloads.contains(&workload) {
            let wrong = format!("workloads holds {} twice", workload.name());
            return Err(section.complain("workloads", wrong, "must hold each once", "remove one"));
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
    let default = Bytes(64 << 20);
    let limits = Limits {
        default: Some(default),
        least: None,
        most: MAX_DISK_FILE,
        example: default,
    };
    let file = section.number("disk_file", &limits)?;
    let least = Bytes(body.0 + DISK_RECORD_EXTRA.0);
    if file < least {
        let wanted = format!("must hold one record: body and 44 bytes, {least}");
        return Err(section.refuse("disk_file", wanted, format!("disk_file = \"{default}\"")));
    }
    Ok(file)
}

fn port(section: &Section<'_>, agents: u16) -> Result<Option<u16>, PlanError> {
    let most = u64::from(u16::MAX);
    let limits = Limits {
        default: None,
        least: Some(1),
        most,
        example: 7_000,
    };
    let port: Option<u16> = section.optional("port", &limits)?;
    if port.is_some_and(|port| port.checked_add(agents - 1).is_none()) {
        let wanted = format!("must leave a port up to 65535 for each of {agents} agents");
        return Err(section.refuse("port", wanted, "port = 7000"));
    }
    Ok(port)
}

fn address(section: &Section<'_>) -> Result<Option<String>, PlanError> {
    const HINT: &str = "address = \"127.0.0.1:7000\"";
    let Some(text) = section.text("address", HINT)? else {
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
        Err(section.refuse("address", "must be host:port", HINT))
    }
}
