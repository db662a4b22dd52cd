//! The server side of the group RPC: answers requests of its own run, survives everything else.
//!
//! It trusts nobody: a connection that has not said a valid request within some seconds is closed,
//! there are never more than a bounded number of strangers (the oldest goes first), and no length
//! is believed before it is checked. Peers of the run are known by the run's cookie.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};
use unruly_load::wire::{Codec, FLAG_DISK, FLAG_HASH, Head, REQUEST_BYTES, Stamps};
use unruly_load::{Poller, Wake, enable_stamps, receive, set_buffers};
use unruly_trace::{Clock, monotonic};

use crate::disk::{Disk, DiskJob};

/// A stranger must say a valid request within this time.
const STRANGER_PATIENCE_NS: i64 = 5_000_000_000;
/// Strangers at one time; one more closes the oldest.
const STRANGERS_MAX: usize = 256;
/// Connections at one time, of all kinds.
const CONNECTIONS_MAX: usize = 4096;
/// Holds a second of backlog while the server is stopped.
const SOCKET_BUFFER_BYTES: usize = 16 << 20;
const RECEIVE_BYTES: usize = 128 << 10;
/// A reader that does not read its replies is closed at this backlog.
const BACKLOG_BYTES_MAX: usize = 256 << 20;

const LISTENER: u64 = u64::MAX - 2;
const DATAGRAMS: u64 = u64::MAX - 3;

/// What a server needs.
#[derive(Debug)]
pub(crate) struct ServerOptions {
    pub(crate) codec: Codec,
    pub(crate) clock: Clock,
    /// The file of workload C and its size, where the plan has one.
    pub(crate) disk: Option<(PathBuf, u64)>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    generation: u64,
    accepted_ns: i64,
    known: bool,
    input: Vec<u8>,
    out: Vec<u8>,
    head: usize,
    watches_write: bool,
}

/// A server of one process.
#[derive(Debug)]
pub(crate) struct Server {
    options: ServerOptions,
    listener: TcpListener,
    datagrams: UdpSocket,
    poller: Poller,
    connections: Vec<Option<Connection>>,
    disk: Option<Disk>,
    generation: u64,
    scratch: Vec<u8>,
    control_space: Vec<u8>,
    reply: Vec<u8>,
    refused: u64,
}

impl Server {
    pub(crate) fn new(
        options: ServerOptions,
        listener: TcpListener,
        datagrams: UdpSocket,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(listener.as_fd(), LISTENER, false)?;
        poller.add(datagrams.as_fd(), DATAGRAMS, false)?;
        // Without stamps the columns are null; doctor and report say so.
        let _ = enable_stamps(datagrams.as_fd());
        set_buffers(datagrams.as_fd(), SOCKET_BUFFER_BYTES);
        let disk = match &options.disk {
            Some((path, bytes_max)) => Some(Disk::start(
                path,
                *bytes_max,
                options.codec,
                poller.waker(),
            )?),
            None => None,
        };
        Ok(Self {
            options,
            listener,
            datagrams,
            poller,
            connections: Vec::new(),
            disk,
            generation: 0,
            scratch: vec![0; RECEIVE_BYTES],
            control_space: vec![0; 256],
            reply: Vec::new(),
            refused: 0,
        })
    }

    pub(crate) fn waker(&self) -> Wake {
        self.poller.waker()
    }

    /// Serves until the flag is set and the poller is woken. Returns how many connections and
    /// datagrams were refused.
    pub(crate) fn run(mut self, stop: &Arc<AtomicBool>) -> io::Result<u64> {
        while !stop.load(Ordering::Acquire) {
            let until_ns = self.close_silent_strangers(monotonic().0);
            let mut ready = [(0_u64, false, false); 64];
            let mut count = 0;
            self.poller
                .wait(until_ns, false, &mut |token, readable, writable| {
                    if count < ready.len() {
                        ready[count] = (token, readable, writable);
                        count += 1;
                    }
                })?;
            for (token, readable, writable) in ready.into_iter().take(count) {
                match token {
                    LISTENER => self.accept(),
                    DATAGRAMS => self.read_datagram(),
                    token => self.serve(
                        usize::try_from(token).unwrap_or(usize::MAX),
                        readable,
                        writable,
                    ),
                }
            }
            while let Some(job) = self.disk.as_ref().and_then(Disk::finished) {
                self.answer_disk_job(&job);
            }
        }
        Ok(self.refused)
    }

    fn accept(&mut self) {
        // Level-triggered: who else waits is announced again.
        let Ok((stream, _)) = self.listener.accept() else {
            return;
        };
        let open = self.connections.iter().flatten().count();
        if open >= CONNECTIONS_MAX || stream.set_nonblocking(true).is_err() {
            self.refused += 1;
            return;
        }
        self.make_room();
        let _ = stream.set_nodelay(true);
        let _ = enable_stamps(stream.as_fd());
        set_buffers(stream.as_fd(), SOCKET_BUFFER_BYTES);
        self.generation += 1;
        let connection = Connection {
            stream,
            generation: self.generation,
            accepted_ns: monotonic().0,
            known: false,
            input: Vec::new(),
            out: Vec::new(),
            head: 0,
            watches_write: false,
        };
        let index = self
            .connections
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
        if self
            .poller
            .add(connection.stream.as_fd(), index as u64, false)
            .is_ok()
        {
            self.connections[index] = Some(connection);
        }
    }

    /// Closes the oldest stranger when there are too many.
    fn make_room(&mut self) {
        let strangers = || {
            self.connections
                .iter()
                .enumerate()
                .filter_map(|(index, connection)| {
                    connection
                        .as_ref()
                        .filter(|it| !it.known)
                        .map(|it| (it.accepted_ns, index))
                })
        };
        if strangers().count() >= STRANGERS_MAX
            && let Some((_, index)) = strangers().min()
        {
            self.close(index, true);
        }
    }

    /// Returns when to look again.
    fn close_silent_strangers(&mut self, now_ns: i64) -> Option<i64> {
        let mut next_ns = None;
        for index in 0..self.connections.len() {
            let Some(connection) = &self.connections[index] else {
                continue;
            };
            if connection.known {
                continue;
            }
            let end_ns = connection.accepted_ns + STRANGER_PATIENCE_NS;
            if end_ns <= now_ns {
                self.close(index, true);
            } else {
                next_ns = Some(next_ns.map_or(end_ns, |next_ns: i64| next_ns.min(end_ns)));
            }
        }
        next_ns
    }

    fn close(&mut self, index: usize, refused: bool) {
        self.refused += u64::from(refused);
        if let Some(connection) = self.connections[index].take() {
            self.poller.remove(connection.stream.as_fd());
        }
    }

    fn serve(&mut self, index: usize, readable: bool, writable: bool) {
        if !matches!(self.connections.get(index), Some(Some(_))) {
            return; // closed by an earlier event of the same round
        }
        if writable && self.flush(index).is_err() {
            return self.close(index, false);
        }
        if readable && self.read_stream(index).is_err() {
            let stranger = self.connections[index].as_ref().is_some_and(|it| !it.known);
            self.close(index, stranger);
        }
    }

    fn read_stream(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = self.connections[index].as_mut() else {
            return Ok(());
        };
        let received = match receive(
            connection.stream.as_fd(),
            &mut self.scratch,
            &mut self.control_space,
        ) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let kernel_ns = self
            .options
            .clock
            .column_of_kernel_stamp(received.stamp)
            .unwrap_or(0);
        let mut input = std::mem::take(&mut connection.input);
        let generation = connection.generation;
        let scratch = std::mem::take(&mut self.scratch);
        let fresh = &scratch[..received.bytes];
        let whole = if input.is_empty() {
            fresh
        } else {
            input.extend_from_slice(fresh);
            &input[..]
        };
        let served = self.serve_all(index, generation, whole, kernel_ns);
        if let (Ok(used), Some(connection)) = (&served, self.connections[index].as_mut()) {
            connection.input = whole[*used..].to_vec();
        }
        self.scratch = scratch;
        served?;
        self.flush(index)
    }

    /// Serves the whole requests in `bytes`. Returns how many bytes they were.
    fn serve_all(
        &mut self,
        index: usize,
        generation: u64,
        bytes: &[u8],
        kernel_ns: i64,
    ) -> io::Result<usize> {
        let mut used = 0;
        while used < bytes.len() {
            let decoded = self.options.codec.decode_request(&bytes[used..]);
            let Some((head, length)) =
                decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
            else {
                break;
            };
            let stamps = self.handle(head, &bytes[used..used + length], kernel_ns);
            used += length;
            let Some(connection) = self.connections[index].as_mut() else {
                break;
            };
            connection.known = true;
            if head.flags & FLAG_DISK != 0 {
                self.to_disk(DiskJob {
                    connection: index,
                    generation,
                    from: None,
                    head,
                    stamps,
                })?;
            } else {
                let stamps = Stamps {
                    sent_ns: self.options.clock.column_now(),
                    ..stamps
                };
                self.options
                    .codec
                    .encode_reply(head, stamps, &mut connection.out);
            }
        }
        Ok(used)
    }

    /// The handler: stamps, and the hash where it is asked for.
    fn handle(&self, head: Head, message: &[u8], kernel_ns: i64) -> Stamps {
        let received_ns = self.options.clock.column_now();
        if head.flags & FLAG_HASH != 0 {
            std::hint::black_box(Sha256::digest(message));
        }
        Stamps {
            kernel_received_ns: kernel_ns,
            received_ns,
            sent_ns: 0,
        }
    }

    fn to_disk(&self, job: DiskJob) -> io::Result<()> {
        let Some(disk) = &self.disk else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "this server has no disk file",
            ));
        };
        disk.submit(job);
        Ok(())
    }

    fn answer_disk_job(&mut self, job: &DiskJob) {
        let stamps = Stamps {
            sent_ns: self.options.clock.column_now(),
            ..job.stamps
        };
        if let Some(from) = job.from {
            self.reply.clear();
            self.options
                .codec
                .encode_reply(job.head, stamps, &mut self.reply);
            // A datagram that does not go is lost, as on any network.
            let _ = self.datagrams.send_to(&self.reply, from);
            return;
        }
        let Some(Some(connection)) = self.connections.get_mut(job.connection) else {
            return;
        };
        if connection.generation != job.generation {
            return;
        }
        self.options
            .codec
            .encode_reply(job.head, stamps, &mut connection.out);
        if self.flush(job.connection).is_err() {
            self.close(job.connection, false);
        }
    }

    fn read_datagram(&mut self) {
        let received = receive(
            self.datagrams.as_fd(),
            &mut self.scratch,
            &mut self.control_space,
        );
        let Ok(received) = received else { return };
        let Some(from) = received.from else { return };
        let kernel_ns = self
            .options
            .clock
            .column_of_kernel_stamp(received.stamp)
            .unwrap_or(0);
        let message = &self.scratch[..received.bytes];
        let decoded = self.options.codec.decode_request(message);
        let whole = |length: usize| length == received.bytes && length >= REQUEST_BYTES;
        let Some((head, _)) = decoded.ok().flatten().filter(|(_, length)| whole(*length)) else {
            self.refused += 1;
            return;
        };
        let stamps = self.handle(head, message, kernel_ns);
        if head.flags & FLAG_DISK == 0 {
            self.reply_to(from, head, stamps);
            return;
        }
        let job = DiskJob {
            connection: 0,
            generation: 0,
            from: Some(from),
            head,
            stamps,
        };
        if self.to_disk(job).is_err() {
            self.refused += 1;
        }
    }

    fn reply_to(&mut self, from: SocketAddr, head: Head, stamps: Stamps) {
        self.reply.clear();
        let stamps = Stamps {
            sent_ns: self.options.clock.column_now(),
            ..stamps
        };
        self.options
            .codec
            .encode_reply(head, stamps, &mut self.reply);
        // A datagram that does not go is lost, as on any network.
        let _ = self.datagrams.send_to(&self.reply, from);
    }

    fn flush(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = self.connections[index].as_mut() else {
            return Ok(());
        };
        while connection.head < connection.out.len() {
            match connection.stream.write(&connection.out[connection.head..]) {
                Ok(written) => connection.head += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let wants = connection.head < connection.out.len();
        if !wants {
            connection.out.clear();
            connection.head = 0;
        } else if connection.out.len() - connection.head > BACKLOG_BYTES_MAX {
            return Err(io::Error::other("the peer does not read its replies"));
        }
        if wants != connection.watches_write {
            connection.watches_write = wants;
            self.poller
                .change(connection.stream.as_fd(), index as u64, wants)?;
        }
        Ok(())
    }
}
