//! Checks whether the kernel stamps received data, over the loopback.
//!
//! The drivers need these stamps to distinguish a slow peer from a slow reader. The kernel enables
//! stamping some time after the request, so the first packets have no stamp, or a zero. The check
//! therefore sends messages until one has a stamp, up to a limit.

use std::io::{self, IoSliceMut, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use super::trials::Trial;

/// Messages that are sent before giving up.
const TRIES_MAX: u32 = 200;
/// Between two messages, for the kernel to get ready.
const PAUSE: Duration = Duration::from_millis(1);
/// A message over the loopback that takes longer was lost.
const WAIT: Duration = Duration::from_millis(200);

/// Tries with datagrams.
pub(super) fn try_udp() -> Trial {
    Trial::of(|| {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        sender.connect(receiver.local_addr()?)?;
        receiver.set_read_timeout(Some(WAIT))?;
        stamp_arrives(&receiver, || sender.send(&[1]).map(|_| ()))
    })
}

/// Tries with a stream.
pub(super) fn try_tcp() -> Trial {
    Trial::of(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut sender = TcpStream::connect(listener.local_addr()?)?;
        sender.set_nodelay(true)?;
        let (receiver, _) = listener.accept()?;
        receiver.set_read_timeout(Some(WAIT))?;
        stamp_arrives(&receiver, || sender.write_all(&[1]))
    })
}

fn stamp_arrives(
    receiver: &(impl AsFd + AsRawFd),
    mut send: impl FnMut() -> io::Result<()>,
) -> io::Result<bool> {
    let wanted = TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
    if setsockopt(receiver, sockopt::Timestamping, &wanted).is_err() {
        return Ok(false);
    }
    for _ in 0..TRIES_MAX {
        send()?;
        if is_stamped(receiver)? {
            return Ok(true);
        }
        thread::sleep(PAUSE);
    }
    Ok(false)
}

/// Receives one message and looks for its stamp; a zero is none.
fn is_stamped(receiver: &impl AsRawFd) -> io::Result<bool> {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([TimeSpec; 3]);
    let message = recvmsg::<()>(
        receiver.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::empty(),
    )?;
    let is_stamp = |control: ControlMessageOwned| match control {
        ControlMessageOwned::ScmTimestampsns(stamps) => {
            stamps.system.tv_sec() != 0 || stamps.system.tv_nsec() != 0
        }
        _ => false,
    };
    Ok(message.cmsgs()?.any(is_stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trial_comes_to_an_end_whatever_the_host_can_do() {
        // Which end depends on the host: a container may have no loopback.
        let _ = try_udp();
        let _ = try_tcp();
    }
}
