//! A group of two of corosync: whatever its members hear, who comes and who goes included, they hear in one order
//! (extended virtual synchrony). The writer hears its own messages too.

mod daemon;
mod functions;
mod group;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use daemon::{PORT, Place};
use group::Group;

use crate::header::{HEADER_BYTES, Header};
use crate::{Options, Reader, Received, Sent, Writer, out_of_time};

pub(crate) use daemon::PACKAGE;

pub(crate) const LIBRARY: &str = "libcpg.so.4";
/// What the library needs itself.
pub(crate) const NEEDED: [&str; 2] = ["libqb.so.100", "libcorosync_common.so.4"];

/// To start a daemon, beside whatever else starts.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// Messages between two looks at what came back: each is a call of the library or two.
const MESSAGES_A_TURN: u32 = 16;
/// There may be room again although nothing came back.
const ROOM_LOOK: Duration = Duration::from_millis(1);
const LOOK: Duration = Duration::from_millis(20);
/// For an answer to be handed over, and for the writer to go when it has it.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Sends to the group, and hears what it sent itself.
pub(crate) struct CpgWriter {
    group: Group,
    cookie: u32,
    since_turn: u32,
    sent_bytes: u64,
    heard: Heard,
}

/// What came to a writer.
#[derive(Default)]
struct Heard {
    /// Of its own messages, in their place among all.
    own_bytes: u64,
    /// The reader has answered to the end.
    answered: bool,
}

impl CpgWriter {
    pub(crate) fn connect(
        options: &Options,
        to: SocketAddr,
        patience: Duration,
    ) -> io::Result<Self> {
        let until = Instant::now() + patience;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(to)?;
        let place = Place {
            own: ipv4(socket.local_addr()?.ip())?,
            port: to.port(),
        };
        let mut writer = Self {
            group: Group::join(options, place, patience)?,
            cookie: options.cookie,
            since_turn: 0,
            sent_bytes: 0,
            heard: Heard::default(),
        };
        while writer.group.view.members < 2 {
            if Instant::now() >= until {
                return Err(out_of_time("nobody else came into the group"));
            }
            writer.turn(LOOK)?;
        }
        Ok(writer)
    }

    /// Hears what came. The error is that the reader is gone.
    fn turn(&mut self, patience: Duration) -> io::Result<()> {
        self.since_turn = 0;
        let (own, cookie, heard) = (self.group.own, self.cookie, &mut self.heard);
        self.group.turn(patience, &mut |from, message| {
            if from == own {
                heard.own_bytes += message.len() as u64;
            } else if Header::read(cookie, message).is_some_and(|it| it.end) {
                heard.answered = true;
            }
        })?;
        match self.group.view.gone {
            Some(reason) if !self.heard.answered => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                format!("the reader left the group ({})", words(reason)),
            )),
            _ => Ok(()),
        }
    }

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let taken = self.group.multicast(message)?;
        if taken {
            self.sent_bytes += message.len() as u64;
        }
        Ok(taken)
    }
}

impl Writer for CpgWriter {
    fn write(&mut self, message: &[u8], patience: Duration) -> io::Result<Sent> {
        if !self.send(message)? {
            let until = Instant::now() + patience;
            loop {
                let left = until.saturating_duration_since(Instant::now());
                self.turn(left.min(ROOM_LOOK))?;
                if self.send(message)? {
                    break;
                }
                if left.is_zero() {
                    return Ok(Sent::Full);
                }
            }
        }
        self.since_turn += 1;
        if self.since_turn >= MESSAGES_A_TURN {
            self.turn(Duration::ZERO)?;
        }
        Ok(Sent::Taken)
    }

    fn idle(&mut self, patience: Duration) -> io::Result<()> {
        self.turn(patience)
    }

    /// That a message came back says that it has its place among all, and not that the reader has it: so the
    /// reader answers.
    fn finish(&mut self, last: &[u8], patience: Duration) -> io::Result<()> {
        let until = Instant::now() + patience;
        if self.write(last, patience)? == Sent::Full {
            return Err(out_of_time("the group takes no more"));
        }
        while !self.heard.answered {
            if Instant::now() >= until {
                return Err(out_of_time("the reader has not read to the end"));
            }
            self.turn(LOOK)?;
        }
        Ok(())
    }

    fn held_bytes(&self) -> Option<u64> {
        Some(self.sent_bytes.saturating_sub(self.heard.own_bytes))
    }

    fn helper(&self) -> Option<u32> {
        Some(self.group.daemon())
    }
}

/// Hears the group, and answers to the end.
pub(crate) struct CpgReader {
    group: Group,
    cookie: u32,
    answered: bool,
}

impl CpgReader {
    pub(crate) fn listen(options: &Options, address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let own = ipv4(address.ip())?;
        let port = if address.port() == 0 {
            PORT
        } else {
            address.port()
        };
        let reader = Self {
            group: Group::join(options, Place { own, port }, START_PATIENCE)?,
            cookie: options.cookie,
            answered: false,
        };
        Ok((reader, SocketAddr::new(own.into(), port)))
    }

    /// Tells the writer that all of it was read.
    fn answer(&mut self, end: Header) -> io::Result<()> {
        let mut message = [0; HEADER_BYTES];
        end.write(self.cookie, &mut message);
        let until = Instant::now() + END_PATIENCE;
        while !self.group.multicast(&message)? {
            if Instant::now() >= until {
                return Err(out_of_time("the group does not take the answer"));
            }
            self.group.turn(ROOM_LOOK, &mut |_, _| {})?;
        }
        self.answered = true;
        Ok(())
    }
}

impl Reader for CpgReader {
    fn read(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received> {
        let (own, cookie, mut end) = (self.group.own, self.cookie, None);
        let came = self.group.turn(patience, &mut |from, message| {
            if from != own {
                end = end.or(Header::read(cookie, message).filter(|it| it.end));
                take(message);
            }
        })?;
        if let Some(end) = end {
            self.answer(end)?;
        }
        // What it said before it went is heard before.
        Ok(if came {
            Received::Some
        } else if self.group.view.gone.is_some() {
            Received::Ended
        } else {
            Received::Nothing
        })
    }

    fn helper(&self) -> Option<u32> {
        Some(self.group.daemon())
    }
}

impl Drop for CpgReader {
    fn drop(&mut self) {
        // The daemon sends the answer again if it was lost on the way: it is there until the writer has it.
        let until = Instant::now() + END_PATIENCE;
        while self.answered && self.group.view.gone.is_none() && Instant::now() < until {
            if self.group.turn(LOOK, &mut |_, _| {}).is_err() {
                return;
            }
        }
    }
}

fn ipv4(ip: IpAddr) -> io::Result<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) => Ok(ip),
        IpAddr::V6(_) => Err(io::Error::other(
            "hosts are numbered by their IPv4 addresses here; wanted one",
        )),
    }
}

/// Why a member is gone, as the library counts the reasons.
fn words(reason: u32) -> String {
    match reason {
        2 => "it left".to_owned(),
        3 => "its host is not heard any more".to_owned(),
        5 => "its process ended".to_owned(),
        other => format!("reason {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_member_is_gone_is_said_in_words() {
        assert_eq!(words(2), "it left");
        assert_eq!(words(3), "its host is not heard any more");
        assert_eq!(words(5), "its process ended");
        assert_eq!(words(9), "reason 9");
    }

    #[test]
    fn an_address_that_has_no_number_is_refused() {
        assert!(ipv4(IpAddr::from([10, 77, 0, 1])).is_ok());
        assert!(ipv4("::1".parse().unwrap()).is_err());
    }
}
