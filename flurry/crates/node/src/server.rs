//! A data server: a thread and a socket for each shard.

use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{self, UnixDatagram};
use std::path::PathBuf;
use std::time::Duration;

use flurry_core::id::{DurationNs, Endpoint, Incarnation, MonoNs, OperationId, ServerId, ShardId};
use flurry_core::key_value::KeyValue;
use flurry_core::machine::StateMachine;
use flurry_core::message::{Life, Message};
use flurry_core::server::{self, ServerParams};
use tracing::{info, warn};
use unruly_time::{Clock, ClockPair, ClockWatch, ColumnNs};

use crate::address::{Allowed, Controllers};
use crate::disk::{DiskThread, ServerDisk, ShardDisk};
use crate::fault::Faults;
use crate::link::{Letter, Link, LinkCounts};
use crate::metrics::{Metrics, Page, count};
use crate::node::{Node, NodeOptions, Part};
use crate::peers::Peers;
use crate::security::Security;
use crate::{Error, LEASE, VALUE_BYTES_MAX, random};

/// How often it is looked whether a thread has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a data server is started.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Its place in the cluster, which outlives the process.
    pub id: u16,
    /// Where the controllers listen.
    pub controllers: Controllers,
    /// Where the first shard listens, the others behind it; port 0 leaves all to the kernel.
    pub listen: SocketAddr,
    /// The address under which others reach it, where that is another one: something stands before it
    /// that passes its ports on. Not with a key, which seals messages for the address they are sent to.
    pub announce: Option<IpAddr>,
    /// Number of threads. The controller must be configured with the same number.
    pub shards: u8,
    /// Memory for records, of all shards together.
    pub memory_bytes_max: usize,
    /// When the memory is full: evict the least recently used value, instead of refusing.
    pub evict: bool,
    /// Where records are kept too, some moments later; without it they are in memory alone.
    pub disk: Option<PathBuf>,
    /// What an earlier life had on disk is gone for good: the others shall not wait for it.
    pub disk_lost: bool,
    /// Tell in each reply when the request reached the kernel and the thread, and when the reply left.
    pub stamps: bool,
    /// Time for which a thread busy-polls for the next message before it sleeps. It yields the core
    /// to other threads meanwhile. Use it only where a core is spare. Zero, the default, sleeps at
    /// once.
    pub spin: Duration,
    /// Address at which the server publishes its metrics.
    pub metrics: Option<Metrics>,
    /// Addresses that the server may talk to, and the key that seals its messages.
    pub security: Security,
    /// Faults on purpose.
    pub faults: Faults,
}

impl ServerOptions {
    /// One thread, a port of the kernel's choice, 256 MB.
    #[must_use]
    pub fn new(id: u16, controllers: impl Into<Controllers>) -> Self {
        Self {
            id,
            controllers: controllers.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            announce: None,
            shards: 1,
            memory_bytes_max: 256_000_000,
            evict: false,
            disk: None,
            disk_lost: false,
            stamps: true,
            spin: Duration::ZERO,
            metrics: None,
            security: Security::default(),
            faults: Faults::default(),
        }
    }
}

impl ServerOptions {
    /// Whether they fit together.
    fn check(&self) -> Result<(), Error> {
        if self.shards == 0 {
            return Err(Error::Refused {
                reason: "shards: it is 0; wanted 1 or more; hint: one for each core that a server may use".to_owned(),
            });
        }
        if self.announce.is_some() && self.security.key.is_some() {
            return Err(Error::Refused {
                reason: "announce: there is a key, which seals messages for the address they are sent to; wanted one or the other; hint: leave --announce out".to_owned(),
            });
        }
        if self.evict && self.disk.is_some() {
            return Err(Error::Refused {
                reason: "disk: values are evicted when the memory is full; wanted all of them in memory; hint: a cache needs no --disk".to_owned(),
            });
        }
        Ok(())
    }

    /// A link for each shard.
    fn links(&self) -> Result<Vec<Link>, Error> {
        let link = |shard: u8| {
            let mut address = self.listen;
            if address.port() != 0 {
                address.set_port(address.port().saturating_add(u16::from(shard)));
            }
            Link::listen(address, self.stamps, &self.security)
                .map(|link| link.with_faults(&self.faults, u64::from(shard)))
        };
        (0..self.shards).map(link).collect()
    }
}

/// A running data server; dropping it stops it, and what it held is gone.
#[derive(Debug)]
pub struct Server {
    shards: Vec<Node>,
    /// Ends after its shards, with all that they have sent.
    _disk: Option<DiskThread>,
    _places: Vec<UnixDatagram>,
}

impl Server {
    /// Starts a server with an empty memory. It joins, and copies what it should hold, by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] for an address that others could reach, [`Error::Refused`] without a shard,
    /// [`Error::Io`] for a port that is taken or a server of this number that runs already.
    pub fn start(options: &ServerOptions) -> Result<Self, Error> {
        Self::start_with(options, &KeyValue::with_values_up_to(VALUE_BYTES_MAX))
    }

    /// Starts a server of the caller's own machine, as all servers of the cluster must be. Its clients
    /// call [`crate::Call::apply`].
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn start_with<M: StateMachine>(
        options: &ServerOptions,
        machine: &M,
    ) -> Result<Self, Error> {
        let controllers = options.controllers.allowed(&options.security)?;
        options.check()?;
        let places = take_places(options.id, &controllers)?;
        let disk = match &options.disk {
            Some(path) => Some(ServerDisk::open(path, options.shards, options.disk_lost)?),
            None => None,
        };
        let links = options.links()?;
        let reached = |link: &Link| {
            let address = SocketAddr::from(link.address());
            let ip = options.announce.unwrap_or_else(|| address.ip());
            SocketAddr::new(ip, address.port()).to_string()
        };
        let addresses: Vec<String> = links.iter().map(reached).collect();
        let incarnation = Incarnation(u128::from_le_bytes(random::bytes()?));
        let found = disk.as_ref().map(ServerDisk::found);
        let wakes = links.iter().map(|link| link.wake().clone()).collect();
        let (disk, mut sides) = match disk {
            Some(disk) => {
                let (thread, sides) = disk.start(wakes)?;
                (Some(thread), sides.into_iter().map(Some).collect())
            }
            None => (None, Vec::new()),
        };
        sides.resize_with(links.len(), || None);
        let shards = (0..options.shards)
            .zip(links.into_iter().zip(sides))
            .map(|(shard, (link, side))| {
                let endpoint = Endpoint {
                    server: ServerId(options.id),
                    shard: ShardId(shard),
                };
                let params = ServerParams {
                    life: Life {
                        endpoint,
                        incarnation,
                    },
                    addresses: addresses.clone(),
                    lease: LEASE,
                    memory_bytes_max: options.memory_bytes_max / usize::from(options.shards),
                    evict: options.evict,
                };
                let name = format!("server-{}.{shard}", options.id);
                let node = NodeOptions {
                    spin: options.spin,
                    board: options.metrics.as_ref().map(Metrics::board),
                };
                Node::start(&name, link, node, |now| {
                    let machine = server::Server::new(now, params, machine.clone());
                    Ok(Shard {
                        machine: match found {
                            Some(found) => machine.with_disk(found),
                            None => machine,
                        },
                        disk: side,
                        peers: Peers::new(controllers.clone(), &options.security),
                        stamps: options.stamps.then(Stamps::start),
                        was_member: false,
                        refused: None,
                    })
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            shards,
            _disk: disk,
            _places: places,
        })
    }

    /// Where its shards listen.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.shards.iter().map(|it| it.address().into()).collect()
    }

    /// What the sockets of its shards have counted.
    #[must_use]
    pub fn counts(&self) -> Vec<LinkCounts> {
        self.shards.iter().map(Node::counts).collect()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`]: a thread has ended, which it should not.
    pub fn wait(mut self) -> Result<(), Error> {
        // The first of its threads that ends, whichever it is: without it the others are no server.
        while self.shards.iter().all(Node::is_running) {
            std::thread::sleep(LOOK_EVERY);
        }
        let mut ended = self.shards.iter_mut().filter(|it| !it.is_running());
        ended.try_for_each(Node::wait)
    }
}

/// Takes names in the kernel that only one process can hold, and that the kernel frees when the
/// process ends. A new incarnation proves to the controller that the earlier one of the same number
/// has ended, so two must never run at once. There is one name for each controller, since two
/// servers of a cluster may be configured with different controllers.
fn take_places(id: u16, controllers: &Allowed) -> Result<Vec<UnixDatagram>, Error> {
    let take = |controller| {
        let name = format!("flurry/{controller}/server/{id}");
        net::SocketAddr::from_abstract_name(&name)
            .and_then(|address| UnixDatagram::bind_addr(&address))
            .map_err(|error| {
                Error::io(
                    format!("server {id} of controller {controller}"),
                    "that no other server of this number runs",
                    &error,
                )
            })
    };
    controllers.iter().map(take).collect()
}

/// When the request that is being handled came.
#[derive(Debug)]
struct Stamps {
    clock: Clock,
    watch: ClockWatch,
    watched: MonoNs,
    request: Option<OperationId>,
    kernel_received_ns: ColumnNs,
    received_ns: ColumnNs,
}

impl Stamps {
    fn start() -> Self {
        let clock = Clock::new(ClockPair::now());
        Self {
            watch: ClockWatch::new(&clock),
            watched: MonoNs(0),
            clock,
            request: None,
            kernel_received_ns: ColumnNs(0),
            received_ns: ColumnNs(0),
        }
    }

    /// The kernel stamps by the wall clock, which is slewed and stepped.
    fn watch(&mut self) {
        let now = crate::clock::now();
        if now.since(self.watched) >= DurationNs::millis(1_000) {
            self.watched = now;
            self.watch.observe(ClockPair::now());
        }
    }

    fn came(&mut self, letter: &Letter) {
        let Message::Request(copy) = &letter.message else {
            self.request = None;
            return;
        };
        self.request = Some(copy.request.id);
        self.received_ns = self.clock.column_now();
        self.kernel_received_ns = self
            .clock
            .column_of_kernel_stamp(letter.stamp)
            .unwrap_or_default();
    }

    /// Sets the time stamps of a reply. A reply that waited for another event carries only the time at
    /// which it left.
    fn put(&self, message: &mut Message) {
        if let Message::Reply(reply) = message {
            let sent_ns = self.clock.column_now();
            reply.stamps = if self.request == Some(reply.id) {
                [self.kernel_received_ns.0, self.received_ns.0, sent_ns.0]
            } else {
                [0, 0, sent_ns.0]
            };
        }
    }
}

#[derive(Debug)]
struct Shard<M: StateMachine> {
    machine: server::Server<M>,
    disk: Option<ShardDisk>,
    peers: Peers,
    stamps: Option<Stamps>,
    /// What the log knows: whether it takes part.
    was_member: bool,
    /// Why it is not admitted, as it was last logged.
    refused: Option<String>,
}

impl<M: StateMachine> Part for Shard<M> {
    fn message(&mut self, now: MonoNs, letter: Letter) {
        if let Some(stamps) = &mut self.stamps {
            stamps.came(&letter);
        }
        self.machine
            .handle_message(now, letter.from.token(), letter.message);
    }

    fn clock_jumped(&mut self, now: MonoNs) {
        self.machine.clock_jumped(now);
    }

    fn report(&self, page: &mut Page) {
        let counts = self.machine.counts();
        let requests = (
            "flurry_requests_total",
            "Copies of operations, by how they were answered.",
        );
        for (outcome, number) in [
            ("done", counts.done),
            ("behind", counts.behind),
            ("refused", counts.refused),
        ] {
            page.counter(requests, &[("outcome", outcome)], number);
        }
        let pushed = (
            "flurry_states_installed_total",
            "States installed by a repair or a copy.",
        );
        page.counter(pushed, &[], counts.pushed);
        let kept = (
            "flurry_records_kept_total",
            "Records that it had kept while it was counted out, and did not have to copy.",
        );
        page.counter(kept, &[], counts.kept);
        let evicted = ("flurry_evictions_total", "Values that had to make room.");
        page.counter(evicted, &[], self.machine.evictions());
        let memory = ("flurry_memory_bytes", "Memory that records take.");
        page.gauge(memory, &[], count(self.machine.memory_bytes()));
        let limit = ("flurry_memory_limit_bytes", "Memory that records may take.");
        page.gauge(limit, &[], count(self.machine.memory_bytes_max()));
        let records = (
            "flurry_records",
            "Keys that it has a record of, deleted ones included.",
        );
        page.gauge(records, &[], count(self.machine.records()));
        let member = (
            "flurry_member",
            "Whether it takes part in the configuration.",
        );
        page.gauge(member, &[], f64::from(u8::from(self.machine.is_member())));
        let busy = (
            "flurry_busy_ratio",
            "For how much of the last moments its thread was busy.",
        );
        page.gauge(busy, &[], f64::from(self.machine.busy()) / 255.0);
        let life = self.machine.life().incarnation.0;
        let info = (
            "flurry_incarnation_info",
            "Its life, as a label; another one has another memory.",
        );
        page.gauge(info, &[("incarnation", &format!("{life:032x}"))], 1.0);
        if let Some(disk) = &self.disk {
            disk.report(page);
        }
    }

    fn timeout(&mut self, now: MonoNs) {
        self.machine.handle_timeout(now);
    }

    fn due(&self) -> MonoNs {
        let disk = self.disk.as_ref().map(ShardDisk::due);
        let machine = self.machine.poll_timeout();
        disk.map_or(machine, |disk| machine.min(disk))
    }

    /// Whatever woke it may have been the disk.
    fn serve(&mut self, now: MonoNs, _clients: bool, link: &mut Link) -> Result<usize, Error> {
        if self.disk.is_some() {
            self.carry_out(now, link)?;
        }
        Ok(0)
    }

    fn was_busy(&mut self, share: u8) {
        self.machine.set_busy(share);
        if let Some(stamps) = &mut self.stamps {
            stamps.watch();
        }
    }

    fn carry_out(&mut self, now: MonoNs, link: &mut Link) -> Result<(), Error> {
        if let Some(disk) = &mut self.disk {
            disk.turn(now, &mut self.machine)?;
        }
        let is_member = self.machine.is_member();
        if std::mem::replace(&mut self.was_member, is_member) != is_member {
            let endpoint = self.machine.life().endpoint;
            let (server, shard) = (endpoint.server.0, endpoint.shard.0);
            if is_member {
                info!(server, shard, "it takes part");
            } else {
                warn!(
                    server,
                    shard, "it was counted out, and copies what it missed"
                );
            }
        }
        let refused = self.machine.refused();
        if refused != self.refused.as_deref() {
            if let Some(reason) = refused {
                let server = self.machine.life().endpoint.server.0;
                // A field is quoted: a stranger may have sent the text.
                warn!(server, reason, "it is not admitted");
            }
            self.refused = refused.map(ToOwned::to_owned);
        }
        while let Some((to, mut message)) = self.machine.poll_send() {
            if let Some(stamps) = &self.stamps {
                stamps.put(&mut message);
            }
            self.peers.send(to, &message, self.machine.config(), link);
        }
        Ok(())
    }
}
