//! What a cluster's file says, in the words of the library.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use flurry::{
    Concerned, ControllerOptions, Controllers, Delay, Direction, Etcd, Fault, Faults,
    GatewayOptions, GatewayPlace, Level, Options, Pause, RouterOptions, Security, ServerOptions,
    StateAt, Transport,
};
use unruly_plan::{
    Cluster, ClusterDelay, ClusterDirection, ClusterGateway, ClusterLevel, ClusterServer,
    ClusterTransport, DurationNs, Part,
};

use super::controller::etcd_tls;
use super::guard::Guard;
use super::keyed::Keyed;

/// A cluster's file, read.
#[derive(Debug)]
pub(super) struct Config {
    cluster: Cluster,
    security: Security,
}

fn span(of: DurationNs) -> Duration {
    Duration::from_nanos(of.0)
}

/// A level in the words of the library.
pub(super) fn level(of: ClusterLevel) -> Level {
    match of {
        ClusterLevel::First => Level::First,
        ClusterLevel::Quorum => Level::Quorum,
        ClusterLevel::All => Level::All,
        ClusterLevel::Hedge(delay) => Level::Hedge(flurry::DurationNs(delay.0)),
        ClusterLevel::Auto => Level::Auto,
        ClusterLevel::Disk => Level::Disk,
    }
}

impl Config {
    /// Reads a file; what the command line says of the key goes before it.
    pub(super) fn read(path: &Path, keyed: &Keyed) -> Result<Self> {
        let place = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| {
            format!("{place}: cannot be read; wanted a cluster's file; hint: flurry/docs/configuration.md has one to copy")
        })?;
        let cluster = Cluster::parse(&place, &text)?;
        let key = cluster.key.as_ref().map(PathBuf::from);
        let security = Keyed {
            key_file: keyed.key_file.clone().or(key),
            insecure: keyed.insecure || cluster.insecure,
        };
        Ok(Self {
            cluster,
            security: security.read()?,
        })
    }

    pub(super) fn security(&self) -> &Security {
        &self.security
    }

    pub(super) fn controllers(&self) -> Result<Controllers> {
        Ok(Controllers::new(self.cluster.controllers.clone())?)
    }

    /// Whether controllers keep their state in etcd.
    pub(super) fn is_on_etcd(&self) -> bool {
        self.cluster.etcd.is_some()
    }

    /// The options of the controller at one of their addresses; `directory` goes before the file's.
    pub(super) fn controller(
        &self,
        listen: SocketAddr,
        directory: Option<PathBuf>,
    ) -> Result<ControllerOptions> {
        let cluster = &self.cluster;
        Ok(ControllerOptions {
            listen,
            servers: u8::try_from(cluster.servers.len()).unwrap_or(u8::MAX),
            replicas: cluster.replicas,
            shards: cluster.shards,
            lease: flurry::DurationNs(cluster.lease.0),
            state: self.state(listen, directory)?,
            group: self.group(),
            metrics: None,
            security: self.security.clone(),
            faults: self.faults(Part::Controller),
        })
    }

    /// The controllers that agree with each other; none where one is alone, or etcd decides.
    fn group(&self) -> Vec<SocketAddr> {
        let all = &self.cluster.controllers;
        if all.len() > 1 && !self.is_on_etcd() {
            all.clone()
        } else {
            Vec::new()
        }
    }

    /// Where the controller at this address keeps its state. Several on one machine have a directory
    /// each.
    fn state(&self, listen: SocketAddr, directory: Option<PathBuf>) -> Result<StateAt> {
        let path = |text: &Option<String>| text.as_ref().map(PathBuf::from);
        Ok(match &self.cluster.etcd {
            None => {
                let all = directory.or_else(|| path(&self.cluster.directory));
                let own = |all: PathBuf| match self.group().iter().position(|it| *it == listen) {
                    Some(index) => all.join(format!("controller-{}", index + 1)),
                    None => all,
                };
                StateAt::from(all.map(own))
            }
            Some(etcd) => {
                let tls = etcd_tls(
                    path(&etcd.authorities),
                    path(&etcd.certificate),
                    path(&etcd.key),
                );
                StateAt::Etcd(Etcd::parse(&etcd.place, tls)?)
            }
        })
    }

    pub(super) fn server_ids(&self) -> Vec<u16> {
        self.cluster.servers.iter().map(|it| it.id).collect()
    }

    /// The options of server `id`.
    pub(super) fn server(&self, path: &Path, id: u16) -> Result<ServerOptions> {
        let known: Vec<String> = self.server_ids().iter().map(u16::to_string).collect();
        let found = self.cluster.servers.iter().find(|it| it.id == id);
        ensure!(
            found.is_some(),
            "{}: it has no server {id}; wanted one of {}; hint: add a [[server]] with id = {id}",
            path.display(),
            known.join(", ")
        );
        let cluster = &self.cluster;
        let usual = ServerOptions::new(id, self.controllers()?);
        Ok(ServerOptions {
            listen: found.map_or(usual.listen, |it| it.listen),
            shards: cluster.shards,
            memory_bytes_max: usize::try_from(cluster.memory.0).unwrap_or(usize::MAX),
            evict: cluster.evict,
            disk: found.and_then(|it| it.disk.as_ref()).map(PathBuf::from),
            stamps: cluster.stamps,
            spin: span(cluster.spin),
            security: self.security.clone(),
            faults: self.faults(Part::Server(id)),
            ..usual
        })
    }

    /// The options of the router of its own, where the file has one.
    pub(super) fn router(&self) -> Result<Option<RouterOptions>> {
        let Some(listen) = self.cluster.router else {
            return Ok(None);
        };
        Ok(Some(RouterOptions {
            listen,
            security: self.security.clone(),
            faults: self.faults(Part::Router),
            ..RouterOptions::new(self.controllers()?)
        }))
    }

    /// The options of all gateways, and whose files say who may come in to each: to be read where it runs.
    pub(super) fn gateways(&self) -> Result<Vec<(GatewayOptions, Guard)>> {
        let cluster = &self.cluster;
        let places = cluster.gateways.iter().map(|it| GatewayPlace {
            address: it.listen,
            slots: it.slots.clone(),
        });
        let places: Vec<GatewayPlace> = places.collect();
        let options = |gateway: &ClusterGateway, place: &GatewayPlace| {
            let client = self.client("")?;
            let guard = Guard::of(gateway);
            let options = GatewayOptions {
                place: place.clone(),
                gateways: places.clone(),
                level: client.level,
                timeout: client.timeout,
                transport: client.transport,
                security: client.security,
                faults: client.faults,
                ..GatewayOptions::new(place.address, client.controllers)
            };
            Ok((options, guard))
        };
        let all = cluster.gateways.iter().zip(&places);
        all.map(|(gateway, place)| options(gateway, place))
            .collect()
    }

    /// What a client does unless it says otherwise.
    pub(super) fn client(&self, session: &str) -> Result<Options> {
        let cluster = &self.cluster;
        let timeout = span(cluster.timeout);
        Ok(Options {
            level: level(cluster.level),
            timeout,
            open_timeout: timeout,
            transport: match cluster.transport {
                ClusterTransport::Udp => Transport::Udp,
                ClusterTransport::Tcp => Transport::Tcp,
            },
            router: cluster.router,
            spin: span(cluster.client_spin),
            security: self.security.clone(),
            faults: self.faults(Part::Client),
            ..Options::new(self.controllers()?, session)
        })
    }

    /// Where a part listens; clients listen nowhere.
    fn places(&self, part: Part) -> Vec<SocketAddr> {
        let cluster = &self.cluster;
        let of = |server: &ClusterServer| {
            (0..u16::from(cluster.shards))
                .map(|shard| {
                    let mut place = server.listen;
                    place.set_port(place.port().saturating_add(shard));
                    place
                })
                .collect::<Vec<_>>()
        };
        match part {
            Part::Controller => cluster.controllers.clone(),
            Part::Router => cluster.router.into_iter().collect(),
            Part::Client => Vec::new(),
            Part::Server(id) => {
                let found = cluster.servers.iter().filter(|it| it.id == id);
                found.flat_map(of).collect()
            }
        }
    }

    /// Everybody who listens.
    fn all_places(&self) -> Vec<SocketAddr> {
        let servers = self.cluster.servers.iter().map(|it| Part::Server(it.id));
        let parts = [Part::Controller, Part::Router].into_iter().chain(servers);
        parts.flat_map(|part| self.places(part)).collect()
    }

    fn faults(&self, part: Part) -> Faults {
        let cluster = &self.cluster;
        let own = cluster.faults.iter().filter(|it| it.part == part);
        let messages = own.map(|fault| Fault {
            concerned: match fault.peer {
                None => Concerned::All,
                Some(Part::Client) => Concerned::Others(self.all_places()),
                Some(peer) => Concerned::These(self.places(peer)),
            },
            direction: fault.direction.map(|it| match it {
                ClusterDirection::Send => Direction::Sending,
                ClusterDirection::Receive => Direction::Receiving,
            }),
            after: span(fault.after),
            lasts: fault.duration.map(span),
            loss: fault.loss,
            duplicate: fault.duplicate,
            corrupt: fault.corrupt,
            reorder: fault.reorder,
            delay: fault.delay.map(|it| match it {
                ClusterDelay::Fixed(fixed) => Delay::Fixed(span(fixed)),
                ClusterDelay::Uniform(low, high) => Delay::Uniform(span(low), span(high)),
                ClusterDelay::Pareto(least, shape) => Delay::Pareto(span(least), shape),
            }),
        });
        let pause = cluster.pauses.iter().find(|it| it.part == part);
        Faults {
            // Parts of one kind must not lose the same messages at the same time.
            seed: unruly_plan::mix(cluster.seed, stream(part)),
            messages: messages.collect(),
            pause: pause.map(|it| Pause {
                every: span(it.every),
                lasts: span(it.duration),
            }),
        }
    }
}

fn stream(part: Part) -> u64 {
    match part {
        Part::Controller => 0,
        Part::Router => 1,
        Part::Client => 2,
        Part::Server(id) => 3 + u64::from(id),
    }
}
