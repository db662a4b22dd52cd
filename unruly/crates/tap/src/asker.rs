//! Who asks: the program that owns the client's end of a connection, if it runs on this host.
//!
//! A thread of its own looks it up in `/proc`, at most once a second, since a look opens the list of
//! files of every process.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::server::Server;

const PERIOD: Duration = Duration::from_secs(1);

/// Clients that are looked up at once.
const WANTED_MAX: usize = 1_024;

/// Clients that wait for their turn; a service with more new ones is asked by clients that do not
/// keep their connections.
const WAITING_MAX: usize = 16 * WANTED_MAX;

/// Addresses whose programs are remembered.
const KNOWN_MAX: usize = 100_000;

/// Parents of a process that are looked at for one with a name.
const PARENTS_MAX: usize = 8;

/// The ends of a connection: the client's address, and the service's. Two connections to different
/// services may have one client's address.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// Names that some processes have, by their number; their children have them too.
type Names = Arc<Mutex<HashMap<u32, String>>>;

/// Looks up programs, and remembers them.
#[derive(Debug)]
pub(crate) struct Askers {
    wanted: Sender<Vec<Ends>>,
    found: Receiver<HashMap<Ends, String>>,
    known: HashMap<Ends, String>,
    names: Names,
}

impl Askers {
    /// Starts to look up clients. The processes that listen for a service have its name; those that
    /// begin later have it too.
    pub(crate) fn start(servers: Vec<Server>) -> Self {
        let (wanted, asked) = channel::<Vec<Ends>>();
        let (answers, found) = channel();
        let names = Names::default();
        let own = Arc::clone(&names);
        std::thread::spawn(move || look_up(&asked, &answers, &own, Listeners::of(servers)));
        Self {
            names,
            wanted,
            found,
            known: HashMap::new(),
        }
    }

    /// Gives processes, and their children, other names than those of their programs.
    pub(crate) fn name(&mut self, names: HashMap<u32, String>) {
        let mut known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(names);
    }

    /// Has the programs of these clients looked up, and takes the answers so far. An address may be
    /// used by another program than before.
    pub(crate) fn look_up(&mut self, connections: Vec<Ends>) {
        for ends in &connections {
            self.known.remove(ends);
        }
        if !connections.is_empty() {
            // The thread ends only with the tap.
            let _ = self.wanted.send(connections);
        }
        for found in self.found.try_iter() {
            if self.known.len() + found.len() > KNOWN_MAX {
                self.known.clear();
            }
            self.known.extend(found);
        }
    }

    pub(crate) fn of(&self, ends: Ends) -> Option<&str> {
        self.known.get(&ends).map(String::as_str)
    }
}

/// The processes that listen for services, as long as they do.
#[derive(Debug)]
struct Listeners {
    servers: Vec<Server>,
    /// The sockets that listen, and the place of the service of each.
    sockets: HashMap<u64, usize>,
    names: HashMap<u32, String>,
}

impl Listeners {
    fn of(servers: Vec<Server>) -> Self {
        Self {
            servers,
            sockets: HashMap::new(),
            names: HashMap::new(),
        }
    }

    /// Looks at who listens, if other sockets do than the last time, or a process has ended: a service
    /// was started again.
    fn renew(&mut self, table: &[Socket]) {
        let listens = table.iter().filter(|socket| socket.listens);
        let place = |it: &Socket| {
            let mut servers = self.servers.iter();
            servers.position(|server| server.listens_at(it.address))
        };
        let sockets = listens.filter_map(|it| Some((it.inode, place(it)?)));
        let sockets: HashMap<u64, usize> = sockets.collect();
        let lives = |number: &u32| Path::new("/proc").join(number.to_string()).exists();
        if sockets == self.sockets && self.names.keys().all(lives) {
            return;
        }
        let processes = processes().flat_map(|process| {
            let number = number(&process);
            let places = addresses(&process, &sockets).into_iter();
            places.filter_map(move |it| Some((number?, it)))
        });
        // The first process may listen for all others, and is the parent of all.
        let named = processes.filter(|(number, _)| *number != 1);
        self.names = named
            .map(|(number, place)| (number, self.servers[place].name.clone()))
            .collect();
        self.sockets = sockets;
    }
}

fn look_up(
    asked: &Receiver<Vec<Ends>>,
    answers: &Sender<HashMap<Ends, String>>,
    names: &Mutex<HashMap<u32, String>>,
    mut listeners: Listeners,
) {
    let mut waiting: Vec<Ends> = Vec::new();
    loop {
        if waiting.is_empty() {
            let Ok(first) = asked.recv() else {
                return;
            };
            waiting = first;
        }
        waiting.extend(asked.try_iter().flatten());
        // The newest first: the others may be closed by now.
        waiting.drain(..waiting.len().saturating_sub(WAITING_MAX));
        let rest = waiting.len().saturating_sub(WANTED_MAX);
        let wanted: HashSet<Ends> = waiting.drain(rest..).collect();
        let table = table();
        listeners.renew(&table);
        let sockets = sockets(&table, &wanted);
        let mut named = listeners.names.clone();
        named.extend(names.lock().unwrap_or_else(PoisonError::into_inner).clone());
        if answers.send(owners(&sockets, &named)).is_err() {
            return;
        }
        std::thread::sleep(PERIOD);
    }
}

/// The numbers of the clients' sockets of these connections. Where something rewrites the service's
/// address on the way, a client's address that only one socket has is enough.
fn sockets(table: &[Socket], wanted: &HashSet<Ends>) -> HashMap<u64, Ends> {
    let mut by_client: HashMap<SocketAddr, Vec<&Socket>> = HashMap::new();
    for socket in table.iter().filter(|it| !it.listens) {
        by_client.entry(socket.address).or_default().push(socket);
    }
    let found = wanted.iter().filter_map(|&(client, server)| {
        let sockets = by_client.get(&client)?;
        let exact = sockets.iter().find(|it| it.peer == server);
        let only = (sockets.len() == 1).then(|| &sockets[0]);
        Some((exact.or(only)?.inode, (client, server)))
    });
    found.collect()
}

/// The addresses at which programs of this host listen.
pub(crate) fn listening() -> Vec<SocketAddr> {
    let listens = table().into_iter().filter(|socket| socket.listens);
    listens.map(|socket| socket.address).collect()
}

/// A socket of this host.
#[derive(Debug)]
struct Socket {
    address: SocketAddr,
    peer: SocketAddr,
    listens: bool,
    inode: u64,
}

/// The kernel's table of TCP sockets.
fn table() -> Vec<Socket> {
    const LISTEN: &str = "0A";
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let lines = tables
        .iter()
        .flatten()
        .flat_map(|table| table.lines().skip(1));
    let sockets = lines.filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
        let own = canonical(address(words.get(1)?)?);
        Some(Socket {
            address: own,
            peer: canonical(address(words.get(2)?)?),
            listens: *words.get(3)? == LISTEN,
            inode: words.get(9)?.parse().ok()?,
        })
    });
    sockets.collect()
}

/// Addresses of IPv4 have one form only.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Reads an address as the kernel prints it: words of four bytes in the order of the machine.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = host.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip: IpAddr = match host.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (place, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(place)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The names of the processes that have these sockets open.
fn owners(sockets: &HashMap<u64, Ends>, names: &HashMap<u32, String>) -> HashMap<Ends, String> {
    if sockets.is_empty() {
        return HashMap::new();
    }
    let owned = processes().flat_map(|process| {
        let addresses = addresses(&process, sockets);
        let name = (!addresses.is_empty()).then(|| name(&process, names));
        let name = name.unwrap_or_default();
        // A process that has ended meanwhile has no name.
        let addresses = addresses.into_iter().filter(|_| !name.is_empty());
        addresses.map(|it| (it, name.clone())).collect::<Vec<_>>()
    });
    owned.collect()
}

/// The folders of all processes.
fn processes() -> impl Iterator<Item = PathBuf> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.map(|it| it.path());
    all.filter(|it| number(it).is_some())
}

/// The number of the process of a folder.
fn number(process: &Path) -> Option<u32> {
    process.file_name()?.to_str()?.parse().ok()
}

/// The entries of those sockets that a process has open.
fn addresses<T: Copy>(process: &Path, sockets: &HashMap<u64, T>) -> Vec<T> {
    let files = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    let inodes = files.filter_map(|file| {
        let target = fs::read_link(file.path()).ok()?;
        let inode = target
            .to_str()?
            .strip_prefix("socket:[")?
            .strip_suffix(']')?;
        inode.parse::<u64>().ok()
    });
    inodes.filter_map(|it| sockets.get(&it).copied()).collect()
}

/// The name that a process or one of its parents was given; without one, its program's.
fn name(process: &Path, names: &HashMap<u32, String>) -> String {
    let line = std::iter::successors(number(process), |it| parent(*it)).take(PARENTS_MAX);
    let given = line.filter_map(|it| names.get(&it)).next();
    given.cloned().unwrap_or_else(|| {
        let program = fs::read_to_string(process.join("comm")).unwrap_or_default();
        program.trim_end().to_owned()
    })
}

/// The number of the parent of a process.
fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name is in parentheses, and may hold any character.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_address_of_the_kernels_table_is_read() {
        assert_eq!(
            address("0100007F:1F90"),
            Some("127.0.0.1:8080".parse().unwrap())
        );
        let six = "00000000000000000000000001000000:0050";
        assert_eq!(address(six), Some("[::1]:80".parse().unwrap()));
        assert_eq!(address("01:1F90"), None);
    }

    #[test]
    fn the_program_of_a_connection_is_this_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let client = stream.local_addr().unwrap();
        let ends = (client, listener.local_addr().unwrap());
        let of_client = sockets(&table(), &HashSet::from([ends]));
        let found = owners(&of_client, &HashMap::new());
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(found.get(&ends).map(String::as_str), Some(own.trim_end()));
        assert!(listening().contains(&listener.local_addr().unwrap()));
        let names = HashMap::from([(parent(std::process::id()).unwrap(), "tests".to_owned())]);
        let named = owners(&of_client, &names);
        assert_eq!(named.get(&ends).map(String::as_str), Some("tests"));
    }

    #[test]
    fn who_listens_for_a_service_has_its_name_also_after_a_restart() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let server = Server::parse(&format!("web=tcp://127.0.0.1:{port}")).unwrap();
        let mut listeners = Listeners::of(vec![server]);
        let own = std::process::id();
        listeners.renew(&table());
        assert_eq!(listeners.names.get(&own).map(String::as_str), Some("web"));
        let before = listeners.sockets.clone();
        drop(first);
        listeners.renew(&table());
        assert_eq!(listeners.names.get(&own), None);
        let _again = TcpListener::bind(("127.0.0.1", port)).unwrap();
        listeners.renew(&table());
        assert_eq!(listeners.names.get(&own).map(String::as_str), Some("web"));
        assert_ne!(listeners.sockets, before);
    }

    #[test]
    fn a_client_address_that_two_connections_have_is_that_of_the_one_to_this_service() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (client, web, db) = (
            at("127.0.0.1:4000"),
            at("127.0.0.1:80"),
            at("127.0.0.1:3306"),
        );
        let socket = |peer, inode| Socket {
            address: client,
            peer,
            listens: false,
            inode,
        };
        let both = [socket(web, 1), socket(db, 2)];
        let found = sockets(&both, &HashSet::from([(client, db)]));
        assert_eq!(found, HashMap::from([(2, (client, db))]));
        // Behind a port that was rewritten, the only socket with this address is the client's.
        let elsewhere = (client, at("10.0.0.1:8080"));
        assert_eq!(sockets(&both, &HashSet::from([elsewhere])), HashMap::new());
        let only = sockets(&both[..1], &HashSet::from([elsewhere]));
        assert_eq!(only, HashMap::from([(1, elsewhere)]));
    }
}
