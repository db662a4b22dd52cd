//! Who asks: the program that owns the client's end of a connection, if it runs on this host.
//!
//! A thread of its own looks it up in `/proc`, at most once a second, since a look opens the list of
//! files of every process.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(1);

/// Clients that are looked up at once; a service with more new connections in a second is asked by
/// clients that do not keep theirs.
const WANTED_MAX: usize = 1_024;

/// Addresses whose programs are remembered.
const KNOWN_MAX: usize = 100_000;

/// Parents of a process that are looked at for one with a name.
const PARENTS_MAX: usize = 8;

/// Names that some processes have, by their number; their children have them too.
type Names = Arc<Mutex<HashMap<u32, String>>>;

/// Looks up programs, and remembers them.
#[derive(Debug)]
pub(crate) struct Askers {
    wanted: Sender<Vec<SocketAddr>>,
    found: Receiver<HashMap<SocketAddr, String>>,
    known: HashMap<SocketAddr, String>,
    names: Names,
}

impl Askers {
    pub(crate) fn start() -> Self {
        let (wanted, asked) = channel::<Vec<SocketAddr>>();
        let (answers, found) = channel();
        let names = Names::default();
        let own = Arc::clone(&names);
        std::thread::spawn(move || look_up(&asked, &answers, &own));
        Self {
            names,
            wanted,
            found,
            known: HashMap::new(),
        }
    }

    /// Gives processes, and their children, other names than those of their programs.
    pub(crate) fn name(&mut self, names: HashMap<u32, String>) {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Has the programs of these clients looked up, and takes the answers so far. An address may be
    /// used by another program than before.
    pub(crate) fn look_up(&mut self, clients: Vec<SocketAddr>) {
        for client in &clients {
            self.known.remove(client);
        }
        if !clients.is_empty() {
            // The thread ends only with the tap.
            let _ = self.wanted.send(clients);
        }
        for found in self.found.try_iter() {
            if self.known.len() + found.len() > KNOWN_MAX {
                self.known.clear();
            }
            self.known.extend(found);
        }
    }

    pub(crate) fn of(&self, client: SocketAddr) -> Option<&str> {
        self.known.get(&client).map(String::as_str)
    }
}

fn look_up(
    asked: &Receiver<Vec<SocketAddr>>,
    answers: &Sender<HashMap<SocketAddr, String>>,
    names: &Mutex<HashMap<u32, String>>,
) {
    while let Ok(first) = asked.recv() {
        // All that has come meanwhile is taken, and the newest are looked up.
        let mut all = first;
        all.extend(asked.try_iter().flatten());
        let wanted: HashSet<SocketAddr> = all.into_iter().rev().take(WANTED_MAX).collect();
        let sockets = sockets(&wanted);
        let named = names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if answers.send(owners(&sockets, &named)).is_err() {
            return;
        }
        std::thread::sleep(PERIOD);
    }
}

/// The numbers of the sockets at these addresses.
fn sockets(wanted: &HashSet<SocketAddr>) -> HashMap<u64, SocketAddr> {
    let all = table().into_iter();
    let rows = all.filter(|socket| wanted.contains(&socket.address));
    rows.map(|socket| (socket.inode, socket.address)).collect()
}

/// The addresses at which programs of this host listen.
pub(crate) fn listening() -> Vec<SocketAddr> {
    let listens = table().into_iter().filter(|socket| socket.listens);
    listens.map(|socket| socket.address).collect()
}

/// A socket of this host.
struct Socket {
    address: SocketAddr,
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
        let address = address(words.get(1)?)?;
        Some(Socket {
            address: SocketAddr::new(address.ip().to_canonical(), address.port()),
            listens: *words.get(3)? == LISTEN,
            inode: words.get(9)?.parse().ok()?,
        })
    });
    sockets.collect()
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
fn owners(
    sockets: &HashMap<u64, SocketAddr>,
    names: &HashMap<u32, String>,
) -> HashMap<SocketAddr, String> {
    let mut found = HashMap::new();
    if sockets.is_empty() {
        return found;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        if process.file_name().to_str().is_some_and(is_process) {
            found.extend(owned(&process.path(), sockets, names));
        }
    }
    found
}

/// The addresses of those sockets that a process has open, each with the name of the process.
fn owned(
    process: &Path,
    sockets: &HashMap<u64, SocketAddr>,
    names: &HashMap<u32, String>,
) -> Vec<(SocketAddr, String)> {
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
    let addresses: Vec<SocketAddr> = inodes.filter_map(|it| sockets.get(&it).copied()).collect();
    if addresses.is_empty() {
        return Vec::new();
    }
    let name = name(process, names);
    addresses.into_iter().map(|it| (it, name.clone())).collect()
}

/// The name that a process or one of its parents was given; without one, its program's.
fn name(process: &Path, names: &HashMap<u32, String>) -> String {
    let number = process.file_name().and_then(|it| it.to_str()?.parse().ok());
    let line = std::iter::successors(number, |it| parent(*it)).take(PARENTS_MAX);
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
        let of_client = sockets(&HashSet::from([client]));
        let found = owners(&of_client, &HashMap::new());
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(found.get(&client).map(String::as_str), Some(own.trim_end()));
        assert!(listening().contains(&listener.local_addr().unwrap()));
        let names = HashMap::from([(parent(std::process::id()).unwrap(), "tests".to_owned())]);
        let named = owners(&of_client, &names);
        assert_eq!(named.get(&client).map(String::as_str), Some("tests"));
    }
}
