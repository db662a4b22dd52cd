//! SCTP in user mode (usrsctp). Each of its packets travels in a UDP datagram.
//!
//! The library listens on all addresses, even if it is bound to one, so it needs its own network
//! namespace.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ptr::{self, NonNull};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::frames::Frames;
use crate::header::Header;
use crate::library::{function, open};
use crate::{Options, Reader, Received, Sent, Writer, out_of_time};

pub(crate) const LIBRARY: &str = "libusrsctp.so.2";
pub(crate) const PACKAGE: &str = "libusrsctp2";
const IPPROTO_SCTP: c_int = 132;
const REMOTE_UDP_ENCAPS_PORT: c_int = 0x24;
const SENDV_SNDINFO: u32 = 1;
const EVENT_READ: c_int = 1;
const EVENT_WRITE: c_int = 2;
/// Range of ports. Each stream takes three: the association, the reader's datagrams and the
/// writer's datagrams.
const FIRST_PORT: u16 = 9_900;
const LAST_PORT: u16 = 19_900;
/// Size of the socket's buffers, in bytes. The library takes a message as a whole or not at all.
const BUFFER_BYTES: c_int = 1 << 20;

/// A socket of the library.
type Socket = *mut c_void;

#[repr(C)]
struct UdpEncapsulation {
    address: libc::sockaddr_storage,
    association: u32,
    port: u16,
}

#[repr(C)]
#[derive(Default)]
struct SendInformation {
    stream: u16,
    flags: u16,
    protocol: u32,
    context: u32,
    association: u32,
}

/// The library functions that this file calls.
#[derive(Clone, Copy)]
struct Functions {
    set_option: unsafe extern "C" fn(Socket, c_int, c_int, *const c_void, u32) -> c_int,
    bind: unsafe extern "C" fn(Socket, *const libc::sockaddr_in, u32) -> c_int,
    listen: unsafe extern "C" fn(Socket, c_int) -> c_int,
    accept: unsafe extern "C" fn(Socket, *mut c_void, *mut u32) -> Socket,
    connect: unsafe extern "C" fn(Socket, *const libc::sockaddr_in, u32) -> c_int,
    send: unsafe extern "C" fn(
        Socket,
        *const c_void,
        usize,
        *const c_void,
        c_int,
        *mut c_void,
        u32,
        u32,
        c_int,
    ) -> isize,
    receive: unsafe extern "C" fn(
        Socket,
        *mut c_void,
        usize,
        *mut c_void,
        *mut u32,
        *mut c_void,
        *mut u32,
        *mut u32,
        *mut c_int,
    ) -> isize,
    shutdown: unsafe extern "C" fn(Socket, c_int) -> c_int,
    close: unsafe extern "C" fn(Socket),
    set_non_blocking: unsafe extern "C" fn(Socket, c_int) -> c_int,
    set_upcall: unsafe extern "C" fn(
        Socket,
        unsafe extern "C" fn(Socket, *mut c_void, c_int),
        *mut c_void,
    ) -> c_int,
    events: unsafe extern "C" fn(Socket) -> c_int,
    socket: unsafe extern "C" fn(
        c_int,
        c_int,
        c_int,
        *const c_void,
        *const c_void,
        u32,
        *const c_void,
    ) -> Socket,
}

impl Functions {
    /// Opens the library, and binds its UDP socket to `port`.
    fn open(options: &Options, port: u16) -> io::Result<Self> {
        let library = open(options)?;
        // The library's threads run until the end of this process, so it is never closed.
        let library = Box::leak(Box::new(library));
        // SAFETY: the types match the library's header.
        unsafe {
            let init: unsafe extern "C" fn(u16, *const c_void, *const c_void) =
                function(library, "usrsctp_init")?;
            init(port, ptr::null(), ptr::null());
            Ok(Self {
                set_option: function(library, "usrsctp_setsockopt")?,
                bind: function(library, "usrsctp_bind")?,
                listen: function(library, "usrsctp_listen")?,
                accept: function(library, "usrsctp_accept")?,
                connect: function(library, "usrsctp_connect")?,
                send: function(library, "usrsctp_sendv")?,
                receive: function(library, "usrsctp_recvv")?,
                shutdown: function(library, "usrsctp_shutdown")?,
                close: function(library, "usrsctp_close")?,
                set_non_blocking: function(library, "usrsctp_set_non_blocking")?,
                set_upcall: function(library, "usrsctp_set_upcall")?,
                events: function(library, "usrsctp_get_events")?,
                socket: function(library, "usrsctp_socket")?,
            })
        }
    }
}

/// A flag that the library's threads set when something happened at a socket.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn wait(&self, timeout: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(rung, timeout, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

unsafe extern "C" fn happened(_socket: Socket, bell: *mut c_void, _flags: c_int) {
    // SAFETY: the bell was leaked, so it lives as long as the library's threads.
    unsafe { &*bell.cast::<Bell>() }.ring();
}

/// One end of an association.
struct End {
    functions: Functions,
    socket: NonNull<c_void>,
    bell: &'static Bell,
}

impl End {
    fn new(functions: Functions, encapsulated_to: u16) -> io::Result<Self> {
        // SAFETY: the call passes no callbacks.
        let socket = unsafe {
            (functions.socket)(
                libc::AF_INET,
                libc::SOCK_STREAM,
                IPPROTO_SCTP,
                ptr::null(),
                ptr::null(),
                0,
                ptr::null(),
            )
        };
        let end = Self::of(functions, socket, encapsulated_to)?;
        for option in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
            end.set(libc::SOL_SOCKET, option, &BUFFER_BYTES)?;
        }
        Ok(end)
    }

    fn of(functions: Functions, socket: Socket, encapsulated_to: u16) -> io::Result<Self> {
        let socket = NonNull::new(socket).ok_or_else(io::Error::last_os_error)?;
        let bell: &'static Bell = Box::leak(Box::default());
        let end = Self {
            functions,
            socket,
            bell,
        };
        // SAFETY: zeros are a valid address. For IPv4 they mean any address.
        let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        address.ss_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0);
        let encapsulation = UdpEncapsulation {
            address,
            association: 0,
            port: encapsulated_to.to_be(),
        };
        end.set(IPPROTO_SCTP, REMOTE_UDP_ENCAPS_PORT, &encapsulation)?;
        // SAFETY: the socket lives, and the bell lives as long as the library's threads.
        unsafe {
            (functions.set_non_blocking)(socket.as_ptr(), 1);
            let bell = ptr::from_ref(bell).cast_mut().cast();
            (functions.set_upcall)(socket.as_ptr(), happened, bell);
        }
        Ok(end)
    }

    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        let length = u32::try_from(size_of::<T>()).unwrap_or(0);
        let value: *const T = value;
        // SAFETY: the call reads `value` for its length only.
        let set = unsafe {
            (self.functions.set_option)(self.socket.as_ptr(), level, option, value.cast(), length)
        };
        done(set)
    }

    /// Waits for one of these events until the deadline. Returns true if an event is pending.
    fn wait(&self, events: c_int, until: Instant) -> bool {
        loop {
            // SAFETY: the socket lives.
            if unsafe { (self.functions.events)(self.socket.as_ptr()) } & events != 0 {
                return true;
            }
            let now = Instant::now();
            if now >= until {
                return false;
            }
            self.bell.wait(until - now);
        }
    }

    /// Sends bytes as one message. Returns true if the library took it.
    fn send(&self, message: &[u8], timeout: Duration) -> io::Result<bool> {
        let mut information = SendInformation::default();
        let until = Instant::now() + timeout;
        loop {
            // SAFETY: the call reads the message and its information for their lengths only.
            let sent = unsafe {
                (self.functions.send)(
                    self.socket.as_ptr(),
                    message.as_ptr().cast(),
                    message.len(),
                    ptr::null(),
                    0,
                    (&raw mut information).cast(),
                    u32::try_from(size_of::<SendInformation>()).unwrap_or(0),
                    SENDV_SNDINFO,
                    0,
                )
            };
            if sent >= 0 {
                return Ok(true);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            // The socket may have some room, but not enough for a whole message yet.
            self.bell
                .wait((until - Instant::now()).min(Duration::from_millis(1)));
        }
    }

    /// Receives bytes. Returns 0 at the end of the stream, and `None` if nothing is available.
    fn receive(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let mut length = 0_u32;
        let (mut information_length, mut kind, mut flags) = (0_u32, 0_u32, 0);
        // SAFETY: the call writes at most the length of `room`. It returns neither address nor
        // information.
        let came = unsafe {
            (self.functions.receive)(
                self.socket.as_ptr(),
                room.as_mut_ptr().cast(),
                room.len(),
                ptr::null_mut(),
                &raw mut length,
                ptr::null_mut(),
                &raw mut information_length,
                &raw mut kind,
                &raw mut flags,
            )
        };
        if let Ok(bytes) = usize::try_from(came) {
            return Ok(Some(bytes));
        }
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::WouldBlock {
            return Ok(None);
        }
        Err(error)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: the socket is closed once.
        unsafe { (self.functions.close)(self.socket.as_ptr()) };
    }
}

fn done(returned: c_int) -> io::Result<()> {
    if returned == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn address_of(ip: IpAddr, port: u16) -> io::Result<libc::sockaddr_in> {
    let IpAddr::V4(ip) = ip else {
        return Err(io::Error::other(
            "sctp: only IPv4 is encapsulated here; wanted an IPv4 address",
        ));
    };
    Ok(libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0),
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(ip.octets()),
        },
        sin_zero: [0; 8],
    })
}

const ADDRESS_LENGTH: u32 = 16;

/// Returns the first of three consecutive ports of which the two for datagrams are free.
fn free_ports() -> io::Result<u16> {
    let any = Ipv4Addr::UNSPECIFIED;
    let mut first = (FIRST_PORT..LAST_PORT).step_by(3);
    first
        .find(|port| (1..3).all(|next| UdpSocket::bind((any, port + next)).is_ok()))
        .ok_or_else(|| io::Error::from(io::ErrorKind::AddrInUse))
}

/// Writes messages to an association.
pub(crate) struct SctpWriter {
    end: End,
}

impl SctpWriter {
    pub(crate) fn connect(
        options: &Options,
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<Self> {
        let functions = Functions::open(options, to.port() + 2)?;
        let end = End::new(functions, to.port() + 1)?;
        let address = address_of(to.ip(), to.port())?;
        // SAFETY: the call reads the address for its length only.
        let begun =
            unsafe { (functions.connect)(end.socket.as_ptr(), &raw const address, ADDRESS_LENGTH) };
        let error = io::Error::last_os_error();
        if begun != 0 && error.raw_os_error() != Some(libc::EINPROGRESS) {
            return Err(error);
        }
        if !end.wait(EVENT_WRITE, Instant::now() + timeout) {
            return Err(out_of_time("no association"));
        }
        Ok(Self { end })
    }
}

impl Writer for SctpWriter {
    fn write(&mut self, message: &[u8], timeout: Duration) -> io::Result<Sent> {
        let taken = self.end.send(message, timeout)?;
        Ok(if taken { Sent::Taken } else { Sent::Full })
    }

    fn finish(&mut self, last: &[u8], timeout: Duration) -> io::Result<()> {
        let until = Instant::now() + timeout;
        if !self.end.send(last, timeout)? {
            return Err(out_of_time("the reader takes no more"));
        }
        // SAFETY: the socket lives.
        unsafe { (self.end.functions.shutdown)(self.end.socket.as_ptr(), libc::SHUT_WR) };
        // The association ends when the reader has received everything.
        loop {
            match self.end.receive(&mut [0; 64]) {
                Ok(Some(0)) | Err(_) => return Ok(()),
                Ok(_) if self.end.wait(EVENT_READ, until) => {}
                Ok(_) => return Err(out_of_time("the reader has not read to the end")),
            }
        }
    }
}

/// Reads from the first association whose first message belongs to this run.
pub(crate) struct SctpReader {
    listener: End,
    association: Option<End>,
    encapsulated_to: u16,
    known: bool,
    frames: Frames,
    cookie: u32,
}

impl SctpReader {
    pub(crate) fn listen(options: &Options, address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let port = if address.port() == 0 {
            free_ports()?
        } else {
            address.port()
        };
        let functions = Functions::open(options, port + 1)?;
        let listener = End::new(functions, port + 2)?;
        let own = address_of(address.ip(), port)?;
        // SAFETY: the calls read the address for its length only, and the socket lives.
        unsafe {
            done((functions.bind)(
                listener.socket.as_ptr(),
                &raw const own,
                ADDRESS_LENGTH,
            ))?;
            done((functions.listen)(listener.socket.as_ptr(), 4))?;
        }
        let reader = Self {
            listener,
            association: None,
            encapsulated_to: port + 2,
            known: false,
            frames: Frames::new(options.message_bytes),
            cookie: options.cookie,
        };
        Ok((reader, SocketAddr::new(address.ip(), port)))
    }

    fn accept(&mut self, until: Instant) -> io::Result<Received> {
        if !self.listener.wait(EVENT_READ, until) {
            return Ok(Received::Nothing);
        }
        let functions = self.listener.functions;
        // SAFETY: the call does not ask for an address.
        let socket = unsafe {
            let listener = self.listener.socket.as_ptr();
            (functions.accept)(listener, ptr::null_mut(), ptr::null_mut())
        };
        if socket.is_null() {
            return Ok(Received::Nothing);
        }
        self.association = Some(End::of(functions, socket, self.encapsulated_to)?);
        Ok(Received::Some)
    }
}

impl Reader for SctpReader {
    fn read(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received> {
        let until = Instant::now() + timeout;
        let Some(association) = &self.association else {
            return self.accept(until);
        };
        let bytes = loop {
            match association.receive(self.frames.room())? {
                Some(0) => return Ok(Received::Ended),
                Some(bytes) => break bytes,
                None if association.wait(EVENT_READ, until) => {}
                None => return Ok(Received::Nothing),
            }
        };
        let (known, cookie) = (&mut self.known, self.cookie);
        let mut stranger = false;
        self.frames.came(bytes, &mut |message| {
            stranger |= !*known && Header::read(cookie, message).is_none();
            *known |= !stranger;
            if *known {
                take(message);
            }
        });
        if stranger {
            self.association = None;
            self.frames.clear();
        }
        Ok(Received::Some)
    }
}
