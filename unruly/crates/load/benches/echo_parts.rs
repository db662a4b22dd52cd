//! What an echo is made of: a bare ping-pong on core 0, and the same with one part of ours added.
//!
//! Client and server are processes of their own, as in a run. Prints one JSON object: for each
//! variant the median round trip of each round, in ns; the variants are interleaved.

#![expect(clippy::unwrap_used, reason = "a benchmark ends where a step fails")]
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::Pid;
use socket2::{Domain, Socket, Type};
use unruly_load::{enable_stamps, receive_waiting};
use unruly_trace::{DurationNs, monotonic};

const ROUNDS: usize = 12;
const TRIPS: usize = 20_000;
const MESSAGE: [u8; 64] = [7; 64];

/// The parts that a variant has on both sides.
#[derive(Clone, Copy, Default)]
struct Parts {
    /// `recvmsg` with room for a stamp instead of `recv`.
    message: bool,
    /// The kernel stamps what it receives.
    stamps: bool,
    /// A receive gives up after some milliseconds.
    timeout: bool,
    /// The process has a second thread.
    thread: bool,
}

const VARIANTS: [(&str, Parts); 5] = [
    ("bare", parts(false, false, false, false)),
    ("recvmsg", parts(true, false, false, false)),
    ("stamps", parts(true, true, false, false)),
    ("timeout", parts(true, true, true, false)),
    ("thread", parts(true, true, true, true)),
];

const fn parts(message: bool, stamps: bool, timeout: bool, thread: bool) -> Parts {
    Parts {
        message,
        stamps,
        timeout,
        thread,
    }
}

fn main() {
    stay_on_core_0();
    let words: Vec<String> = std::env::args().collect();
    if let Some(variant) = words.iter().skip_while(|word| *word != "serve").nth(1) {
        return serve(VARIANTS[variant.parse::<usize>().unwrap()].1);
    }
    let mut found: BTreeMap<&str, Vec<DurationNs>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (number, (name, parts)) in VARIANTS.iter().enumerate() {
            found
                .entry(name)
                .or_default()
                .push(median_ns(number, *parts));
        }
    }
    println!(
        "{}",
        serde_json::json!({"order": VARIANTS.map(|it| it.0), "median_ns": found})
    );
}

fn stay_on_core_0() {
    let mut set = CpuSet::new();
    set.set(0).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// Median round trip to a server process of the same variant.
fn median_ns(variant: usize, parts: Parts) -> DurationNs {
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["serve", &variant.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(server.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let address: std::net::SocketAddr = line.trim().parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut end = End::new(socket, parts);
    let mut trips: Vec<DurationNs> = Vec::with_capacity(TRIPS);
    for _ in 0..TRIPS {
        let start_ns = monotonic();
        end.send();
        assert!(end.receive(), "the server is gone");
        trips.push(monotonic() - start_ns);
    }
    drop(end);
    server.wait().unwrap();
    *trips.select_nth_unstable(TRIPS / 2).1
}

fn serve(parts: Parts) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    let mut end = End::new(listener.accept().unwrap().0.into(), parts);
    while end.receive() {
        end.send();
    }
}

struct End {
    socket: Socket,
    parts: Parts,
    buffer: Vec<u8>,
    control: Vec<u8>,
}

impl End {
    fn new(socket: Socket, parts: Parts) -> Self {
        socket.set_tcp_nodelay(true).unwrap();
        if parts.stamps {
            enable_stamps(socket.as_fd()).unwrap();
        }
        if parts.timeout {
            let timeout = Duration::from_millis(10);
            socket.set_read_timeout(Some(timeout)).unwrap();
        }
        if parts.thread {
            std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3_600)));
        }
        Self {
            socket,
            parts,
            buffer: vec![0; 128 << 10],
            control: vec![0; 256],
        }
    }

    fn send(&self) {
        send(self.socket.as_raw_fd(), &MESSAGE, MsgFlags::MSG_NOSIGNAL).unwrap();
    }

    /// Receives a message; false at the end of the stream.
    fn receive(&mut self) -> bool {
        loop {
            let received = if self.parts.message {
                receive_waiting(self.socket.as_fd(), &mut self.buffer, &mut self.control)
                    .map(|received| received.bytes)
            } else {
                recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty())
                    .map_err(Into::into)
            };
            match received {
                Ok(bytes) => return bytes > 0,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
    }
}
