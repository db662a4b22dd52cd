//! The processes of a service while a trial of a run lasts. They do not outlive it, however it ends.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use unruly_plan::{
    Fault, FaultKind, Secret, Service, ServicePlaces, ServiceProcess, ServiceStep, Setting, Stage,
    Template, Url,
};
use unruly_trace::Exit;

use super::child::{ServiceChild, Start};
use super::names::ALL;
use super::packages::{self, Programs};
use super::pauses::{Pause, pauses};
use crate::relay::Relay;

/// How often it is looked whether a process listens, or has ended.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// The protocol with messages that have no reply; a service calls a port of it so.
pub(crate) const MYSQL: &str = "mysql";

/// How long the check of a service may take: it reads whole tables.
const CHECK_TIMEOUT: Duration = Duration::from_secs(120);

/// After the signal to end; then it is ended.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// All processes of a service.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) children: Vec<ServiceChild>,
    /// Where the store is.
    pub(crate) url: Url,
    /// What lets its clients in.
    pub(crate) password: Option<Secret>,
    /// What says its version.
    pub(crate) version: String,
    folder: PathBuf,
    /// What messages call it.
    pub(crate) name: String,
    pub(super) service: Service,
    pub(super) places: ServicePlaces,
    programs: Programs,
    /// Cores by process.
    pins: BTreeMap<String, Vec<u16>>,
    /// Those whose disk can be made to stall.
    held: BTreeSet<String>,
    /// What stands before a process, by its name.
    relays: BTreeMap<String, Relay>,
}

/// What a trial gives to its service.
pub(crate) struct Ground<'a> {
    /// The run's directory.
    pub(crate) directory: &'a Path,
    /// The prefix that distinguishes this trial's files from others.
    pub(crate) stem: String,
    /// True if a person asked for the end.
    pub(crate) stop: &'a AtomicBool,
    /// Values of the service's parameters.
    pub(crate) settings: &'a BTreeMap<String, Setting>,
    /// Cores by process.
    pub(crate) pins: &'a BTreeMap<String, Vec<u16>>,
    /// What will be done to its processes.
    pub(crate) faults: &'a [Fault],
    /// From which follows what a relay does.
    pub(crate) seed: u64,
    /// The address at which other hosts reach it.
    pub(crate) address: Option<Ipv4Addr>,
    /// Where the run receives spans.
    pub(crate) spans: Option<SocketAddr>,
    /// Called with each step, for the progress display.
    pub(crate) say: &'a dyn Fn(&str),
}

/// Fetches or builds what a service needs and this host lacks. Returns where its programs are.
///
/// # Errors
///
/// Names the missing programs, and how to get them.
pub(super) fn obtain(name: &str, service: &Service, say: &dyn Fn(&str)) -> Result<Programs> {
    archive(name)?;
    packages::programs(name, service, say)
}

/// Returns our own archive for the JVM; nothing where there is none and the service needs none.
fn archive(name: &str) -> Result<String> {
    let jvm = crate::jvm::archive().unwrap_or_default();
    anyhow::ensure!(
        !jvm.is_empty() || !super::text(name)?.contains("{{ jvm }}"),
        "service {name}: unruly-jvm.jar is not there; hint: make jvm, or set UNRULY_JVM to its folder"
    );
    Ok(jvm)
}

impl Services {
    /// Starts a service, and waits until all of it is ready.
    pub(crate) fn start(name: &str, ground: &Ground<'_>) -> Result<Self> {
        let began = Instant::now();
        let mut services = Self::prepare(name, ground)?;
        let count = services.service.processes.len();
        (ground.say)(&format!("{name}: starting {count} processes"));
        for stage in services.service.stages.clone() {
            services.pass(name, &stage, ground.stop)?;
        }
        let url = services.places.render(None, &services.service.url)?;
        services.url = url.parse().with_context(|| {
            format!("service {name}: its url is {url:?}; wanted one; hint: unruly/docs/services.md")
        })?;
        let url = &services.url;
        anyhow::ensure!(
            !(url.is_sql() || url.is_grpc() || url.is_openai() || url.has_messages()),
            "service {name}: its url is {url}; wanted a store with keys, or an HTTP server; hint: \
             start it yourself, and name {url} in the plan"
        );
        let reached = ground.address.filter(|it| !it.is_loopback());
        let is_here = |(host, _): (&str, u16)| {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
        };
        anyhow::ensure!(
            reached.is_none() || !url.places().any(is_here),
            "service {name}: its url is {url}, which other hosts do not reach; wanted a process \
             whose host is no fixed text; hint: unruly/docs/services.md"
        );
        let took = began.elapsed().as_secs_f64();
        (ground.say)(&format!(
            "{name}: ready after {took:.1} s, {}",
            services.version
        ));
        Ok(services)
    }

    /// Starts what a stage starts, and waits until it is ready, or takes the step that it is.
    fn pass(&mut self, name: &str, stage: &Stage, stop: &AtomicBool) -> Result<()> {
        let started = match stage {
            Stage::Processes(started) => started,
            Stage::Step(number) => {
                let step = self.service.steps[*number].clone();
                return self.take(&step, stop);
            }
        };
        let started = started.iter().map(|it| self.service.processes[*it].clone());
        let started: Vec<ServiceProcess> = started.collect();
        for process in &started {
            let child = self.spawn(process).with_context(|| {
                format!("service {name}: {} cannot be started; wanted a process; hint: unruly services install {name}", process.name)
            })?;
            self.children.push(child);
        }
        for process in &started {
            self.wait_until_ready(process, stop)?;
        }
        Ok(())
    }

    /// All that is there before the first process is: programs, places, relays.
    fn prepare(name: &str, ground: &Ground<'_>) -> Result<Self> {
        let mut service = super::service(name)?.with(ground.settings)?;
        if let Some(address) = ground.address {
            service.listen_on(address)?;
        }
        let programs = obtain(name, &service, ground.say)?;
        let folder = ground.directory.join("services").join(&ground.stem);
        std::fs::create_dir_all(&folder)?;
        let folder = folder.canonicalize()?;
        let logs = ground.directory.join("logs").canonicalize()?;
        let log = logs.join(format!("{}-", ground.stem));
        let (log, folder_text) = (log.display().to_string(), folder.display().to_string());
        let mut places = service.places(free_port, &folder_text, &log);
        places.words.insert("bin".to_owned(), own_folder()?);
        let jars = programs.jars(&service.jars).display().to_string();
        places.words.insert("jars".to_owned(), jars);
        places
            .words
            .insert("unpacked".to_owned(), programs.unpacked());
        places.words.insert("jvm".to_owned(), archive(name)?);
        let spans = ground.spans.map_or_else(String::new, |it| it.to_string());
        places.words.insert("spans".to_owned(), spans);
        let roles = service.roles();
        let names = || {
            let own = service.processes.iter().map(|it| it.name.as_str());
            own.chain(roles.iter().map(String::as_str))
        };
        // Any process of a group may have the role that a fault names.
        let victims = |wanted: fn(&FaultKind) -> bool| {
            let faults = ground.faults.iter().filter(move |it| wanted(&it.kind));
            let named = faults.filter_map(|fault| fault.victim(names()));
            named.flat_map(|name| service.candidates(name))
        };
        let mut relays = BTreeMap::new();
        for victim in victims(|kind| matches!(kind, FaultKind::Network(_))) {
            if let Entry::Vacant(vacant) = relays.entry(victim) {
                let relay = relay(name, &service, &mut places, vacant.key(), ground.seed)?;
                vacant.insert(relay);
            }
        }
        Ok(Self {
            children: Vec::new(),
            url: Url::of_service(name),
            password: service.password.clone().map(Secret::new),
            version: version(&programs, &service, &places)?,
            folder,
            name: name.to_owned(),
            held: victims(|kind| matches!(kind, FaultKind::Disk)).collect(),
            service,
            places,
            programs,
            pins: ground.pins.clone(),
            relays,
        })
    }

    fn spawn(&self, process: &ServiceProcess) -> Result<ServiceChild> {
        let (places, own) = (&self.places, Some(process.name.as_str()));
        let folder = self.folder.join(&process.name);
        std::fs::create_dir_all(&folder)?;
        for (name, text) in &process.files {
            std::fs::write(folder.join(name), places.render(own, text)?)?;
        }
        let words = rendered(places, own, &process.command)?;
        let mut command = self.programs.command(&words);
        for (name, text) in &process.environment {
            command.env(name, places.render(own, text)?);
        }
        let place = places.place(&process.name).context("it has a place")?;
        ServiceChild::start(Start {
            name: &process.name,
            tier: process.tier.as_deref(),
            command,
            folder: &folder,
            log: PathBuf::from(format!("{}.log", place.log)),
            cores: self.pins.get(&process.name).or_else(|| self.pins.get(ALL)),
            held: self.held.contains(&process.name),
        })
    }

    /// Runs the service's own check of its data, while its processes are up. Returns the contradiction that it
    /// found.
    pub(crate) fn check(&self) -> Result<Option<String>> {
        if self.service.check.is_empty() {
            return Ok(None);
        }
        let words = rendered(&self.places, None, &self.service.check)?;
        let file = self.folder.join("check");
        let mut command = self.programs.command(&words);
        command.stdin(Stdio::null()).stdout(File::create(&file)?);
        let mut child = command
            .stderr(File::create(self.folder.join("check.err"))?)
            .spawn()?;
        let until = Instant::now() + CHECK_TIMEOUT;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > until {
                child.kill()?;
                break child.wait()?;
            }
            std::thread::sleep(LOOK_PERIOD);
        };
        if status.success() {
            return Ok(None);
        }
        let read = |file: &Path| std::fs::read_to_string(file).unwrap_or_default();
        let said = [read(&file), read(&self.folder.join("check.err"))];
        let words = said.iter().flat_map(|it| it.lines().last());
        let words: Vec<&str> = words.filter(|line| !line.is_empty()).collect();
        Ok(Some(words.first().map_or_else(
            || status.to_string(),
            |line| (*line).to_owned(),
        )))
    }

    /// Starts one again that has ended, where it was. Returns whether there was one.
    pub(crate) fn start_again(&mut self, name: &str) -> Result<bool> {
        let mut children = self.children.iter();
        let Some(place) = children.position(|it| it.name == name && it.process.exit().is_some())
        else {
            return Ok(false);
        };
        let mut processes = self.service.processes.iter();
        let process = processes
            .find(|it| it.name == name)
            .context("it was started")?;
        self.children[place] = self.spawn(process)?;
        Ok(true)
    }

    /// Returns what a tap on the services watches: the first port of each process, named by its tier.
    pub(crate) fn taps(&self) -> Vec<String> {
        let processes = self.service.processes.iter().filter_map(|process| {
            let place = self.places.place(&process.name)?;
            let kind = process.ports.first()?;
            let port = place.ports.get(kind)?;
            let scheme = if kind == MYSQL { MYSQL } else { "tcp" };
            let name = process.tier.as_ref().unwrap_or(&process.name);
            Some(format!("{name}={scheme}://{}:{port}", place.host))
        });
        processes.collect()
    }

    /// Returns the pauses in the logs of the JVMs, by process.
    pub(crate) fn pauses(&self) -> Vec<(String, Pause)> {
        let places = self.places.processes.iter();
        let of_process = places.flat_map(|place| {
            let told = pauses(&format!("{}.gc", place.log));
            told.into_iter().map(|pause| (place.name.clone(), pause))
        });
        of_process.collect()
    }

    /// What stands before a process.
    pub(crate) fn relay(&self, name: &str) -> Option<&Relay> {
        self.relays.get(name)
    }

    /// Whether anything stands before any of them.
    pub(crate) fn has_relay(&self) -> bool {
        !self.relays.is_empty()
    }

    fn wait_until_ready(&mut self, process: &ServiceProcess, stop: &AtomicBool) -> Result<()> {
        let place = self.places.place(&process.name).context("it has a place")?;
        let host: IpAddr = place.host.parse()?;
        // One with the ports of another is asked on the first of them.
        let port = place.ports.get(&process.ports[0]);
        let port = port.or_else(|| place.ports.values().next()).copied();
        let address = SocketAddr::new(host, port.unwrap_or(0));
        let timeout = Duration::from_nanos(process.ready.0);
        let until = Instant::now() + timeout;
        let own = Some(process.name.as_str());
        let says = process.says.as_ref().map(|it| self.places.render(own, it));
        let says = says.transpose()?;
        let wanted = match &says {
            Some(words) => format!("say {words:?}"),
            None => format!("listen on {address}"),
        };
        loop {
            let child = self.children.iter_mut().find(|it| it.name == process.name);
            let child = child.context("it was started")?;
            let ready = match &says {
                Some(words) => child.has_said(words),
                None => TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok(),
            };
            if ready {
                return Ok(());
            }
            if child.process.reap() {
                bail!(
                    "{}: ended before it was ready; wanted it to {wanted}; hint: see {}\n{}",
                    child.name,
                    child.log.display(),
                    child.last_words()
                );
            }
            if Instant::now() > until {
                bail!(
                    "{}: not ready after {}; wanted it to {wanted}; hint: see {}\n{}",
                    child.name,
                    process.ready,
                    child.log.display(),
                    child.last_words()
                );
            }
            if stop.load(Ordering::Relaxed) {
                bail!("stopped before the start; wanted a run; hint: start it again");
            }
            std::thread::sleep(LOOK_PERIOD);
        }
    }

    /// Takes a step, as often as it needs.
    fn take(&mut self, step: &ServiceStep, stop: &AtomicBool) -> Result<()> {
        let words = rendered(&self.places, None, &step.command)?;
        let text = |template: &Template| self.places.render(None, template);
        let expect = step.expect.as_ref().map(text).transpose()?;
        let before = step.before.as_ref().map(text).transpose()?;
        let until = Instant::now() + Duration::from_nanos(step.timeout.0);
        loop {
            let output = self.programs.command(&words).stdin(Stdio::null()).output();
            let output = output.with_context(|| {
                format!(
                    "{}: cannot be started; wanted a program; hint: unruly/docs/services.md",
                    words.join(" ")
                )
            })?;
            let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let expected = expect.as_ref().is_none_or(|text| said.contains(text));
            if output.status.success() && expected {
                let end = before.as_ref().and_then(|text| said.find(text));
                let saved = said[..end.unwrap_or(said.len())].to_owned();
                self.places.save(step, saved);
                return Ok(());
            }
            if Instant::now() > until || stop.load(Ordering::Relaxed) {
                let errors = String::from_utf8_lossy(&output.stderr);
                bail!(
                    "{}: it says {:?}; wanted {}; hint: see the logs\n{}",
                    words.join(" "),
                    said,
                    expect.as_deref().unwrap_or("it to end well"),
                    errors.trim()
                );
            }
            std::thread::sleep(LOOK_PERIOD);
        }
    }

    /// Those that have ended since the last look.
    pub(crate) fn ended(&mut self) -> Vec<(String, Exit)> {
        let fresh = self
            .children
            .iter_mut()
            .filter(|child| child.process.exit().is_none());
        let fresh = fresh.filter_map(|child| {
            child.process.reap();
            Some((child.name.clone(), child.process.exit()?))
        });
        fresh.collect()
    }

    /// Asks all to end, and ends those that do not.
    pub(crate) fn stop(&mut self) {
        for child in &self.children {
            // One that was stopped hears it only when it goes on.
            child.process.signal(Signal::SIGCONT);
            child.process.signal(Signal::SIGTERM);
        }
        let until = Instant::now() + END_TIMEOUT;
        while !self.children.iter_mut().all(|it| it.process.reap()) && Instant::now() < until {
            std::thread::sleep(LOOK_PERIOD);
        }
        for child in &mut self.children {
            child.process.end();
        }
        self.forget();
    }

    /// What they wrote goes with them; their logs stay.
    fn forget(&self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        if let Some(all) = self.folder.parent() {
            // Only when it is that of the last trial.
            let _ = std::fs::remove_dir(all);
        }
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        for child in &mut self.children {
            child.process.end();
        }
        self.forget();
    }
}

/// What stands before a process: on a neighbour of its address, with its ports.
fn relay(
    name: &str,
    service: &Service,
    places: &mut ServicePlaces,
    process: &str,
    seed: u64,
) -> Result<Relay> {
    let place = places.place_mut(process).context("it has a place")?;
    let host: IpAddr = place.host.parse()?;
    let (true, IpAddr::V4(four)) = (service.has_front(process) && host.is_loopback(), host) else {
        bail!(
            "service {name}: nothing can stand before {process}, whose clients reach it directly; wanted its front in the url; hint: unruly/docs/services.md"
        );
    };
    let [first, second, third, fourth] = four.octets();
    let front = Ipv4Addr::new(first, second, third.wrapping_add(1), fourth);
    place.front = front.to_string();
    let routes = place.ports.values();
    let routes = routes.map(|port| ((front, *port).into(), (host, *port).into()));
    Relay::start(&routes.collect::<Vec<_>>(), seed)
}

/// The words of a command.
fn rendered(places: &ServicePlaces, own: Option<&str>, words: &[Template]) -> Result<Vec<String>> {
    let words = words.iter().map(|word| places.render(own, word));
    Ok(words.collect::<Result<Vec<_>, _>>()?)
}

/// A port that nobody listens on. Somebody else may take it before it is used; then its user says so.
fn free_port(host: &str) -> u16 {
    let bound = TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr());
    bound.map_or(0, |address| address.port())
}

/// Returns the folder of this program and of the files shipped with it.
fn own_folder() -> Result<String> {
    let own = std::env::current_exe()?;
    Ok(own
        .parent()
        .unwrap_or_else(|| Path::new("/"))
        .display()
        .to_string())
}

/// The first line of what says the version.
fn version(programs: &Programs, service: &Service, places: &ServicePlaces) -> Result<String> {
    let unknown = || "of unknown version".to_owned();
    if service.version.is_empty() {
        return Ok(unknown());
    }
    let output = programs
        .command(&rendered(places, None, &service.version)?)
        .stdin(Stdio::null())
        .output();
    let said = output
        .map(|it| [it.stdout, it.stderr].concat())
        .unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let first = said.lines().next();
    Ok(first.map_or_else(unknown, |line| line.trim().to_owned()))
}
