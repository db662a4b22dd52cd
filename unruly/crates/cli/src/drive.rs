//! `unruly drive URL` measures a running server without a plan file.
//!
//! Every key of `[drive]` is a flag. Together the flags form an ordinary plan, which the run keeps.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueHint};
use unruly_load::{DriverError, schemes};
use unruly_plan::{
    MAX_TAPPED_SERVICES, Plan, Ramp, Secret, Tap, Url, UrlError, did_you_mean, shown,
};
use unruly_program::password_of;
use unruly_runner::{ECHO, RunOptions, services};
use unruly_tap::Server;

use crate::concealed::command;
use crate::drive_http::HttpArguments;
use crate::drive_texts::TextArguments;
use crate::hosts::{HostArguments, placed};
use crate::live::LiveArguments;
use crate::slos::slos;

/// What messages call the plan that the flags are.
const PLACE: &str = "drive";

const USUAL_DURATION: &str = "30s";

/// Headings of the help.
const ARRIVALS: &str = "Arrivals";
const STORE: &str = "Store";
const RUN: &str = "Run";

/// The flags: those whose name is a key of `[drive]` set that key.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct DriveArguments {
    /// Target: https://HOST/PATH, openai://HOST/v1, redis://HOST:PORT or another one of `unruly
    /// targets`; service:NAME or system:NAME starts a shipped service or middleware system
    url: String,
    /// Clients, each with a connection of its own
    #[arg(short, long, value_name = "COUNT")]
    clients: Option<String>,
    /// Requests a second of all clients together (default: each client sends when its reply comes)
    #[arg(short, long)]
    rate: Option<String>,
    /// Measured time (default: 30s, or that of all stages of --ramp)
    #[arg(short, long, value_name = "TIME")]
    duration: Option<String>,
    /// Warm-up before the measured time
    #[arg(short, long, value_name = "TIME", default_value = "2s")]
    warmup: String,
    /// End early after this many measured requests
    #[arg(short = 'n', long, value_name = "COUNT")]
    requests: Option<String>,
    /// End early when a percentile is known this well, such as "p99 within 10%"
    #[arg(long, value_name = "RULE")]
    until: Option<String>,
    /// Processes that share the clients (default: 1, or one on each host of --from)
    #[arg(long, value_name = "COUNT")]
    processes: Option<String>,
    #[command(flatten)]
    from: HostArguments,
    /// Time to wait for a reply
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Requests that may wait for a reply at once; the next one is dropped
    #[arg(long, value_name = "COUNT")]
    in_flight: Option<String>,
    /// Watch services from outside too: --tap=NAME=tcp://HOST:PORT, again for each (--tap alone: the
    /// target, or the service that the run starts)
    #[arg(long, value_name = "SERVICE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    tap: Vec<String>,
    /// Class of the kernel's scheduler: normal or realtime (before every other process)
    #[arg(long, value_name = "CLASS")]
    scheduling: Option<String>,
    /// tcp or udp
    #[arg(long)]
    transport: Option<String>,
    /// Body length of a request to an echo server, or of a call
    #[arg(long, value_name = "SIZE")]
    payload: Option<String>,
    /// constant, poisson, mmpp, onoff, replay or closed
    #[arg(long, value_name = "PROCESS", help_heading = ARRIVALS)]
    arrivals: Option<String>,
    /// Stages "TIME:LEVEL, ..", such as "30s:500, 2min:500": the rate changes evenly to each level,
    /// or the number of clients if there is no --rate
    #[arg(long, value_name = "STAGES", help_heading = ARRIVALS)]
    ramp: Option<String>,
    /// Index of dispersion of mmpp, or of a closed loop that thinks: 1 is poisson, 1000 a storm
    #[arg(long, value_name = "INDEX", help_heading = ARRIVALS)]
    dispersion: Option<String>,
    /// Share of time in bursts (mmpp and closed)
    #[arg(long, value_name = "SHARE", help_heading = ARRIVALS)]
    burst_share: Option<String>,
    /// Rate during a burst, as a multiple of the mean rate (mmpp and closed)
    #[arg(long, value_name = "FACTOR", help_heading = ARRIVALS)]
    burst_factor: Option<String>,
    /// Mean length of a burst (onoff only)
    #[arg(long, value_name = "TIME", help_heading = ARRIVALS)]
    on: Option<String>,
    /// Mean time between bursts (onoff only)
    #[arg(long, value_name = "TIME", help_heading = ARRIVALS)]
    off: Option<String>,
    /// Pareto shape of on and off times (onoff only)
    #[arg(long, value_name = "NUMBER", help_heading = ARRIVALS)]
    shape: Option<String>,
    /// File with a send time in seconds on each line (replay only)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = ARRIVALS)]
    times: Option<String>,
    /// Mean time between a reply and the next request (closed only)
    #[arg(long, value_name = "TIME", help_heading = ARRIVALS)]
    think: Option<String>,
    /// Requests that a client keeps open at once (closed only)
    #[arg(long, value_name = "COUNT", help_heading = ARRIVALS)]
    pipeline: Option<String>,
    /// Operations: "write then read", or shares such as "read 90%, write 10%"
    #[arg(long, value_name = "MIX", help_heading = STORE)]
    operations: Option<String>,
    /// Number of keys
    #[arg(long, value_name = "COUNT", help_heading = STORE)]
    keys: Option<String>,
    /// Order of the keys: turn, uniform, zipf or latest
    #[arg(long, help_heading = STORE)]
    order: Option<String>,
    /// Exponent of the orders zipf and latest
    #[arg(long, value_name = "EXPONENT", help_heading = STORE)]
    skew: Option<String>,
    /// Length of a value, such as 1000B or "100B to 10KB"
    #[arg(long, value_name = "SIZE", help_heading = STORE)]
    value: Option<String>,
    /// Replicas that must confirm an operation: first, quorum or all
    #[arg(long, help_heading = STORE)]
    level: Option<String>,
    /// Times that a failed request is sent again
    #[arg(long, value_name = "COUNT", help_heading = STORE)]
    retries: Option<String>,
    /// Write every key once before the run: true or false (default: true if reads may come first)
    #[arg(long, value_name = "BOOL", help_heading = STORE)]
    preload: Option<String>,
    #[command(flatten)]
    http: HttpArguments,
    #[command(flatten)]
    texts: TextArguments,
    /// Leave the written keys in the store (default: remove them at the end)
    #[arg(long, help_heading = STORE)]
    keep: bool,
    /// Write to a store that holds other data
    #[arg(short, long, help_heading = STORE)]
    yes: bool,
    /// File that holds the password or token of the store (default: UNRULY_PASSWORD has it)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = STORE)]
    password_file: Option<PathBuf>,
    /// Target that decides the exit code, such as "p99 < 20ms", "read p99.9 < 50ms" or
    /// "failed < 0.1%"; may be repeated
    #[arg(long, value_name = "TARGET", help_heading = RUN)]
    slo: Vec<String>,
    /// Limits that a good request meets, such as "ttft < 500ms, tpot < 50ms, e2e < 5s"
    #[arg(long, value_name = "LIMITS", help_heading = RUN)]
    goodput: Option<String>,
    /// Random seed
    #[arg(long, value_name = "NUMBER", help_heading = RUN)]
    seed: Option<String>,
    /// Name of the measured environment
    #[arg(long, help_heading = RUN)]
    tag: Option<String>,
    /// Run directory to make (default: runs/NAME-UTC)
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = RUN)]
    output: Option<PathBuf>,
    /// Print only the run directory: no progress, no verdict
    #[arg(short, long, help_heading = RUN)]
    quiet: bool,
    #[command(flatten)]
    live: LiveArguments,
}

impl DriveArguments {
    /// What is driven, and what lets us in.
    fn place(&self) -> Result<(Url, Option<Secret>)> {
        let (url, typed) = Url::with_password(&self.url).map_err(|error| {
            let hint = match error {
                UrlError::Form => format!("; hint: {}", nearest("")),
                _ => String::new(),
            };
            anyhow::anyhow!("{} {error}{hint}", shown(&self.url))
        })?;
        let password = match &self.password_file {
            Some(_) if typed.is_some() => anyhow::bail!(
                "--password-file: the URL holds a password as well; hint: give one of them"
            ),
            Some(path) => Some(password_of(path)?),
            None => typed,
        };
        Ok((url, password))
    }

    /// The measured time and the number of clients: where they are left out, what the stages need.
    fn sizes(&self, arrivals: Option<&str>) -> (String, Option<String>) {
        // The plan refuses stages that are none.
        let ramp: Option<Ramp> = self.ramp.as_ref().and_then(|it| it.parse().ok());
        let stages = ramp.as_ref().map(|it| it.lasts().to_string());
        let duration = self.duration.clone().or(stages);
        let closed = self.rate.is_none() && arrivals.is_none_or(|it| it == "closed");
        let most = ramp.filter(|_| closed).map(|it| it.most().ceil());
        let clients = self.clients.clone();
        (
            duration.unwrap_or_else(|| USUAL_DURATION.to_owned()),
            clients.or_else(|| most.map(|it| it.max(1.0).to_string())),
        )
    }

    /// The plan that the flags amount to, and how to run it.
    pub(crate) fn plan(self) -> Result<(Plan, RunOptions)> {
        let (url, password) = self.place()?;
        check_scheme(&url)?;
        let closed = url.scheme == ECHO && self.rate.is_none();
        let usual = closed.then(|| "closed".to_owned());
        let arrivals = self.arrivals.clone().or(usual);
        let (duration, clients) = self.sizes(arrivals.as_deref());
        let hosts = self.from.hosts()?;
        let one_each = (!hosts.is_empty()).then(|| hosts.len().to_string());
        let clients = clients.or_else(|| one_each.clone());
        let (http, password) = self.http.values(password)?;
        let texts = self.texts.values()?;
        let (name, place) = (name(&url), key_of(&url));
        let values = [
            ("name", Some(name)),
            ("seed", self.seed),
            ("tag", self.tag),
            ("run.duration", Some(duration)),
            ("run.warmup", Some(self.warmup)),
            ("run.until", self.until),
            ("run.goodput", self.goodput),
            (place.0, Some(place.1)),
            ("drive.clients", clients),
            ("drive.processes", self.processes.or(one_each)),
            ("drive.arrivals", arrivals),
            ("drive.rate", self.rate),
            ("drive.ramp", self.ramp),
            ("drive.dispersion", self.dispersion),
            ("drive.burst_share", self.burst_share),
            ("drive.burst_factor", self.burst_factor),
            ("drive.on", self.on),
            ("drive.off", self.off),
            ("drive.shape", self.shape),
            ("drive.times", self.times),
            ("drive.think", self.think),
            ("drive.requests", self.requests),
            ("drive.pipeline", self.pipeline),
            ("drive.operations", self.operations),
            ("drive.keys", self.keys),
            ("drive.order", self.order),
            ("drive.skew", self.skew),
            ("drive.value", self.value),
            ("drive.level", self.level),
            ("drive.timeout", self.timeout),
            ("drive.retries", self.retries),
            ("drive.preload", self.preload),
            ("drive.keep", self.keep.then(|| "true".to_owned())),
            ("drive.in_flight", self.in_flight),
            ("drive.scheduling", self.scheduling),
            ("drive.transport", self.transport),
            ("drive.payload", self.payload),
        ];
        let given = values.iter().chain(&http).chain(&texts);
        let given = given.filter_map(|(path, value)| Some((*path, value.as_deref()?)));
        let mut plan = Plan::of_values(PLACE, given.clone()).map_err(|error| {
            let typed = given.clone().find(|(path, _)| *path == error.key);
            anyhow::anyhow!(error.on_command_line(typed.map(|it| it.1), flag))
        })?;
        plan.run.slo = slos(&self.slo)?;
        plan.tap = tap(self.tap)?;
        let plan = placed(plan, &self.from)?;
        let options = RunOptions {
            output: self.output,
            quiet: self.quiet,
            live: self.live.options(),
            password,
            yes: self.yes,
            command: command(std::env::args_os()),
            ..RunOptions::default()
        };
        Ok((plan, options))
    }
}

/// Returns the tap of the flags; none without any.
fn tap(services: Vec<String>) -> Result<Option<Tap>> {
    if services.is_empty() {
        return Ok(None);
    }
    let bare = services.iter().filter(|it| it.is_empty()).count();
    anyhow::ensure!(
        bare == 0 || bare == services.len(),
        "--tap: it stands alone, and names services; hint: name the target too, as in --tap=web=tcp://127.0.0.1:80"
    );
    let mut named = Vec::new();
    for service in services.into_iter().filter(|it| !it.is_empty()) {
        let server = Server::parse(&service).map_err(|error| {
            let told = error.to_string();
            let told = told.strip_prefix(&format!("{service}:")).unwrap_or(&told);
            anyhow::anyhow!("--tap: {service:?}{told}")
        })?;
        // The plan is kept with the run, and has the whole form.
        named.push(match service.split_once('=') {
            _ if service.contains("://") => service,
            Some((name, place)) => format!("{name}=tcp://{place}"),
            None => format!("tcp://{}", server.name),
        });
    }
    anyhow::ensure!(
        named.len() <= MAX_TAPPED_SERVICES,
        "--tap: {} services; hint: at most {MAX_TAPPED_SERVICES}",
        named.len()
    );
    let services = named;
    Ok(Some(Tap {
        on: true,
        services,
        interface: None,
    }))
}

/// Returns the flag that gives a value to a key of the plan.
pub(crate) fn flag(path: &str, value: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or(path).replace('_', "-");
    if value.contains(' ') {
        return format!("--{name} {value:?}");
    }
    format!("--{name} {value}")
}

/// Returns a complaint of a driver in the words that were typed: the flag of the plan's key.
pub(crate) fn in_flags(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<DriverError>() {
        Ok(DriverError {
            key,
            wrong,
            wanted,
            hint,
            ..
        }) if key != "url" => {
            let own = format!("--{}", key.replace('_', "-"));
            let words = hint.split(' ');
            let hint = words.map(|it| if it == key { own.as_str() } else { it });
            let hint = hint.collect::<Vec<_>>().join(" ");
            let flag = flag(key, "");
            anyhow::anyhow!("{}: {wrong}; {wanted}; hint: {hint}", flag.trim_end())
        }
        Ok(of_url) => of_url.into(),
        Err(other) => other,
    }
}

/// Returns the key of the plan that holds a target, and its value there.
fn key_of(url: &Url) -> (&'static str, String) {
    let shown = url.to_string();
    match (shown.strip_prefix("echo://"), url.system()) {
        (Some(address), _) => ("drive.address", address.to_owned()),
        (None, Some(system)) => ("drive.system", system.to_owned()),
        (None, None) => ("drive.url", shown),
    }
}

/// Refuses a target that nothing here can drive, before anything is started.
fn check_scheme(url: &Url) -> Result<()> {
    if let Some(name) = url.system() {
        return match services::OWN_SYSTEMS.contains(&name) {
            true => Ok(()),
            false => services::system(name).map(drop),
        };
    }
    if let Some(name) = url.service() {
        return services::service(name).map(|_| ());
    }
    let known = url.scheme == ECHO || schemes().iter().any(|it| it.name == url.scheme);
    anyhow::ensure!(
        known,
        "{url}: there is no driver for {:?}; hint: {}",
        url.scheme,
        nearest(&url.scheme)
    );
    Ok(())
}

/// Returns the hint for a scheme that is not known: the nearest one, or all there are.
fn nearest(unknown: &str) -> String {
    let known: Vec<&str> = schemes().iter().map(|it| it.name).collect();
    let known = [&known[..], &[ECHO, "service", "system"]].concat();
    let all = format!("use one of {}:", known.join(":, "));
    did_you_mean(unknown, known, &all)
}

/// What its plan is called, and so its run.
fn name(url: &Url) -> String {
    let service = url.service().and_then(|path| Path::new(path).file_stem());
    let word = service.map_or_else(
        || url.scheme.clone(),
        |it| it.to_string_lossy().into_owned(),
    );
    let fits = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!(
        "drive-{}",
        word.chars().take(40).map(fits).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _, Parser};
    use unruly_plan::{Arrivals, Load, known_keys};

    use super::*;
    use unruly_runner::target;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        drive: DriveArguments,
    }

    fn plan(words: &[&str]) -> Result<(Plan, RunOptions)> {
        let line = [&["drive"], words].concat();
        let matches = Line::command().try_get_matches_from(line).expect("flags");
        Line::from_arg_matches(&matches)
            .expect("flags")
            .drive
            .plan()
    }

    #[test]
    fn every_key_of_drive_is_a_flag() {
        let command = Line::command();
        let flags: Vec<&str> = command
            .get_arguments()
            .map(|it| it.get_id().as_str())
            .collect();
        for key in known_keys() {
            // The URL already gives the address, the store and the system.
            let of_drive = key.strip_prefix("drive.");
            if let Some(key) = of_drive.filter(|key| !["address", "store", "system"].contains(key))
            {
                assert!(flags.contains(&key), "{key}");
            }
        }
    }

    #[test]
    fn flags_are_the_plan_that_a_file_would_be() {
        let words = [
            "redis://me:secret@h:1",
            "-c",
            "16",
            "-r",
            "10000",
            "-d",
            "60s",
            "--keys",
            "5",
        ];
        let (found, options) = plan(&words).unwrap();
        let text = "name = \"drive-redis\"\n[run]\nduration = \"60s\"\nwarmup = \"2s\"\n[drive]\nurl = \"redis://me@h:1\"\nclients = 16\nrate = \"10000/s\"\nkeys = 5";
        assert_eq!(found, Plan::parse("file", text).unwrap());
        assert_eq!(
            options.password.as_ref().map(Secret::reveal),
            Some("secret")
        );
        assert!(!found.to_toml().contains("secret"));
        assert_eq!(
            target(&found, 1),
            "redis://me@h:1: 16 clients, 10k/s, evenly; write then read, 5 keys, values of 1KB; 60s after 2s of warm-up"
        );
    }

    #[test]
    fn an_http_server_is_only_read_unless_writing_is_asked_for() {
        let (found, _) = plan(&["http://h/one", "-c", "2", "--expect", "404"]).unwrap();
        assert_eq!(
            target(&found, 1),
            "http://h/one: 2 clients, as fast as replies come; read; 30s after 2s of warm-up"
        );
        let said = plan(&["http://h/{key}"]).unwrap_err().to_string();
        assert_eq!(
            said,
            "--operations: the URL has {key}, and no operations say how to use the keys; must be \"read\", or \"write then read\": an HTTP server is written to only when asked; hint: --operations read"
        );
    }

    #[test]
    fn an_echo_server_is_driven_by_its_address() {
        let (found, _) = plan(&["echo://h:1", "--payload", "1KB"]).unwrap();
        let Load::Drive(drive) = found.load else {
            panic!("a drive was asked for");
        };
        assert_eq!(drive.address.as_deref(), Some("h:1"));
        assert_eq!(
            drive.arrivals,
            Arrivals::Closed {
                think: unruly_plan::DurationNs(0),
                bursts: None,
            }
        );
    }

    #[test]
    fn an_error_names_the_flag_and_what_was_typed() {
        for (words, said) in [
            (
                &["redis://h", "-r", "abc"][..],
                "--rate: \"abc\" is not a rate (/s, k/s, M/s, /min); hint: --rate 100/s",
            ),
            (
                &["redis://h", "-r", "0"],
                "--rate: \"0\" must be above 0; hint: --rate 100/s",
            ),
            (
                &["redis://h", "-d", "soon"],
                "--duration: \"soon\" is not a duration (ns, us, ms, s, min, h, d); hint: --duration 60s",
            ),
            (
                &["redis://h", "--keys", "many"],
                "--keys: \"many\" is not an integer; hint: --keys 250000",
            ),
            (
                &["redis://h", "--arrivals", "poisson"],
                "--rate: missing; hint: --rate 100/s",
            ),
            (
                &["redis://h", "--think", "1s", "-r", "5"],
                "--think: \"1s\" must be left out: only closed arrivals think; hint: remove --think",
            ),
            (
                &["redis://h", "--until", "soon"],
                "--until: \"soon\" is not a percentile from p1 and how well it is to be known; hint: --until \"p99 within 10%\"",
            ),
            (
                &["h:1"],
                "\"h:1\" must be scheme://host:port, such as redis://127.0.0.1:6379; hint: use one of redis:, rediss:, memcached:, memcacheds:, http:, https:, openai:, openais:, grpc:, grpcs:, postgres:, mysql:, dns:, tcp:, tls:, kafka:, kafkas:, cassandra:, etcd:, flurry:, garage-k2v:, program:, null:, echo:, service:, system:",
            ),
            (
                &["reddis://h"],
                "reddis://h: there is no driver for \"reddis\"; hint: did you mean redis",
            ),
            (
                &["service:postgres"],
                "service:postgres: there is no such service; hint: use one of board, cassandra, etcd, etcd-3.7, flurry, flurry-disk, memcached, redis, garage, redis-replicated, redis-replicated-disk, or give the file of a service",
            ),
            (
                &["service:rediss"],
                "service:rediss: there is no such service; hint: did you mean redis",
            ),
        ] {
            assert_eq!(plan(words).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn a_wrong_value_of_any_flag_is_told_by_that_flag() {
        let mut told = 0;
        for argument in Line::command().get_arguments() {
            let Some(name) = argument
                .get_long()
                .filter(|_| argument.get_action().takes_values())
            else {
                continue;
            };
            let words = ["redis://h", &format!("--{name}=?")];
            // The parser of the command line names the flags that it refuses by itself.
            let line = ["drive"].iter().chain(&words);
            if Line::command().try_get_matches_from(line).is_err() {
                continue;
            }
            let Err(error) = plan(&words) else {
                continue;
            };
            let said = error.to_string();
            // A header or a text may hold a secret, so their errors do not repeat the typed words.
            let typed = match name {
                "headers" | "prompt" | "message" => format!("it has {name};"),
                _ => "\"?\"".to_owned(),
            };
            assert!(said.starts_with(&format!("--{name}: {typed} ")), "{said}");
            assert!(!said.contains("[drive]") && !said.contains(" = "), "{said}");
            told += 1;
        }
        assert!(told > 20, "{told}");
    }

    #[test]
    fn a_tapped_service_has_the_whole_form_in_the_plan() {
        let services = |words: &[&str]| plan(words).unwrap().0.tap.unwrap().services;
        assert!(services(&["redis://h", "--tap"]).is_empty());
        let both = ["redis://h", "--tap=web=127.0.0.1:80", "--tap=127.0.0.1:81"];
        assert_eq!(
            services(&both),
            ["web=tcp://127.0.0.1:80", "tcp://127.0.0.1:81"]
        );
        let mixed = plan(&["redis://h", "--tap", "--tap=tcp://127.0.0.1:81"]).unwrap_err();
        assert!(
            mixed.to_string().starts_with("--tap: it stands alone"),
            "{mixed}"
        );
    }

    #[test]
    fn a_duration_without_a_unit_is_seconds() {
        let bare = plan(&["redis://h", "-d", "5", "--timeout", "0.5"])
            .unwrap()
            .0;
        let whole = plan(&["redis://h", "-d", "5s", "--timeout", "500ms"])
            .unwrap()
            .0;
        assert_eq!(bare, whole);
    }
}
