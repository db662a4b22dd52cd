//! The writing member: it hears its own messages too.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::daemon::{Places, lacking};
use super::functions::Functions;
use super::group::Group;
use super::{LOOK, ROOM_LOOK, ipv4, knock};
use crate::header::Header;
use crate::{Options, Sent, Writer, out_of_time};

/// Messages between two looks at what came back: each is a call of the library or two.
const MESSAGES_A_TURN: u32 = 16;

/// Sends to the group, and hears what it sent itself.
pub(crate) struct CpgWriter {
    group: Group,
    cookie: u32,
    readers: usize,
    since_turn: u32,
    sent_bytes: u64,
    heard: Heard,
}

/// What came to a writer.
#[derive(Default)]
struct Heard {
    /// Of its own messages, in their place among all.
    own_bytes: u64,
    /// Who has answered to the end.
    answered: Vec<u32>,
}

impl CpgWriter {
    /// Knocks at the readers, which start their daemons then, as each daemon is to know all.
    pub(crate) fn connect(
        options: &Options,
        readers: &[SocketAddr],
        patience: Duration,
    ) -> io::Result<Self> {
        let until = Instant::now() + patience;
        let functions = Functions::open(options)?;
        let others: Vec<Ipv4Addr> = readers
            .iter()
            .map(|it| ipv4(it.ip()))
            .collect::<io::Result<_>>()?;
        let knock = knock::written(options.cookie, &others);
        let sockets: Vec<UdpSocket> = readers.iter().map(to).collect::<io::Result<_>>()?;
        // A knock that nobody hears is not told here: there is nobody in the group then.
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
            group: Group::join(functions, options, &places, patience)?,
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

    /// Hears what came. The error is that a reader is gone that has not answered.
    fn turn(&mut self, patience: Duration) -> io::Result<()> {
        self.since_turn = 0;
        let (own, cookie, heard) = (self.group.own, self.cookie, &mut self.heard);
        self.group.turn(patience, &mut |from, message| {
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

/// A socket whose datagrams go there.
fn to(reader: &SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(reader)?;
    Ok(socket)
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
}
