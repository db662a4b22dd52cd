//! The daemon of corosync: one for each member, in the network namespace of this process, and gone with it.
//!
//! It and its library keep files in `/run` and `/dev/shm`. Both are file systems in memory here, which nobody
//! else sees: what is in them goes with the last process that does, however that ends.

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
/// Its own default: nobody else is on a host of a run.
const PORT: u16 = 5_405;
/// It receives into buffers of 10,000 bytes, and a longer packet would be cut off.
const LONGEST_PACKET: u16 = 9_000;
const FOLDER: &str = "/run/unruly";
/// Between two looks whether it answers.
const LOOK: Duration = Duration::from_millis(10);

/// Where the daemons of a group are: they know each other from the beginning.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) own: Ipv4Addr,
    /// One at least.
    pub(super) others: Vec<Ipv4Addr>,
}

/// A running daemon; it ends with this value, or with this process.
pub(super) struct Daemon {
    pid: u32,
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts it, and waits until `connect` has brought something; that is called where its files are seen.
    ///
    /// A thread keeps the daemon: it alone has the daemon's file systems, so that files of a run in those
    /// places stay where they belong. The kernel ends the daemon with the thread that started it.
    pub(super) fn start<T: Send + 'static>(
        places: &Places,
        libraries: Option<&Path>,
        patience: Duration,
        mut connect: impl FnMut() -> io::Result<Option<T>> + Send + 'static,
    ) -> io::Result<(Self, T)> {
        let until = Instant::now() + patience;
        let command = command(libraries)?;
        let text = configuration(places, packet_bytes(places)?);
        let (stop, stopped) = mpsc::channel::<()>();
        let (say, said) = mpsc::channel();
        let keeper = std::thread::spawn(move || {
            match begin(command, &text, until, &mut connect) {
                Ok((running, value)) => {
                    let _ = say.send(Ok((running.0.id(), value)));
                    // Nothing is ever sent: it returns when the other end goes.
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

/// What is wrong with a daemon, or with what it says.
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

/// Starts the daemon with file systems of its own, in this thread, and connects to it.
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

/// Gives this thread, and what it starts, an empty `/run` and `/dev/shm`.
fn own_files() -> nix::Result<()> {
    const NOTHING: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    // What is mounted here is not mounted anywhere else.
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

/// The command of the daemon. Its words go to the log of this process, whose output is for the runner.
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
    // SAFETY: between fork and exec it makes two calls of the kernel and allocates nothing.
    unsafe { command.pre_exec(move || ends_with(parent)) };
    Ok(command)
}

/// Has the kernel end this process with the one that started it, which may be gone already.
fn ends_with(parent: Pid) -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid() == parent {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Where the daemon is: on this host, else beside the libraries that were fetched; then with the folders of
/// what it needs.
fn program(libraries: Option<&Path>) -> Option<(PathBuf, Option<OsString>)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    // A relative part means the working directory, which may be anybody's.
    let mut places = std::env::split_paths(&path)
        .filter(|it| it.is_absolute())
        .chain(sbin);
    let own = places.find_map(|it| program_in(&it));
    own.map(|it| (it, None)).or_else(|| fetched(libraries?))
}

/// The one beside the libraries that were fetched.
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

/// The longest packet of the ways to the others.
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

/// What the daemon reads. Its timers and windows are its own defaults; only its class of the scheduler is not:
/// it is that of the end, beside which others compete.
fn configuration(places: &Places, packet_bytes: u16) -> String {
    // All have the same list; a number is an address, so that it is nobody else's.
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
