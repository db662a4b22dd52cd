//! ENet: reliable, ordered packets over datagrams. The library accepts every packet and never asks
//! the sender to wait. Packets that the network has not taken yet stay in the sender's memory.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use libloading::Library;

use crate::library::{function, open};
use crate::{Options, Reader, Received, Sent, Writer, out_of_time};

pub(crate) const LIBRARY: &str = "libenet.so.7";
pub(crate) const PACKAGE: &str = "libenet7";
const RELIABLE: u32 = 1;
/// Messages between two service calls. Each service call is one or two system calls.
const MESSAGES_A_TURN: u32 = 16;

#[repr(C)]
#[derive(Clone, Copy)]
struct Address {
    host: u32,
    port: u16,
}

/// The first fields of the library's host structure. The other fields are not read.
#[repr(C)]
struct Host {
    socket: c_int,
    address: Address,
}

#[repr(C)]
struct Packet {
    references: usize,
    flags: u32,
    data: *const u8,
    length: usize,
    free: *const c_void,
    user: *const c_void,
}

#[repr(C)]
struct Event {
    kind: c_int,
    peer: *mut c_void,
    channel: u8,
    data: u32,
    packet: *mut Packet,
}

const CONNECTED: c_int = 1;
const DISCONNECTED: c_int = 2;
const RECEIVED: c_int = 3;

/// The library functions that this file calls.
struct Enet {
    service: unsafe extern "C" fn(*mut Host, *mut Event, u32) -> c_int,
    create_packet: unsafe extern "C" fn(*const c_void, usize, u32) -> *mut Packet,
    destroy_packet: unsafe extern "C" fn(*mut Packet),
    send: unsafe extern "C" fn(*mut c_void, u8, *mut Packet) -> c_int,
    disconnect_later: unsafe extern "C" fn(*mut c_void, u32),
    destroy_host: unsafe extern "C" fn(*mut Host),
    host: NonNull<Host>,
    library: Library,
}

impl Enet {
    fn open(options: &Options, at: Option<SocketAddr>) -> io::Result<Self> {
        let library = open(options)?;
        let address = at.map(address_of).transpose()?;
        // SAFETY: the types are those of the library's header.
        unsafe {
            let initialize: unsafe extern "C" fn() -> c_int =
                function(&library, "enet_initialize")?;
            let create: unsafe extern "C" fn(*const Address, usize, usize, u32, u32) -> *mut Host =
                function(&library, "enet_host_create")?;
            if initialize() != 0 {
                return Err(io::Error::last_os_error());
            }
            let place = address.as_ref().map_or(ptr::null(), ptr::from_ref);
            let host = NonNull::new(create(place, 4, 1, 0, 0));
            Ok(Self {
                service: function(&library, "enet_host_service")?,
                create_packet: function(&library, "enet_packet_create")?,
                destroy_packet: function(&library, "enet_packet_destroy")?,
                send: function(&library, "enet_peer_send")?,
                disconnect_later: function(&library, "enet_peer_disconnect_later")?,
                destroy_host: function(&library, "enet_host_destroy")?,
                host: host.ok_or_else(io::Error::last_os_error)?,
                library,
            })
        }
    }

    /// Services the protocol once. Waits at most `timeout` for an event.
    fn turn(&mut self, timeout: Duration) -> io::Result<Option<Event>> {
        let mut event = Event {
            kind: 0,
            peer: ptr::null_mut(),
            channel: 0,
            data: 0,
            packet: ptr::null_mut(),
        };
        let wait = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        // SAFETY: the host lives as long as this value, and the event is written whole.
        match unsafe { (self.service)(self.host.as_ptr(), &raw mut event, wait) } {
            0 => Ok(None),
            1.. => Ok(Some(event)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Passes a packet's bytes to `take`, and frees the packet.
    fn unpack(&self, packet: *mut Packet, take: &mut dyn FnMut(&[u8])) {
        // SAFETY: the library passed the packet with its event. The packet has as many bytes as it
        // states (an empty one has a null pointer), and it is destroyed once.
        unsafe {
            if !(*packet).data.is_null() {
                take(std::slice::from_raw_parts((*packet).data, (*packet).length));
            }
            (self.destroy_packet)(packet);
        }
    }
}

impl Drop for Enet {
    fn drop(&mut self) {
        // SAFETY: this library created the host, and is still loaded.
        unsafe { (self.destroy_host)(self.host.as_ptr()) };
        let _ = &self.library;
    }
}

fn address_of(at: SocketAddr) -> io::Result<Address> {
    let IpAddr::V4(ip) = at.ip() else {
        return Err(io::Error::other(
            "enet: it has no IPv6; wanted an IPv4 address",
        ));
    };
    Ok(Address {
        host: u32::from_ne_bytes(ip.octets()),
        port: at.port(),
    })
}

/// Sends packets to one peer.
pub(crate) struct EnetWriter {
    enet: Enet,
    peer: NonNull<c_void>,
    since_turn: u32,
}

impl EnetWriter {
    pub(crate) fn connect(
        options: &Options,
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<Self> {
        let mut enet = Enet::open(options, None)?;
        let address = address_of(to)?;
        // SAFETY: the type matches the library's header, the host lives, and the address is read
        // once.
        let peer = unsafe {
            let connect: unsafe extern "C" fn(
                *mut Host,
                *const Address,
                usize,
                u32,
            ) -> *mut c_void = function(&enet.library, "enet_host_connect")?;
            connect(enet.host.as_ptr(), &raw const address, 1, options.cookie)
        };
        let peer = NonNull::new(peer).ok_or_else(|| io::Error::other("enet: no peer is free"))?;
        match enet.turn(timeout)? {
            Some(event) if event.kind == CONNECTED => Ok(Self {
                enet,
                peer,
                since_turn: 0,
            }),
            _ => Err(out_of_time("nobody answered")),
        }
    }

    /// Services the protocol. Fails if the peer has disconnected.
    fn turn(&mut self, timeout: Duration) -> io::Result<()> {
        self.since_turn = 0;
        match self.enet.turn(timeout)? {
            Some(event) if event.kind == DISCONNECTED => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the peer was given up",
            )),
            Some(event) if event.kind == RECEIVED => {
                self.enet.unpack(event.packet, &mut |_| {});
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        // SAFETY: the library copies the message. We destroy a packet that it did not take.
        unsafe {
            let packet =
                (self.enet.create_packet)(message.as_ptr().cast(), message.len(), RELIABLE);
            if packet.is_null() {
                return Err(io::Error::from(io::ErrorKind::OutOfMemory));
            }
            if (self.enet.send)(self.peer.as_ptr(), 0, packet) != 0 {
                (self.enet.destroy_packet)(packet);
                return Err(io::Error::other("enet: the packet was refused"));
            }
        }
        Ok(())
    }
}

impl Writer for EnetWriter {
    fn write(&mut self, message: &[u8], _timeout: Duration) -> io::Result<Sent> {
        self.send(message)?;
        self.since_turn += 1;
        if self.since_turn == MESSAGES_A_TURN {
            self.turn(Duration::ZERO)?;
        }
        Ok(Sent::Taken)
    }

    fn idle(&mut self, timeout: Duration) -> io::Result<()> {
        self.turn(timeout)
    }

    fn finish(&mut self, last: &[u8], timeout: Duration) -> io::Result<()> {
        let until = Instant::now() + timeout;
        self.send(last)?;
        // SAFETY: the peer belongs to the host, which lives.
        unsafe { (self.enet.disconnect_later)(self.peer.as_ptr(), 0) };
        while Instant::now() < until {
            if self.turn(Duration::from_millis(20)).is_err() {
                // ENet disconnects after the reader has acknowledged everything.
                return Ok(());
            }
        }
        Err(out_of_time("the reader has not read to the end"))
    }
}

/// Receives the packets of the first peer that connects with this run's cookie.
pub(crate) struct EnetReader {
    enet: Enet,
    peer: *mut c_void,
    cookie: u32,
}

impl EnetReader {
    pub(crate) fn listen(options: &Options, address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let enet = Enet::open(options, Some(address))?;
        // SAFETY: the host lives, and its structure begins with these fields.
        let at = unsafe { enet.host.as_ref() }.address;
        let ip = Ipv4Addr::from(at.host.to_ne_bytes());
        let reader = Self {
            enet,
            peer: ptr::null_mut(),
            cookie: options.cookie,
        };
        Ok((reader, SocketAddr::new(ip.into(), at.port)))
    }
}

impl Reader for EnetReader {
    fn read(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received> {
        let Some(event) = self.enet.turn(timeout)? else {
            return Ok(Received::Nothing);
        };
        match event.kind {
            CONNECTED if self.peer.is_null() && event.data == self.cookie => self.peer = event.peer,
            DISCONNECTED if event.peer == self.peer => return Ok(Received::Ended),
            RECEIVED if event.peer == self.peer => self.enet.unpack(event.packet, take),
            RECEIVED => self.enet.unpack(event.packet, &mut |_| {}),
            _ => return Ok(Received::Nothing),
        }
        Ok(Received::Some)
    }
}
