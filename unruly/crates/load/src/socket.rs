//! Sockets of the generator and of what it measures.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::BorrowedFd;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, SockRef, Socket, Type};
pub use unruly_time::stamp::{Received, enable_stamps, receive, receive_waiting};

/// Asks for socket buffers that hold a backlog; root gets what it asks for, others up to the limit.
pub fn set_buffers(socket: BorrowedFd<'_>, bytes: usize) {
    // The limit of the system stands where we may not exceed it: smaller buffers are no error.
    if setsockopt(&socket, sockopt::RcvBufForce, &bytes).is_err() {
        let _ = setsockopt(&socket, sockopt::RcvBuf, &bytes);
    }
    if setsockopt(&socket, sockopt::SndBufForce, &bytes).is_err() {
        let _ = setsockopt(&socket, sockopt::SndBuf, &bytes);
    }
}

/// A non-blocking listening TCP socket.
///
/// # Errors
///
/// When the port is taken or not allowed.
pub fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A non-blocking UDP socket with stamps.
///
/// # Errors
///
/// When the port is taken or not allowed.
pub fn bind_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    SockRef::from(&socket).set_nonblocking(true)?;
    Ok(socket)
}
