//! `flurry controller`: who takes part, and who owns what.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use flurry::{ControllerOptions, Controllers, Etcd, EtcdTls, StateAt};

use unruly_plan::DurationNs;

use super::config::Config;
use super::keyed::Keyed;
use super::serve::Alone;
use super::watch::Watch;
use super::{DEFAULT_CONTROLLER, local};

/// How long the names of the other controllers may take to be found.
const NAMES_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(super) struct ControllerArguments {
    /// Address to listen on (default: 127.0.0.1:7700); with --config one of its controllers
    #[arg(long)]
    listen: Option<String>,
    /// Servers that must join before the cluster serves clients
    #[arg(long, default_value_t = 3)]
    servers: u8,
    /// Copies of each key
    #[arg(long, default_value_t = 3)]
    replicas: u8,
    /// Threads of each server
    #[arg(long, default_value_t = 1)]
    shards: u8,
    /// Silence after which a server is counted out; fixed once the first servers have joined
    #[arg(long, default_value = "1s")]
    lease: DurationNs,
    /// All controllers of the group, itself among them, with commas between (default: it is alone).
    /// One leads while most of them run
    #[arg(long, value_name = "ADDRESSES", conflicts_with_all = ["config", "etcd"])]
    controllers: Option<String>,
    /// Directory for the state; one controller may use it
    #[arg(long, required_unless_present_any = ["config", "etcd"])]
    dir: Option<PathBuf>,
    /// Place in etcd for the state, such as etcd://10.0.0.1,10.0.0.2/shop (etcds:// for TLS); several
    /// controllers may share it, and one leads
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["dir", "config"])]
    etcd: Option<String>,
    /// Certificate authorities of etcd, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_ca: Option<PathBuf>,
    /// Client certificate for etcd, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["etcd_ca", "etcd_key"])]
    etcd_cert: Option<PathBuf>,
    /// Key of the client certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// Cluster file, instead of the other options
    #[arg(long, conflicts_with_all = ["servers", "replicas", "shards", "lease"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    watch: Watch,
}

/// How etcd is talked to, where files are named.
pub(super) fn etcd_tls(
    authorities: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Option<EtcdTls> {
    Some(EtcdTls {
        authorities: authorities?,
        own: certificate.zip(key),
    })
}

impl ControllerArguments {
    /// Serves until it is killed.
    pub(super) fn run(self, keyed: &Keyed) -> Result<u8> {
        let watched = self.watch.start()?;
        Alone::Controller(self.options(keyed)?).run(&watched)
    }

    fn options(self, keyed: &Keyed) -> Result<ControllerOptions> {
        let listen = self.listen.as_deref().map(local).transpose()?;
        if let Some(path) = &self.config {
            let config = Config::read(path, keyed)?;
            let place = path.display().to_string();
            let listen = among(&place, &config.controllers()?, listen)?;
            ensure!(
                self.dir.is_none() || !config.is_on_etcd(),
                "--dir: {place} keeps the state in etcd; wanted one place; hint: leave --dir out"
            );
            let options = config.controller(listen, self.dir)?;
            // Its servers outlive it.
            ensure!(
                options.state != StateAt::Memory,
                "{place}: [controller] has no directory; wanted one, since servers outlive their controller; hint: --dir, directory = \"state\", or etcd"
            );
            return Ok(options);
        }
        let state = match self.etcd {
            Some(place) => {
                let tls = etcd_tls(self.etcd_ca, self.etcd_cert, self.etcd_key);
                StateAt::Etcd(Etcd::parse(&place, tls)?)
            }
            None => StateAt::from(self.dir),
        };
        let listen = listen.map_or_else(|| local(DEFAULT_CONTROLLER), Ok)?;
        let group = match &self.controllers {
            Some(text) => Controllers::resolve(text, NAMES_MAX)?.addresses().to_vec(),
            None => Vec::new(),
        };
        Ok(ControllerOptions {
            group,
            servers: self.servers,
            replicas: self.replicas,
            shards: self.shards,
            lease: flurry::DurationNs(self.lease.0),
            state,
            security: keyed.read()?,
            ..ControllerOptions::new(listen, None)
        })
    }
}

/// Which of the controllers of a file it is.
fn among(place: &str, all: &Controllers, listen: Option<SocketAddr>) -> Result<SocketAddr> {
    match (all.addresses(), listen) {
        ([only], None) => Ok(*only),
        (several, Some(one)) if several.contains(&one) => Ok(one),
        (_, None) => bail!(
            "{place}: [controller] has several addresses, {all}; wanted to know which this one is; hint: --listen ADDRESS"
        ),
        (_, Some(one)) => bail!(
            "--listen {one}: {place} has no such controller; wanted one of {all}; hint: add it to [controller] listen, so that the others find it"
        ),
    }
}
