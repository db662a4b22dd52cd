//! Receiving with the kernel's stamp: when a message reached the host, not when its reader woke up.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, recvmsg, setsockopt, sockopt,
};

use crate::instant::WallNs;

/// What one receive call brought.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// Bytes; 0 on a stream means that the peer closed it.
    pub bytes: usize,
    /// The kernel's stamp (`CLOCK_REALTIME`) of the last of them; 0 is missing.
    pub stamp: WallNs,
    /// Where a datagram came from.
    pub from: Option<SocketAddr>,
}

/// Asks the kernel for receive stamps.
///
/// # Errors
///
/// When the kernel has none; the socket works all the same.
pub fn enable_stamps(socket: BorrowedFd<'_>) -> io::Result<()> {
    let flags = TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
    Ok(setsockopt(&socket, sockopt::Timestamping, &flags)?)
}

/// Receives the available bytes, with the kernel's timestamp. `control` is scratch space of 128
/// bytes or more.
///
/// # Errors
///
/// Returns the kernel's error. It is `WouldBlock` if nothing is available.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    control: &mut [u8],
) -> io::Result<Received> {
    receive_with(socket, buffer, control, MsgFlags::MSG_DONTWAIT)
}

/// Like [`receive`], but waits as long as the socket's receive timeout allows.
///
/// # Errors
///
/// What the kernel says; `WouldBlock` when nothing came in time.
pub fn receive_waiting(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    control: &mut [u8],
) -> io::Result<Received> {
    receive_with(socket, buffer, control, MsgFlags::empty())
}

fn receive_with(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    control: &mut [u8],
    flags: MsgFlags,
) -> io::Result<Received> {
    let mut parts = [io::IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(control), flags)?;
    let mut stamp = WallNs(0);
    for item in message.cmsgs()? {
        if let ControlMessageOwned::ScmTimestampsns(stamps) = item {
            stamp = WallNs(stamps.system.tv_sec() * 1_000_000_000 + stamps.system.tv_nsec());
        }
    }
    let from = message.address.as_ref().and_then(|address| {
        if let Some(four) = address.as_sockaddr_in() {
            return Some(SocketAddr::from((four.ip(), four.port())));
        }
        address
            .as_sockaddr_in6()
            .map(|six| SocketAddr::from((six.ip(), six.port())))
    });
    Ok(Received {
        bytes: message.bytes,
        stamp,
        from,
    })
}
