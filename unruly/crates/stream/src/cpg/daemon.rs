//! The corosync daemon. Each member starts one in the network namespace of this process, and the
//! daemon ends with the process.
//!
//! The daemon and its library keep files in `/run` and `/dev/shm`. Here, both are tmpfs mounts that
//! no other process sees. The files disappear with the last process that sees them, however that
//! process ends.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::socket::{getsockopt, sockopt::IpMtu};
use nix::unistd::{Pid, getpid, getppid};

use crate::out_of_time;

const PROGRAM: &str = "corosync";
pub(crate) const PACKAGE: &str = "corosync";
/// Corosync's default port. No other daemon runs on a host of a run.
const PORT: u16 = 5_405;
/// Longest packet, in bytes. The daemon receives into buffers of 10,000 bytes and would truncate a
/// longer packet.
const LONGEST_PACKET: u16 = 9_000;
const FOLDER: &str = "/run/unruly";
/// Time between two checks whether the daemon answers.
const LOOK: Duration = Duration::from_millis(10);

/// The addresses of a group's daemons. Each daemon knows all of them from the start.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) own: Ipv4Addr,
    /// The other members, at least one.
    pub(super) others: Vec<Ipv4Addr>,
}

/// A running daemon. It ends with this value, or with this process.
pub(super) struct Daemon {
    pid: u32,
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts the daemon, and calls `connect` until it returns a value. `connect` runs in the
    /// thread that sees the daemon's files.
    ///
    /// A separate thread keeps the daemon. Only this thread sees the daemon's file systems, so a
    /// run's own files in `/run` and `/dev/shm` stay visible elsewhere. The kernel ends the daemon
    /// together with the thread that started it.
    pub(super) fn start<T: Send + 'static>(
        places: &Places,
        libraries: Option<&Path>,
        timeout: Duration,
        mut connect: impl FnMut() -> io::Result<Option<T>> + Send + 'static,
    ) -> io::Result<(Self, T)> {
        let until = Instant::now() + timeout;
        let command = command(libraries)?;
        let text = configuration(places, packet_bytes(places)?);
        let (stop, stopped) = mpsc::channel::<()>();
        let (say, said) = mpsc::channel();
        let keeper = std::thread::spawn(move || {
            match begin(command, &text, until, &mut connect) {
                Ok((running, value)) => {
                    let _ = say.send(Ok((running.0.id(), value)));
                    // Nothing is ever sent. The call returns when the other end is dropped.
                    let _ = stopped.recv();
                }
                Err(error) => drop(say.send(Err(error))),
            }
        });
        let begun = said.recv();
        let begun =
            begun.unwrap_or_else(|_| Err(lacking("its keeper is gone", "a running daemon")));
        begun.map(|(pid, value)| {
            let daemon = Self {
                pid,
                stop: Some(stop),
                keeper: Some(keeper),
            };
            (daemon, value)
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// Returns the error of a daemon that is missing or misbehaves.
pub(super) fn lacking(wrong: &str, wanted: &str) -> io::Error {
    io::Error::other(format!(
        "{wrong}; wanted {wanted}; hint: see the log of this process"
    ))
}

/// A child that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the daemon from this thread, with its own file systems, and connects to it.
fn begin<T>(
    mut command: Command,
    text: &str,
    until: Instant,
    connect: &mut impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<(Running, T)> {
    own_files().map_err(|error| {
        io::Error::other(format!(
            "its daemon cannot have files of its own ({error}); wanted root with CAP_SYS_ADMIN; hint: sudo"
        ))
    })?;
    std::fs::create_dir(FOLDER)?;
    std::fs::write(Path::new(FOLDER).join("corosync.conf"), text)?;
    let mut running = Running(command.spawn()?);
    loop {
        if let Some(value) = connect()? {
            return Ok((running, value));
        }
        if let Some(status) = running.0.try_wait()? {
            return Err(io::Error::other(format!(
                "its daemon ended ({status}); wanted it to run; hint: see the log of this process"
            )));
        }
        if Instant::now() >= until {
            return Err(out_of_time(
                "its daemon does not answer; wanted it to; hint: see the log of this process",
            ));
        }
        std::thread::sleep(LOOK);
    }
}

/// Gives this thread and its children an empty `/run` and `/dev/shm`.
fn own_files() -> nix::Result<()> {
    const NOTHING: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Mounts made here stay invisible to other processes.
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NOTHING, "/", NOTHING, private, NOTHING)?;
    for place in ["/run", "/dev/shm"] {
        mount(
            Some("tmpfs"),
            place,
            Some("tmpfs"),
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
            Some("mode=0700"),
        )?;
    }
    Ok(())
}

/// Returns the command of the daemon. The daemon writes to the log of this process, because the
/// runner reads this process's standard output.
pub(super) fn command(libraries: Option<&Path>) -> io::Result<Command> {
    let (program, beside) = program(libraries).ok_or_else(|| {
        io::Error::other(format!(
            "{PROGRAM} is not there; wanted its daemon; hint: apt-get install {PACKAGE}"
        ))
    })?;
    let mut command = Command::new(program);
    command
        .args(["-f", "-c"])
        .arg(Path::new(FOLDER).join("corosync.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if let Some(beside) = beside {
        command.env("LD_LIBRARY_PATH", beside);
    }
    let parent = getpid();
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(move || ends_with(parent)) };
    Ok(command)
}

/// Asks the kernel to end this process with its parent. Fails if the parent has already ended.
fn ends_with(parent: Pid) -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid() == parent {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Returns the path of the daemon: on this host, or else next to the downloaded libraries. In the
/// second case it also returns the folders of the daemon's libraries.
fn program(libraries: Option<&Path>) -> Option<(PathBuf, Option<OsString>)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    // A relative part means the working directory, where anyone may have put a program.
    let mut places = std::env::split_paths(&path)
        .filter(|it| it.is_absolute())
        .chain(sbin);
    let own = places.find_map(|it| program_in(&it));
    own.map(|it| (it, None)).or_else(|| fetched(libraries?))
}

/// Returns the daemon next to the downloaded libraries, with the folders of its libraries.
fn fetched(libraries: &Path) -> Option<(PathBuf, Option<OsString>)> {
    let mut roots = libraries.ancestors();
    let (root, found) = roots.find_map(|it| Some((it, program_in(&it.join("usr/sbin"))?)))?;
    // Some of Debian's libraries are in /usr/lib, and some in /lib.
    let second = root.join("lib").join(libraries.file_name()?);
    let beside = std::env::join_paths([libraries, &second]).ok()?;
    Some((found, Some(beside)))
}

fn program_in(folder: &Path) -> Option<PathBuf> {
    Some(folder.join(PROGRAM)).filter(|it| it.is_file())
}

/// Returns the longest packet, in bytes, that every route to the other members carries.
fn packet_bytes(places: &Places) -> io::Result<u16> {
    let mut longest = LONGEST_PACKET;
    for other in &places.others {
        let socket = UdpSocket::bind((places.own, 0))?;
        socket.connect((*other, PORT))?;
        let bytes = getsockopt(&socket, IpMtu)?;
        longest = longest.min(u16::try_from(bytes).unwrap_or(LONGEST_PACKET));
    }
    Ok(longest)
}

/// Returns the daemon's configuration. Timers and windows keep corosync's defaults. Real-time
/// scheduling is off, so the daemon has the same scheduling class as its end and competes with
/// other processes for the CPU.
fn configuration(places: &Places, packet_bytes: u16) -> String {
    // All members have the same list. The node number is the address, so it is unique.
    let mut nodes = [places.others.as_slice(), &[places.own]].concat();
    nodes.sort_unstable();
    let node = |it: &Ipv4Addr| {
        let number = it.to_bits();
        format!("  node {{\n    ring0_addr: {it}\n    nodeid: {number}\n  }}\n")
    };
    let nodes: String = nodes.iter().map(node).collect();
    format!(
        "\
totem {{
  version: 2
  cluster_name: unruly
  transport: udpu
  netmtu: {packet_bytes}
  interface {{
    linknumber: 0
    mcastport: {PORT}
  }}
}}
nodelist {{
{nodes}}}
logging {{
  to_stderr: yes
  to_logfile: no
  to_syslog: no
  blackbox: off
}}
system {{
  state_dir: {FOLDER}
  sched_rr: no
  move_to_root_cgroup: no
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERS: [Ipv4Addr; 3] = [
        Ipv4Addr::new(10, 77, 0, 1),
        Ipv4Addr::new(10, 77, 0, 2),
        Ipv4Addr::new(10, 77, 0, 3),
    ];

    fn places(own: usize) -> Places {
        let others = MEMBERS.into_iter().filter(|it| *it != MEMBERS[own]);
        Places {
            own: MEMBERS[own],
            others: others.collect(),
        }
    }

    #[test]
    fn a_daemon_is_told_all_addresses_and_leaves_nothing_elsewhere() {
        let text = configuration(&places(1), 1_500);
        for line in [
            "netmtu: 1500",
            "ring0_addr: 10.77.0.1",
            "nodeid: 172818433",
            "ring0_addr: 10.77.0.2",
            "nodeid: 172818434",
            "ring0_addr: 10.77.0.3",
            "nodeid: 172818435",
            "mcastport: 5405",
            "to_logfile: no",
            "state_dir: /run/unruly",
            "sched_rr: no",
            "move_to_root_cgroup: no",
        ] {
            let found = text.lines().any(|it| it.trim() == line);
            assert!(found, "{line} in {text}");
        }
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        for own in [0, 2] {
            assert_eq!(configuration(&places(own), 1_500), text);
        }
    }

    #[test]
    fn packets_are_no_longer_than_what_the_daemon_receives() {
        let loopback = Places {
            own: Ipv4Addr::LOCALHOST,
            others: vec![Ipv4Addr::LOCALHOST],
        };
        assert_eq!(packet_bytes(&loopback).unwrap(), LONGEST_PACKET);
    }

    #[test]
    fn a_daemon_that_was_fetched_is_found_with_all_that_it_needs() {
        let root = std::env::temp_dir().join(format!("unruly-corosync-{}", std::process::id()));
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        std::fs::create_dir_all(&libraries).unwrap();
        std::fs::create_dir_all(root.join("usr/sbin")).unwrap();
        let there = root.join("usr/sbin/corosync");
        std::fs::write(&there, "").unwrap();
        let found = fetched(&libraries);
        let second = root.join("lib/x86_64-linux-gnu");
        std::fs::remove_dir_all(&root).unwrap();
        let (program, beside) = found.unwrap();
        assert_eq!(program, there);
        let folders: Vec<PathBuf> = std::env::split_paths(&beside.unwrap()).collect();
        assert_eq!(folders, [libraries, second]);
    }
}
