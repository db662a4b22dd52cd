//! The writing member. It also receives its own messages.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::daemon::{Places, lacking};
use super::functions::Functions;
use super::group::Group;
use super::{LOOK, ROOM_LOOK, ipv4, knock};
use crate::header::Header;
use crate::{Options, Sent, Writer, out_of_time};

/// Messages between two checks for incoming messages. Each check is one or two library calls.
const MESSAGES_A_TURN: u32 = 16;

/// Sends to the group, and receives its own messages.
pub(crate) struct CpgWriter {
    group: Group,
    cookie: u32,
    readers: usize,
    since_turn: u32,
    sent_bytes: u64,
    heard: Heard,
}

/// The messages that the writer has received.
#[derive(Default)]
struct Heard {
    /// Bytes of the writer's own messages that came back in the group's order.
    own_bytes: u64,
    /// Node numbers of the readers that have acknowledged the end.
    answered: Vec<u32>,
}

impl CpgWriter {
    /// Knocks at the readers. The readers start their daemons then, because each daemon must know
    /// all the others.
    pub(crate) fn connect(
        options: &Options,
        readers: &[SocketAddr],
        timeout: Duration,
    ) -> io::Result<Self> {
        let until = Instant::now() + timeout;
        let functions = Functions::open(options)?;
        let others: Vec<Ipv4Addr> = readers
            .iter()
            .map(|it| ipv4(it.ip()))
            .collect::<io::Result<_>>()?;
        let knock = knock::written(options.cookie, &others);
        let sockets: Vec<UdpSocket> = readers.iter().map(to).collect::<io::Result<_>>()?;
        // A lost knock is not an error here. The group stays empty then, and the loop below reports
        // it.
        let knock = || sockets.iter().for_each(|it| drop(it.send(&knock)));
        knock();
        let own = sockets
            .first()
            .ok_or_else(|| lacking("there is no reader", "one at least"))?;
        let places = Places {
            own: ipv4(own.local_addr()?.ip())?,
            others,
        };
        let mut writer = Self {
            group: Group::join(functions, options, &places, timeout)?,
            cookie: options.cookie,
            readers: readers.len(),
            since_turn: 0,
            sent_bytes: 0,
            heard: Heard::default(),
        };
        while writer.group.view.members <= readers.len() {
            if Instant::now() >= until {
                return Err(out_of_time(match writer.group.view.members {
                    0 | 1 => "nobody else came into the group",
                    _ => "not all readers came into the group",
                }));
            }
            knock();
            writer.turn(LOOK)?;
        }
        Ok(writer)
    }

    /// Receives the available messages. Fails if a reader has left without acknowledging the end.
    fn turn(&mut self, timeout: Duration) -> io::Result<()> {
        self.since_turn = 0;
        let (own, cookie, heard) = (self.group.own, self.cookie, &mut self.heard);
        self.group.turn(timeout, &mut |from, message| {
            if from == own {
                heard.own_bytes += message.len() as u64;
            } else if Header::read(cookie, message).is_some_and(|it| it.end) {
                heard.answered.push(from);
            }
        })?;
        let mut gone = self.group.view.gone.iter();
        match gone.find(|(node, _)| !self.heard.answered.contains(node)) {
            Some((_, reason)) => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                format!("the reader left the group ({})", words(*reason)),
            )),
            None => Ok(()),
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
    fn write(&mut self, message: &[u8], timeout: Duration) -> io::Result<Sent> {
        if !self.send(message)? {
            let until = Instant::now() + timeout;
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

    fn idle(&mut self, timeout: Duration) -> io::Result<()> {
        self.turn(timeout)
    }

    /// A message that comes back has its place in the group's order, but the reader may not have
    /// received it. Each reader therefore acknowledges the end.
    fn finish(&mut self, last: &[u8], timeout: Duration) -> io::Result<()> {
        let until = Instant::now() + timeout;
        if self.write(last, timeout)? == Sent::Full {
            return Err(out_of_time("the group takes no more"));
        }
        while self.heard.answered.len() < self.readers {
            if Instant::now() >= until {
                return Err(out_of_time("a reader has not read to the end"));
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

/// Creates a socket that is connected to a reader.
fn to(reader: &SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(reader)?;
    Ok(socket)
}

/// Returns why a member left, from the library's reason code.
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
}
