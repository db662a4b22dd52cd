//! States in one sentence what a run measures. The manifest stores it, so a reader of the report
//! knows the subject of the measurement.

use unruly_plan::{
    Arrivals, Bytes, Drive, Http, Load, Mesh, Plan, Scenario, Script, Store, Stream,
};

/// The scheme of our own echo server, which is no store.
pub const ECHO: &str = "echo";

/// Returns the sentence that says what a plan measures, in `count` cells.
#[must_use]
pub fn target(plan: &Plan, count: usize) -> String {
    let load = match &plan.load {
        Load::Drive(drive) => of_drive(drive, systems(plan), &parameters(plan)),
        Load::Mesh(mesh) => of_mesh(mesh),
        Load::Stream(stream) => of_stream(stream),
    };
    let run = &plan.run;
    let times = match run.repeat {
        1 => String::new(),
        repeat => format!(", {repeat} times"),
    };
    let hosts: Vec<&str> = plan.reached.iter().map(|it| it.name.as_str()).collect();
    let from = if hosts.is_empty() {
        String::new()
    } else {
        format!(", from {}", hosts.join(", "))
    };
    format!(
        "{load}{from}; {} after {} of warm-up{times}{}",
        run.duration,
        run.warmup,
        cells(plan, count)
    )
}

/// What the plan chooses for its service.
fn parameters(plan: &Plan) -> String {
    let chosen = plan.service.iter();
    let chosen = chosen.map(|(name, setting)| format!("{name} {}", setting.value));
    match chosen.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => none,
        chosen => format!(" with {chosen}"),
    }
}

/// What the matrix of a plan varies.
fn cells(plan: &Plan, count: usize) -> String {
    if plan.matrix.is_empty() {
        return String::new();
    }
    let names = plan.matrix.iter().map(|factor| {
        let name = factor.path.rsplit('.').next();
        name.unwrap_or(&factor.path)
    });
    let names = names.collect::<Vec<_>>().join(" x ");
    format!("; {count} cells vary {names}")
}

/// How many middleware systems the matrix of a plan varies, if it does.
fn systems(plan: &Plan) -> Option<usize> {
    let factor = plan.matrix.iter().find(|it| it.path == "drive.system");
    factor.map(|it| it.values.len())
}

fn of_drive(drive: &Drive, systems: Option<usize>, parameters: &str) -> String {
    let clients = match (drive.clients, drive.processes) {
        (1, _) => "1 client".to_owned(),
        (clients, 1) => format!("{clients} clients"),
        (clients, processes) => format!("{clients} clients in {processes} processes"),
    };
    let place = match (&drive.store, &drive.address) {
        _ if let Some(count) = systems => format!("the echo of {count} middleware systems"),
        (Some(store), _) => store.url.to_string(),
        (None, Some(address)) => format!("{ECHO}://{address}"),
        (None, None) => "an echo server of our own".to_owned(),
    };
    let pace = match &drive.arrivals {
        Arrivals::Constant { rate } => format!("{rate}, evenly"),
        Arrivals::Poisson { rate } => format!("{rate}, Poisson"),
        Arrivals::Mmpp {
            rate, dispersion, ..
        } => format!("{rate}, in bursts (I = {dispersion})"),
        Arrivals::OnOff { rate, on, off, .. } => format!("{rate}, on for {on} and off for {off}"),
        Arrivals::Replay => "replayed arrivals".to_owned(),
        Arrivals::Closed { think, .. } if think.0 == 0 => "as fast as replies come".to_owned(),
        Arrivals::Closed { think, bursts } => {
            let bursts = bursts.map(|it| format!(", in bursts (I = {})", it.dispersion));
            format!(
                "thinking {think} after each reply{}",
                bursts.unwrap_or_default()
            )
        }
    };
    let stages = drive.ramp.as_ref();
    let stages = stages.map_or_else(String::new, |ramp| format!(", in stages ({ramp})"));
    let work = drive.store.as_deref().filter(|_| systems.is_none());
    let work = work.map_or_else(String::new, of_store);
    format!("{place}{parameters}: {clients}, {pace}{stages}{work}")
}

fn of_store(store: &Store) -> String {
    let level = store
        .level
        .map_or_else(String::new, |level| format!(" at {}", level.name()));
    let first = if store.preload { ", written first" } else { "" };
    let keys = match store.has_keys() {
        true => format!(", {} keys{first}", store.keys),
        false => String::new(),
    };
    let values = match store.has_keys() || store.operations.writes() {
        true => format!(", values of {}", store.value),
        false => String::new(),
    };
    let work = match store.request_name() {
        Some(name) if store.method().is_some() && store.url.may_have_cookies() => {
            name.to_uppercase()
        }
        Some(name) => name,
        None => match (store.scenario(), &store.sql) {
            (Some(scenario), _) => of_scenario(scenario),
            (None, Some(sql)) => of_script(&sql.script),
            (None, None) => store.operations.to_string(),
        },
    };
    let http = store.http.as_ref().map_or_else(String::new, of_http);
    let trust = match store.tls.insecure {
        true => ", the certificate is not checked",
        false => "",
    };
    format!("; {work}{level}{keys}{values}{http}{trust}")
}

/// The operations of a database, with their shares.
fn of_script(script: &Script) -> String {
    let operations = script.operations();
    if let [only] = operations {
        return only.name.clone();
    }
    let shares = operations
        .iter()
        .map(|it| format!("{} {:.4}%", it.name, it.percent));
    shares
        .map(|it| it.replace(".0000", ""))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The states of users.
fn of_scenario(scenario: &Scenario) -> String {
    let names = scenario.states().iter().map(|it| it.name.as_str());
    format!("users go through {}", names.collect::<Vec<_>>().join(", "))
}

/// The choices of an HTTP client that a reader of the report must know.
fn of_http(http: &Http) -> String {
    let mut said = String::new();
    if let Some(body) = &http.body {
        said += &format!(", a body of {}", Bytes(body.len() as u64));
    }
    if let Some(file) = &http.data {
        said += &format!(", values from {file}");
    }
    if !http.keep_alive {
        said += ", a connection for each request";
    }
    if http.cookies {
        said += ", each client with its cookies";
    }
    if http.http2 {
        said += ", HTTP/2";
    }
    said
}

fn of_mesh(mesh: &Mesh) -> String {
    let sizes: Vec<String> = mesh.groups.iter().map(ToString::to_string).collect();
    let workloads: Vec<&str> = mesh.workloads.iter().map(|it| it.name()).collect();
    format!(
        "{} agents in groups of {}: each calls its group every {} over {}; {}",
        mesh.agents,
        sizes.join(" and "),
        mesh.period,
        mesh.transport.name(),
        workloads.join(" then ")
    )
}

fn of_stream(stream: &Stream) -> String {
    let readers = match stream.readers {
        1 => "1 reader".to_owned(),
        readers => format!("{readers} readers"),
    };
    let protocol = stream.protocol.name();
    format!(
        "a stream to {readers} over {protocol}: messages of {}",
        stream.message
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        let text = format!("name = \"t\"\n[run]\nduration = \"60s\"\nwarmup = \"2s\"\n{text}");
        let plan = Plan::parse("plan", &text).unwrap();
        target(&plan, plan.cells().unwrap().len())
    }

    #[test]
    fn every_load_has_a_sentence() {
        assert_eq!(
            of("[drive]\nurl = \"redis://h:1\"\nrate = \"2k/s\"\nclients = 16\nkeys = 5"),
            "redis://h:1: 16 clients, 2k/s, evenly; write then read, 5 keys, values of 1KB; 60s after 2s of warm-up"
        );
        assert_eq!(
            of("[drive]\naddress = \"h:1\"\narrivals = \"closed\""),
            "echo://h:1: 1 client, as fast as replies come; 60s after 2s of warm-up"
        );
        assert_eq!(
            of(
                "[mesh]\nagents = 7\ngroups = [3, 4]\nperiod = \"50ms\"\nregroup = \"5s\"\nworkloads = [\"null\", \"disk\"]"
            ),
            "7 agents in groups of 3 and 4: each calls its group every 50ms over tcp; null then disk; 60s after 2s of warm-up"
        );
        assert_eq!(
            of("[drive]\nstore = \"etcd\"\nkeys = 5\n[service]\nnodes = 5"),
            "service:etcd with nodes 5: 1 client, as fast as replies come; write then read, 5 keys, values of 1KB; 60s after 2s of warm-up"
        );
        assert_eq!(
            of("[stream]\nprotocol = \"tcp\""),
            "a stream to 1 reader over tcp: messages of 2KB; 60s after 2s of warm-up"
        );
    }

    #[test]
    fn a_matrix_names_what_it_varies() {
        let drive = "repeat = 5\n[drive]\nrate = \"1k/s\"\n[matrix]\n\"drive.transport\" = [\"tcp\", \"udp\"]\n\"drive.payload\" = [\"1B\", \"2B\"]";
        assert_eq!(
            of(drive),
            "an echo server of our own: 1 client, 1k/s, evenly; 60s after 2s of warm-up, 5 times; 4 cells vary transport x payload"
        );
    }
}
