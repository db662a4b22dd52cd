//! The gateway: the owner of a range of slots, for programs that speak the protocol of Redis.

mod about;
mod authentication;
mod channel;
mod cluster;
mod connection;
mod dispatcher;
mod event_loop;
mod glob;
mod info;
mod keys;
mod losses;
mod passwords;
mod shape;
mod slots;
mod sockets;
mod table;
mod tls;
mod users;
mod walk;
mod walks;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError, mpsc};
use std::time::Duration;

use flurry_core::config::Level;
use flurry_core::id::{DurationNs, Epoch};
use flurry_core::message::Copies;
use flurry_core::resp::{Reply, error};
use socket2::{Domain, Socket, Type};
use tracing::{info, warn};

use crate::address::{Allowed, Controllers};
use crate::fault::Faults;
use crate::link::{Link, LinkCounts, Transport, Wake};
use crate::metrics::Metrics;
use crate::node::{Node, NodeOptions};
use crate::owner::{Calls, Owner, OwnerParams, Shared, Ways};
use crate::security::Security;
use crate::{Error, random};
use authentication::Authentication;
use cluster::Cluster;
pub use cluster::GatewayPlace;
use dispatcher::Dispatcher;
use event_loop::{EventLoop, Order, Orders};
use passwords::PasswordChecker;
pub use slots::{PART_SLOTS, SLOTS, are_parts, is_of_slots, session_of_slots};
use sockets::Sockets;
pub use tls::Tls;
pub use users::{Rights, User, Users, hash_password};

/// Operations under way at most, of all clients; while a server is silent its copies are kept too, until
/// it is counted out.
const OPERATIONS_MAX: usize = 131_072;

/// Period of a gateway's report to the controller that it lives. A standby's silence limit is
/// longer.
const HEARTBEAT: DurationNs = DurationNs::millis(100);

/// Time after which a standby warns that no controller answers.
const CONTROLLER_MISSED: Duration = Duration::from_secs(10);

/// Connections that wait to be let in, as far as the system allows.
const BACKLOG: i32 = 4_096;

/// Descriptors that are not clients': the link's, files, and what a library may want.
const DESCRIPTORS_SPARE: u64 = 64;

/// How a gateway is started.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Where it listens for clients, and which slots it serves.
    pub place: GatewayPlace,
    /// All gateways of the cluster; this one may be among them.
    pub gateways: Vec<GatewayPlace>,
    /// Where the controllers listen.
    pub controllers: Controllers,
    /// Which replies an operation waits for, unless its client wants others. With `Quorum`, `All` or
    /// `Disk` clients may choose among these only.
    pub level: Level,
    /// How long an operation may take before its outcome is called unknown.
    pub timeout: Duration,
    /// How long the opening of its slots may take.
    pub open_timeout: Duration,
    /// Silence of the present gateway after which this one takes its slots; it also takes them when
    /// that gateway closes. `None` takes the slots at once. A gateway reports every 100 ms that it
    /// lives.
    pub standby: Option<Duration>,
    /// How messages travel to the servers.
    pub transport: Transport,
    /// Clients at most.
    pub connections_max: usize,
    /// Keys that it remembers the versions of; a forgotten one costs a question to all servers at its
    /// next use.
    pub keys_max: usize,
    /// Memory in bytes for operations under way, and for answered writes that some server does not have
    /// yet. When it is full, writes are refused and reads go on.
    pub backlog_bytes_max: usize,
    /// Copies of a write at level `quorum`, `all` or `disk` at least; without it a majority of the copies
    /// that the cluster is meant to have.
    pub copies_min: Option<u8>,
    /// How long its thread looks for something to do before it sleeps.
    pub spin: Duration,
    /// Who may come in; without it everybody may do everything.
    pub users: Option<Users>,
    /// How long a client may stay without saying who it is, where it must.
    pub entry_timeout: Duration,
    /// How connections are secured; without it they are not.
    pub tls: Option<Tls>,
    /// Where it tells how it is.
    pub metrics: Option<Metrics>,
    /// Who may be talked to, and what messages are sealed with.
    pub security: Security,
    /// Faults on purpose, between it and the servers.
    pub faults: Faults,
}

impl GatewayOptions {
    /// All slots, the first correct reply, 10,000 clients, a million keys.
    #[must_use]
    pub fn new(listen: SocketAddr, controllers: impl Into<Controllers>) -> Self {
        Self {
            place: GatewayPlace::of_all(listen),
            gateways: Vec::new(),
            controllers: controllers.into(),
            level: Level::First,
            timeout: Duration::from_secs(2),
            open_timeout: Duration::from_secs(5),
            standby: None,
            transport: Transport::Udp,
            connections_max: 10_000,
            keys_max: 1_000_000,
            backlog_bytes_max: 256 << 20,
            copies_min: None,
            spin: Duration::ZERO,
            users: None,
            entry_timeout: Duration::from_secs(10),
            tls: None,
            metrics: None,
            security: Security::default(),
            faults: Faults::default(),
        }
    }
}

impl GatewayOptions {
    /// Returns the parameters of the owner of its slots.
    fn owner(&self, controllers: Allowed) -> Result<OwnerParams, Error> {
        Ok(OwnerParams {
            sessions: slots::sessions_of(&self.place.slots),
            nonce: u64::from_le_bytes(random::bytes()?),
            ways: Ways {
                controllers,
                router: None,
            },
            operations_max: OPERATIONS_MAX,
            bytes_max: self.backlog_bytes_max,
            keys_max: self.keys_max,
            copies_min: self.copies_min,
            heartbeat: HEARTBEAT,
            patience: patience(self.standby),
            copies: self.copies(),
            security: self.security.clone(),
        })
    }

    /// Returns the servers that have each acknowledged write. No connection may choose a level that
    /// promises fewer.
    fn copies(&self) -> Copies {
        if self.level.promises_copies() {
            self.copies_min.map_or(Copies::Majority, Copies::Count)
        } else {
            Copies::Count(1)
        }
    }

    /// Checks that no user has a level below the gateway's.
    fn users_keep_the_level(&self) -> Result<(), Error> {
        let low = |level: Level| self.level.promises_copies() && !level.promises_copies();
        let levels = self.users.iter().flat_map(Users::levels);
        if levels.into_iter().any(low) {
            return Err(Error::LevelTooLow);
        }
        Ok(())
    }

    /// Whoever others can reach must know who they are, and nobody else may read along.
    fn may_listen(&self) -> Result<(), Error> {
        let address = self.place.address;
        let guarded = self.users.is_some() && self.tls.is_some();
        if address.ip().is_loopback() || guarded || self.security.insecure {
            return Ok(());
        }
        Err(Error::Address {
            text: address.to_string(),
            problem:
                "others could reach it, and without users and TLS whoever does can do everything"
                    .to_owned(),
            wanted: "an address of 127.0.0.0/8, or users and a certificate",
            hint: "--users, --tls-cert and --tls-key (see flurry/docs/security.md), or --insecure where only friends are",
        })
    }
}

/// A running gateway; dropping it stops it. Another one that opens the same slots fences it off: then it
/// lets its clients go, and ends.
#[derive(Debug)]
pub struct Gateway {
    node: Node,
    orders: Orders,
    address: SocketAddr,
    opening: Opening,
}

/// The opening of a gateway's slots, and its epoch once they are open.
#[derive(Debug)]
struct Opening {
    told: Receiver<Result<Epoch, Error>>,
    shared: Arc<Shared>,
    controllers: Controllers,
    epoch: Option<Epoch>,
}

impl Opening {
    fn opened(&mut self, epoch: Epoch) -> Epoch {
        info!(epoch = epoch.0, "its slots are open");
        *self.epoch.insert(epoch)
    }

    fn wait(&mut self) -> Result<Epoch, Error> {
        if let Some(epoch) = self.epoch {
            return Ok(epoch);
        }
        loop {
            match self.told.recv_timeout(CONTROLLER_MISSED) {
                Ok(outcome) => return outcome.map(|epoch| self.opened(epoch)),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Stopped {
                        part: "gateway".to_owned(),
                    });
                }
                Err(RecvTimeoutError::Timeout) if self.shared.controller_heard.load(Relaxed) => {}
                Err(RecvTimeoutError::Timeout) => {
                    warn!(controllers = %self.controllers, "standing by, but no controller answers");
                }
            }
        }
    }
}

impl Gateway {
    /// Makes this process the owner of its slots, and listens for clients. A standby returns before
    /// it owns the slots and answers `-LOADING` until then; [`Self::wait_until_open`] waits for
    /// that.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::open`]; [`Error::Io`] for a port that is taken.
    pub fn start(options: &GatewayOptions) -> Result<Self, Error> {
        let listen = options.place.address;
        let controllers = options.controllers.allowed(&options.security)?;
        let failed = |error: std::io::Error| Error::io(listen, "to listen there", &error);
        options.may_listen()?;
        options.place.check()?;
        options.users_keep_the_level()?;
        let listener = listen_at(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let own = GatewayPlace {
            address,
            slots: options.place.slots.clone(),
        };
        let connections_max = options.connections_max.min(descriptors());
        let sockets = Sockets::new(listener, options.tls.clone(), connections_max)?;
        let clients = sockets.as_fd().try_clone_to_owned().map_err(failed)?;
        let link = Link::dial(
            options.transport,
            false,
            controllers.any(),
            &options.security,
        )?
        .with_faults(&options.faults, 0)
        .with_clients(clients);
        let authentication = match options.users.clone() {
            Some(users) => Some(Authentication::new(
                users,
                PasswordChecker::start(link.wake().clone())?,
            )),
            None => None,
        };
        let orders = Orders::default();
        let obeyed = Arc::clone(&orders);
        let params = options.owner(controllers)?;
        let (tell, told) = mpsc::sync_channel(1);
        let shared = Arc::<Shared>::default();
        let known = Arc::clone(&shared);
        let cluster = Cluster::new(own, &options.gateways, 1);
        let node = NodeOptions {
            spin: options.spin,
            board: options.metrics.as_ref().map(Metrics::board),
        };
        let node = Node::start("gateway", link, node, |now| {
            let owner = Owner::new(now, params, Calls::new(tell), known, None).with_meter();
            let dispatcher = Dispatcher::new(owner, cluster, options, authentication);
            Ok(EventLoop::new(now, dispatcher, sockets, obeyed))
        })?;
        let mut opening = Opening {
            told,
            shared,
            controllers: options.controllers.clone(),
            epoch: None,
        };
        if options.standby.is_none() {
            let (shared, timeout) = (&opening.shared, options.open_timeout);
            let epoch = shared.opened(&opening.told, timeout, &options.controllers)?;
            opening.opened(epoch);
        }
        Ok(Self {
            node,
            orders,
            address,
            opening,
        })
    }

    /// Waits until this gateway owns its slots and returns its epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`]: the controller does not give it these slots. [`Error::Stopped`]: its thread
    /// has ended, which it should not.
    pub fn wait_until_open(&mut self) -> Result<Epoch, Error> {
        self.opening.wait()
    }

    /// Where clients reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the epoch under which this gateway owns its slots; `None` while it stands by. Every
    /// opening of the same slots gets a higher epoch.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.opening.epoch
    }

    /// What its sockets have counted, those of clients left out.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        self.node.counts()
    }

    /// What another thread changes it with.
    #[must_use]
    pub fn handle(&self) -> GatewayHandle {
        GatewayHandle {
            orders: Arc::clone(&self.orders),
            wake: self.node.wake(),
        }
    }

    /// Waits until it ends by itself, or was closed.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`]: another one has its slots now. [`Error::Stopped`]: its thread has ended, which
    /// it should not.
    pub fn wait(mut self) -> Result<(), Error> {
        self.node.wait()
    }
}

/// Changes a gateway while it runs.
#[derive(Debug, Clone)]
pub struct GatewayHandle {
    orders: Orders,
    wake: Wake,
}

impl GatewayHandle {
    /// Goes by these users from now on. Clients of a user that is no more, or has another password, are
    /// let go. A gateway that was started without users stays so.
    pub fn set_users(&self, users: Users) {
        self.order(Order::Users(users));
    }

    /// Secures connections by this from now on; those that there are stay as they are.
    pub fn set_tls(&self, tls: Tls) {
        self.order(Order::Tls(tls));
    }

    /// Lets its clients go and gives its slots back once every write is on every replica, so that the
    /// next owner starts without doubt. [`Gateway::wait`] returns then, or after some seconds at most.
    pub fn close(&self) {
        self.order(Order::Close);
    }

    fn order(&self, order: Order) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.push(order);
        self.wake.call();
    }
}

/// Returns a standby's silence limit; zero for a gateway that takes its slots at once.
fn patience(standby: Option<Duration>) -> DurationNs {
    let ns = standby.map_or(0, |it| it.as_nanos().max(1));
    DurationNs(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// A socket that many may knock at in one moment.
fn listen_at(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Descriptors that may be clients', as many as the system grants.
fn descriptors() -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let granted = getrlimit(Resource::RLIMIT_NOFILE).map_or(1_024, |(soft, hard)| {
        let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        raised.map_or(soft, |()| hard)
    });
    usize::try_from(granted.saturating_sub(DESCRIPTORS_SPARE)).unwrap_or(usize::MAX)
}

/// What a client is told when nothing came of a command.
fn failure(cause: &Error) -> Reply {
    let word = match cause {
        Error::Unknown { .. } => "UNKNOWN",
        Error::DataLoss { .. } => "DATALOSS",
        Error::TailUnknown => "TAILUNKNOWN",
        Error::Evicted => "EVICTED",
        Error::Fenced { .. } => "FENCED",
        Error::Busy | Error::BacklogFull { .. } => "BUSY",
        Error::TooFewCopies => "NOREPLICAS",
        _ => "ERR",
    };
    error(format!("{word} {cause}"))
}
