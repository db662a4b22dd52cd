//! Parts that serve: each in a process of its own, or a whole cluster in one.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use flurry::{
    Controller, ControllerOptions, Controllers, Gateway, GatewayOptions, Router, RouterOptions,
    Security, Server, ServerOptions, StateAt,
};

use unruly_plan::DurationNs;

use super::config::Config;
use super::gateway::{self, guarded, told};
use super::guard::Guard;
use super::keyed::Keyed;
use super::members::Operator;
use super::signals::close_on_signals;
use super::watch::Watched;
use super::{DEFAULT_CONTROLLER, local, say, status};

/// How long `serve` waits for its own servers to join.
const JOIN_MAX: Duration = Duration::from_secs(10);

/// A part that is a process.
#[derive(Debug)]
pub(super) enum Alone {
    Controller(ControllerOptions),
    Server(ServerOptions),
    Router(RouterOptions),
}

impl Alone {
    pub(super) fn router(options: Option<RouterOptions>, path: &Path) -> Result<Self> {
        options.map(Self::Router).ok_or_else(|| {
            anyhow!(
                "{}: it has no [router]; wanted where it listens; hint: [router] with listen = \"127.0.0.1:7690\"",
                path.display()
            )
        })
    }

    /// Serves until it is killed.
    pub(super) fn run(self, watched: &Watched) -> Result<u8> {
        match self {
            Self::Controller(mut options) => {
                options.metrics.clone_from(&watched.metrics);
                let controller = Controller::start(&options)?;
                let handle = controller.handle();
                close_on_signals(move || handle.close())?;
                say(format!("controller {}\nready", controller.address()))?;
                controller.wait()?;
            }
            Self::Server(mut options) => {
                options.metrics.clone_from(&watched.metrics);
                let server = Server::start(&options)?;
                say(format!("server {} {}\nready", options.id, places(&server)))?;
                server.wait()?;
            }
            Self::Router(mut options) => {
                options.metrics.clone_from(&watched.metrics);
                let router = Router::start(&options)?;
                say(format!("router {}\nready", router.address()))?;
                router.wait()?;
            }
        }
        Ok(0)
    }
}

/// Where the threads of a server listen.
fn places(server: &Server) -> String {
    let places = server.addresses();
    let places: Vec<String> = places.iter().map(SocketAddr::to_string).collect();
    places.join(" ")
}

/// A whole cluster in one process.
#[derive(Debug, Args)]
pub(super) struct Whole {
    /// Number of servers
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=64))]
    embedded: u8,
    /// Copies of each key (default: 3, or the number of servers if smaller)
    #[arg(long)]
    replicas: Option<u8>,
    /// Threads of each server
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    shards: u8,
    /// Silence after which a server is counted out; fixed once the first servers have joined
    #[arg(long, default_value = "1s")]
    lease: DurationNs,
    /// Address of the controller
    #[arg(long, default_value = DEFAULT_CONTROLLER)]
    controller: String,
    /// Directory for the state of the controller (default: in memory)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Cluster file, instead of the other options except --dir
    #[arg(long, conflicts_with_all = ["embedded", "replicas", "shards", "lease", "controller"])]
    config: Option<PathBuf>,
}

/// What a cluster consists of.
struct Parts {
    controllers: Vec<ControllerOptions>,
    servers: Vec<ServerOptions>,
    router: Option<RouterOptions>,
    gateways: Vec<(GatewayOptions, Guard)>,
}

impl Parts {
    fn start_controllers(&self) -> Result<Vec<Controller>> {
        let mut controllers = Vec::new();
        for options in &self.controllers {
            let controller = Controller::start(options)?;
            let place = match &options.state {
                StateAt::Memory => "memory".to_owned(),
                StateAt::Directory(directory) => directory.display().to_string(),
                StateAt::Etcd(etcd) => etcd.to_string(),
            };
            let address = controller.address();
            say(format!("controller {address}, state in {place}"))?;
            controllers.push(controller);
        }
        Ok(controllers)
    }
}

impl Whole {
    fn parts(self, keyed: &Keyed) -> Result<(Parts, String)> {
        if let Some(path) = &self.config {
            let config = Config::read(path, keyed)?;
            let ids = config.server_ids();
            let servers = ids.into_iter().map(|id| config.server(path, id));
            let controllers = config.controllers()?;
            let all = controllers.addresses().iter();
            let all = all.map(|listen| config.controller(*listen, self.dir.clone()));
            let parts = Parts {
                servers: servers.collect::<Result<_>>()?,
                router: config.router()?,
                gateways: config.gateways()?,
                controllers: all.collect::<Result<_>>()?,
            };
            return Ok((parts, format!(" --config {}", path.display())));
        }
        let listen = local(&self.controller)?;
        let security = keyed.read()?;
        let controller = ControllerOptions {
            servers: self.embedded,
            replicas: self.replicas.unwrap_or_else(|| self.embedded.min(3)),
            shards: self.shards,
            lease: flurry::DurationNs(self.lease.0),
            security: security.clone(),
            ..ControllerOptions::new(listen, self.dir)
        };
        let servers = (1..=u16::from(self.embedded)).map(|id| ServerOptions {
            shards: self.shards,
            security: security.clone(),
            ..ServerOptions::new(id, listen)
        });
        let flag = if self.controller == DEFAULT_CONTROLLER {
            String::new()
        } else {
            " --controller ADDRESS".to_owned()
        };
        let parts = Parts {
            controllers: vec![controller],
            servers: servers.collect(),
            router: None,
            gateways: Vec::new(),
        };
        Ok((parts, flag))
    }

    /// Starts all parts, prints which commands to try, and serves until the process is killed.
    pub(super) fn run(self, keyed: &Keyed) -> Result<u8> {
        let (parts, flag) = self.parts(keyed)?;
        let controllers = parts.start_controllers()?;
        let security = &parts.controllers[0].security;
        let addresses = controllers.iter().map(Controller::address);
        let all = Controllers::new(addresses.collect())?;
        let mut running = Vec::new();
        for options in parts.servers {
            let server = Server::start(&ServerOptions {
                controllers: all.clone(),
                ..options.clone()
            })?;
            say(format!("server {} {}", options.id, places(&server)))?;
            running.push(server);
        }
        let router = parts.router.as_ref().map(Router::start).transpose()?;
        if let Some(router) = &router {
            say(format!("router {}", router.address()))?;
        }
        until_whole(&all, security)?;
        let (ended, outcome) = mpsc::channel();
        let wait = |ends: Box<dyn FnOnce() -> Result<()> + Send>| {
            let ended = ended.clone();
            std::thread::spawn(move || ended.send(ends()));
        };
        for (options, guard) in parts.gateways {
            let gateway = Gateway::start(&GatewayOptions {
                controllers: all.clone(),
                ..guarded(options.clone(), &guard)?
            })?;
            say(told(&gateway, &options.place))?;
            wait(Box::new(move || gateway::serve(gateway, &guard)));
        }
        let flag = flag.replace("ADDRESS", &all.to_string());
        say(format!(
            "try: flurry set greeting hello{flag}\n     flurry get greeting{flag}\n     flurry status{flag}\n     flurry bench{flag}\nstop: Ctrl-C\nready"
        ))?;
        for controller in controllers {
            wait(Box::new(move || controller.wait().map_err(Into::into)));
        }
        for server in running {
            wait(Box::new(move || server.wait().map_err(Into::into)));
        }
        if let Some(router) = router {
            wait(Box::new(move || router.wait().map_err(Into::into)));
        }
        // Whatever ends first should not have.
        outcome.recv()??;
        Ok(0)
    }
}

fn until_whole(controllers: &Controllers, security: &Security) -> Result<()> {
    let start = Instant::now();
    let operator = Operator {
        controllers: controllers.clone(),
        security: security.clone(),
        timeout: Duration::from_secs(2),
    };
    while !status::seen(&operator)?.is_whole() {
        ensure!(
            start.elapsed() < JOIN_MAX,
            "serve: the servers have not joined within {JOIN_MAX:?}; wanted all of them up; hint: is the state in --dir of another cluster?"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
