//! The processes of a service while a leg of a run lasts. They do not outlive it, however it ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use unruly_plan::{Service, ServicePlaces, ServiceProcess, ServiceStep, Url};
use unruly_trace::Exit;

use super::packages::{Programs, install};
use crate::runner::exit_of;

/// How often it is looked whether a process listens, or has ended.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// After the signal to end; then it is ended.
const END_PATIENCE: Duration = Duration::from_secs(15);

/// Lines of a log that a person is shown when a process is not ready.
const LOG_LINES: usize = 12;

/// One process.
#[derive(Debug)]
pub(crate) struct ServiceChild {
    pub(crate) name: String,
    pub(crate) exit: Option<Exit>,
    log: PathBuf,
    process: Child,
}

/// All processes of a service.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) children: Vec<ServiceChild>,
    /// Where the store is.
    pub(crate) url: Url,
    /// What lets its clients in.
    pub(crate) password: Option<String>,
    /// What says its version.
    pub(crate) version: String,
    folder: PathBuf,
}

/// What a leg gives to its service.
pub(crate) struct Ground<'a> {
    /// The run's directory.
    pub(crate) directory: &'a Path,
    /// What tells the leg's files from those of others.
    pub(crate) stem: String,
    /// Somebody asked for the end.
    pub(crate) stop: &'a AtomicBool,
    /// Cores by process.
    pub(crate) pins: &'a BTreeMap<String, Vec<u16>>,
    /// Hears what is done.
    pub(crate) say: &'a dyn Fn(&str),
}

impl Services {
    /// Starts a service, and waits until all of it is ready.
    pub(crate) fn start(name: &str, ground: &Ground<'_>) -> Result<Self> {
        let service = super::service(name)?;
        let programs = install(name, &service, ground.say)?;
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
        (ground.say)(&format!(
            "{name}: starting {} processes",
            service.processes.len()
        ));
        let began = Instant::now();
        let mut services = Self {
            children: Vec::new(),
            url: Url::of_service(name),
            password: service.password.clone(),
            version: version(&programs, &service, &places)?,
            folder,
        };
        for process in &service.processes {
            let child = services.spawn(process, &places, &programs, ground);
            let child = child.with_context(|| {
                format!("service {name}: {} cannot be started; wanted a process; hint: unruly services install {name}", process.name)
            })?;
            services.children.push(child);
        }
        for process in &service.processes {
            services.wait_until_ready(process, &places, ground.stop)?;
        }
        for step in &service.steps {
            services.take(step, &mut places, &programs, ground.stop)?;
        }
        let url = fill(&places, None, &service.url)?;
        services.url = url.parse().with_context(|| {
            format!("service {name}: its url is {url:?}; wanted one; hint: docs/services.md")
        })?;
        let took = began.elapsed().as_secs_f64();
        (ground.say)(&format!(
            "{name}: ready after {took:.1} s, {}",
            services.version
        ));
        Ok(services)
    }

    fn spawn(
        &self,
        process: &ServiceProcess,
        places: &ServicePlaces,
        programs: &Programs,
        ground: &Ground<'_>,
    ) -> Result<ServiceChild> {
        let own = Some(process.name.as_str());
        let folder = self.folder.join(&process.name);
        std::fs::create_dir_all(&folder)?;
        for (name, text) in &process.files {
            std::fs::write(folder.join(name), fill(places, own, text)?)?;
        }
        let words = process.command.iter().map(|word| fill(places, own, word));
        let mut command = programs.command(&words.collect::<Result<Vec<_>>>()?);
        for (name, text) in &process.environment {
            command.env(name, fill(places, own, text)?);
        }
        let log = PathBuf::from(format!("{}.log", places.processes[&process.name].log));
        let output = File::create(&log)?;
        let process_command = on_its_cores(command, ground.pins.get(&process.name));
        let mut command = ends_with_us(process_command);
        let child = command
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()?;
        Ok(ServiceChild {
            name: process.name.clone(),
            exit: None,
            log,
            process: child,
        })
    }

    fn wait_until_ready(
        &mut self,
        process: &ServiceProcess,
        places: &ServicePlaces,
        stop: &AtomicBool,
    ) -> Result<()> {
        let place = &places.processes[&process.name];
        let host: IpAddr = place.host.parse()?;
        // One with the ports of another is asked on the first of them.
        let port = place.ports.get(&process.ports[0]);
        let port = port.or_else(|| place.ports.values().next()).copied();
        let address = SocketAddr::new(host, port.unwrap_or(0));
        let patience = Duration::from_nanos(process.ready.0);
        let until = Instant::now() + patience;
        let wanted = match &process.says {
            Some(words) => format!("say {words:?}"),
            None => format!("listen on {address}"),
        };
        loop {
            let child = self.children.iter_mut().find(|it| it.name == process.name);
            let child = child.context("it was started")?;
            let ready = match &process.says {
                Some(words) => child.has_said(words),
                None => TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok(),
            };
            if ready {
                return Ok(());
            }
            if child.reap() {
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
    fn take(
        &self,
        step: &ServiceStep,
        places: &mut ServicePlaces,
        programs: &Programs,
        stop: &AtomicBool,
    ) -> Result<()> {
        let words = step.command.iter().map(|word| fill(places, None, word));
        let words = words.collect::<Result<Vec<_>>>()?;
        let until = Instant::now() + Duration::from_nanos(step.timeout.0);
        loop {
            let output = programs.command(&words).stdin(Stdio::null()).output();
            let output = output.with_context(|| {
                format!(
                    "{}: cannot be started; wanted a program; hint: docs/services.md",
                    words.join(" ")
                )
            })?;
            let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let expected = step.expect.as_ref().is_none_or(|text| said.contains(text));
            if output.status.success() && expected {
                if let Some(name) = &step.save {
                    let end = step.before.as_ref().and_then(|text| said.find(text));
                    let saved = &said[..end.unwrap_or(said.len())];
                    places.words.insert(name.clone(), saved.to_owned());
                }
                return Ok(());
            }
            if Instant::now() > until || stop.load(Ordering::Relaxed) {
                let errors = String::from_utf8_lossy(&output.stderr);
                bail!(
                    "{}: it says {:?}; wanted {}; hint: see the logs\n{}",
                    words.join(" "),
                    said,
                    step.expect.as_deref().unwrap_or("it to end well"),
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
            .filter(|child| child.exit.is_none());
        let fresh = fresh.filter_map(|child| {
            child.reap();
            Some((child.name.clone(), child.exit?))
        });
        fresh.collect()
    }

    /// Asks all to end, and ends those that do not.
    pub(crate) fn stop(&mut self) {
        for child in &self.children {
            // One that was stopped hears it only when it goes on.
            child.signal(Signal::SIGCONT);
            child.signal(Signal::SIGTERM);
        }
        let until = Instant::now() + END_PATIENCE;
        while !self.children.iter_mut().all(ServiceChild::reap) && Instant::now() < until {
            std::thread::sleep(LOOK_PERIOD);
        }
        for child in &mut self.children {
            child.end();
        }
        self.forget();
    }

    /// What they wrote goes with them; their logs stay.
    fn forget(&self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        if let Some(all) = self.folder.parent() {
            // Only when it is that of the last leg.
            let _ = std::fs::remove_dir(all);
        }
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        for child in &mut self.children {
            child.end();
        }
        self.forget();
    }
}

impl ServiceChild {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if self.exit.is_none()
            && let Ok(pid) = i32::try_from(self.pid())
        {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    fn reap(&mut self) -> bool {
        if self.exit.is_none()
            && let Ok(Some(status)) = self.process.try_wait()
        {
            self.exit = Some(exit_of(status));
        }
        self.exit.is_some()
    }

    /// Ends it, and whatever it has started.
    fn end(&mut self) {
        if let Ok(pid) = i32::try_from(self.pid())
            && self.exit.is_none()
        {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            if let Ok(status) = self.process.wait() {
                self.exit = Some(exit_of(status));
            }
        }
    }

    /// Whether these words are in its log.
    fn has_said(&self, words: &str) -> bool {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).contains(words)
    }

    /// The end of its log.
    fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
        last.iter()
            .map(|line| format!("  {line}"))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

fn fill(places: &ServicePlaces, own: Option<&str>, text: &str) -> Result<String> {
    places.fill(own, text).map_err(|word| {
        anyhow::anyhow!(
            "{{{word}}}: stands for nothing; wanted a word of the manual; hint: docs/services.md"
        )
    })
}

/// A port that nobody listens on. Somebody else may take it before it is used; then its user says so.
fn free_port(host: &str) -> u16 {
    let bound = TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr());
    bound.map_or(0, |address| address.port())
}

/// Where the program itself is, and what came with it.
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
    let words = service.version.iter().map(|word| fill(places, None, word));
    let output = programs
        .command(&words.collect::<Result<Vec<_>>>()?)
        .stdin(Stdio::null())
        .output();
    let said = output
        .map(|it| [it.stdout, it.stderr].concat())
        .unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let first = said.lines().next();
    Ok(first.map_or_else(unknown, |line| line.trim().to_owned()))
}

/// Behind `taskset`, where the plan pins it.
fn on_its_cores(command: Command, cores: Option<&Vec<u16>>) -> Command {
    let Some(cores) = cores else { return command };
    let list: Vec<String> = cores.iter().map(u16::to_string).collect();
    behind(&["taskset", "-c", &list.join(",")], &command)
}

/// Behind `setpriv`, which has the kernel end it when we are gone, however that was.
fn ends_with_us(command: Command) -> Command {
    let found = Programs::of_this_host().find("setpriv");
    if found.is_none() {
        return command;
    }
    behind(&["setpriv", "--pdeathsig", "KILL", "--"], &command)
}

/// The same command behind other words.
fn behind(words: &[&str], command: &Command) -> Command {
    let mut longer = Command::new(words[0]);
    longer
        .args(&words[1..])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => longer.env(name, value),
            None => longer.env_remove(name),
        };
    }
    longer
}
