//! The gateway: the owner of a range of slots, which serves clients that speak the Redis protocol.

mod about;
mod authentication;
mod channel;
mod cluster;
mod connection;
mod dispatcher;
mod event_loop;
mod glob;
mod hashes;
mod info;
mod keys;
mod losses;
mod passwords;
mod scripts;
mod shape;
mod slots;
mod slow;
mod sockets;
mod staged;
mod table;
mod tls;
mod transaction;
mod users;
mod walk;
mod walks;
mod watches;

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

/// Maximum number of operations under way, over all clients. While a server is silent, the owner
/// also keeps the copies that this server lacks, until the controller removes the server.
const OPERATIONS_MAX: usize = 131_072;

/// Period of a gateway's report to the controller that it lives. A standby's silence limit is
/// longer.
const HEARTBEAT: DurationNs = DurationNs::millis(100);

/// Time after which a standby warns that no controller answers.
const CONTROLLER_MISSED: Duration = Duration::from_secs(10);

/// Length of the queue of connections that wait to be accepted, as far as the system allows.
const BACKLOG: i32 = 4_096;

/// Number of descriptors kept for the link, for files and for libraries rather than for clients.
const DESCRIPTORS_SPARE: u64 = 64;

/// The options of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Address on which the gateway listens for clients, and the slots that it serves.
    pub place: GatewayPlace,
    /// All gateways of the cluster. The list may include this one.
    pub gateways: Vec<GatewayPlace>,
    /// Addresses of the controllers.
    pub controllers: Controllers,
    /// Default level of an operation: the replies that it waits for. If it is `Quorum`, `All` or
    /// `Disk`, clients may choose only among these three.
    pub level: Level,
    /// Time after which the outcome of an unanswered operation is reported as unknown.
    pub timeout: Duration,
    /// Time within which the gateway must open its slots.
    pub open_timeout: Duration,
    /// Silence of the present gateway after which this one takes its slots; it also takes them when
    /// that gateway closes. `None` takes the slots at once. A gateway reports every 100 ms that it
    /// lives.
    pub standby: Option<Duration>,
    /// Transport of the messages between the gateway and the servers.
    pub transport: Transport,
    /// Maximum number of clients.
    pub connections_max: usize,
    /// Number of keys whose versions the gateway remembers. The next use of a forgotten key costs
    /// one question to every server.
    pub keys_max: usize,
    /// Memory in bytes for operations under way and for answered writes that some server still
    /// lacks. When it is full, the gateway refuses writes and still serves reads.
    pub backlog_bytes_max: usize,
    /// Minimum number of copies of a write at level `quorum`, `all` or `disk`. `None` means a
    /// majority of the copies that the cluster is configured for.
    pub copies_min: Option<u8>,
    /// Time for which the gateway's thread busy-polls before it sleeps.
    pub spin: Duration,
    /// Users that may connect. `None` lets every client do everything.
    pub users: Option<Users>,
    /// Time for which a client may stay connected without authenticating, if it must authenticate.
    pub entry_timeout: Duration,
    /// Certificate for TLS connections. `None` means that connections are not encrypted.
    pub tls: Option<Tls>,
    /// Address at which the gateway publishes its metrics.
    pub metrics: Option<Metrics>,
    /// Addresses that the gateway may talk to, and the key that seals its messages.
    pub security: Security,
    /// Injected faults between the gateway and the servers.
    pub faults: Faults,
}

impl GatewayOptions {
    /// Returns the default options: all slots, the first correct reply, 10,000 clients and a
    /// million keys.
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
    /// Returns the parameters of the owner that holds the slots.
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
            timeout: silence_limit(self.standby),
            tells_first: true,
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

    /// Checks that the gateway may listen on its address. An address that other machines can reach
    /// needs users and TLS, unless the operator allows it explicitly.
    fn may_listen(&self) -> Result<(), Error> {
        let address = self.place.address;
        let guarded = self.users.is_some() && self.tls.is_some();
        if address.ip().is_loopback() || guarded || self.security.insecure {
            return Ok(());
        }
        Err(Error::Address {
            text: address.to_string(),
            problem:
                "other machines can reach it, and without users and TLS every one of them may do everything"
                    .to_owned(),
            wanted: "an address of 127.0.0.0/8, or users and a certificate",
            hint: "--users, --tls-cert and --tls-key (see flurry/docs/security.md), or --insecure where only friends are",
        })
    }
}

/// A running gateway. Dropping it stops it. When another gateway opens the same slots, this one is
/// fenced off: it closes its clients' connections and ends.
#[derive(Debug)]
pub struct Gateway {
    node: Node,
    orders: Orders,
    address: SocketAddr,
    opening: Opening,
    level: Level,
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
        if let Some(users) = &options.users {
            users.keep_level(options.level)?;
        }
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
        let (sender, told) = mpsc::sync_channel(1);
        let shared = Arc::<Shared>::default();
        let known = Arc::clone(&shared);
        let cluster = Cluster::new(own, &options.gateways, 1);
        let node = NodeOptions {
            spin: options.spin,
            board: options.metrics.as_ref().map(Metrics::board),
        };
        let node = Node::start("gateway", link, node, |now| {
            let owner = Owner::new(now, params, Calls::new(sender), known, None).with_meter();
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
            level: options.level,
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

    /// Returns the address at which clients connect.
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

    /// Returns the counters of the link's sockets. Client sockets are not included.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        self.node.counts()
    }

    /// Returns a handle with which another thread can change the gateway.
    #[must_use]
    pub fn handle(&self) -> GatewayHandle {
        GatewayHandle {
            orders: Arc::clone(&self.orders),
            wake: self.node.wake(),
            level: self.level,
        }
    }

    /// Waits until the gateway ends by itself or is closed.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`]: another gateway has its slots now. [`Error::Stopped`]: its thread has
    /// ended, which it should not.
    pub fn wait(mut self) -> Result<(), Error> {
        self.node.wait()
    }
}

/// Changes a gateway while it runs.
#[derive(Debug, Clone)]
pub struct GatewayHandle {
    orders: Orders,
    wake: Wake,
    level: Level,
}

impl GatewayHandle {
    /// Replaces the users. The gateway closes the connections of users that were removed or have a
    /// new password. A gateway that was started without users ignores the change.
    ///
    /// # Errors
    ///
    /// [`Error::LevelTooLow`] for a user whose level is below the gateway's; nothing is replaced.
    pub fn set_users(&self, users: Users) -> Result<(), Error> {
        users.keep_level(self.level)?;
        self.order(Order::Users(users));
        Ok(())
    }

    /// Uses this certificate for new connections. Present connections stay as they are.
    pub fn set_tls(&self, tls: Tls) {
        self.order(Order::Tls(tls));
    }

    /// Closes the connections of all clients and gives the slots back once every replica has every
    /// write, so that the next owner starts without doubt. [`Gateway::wait`] returns then, or after
    /// five seconds at the latest.
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
fn silence_limit(standby: Option<Duration>) -> DurationNs {
    let ns = standby.map_or(0, |it| it.as_nanos().max(1));
    DurationNs(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Returns a listening socket with a queue long enough for many clients that connect at once.
fn listen_at(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Returns how many descriptors clients may use, after raising the limit as far as the system
/// allows.
fn descriptors() -> usize {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let granted = getrlimit(Resource::RLIMIT_NOFILE).map_or(1_024, |(soft, hard)| {
        let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        raised.map_or(soft, |()| hard)
    });
    usize::try_from(granted.saturating_sub(DESCRIPTORS_SPARE)).unwrap_or(usize::MAX)
}

/// Returns the error reply for a command that failed.
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
