//! The server side of the group RPC: answers requests of its own run, survives everything else.
//!
//! A thread for each connection, waiting in the receive itself: a reply costs two system calls, and
//! a peer that sends a lot delays no other. It trusts nobody: see [`Door`] for who may stay; no
//! length is believed before it is checked, and a peer that does not read its replies is closed.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use nix::errno::Errno;
use sha2::{Digest, Sha256};
use unruly_load::wire::{Codec, FLAG_DISK, FLAG_HASH, Head, REQUEST_BYTES, Stamps};
use unruly_load::{Poller, Wake, enable_stamps, receive_waiting, set_buffers};
use unruly_trace::{Clock, ColumnNs, monotonic};

use crate::disk::DiskRing;
use crate::door::{Door, Guest};

/// Holds a second of backlog while the server is stopped.
const SOCKET_BUFFER_BYTES: usize = 16 << 20;
/// A receive takes so much at once; messages that are longer get room of their own.
const RECEIVE_BYTES: usize = 128 << 10;
/// A peer that has not read its replies for so long, with full buffers, is closed.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the thread of the datagrams looks whether to stop.
const STOP_PERIOD: Duration = Duration::from_millis(200);
/// Pause before the next try when no file is free for a connection.
const FILE_PAUSE: Duration = Duration::from_millis(10);
/// Threads of connections need little.
const STACK_BYTES: usize = 256 << 10;

const LISTENER: u64 = u64::MAX - 2;

/// What a server needs.
#[derive(Debug)]
pub(crate) struct ServerOptions {
    pub(crate) codec: Codec,
    pub(crate) clock: Clock,
    /// How many connections the peers of the run make.
    pub(crate) peers: usize,
    /// The file of workload C, where the plan has one.
    pub(crate) disk: Option<DiskRing>,
}

/// Where a reply goes.
#[derive(Debug)]
enum Route {
    Stream(Arc<Guest>),
    Datagram(SocketAddr),
}

/// A reply that waits for the disk.
#[derive(Debug)]
struct DiskJob {
    route: Route,
    head: Head,
    stamps: Stamps,
}

/// What the threads of a server share.
#[derive(Debug)]
struct Service {
    codec: Codec,
    clock: Clock,
    datagrams: UdpSocket,
    door: Mutex<Door>,
    refused_datagrams: AtomicU64,
}

/// A server of one process.
#[derive(Debug)]
pub(crate) struct Server {
    service: Service,
    listener: TcpListener,
    poller: Poller,
    disk: Option<DiskRing>,
}

impl Server {
    pub(crate) fn new(
        options: ServerOptions,
        listener: TcpListener,
        datagrams: UdpSocket,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(listener.as_fd(), LISTENER, false)?;
        // Without stamps the columns are null; doctor and report say so.
        let _ = enable_stamps(datagrams.as_fd());
        set_buffers(datagrams.as_fd(), SOCKET_BUFFER_BYTES);
        datagrams.set_nonblocking(false)?;
        datagrams.set_read_timeout(Some(STOP_PERIOD))?;
        Ok(Self {
            service: Service {
                codec: options.codec,
                clock: options.clock,
                datagrams,
                door: Mutex::new(Door::new(options.peers)),
                refused_datagrams: AtomicU64::new(0),
            },
            listener,
            poller,
            disk: options.disk,
        })
    }

    pub(crate) fn waker(&self) -> Wake {
        self.poller.waker()
    }

    /// Serves until the flag is set and the poller is woken. Returns how many connections and
    /// datagrams were refused.
    pub(crate) fn run(self, stop: &AtomicBool) -> io::Result<u64> {
        let Self {
            service,
            listener,
            mut poller,
            disk,
        } = self;
        let (to_disk, jobs) = channel();
        let shared = &service;
        thread::scope(|scope| {
            let to_disk = disk.is_some().then_some(to_disk);
            if let Some(ring) = disk {
                let writer = thread::Builder::new().name("disk".to_owned());
                writer.spawn_scoped(scope, move || shared.write_to_disk(ring, &jobs))?;
            }
            let own = to_disk.clone();
            let reader = thread::Builder::new().name("serve-udp".to_owned());
            reader.spawn_scoped(scope, move || shared.serve_datagrams(stop, own.as_ref()))?;
            let accepted =
                shared.accept_until(stop, scope, &listener, &mut poller, to_disk.as_ref());
            shared.door().close_all();
            accepted
        })?;
        let refused = service.door().refused;
        Ok(refused + service.refused_datagrams.load(Ordering::Relaxed))
    }
}

fn is_out_of_files(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number == Some(Errno::EMFILE as i32) || number == Some(Errno::ENFILE as i32)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    // Without stamps the column is null.
    let _ = enable_stamps(stream.as_fd());
    set_buffers(stream.as_fd(), SOCKET_BUFFER_BYTES);
    stream.set_nodelay(true)?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(SEND_TIMEOUT))
}

impl Service {
    fn door(&self) -> MutexGuard<'_, Door> {
        // The door is whole after each call, so a thread that panicked holding it left it usable.
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept_until<'scope>(
        &'scope self,
        stop: &AtomicBool,
        scope: &'scope Scope<'scope, '_>,
        listener: &TcpListener,
        poller: &mut Poller,
        to_disk: Option<&Sender<DiskJob>>,
    ) -> io::Result<()> {
        while !stop.load(Ordering::Acquire) {
            let until_ns = self.door().close_silent_strangers(monotonic());
            let mut someone = false;
            poller.wait(until_ns, false, &mut |_, _, _| someone = true)?;
            // Level-triggered: who else waits is announced again.
            if !someone {
                continue;
            }
            let accepted = listener.accept();
            // Without a file for it the connection stays in line, which ends the wait at once.
            if accepted.as_ref().is_err_and(is_out_of_files) {
                self.door().close_oldest_stranger();
                thread::sleep(FILE_PAUSE);
            }
            if let Ok((stream, _)) = accepted {
                self.let_in(stream, scope, to_disk);
            }
        }
        Ok(())
    }

    /// Gives a connection a thread, if there is room for it.
    fn let_in<'scope>(
        &'scope self,
        stream: TcpStream,
        scope: &'scope Scope<'scope, '_>,
        to_disk: Option<&Sender<DiskJob>>,
    ) {
        if prepare(&stream).is_err() {
            return;
        }
        let Some((number, guest)) = self.door().enter(stream, monotonic()) else {
            return;
        };
        let to_disk = to_disk.cloned();
        let started = thread::Builder::new()
            .name("serve".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, move || {
                // Whatever ends a connection, its client sees that it has ended.
                let _ = self.serve_stream(&guest, to_disk.as_ref());
                guest.close();
                self.door().leave(number);
            });
        if started.is_err() {
            self.door().leave(number);
        }
    }

    fn serve_stream(
        &self,
        guest: &Arc<Guest>,
        to_disk: Option<&Sender<DiskJob>>,
    ) -> io::Result<()> {
        let longest = REQUEST_BYTES + self.codec.body_bytes as usize;
        let mut input = vec![0; RECEIVE_BYTES.max(2 * longest)];
        let mut control = [0; 256];
        let mut replies = Vec::new();
        let mut filled = 0;
        loop {
            let room = &mut input[filled..];
            let received = match receive_waiting(guest.stream.as_fd(), room, &mut control) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                received => received?,
            };
            if received.bytes == 0 {
                return Ok(());
            }
            filled += received.bytes;
            let kernel_ns = self.clock.column_of_kernel_stamp(received.stamp);
            let mut used = 0;
            while let Some((head, length)) = self
                .codec
                .decode_request(&input[used..filled])
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
            {
                guest.is_known_now();
                let message = &input[used..used + length];
                used += length;
                let stamps = self.handle(head, message, kernel_ns);
                let route = || Route::Stream(Arc::clone(guest));
                self.answer(head, stamps, route, to_disk, &mut replies)?;
            }
            if !replies.is_empty() {
                guest.send(&replies)?;
                replies.clear();
            }
            input.copy_within(used..filled, 0);
            filled -= used;
        }
    }

    fn serve_datagrams(&self, stop: &AtomicBool, to_disk: Option<&Sender<DiskJob>>) {
        let mut input = vec![0; RECEIVE_BYTES];
        let mut control = [0; 256];
        let mut reply = Vec::new();
        while !stop.load(Ordering::Acquire) {
            let socket = self.datagrams.as_fd();
            let Ok(received) = receive_waiting(socket, &mut input, &mut control) else {
                continue;
            };
            let Some(from) = received.from else { continue };
            let kernel_ns = self.clock.column_of_kernel_stamp(received.stamp);
            let message = &input[..received.bytes];
            let whole = |length: usize| length == received.bytes;
            let decoded = self.codec.decode_request(message).ok().flatten();
            let answered = decoded
                .filter(|(_, length)| whole(*length))
                .and_then(|(head, _)| {
                    let stamps = self.handle(head, message, kernel_ns);
                    let route = || Route::Datagram(from);
                    self.answer(head, stamps, route, to_disk, &mut reply).ok()
                });
            if answered.is_none() {
                self.refused_datagrams.fetch_add(1, Ordering::Relaxed);
            } else if !reply.is_empty() {
                // A datagram that does not go is lost, as on any network.
                let _ = self.datagrams.send_to(&reply, from);
            }
            reply.clear();
        }
    }

    /// The handler: stamps, and the hash where it is asked for.
    fn handle(&self, head: Head, message: &[u8], kernel_ns: Option<ColumnNs>) -> Stamps {
        let received_ns = self.clock.column_now();
        if head.flags & FLAG_HASH != 0 {
            std::hint::black_box(Sha256::digest(message));
        }
        Stamps {
            kernel_received_ns: kernel_ns.unwrap_or_default(),
            received_ns,
            sent_ns: ColumnNs(0),
        }
    }

    /// Appends the reply to `out`, or hands it to the disk, which sends it on `route`.
    fn answer(
        &self,
        head: Head,
        stamps: Stamps,
        route: impl FnOnce() -> Route,
        to_disk: Option<&Sender<DiskJob>>,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        if head.flags & FLAG_DISK == 0 {
            self.encode_now(head, stamps, out);
            return Ok(());
        }
        let no_disk = || io::Error::new(io::ErrorKind::InvalidData, "this server has no disk file");
        let job = DiskJob {
            route: route(),
            head,
            stamps,
        };
        to_disk
            .ok_or_else(no_disk)?
            .send(job)
            .map_err(|_| no_disk())
    }

    fn encode_now(&self, head: Head, stamps: Stamps, out: &mut Vec<u8>) {
        let sent_ns = self.clock.column_now();
        self.codec
            .encode_reply(head, Stamps { sent_ns, ..stamps }, out);
    }

    /// The thread of the disk: in line, write, sync, answer.
    fn write_to_disk(&self, mut ring: DiskRing, jobs: &Receiver<DiskJob>) {
        let mut bytes = Vec::new();
        for job in jobs {
            bytes.clear();
            self.codec.encode_reply(job.head, job.stamps, &mut bytes);
            // A write that fails leaves the request without a reply: its client sees a timeout.
            if ring.write(&bytes).is_err() {
                continue;
            }
            bytes.clear();
            self.encode_now(job.head, job.stamps, &mut bytes);
            match job.route {
                Route::Stream(guest) => {
                    if guest.send(&bytes).is_err() {
                        guest.close();
                    }
                }
                Route::Datagram(from) => {
                    let _ = self.datagrams.send_to(&bytes, from);
                }
            }
        }
    }
}
