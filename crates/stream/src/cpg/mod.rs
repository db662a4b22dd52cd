//! A group of two of corosync: whatever its members hear, who comes and who goes included, they hear in one order
//! (extended virtual synchrony). The writer hears its own messages too.

mod daemon;
mod functions;
mod group;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use daemon::Places;
use functions::Functions;
use group::Group;

use crate::header::{HEADER_BYTES, Header};
use crate::{Options, Reader, Received, Sent, Writer, out_of_time};

pub(crate) use daemon::PACKAGE;

pub(crate) const LIBRARY: &str = "libcpg.so.4";
/// What the library needs itself.
pub(crate) const NEEDED: [&str; 2] = ["libqb.so.100", "libcorosync_common.so.4"];

/// To start a daemon, beside whatever else starts.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Messages between two looks at what came back: each is a call of the library or two.
const MESSAGES_A_TURN: u32 = 16;
/// There may be room again although nothing came back.
const ROOM_LOOK: Duration = Duration::from_millis(1);
const LOOK: Duration = Duration::from_millis(20);
/// For an answer to be handed over, and for the writer to go when it has it.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// By which a reader hears where its writer is.
const KNOCK: Header = Header {
    sequence: 0,
    stamp_ns: None,
    end: false,
};

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
    /// Knocks at the reader, which starts its daemon then, as each daemon is to know both.
    pub(crate) fn connect(
        options: &Options,
        to: SocketAddr,
        patience: Duration,
    ) -> io::Result<Self> {
        let until = Instant::now() + patience;
        let functions = Functions::open(options)?;
        let mut knock = [0; HEADER_BYTES];
        KNOCK.write(options.cookie, &mut knock);
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(to)?;
        // A knock that nobody hears is not told here: there is nobody in the group then.
        let _ = socket.send(&knock);
        let places = Places {
            own: ipv4(socket.local_addr()?.ip())?,
            other: ipv4(to.ip())?,
        };
        let mut writer = Self {
            group: Group::join(functions, options, places, patience)?,
            cookie: options.cookie,
            since_turn: 0,
            sent_bytes: 0,
            heard: Heard::default(),
        };
        while writer.group.view.members < 2 {
            if Instant::now() >= until {
                return Err(out_of_time("nobody else came into the group"));
            }
            let _ = socket.send(&knock);
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
    functions: Functions,
    options: Options,
    own: Ipv4Addr,
    stage: Stage,
    answered: bool,
}

/// How far a reader is.
enum Stage {
    /// It listens for a knock.
    Alone(UdpSocket),
    /// Its daemon starts.
    Joining(JoinHandle<io::Result<Group>>),
    Member(Box<Group>),
    /// It cannot be in the group.
    Failed(String),
}

impl CpgReader {
    pub(crate) fn listen(options: &Options, address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let functions = Functions::open(options)?;
        // A daemon that there is not is told now.
        daemon::command(options.library.as_deref())?;
        let socket = UdpSocket::bind(address)?;
        let at = socket.local_addr()?;
        let reader = Self {
            functions,
            options: options.clone(),
            own: ipv4(at.ip())?,
            stage: Stage::Alone(socket),
            answered: false,
        };
        Ok((reader, at))
    }

    /// Comes into the group, as far as it goes in this time.
    fn advance(&mut self, patience: Duration) -> io::Result<()> {
        let next = match &mut self.stage {
            Stage::Member(_) => return Ok(()),
            Stage::Failed(text) => return Err(io::Error::other(text.clone())),
            Stage::Alone(socket) => {
                let Some(other) = knocked(socket, self.options.cookie, patience)? else {
                    return Ok(());
                };
                let (functions, options) = (self.functions, self.options.clone());
                let places = Places {
                    own: self.own,
                    other,
                };
                Stage::Joining(std::thread::spawn(move || {
                    Group::join(functions, &options, places, START_PATIENCE)
                }))
            }
            Stage::Joining(joining) if !joining.is_finished() => {
                std::thread::sleep(patience.min(LOOK));
                return Ok(());
            }
            stage @ Stage::Joining(_) => {
                let failed = Stage::Failed("its daemon could not be started".to_owned());
                let Stage::Joining(joining) = std::mem::replace(stage, failed) else {
                    return Ok(());
                };
                match joining.join() {
                    Ok(Ok(group)) => Stage::Member(Box::new(group)),
                    Ok(Err(error)) => Stage::Failed(error.to_string()),
                    Err(_) => return Ok(()),
                }
            }
        };
        self.stage = next;
        Ok(())
    }
}

/// Who knocked, if somebody of this run did in this time.
fn knocked(socket: &UdpSocket, cookie: u32, patience: Duration) -> io::Result<Option<Ipv4Addr>> {
    let mut knock = [0; HEADER_BYTES];
    socket.set_read_timeout(Some(patience.max(ROOM_LOOK)))?;
    match socket.recv_from(&mut knock) {
        Ok((bytes, from)) if Header::read(cookie, &knock[..bytes]) == Some(KNOCK) => {
            ipv4(from.ip()).map(Some)
        }
        Err(error) if !is_late(&error) => Err(error),
        _ => Ok(None),
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Tells the writer that all of it was read.
fn answer(group: &mut Group, cookie: u32, end: Header) -> io::Result<()> {
    let mut message = [0; HEADER_BYTES];
    end.write(cookie, &mut message);
    let until = Instant::now() + END_PATIENCE;
    while !group.multicast(&message)? {
        if Instant::now() >= until {
            return Err(out_of_time("the group does not take the answer"));
        }
        group.turn(ROOM_LOOK, &mut |_, _| {})?;
    }
    Ok(())
}

impl Reader for CpgReader {
    fn read(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received> {
        self.advance(patience)?;
        let Stage::Member(group) = &mut self.stage else {
            return Ok(Received::Nothing);
        };
        let (own, cookie, mut end) = (group.own, self.options.cookie, None);
        let came = group.turn(patience, &mut |from, message| {
            if from != own {
                end = end.or_else(|| Header::read(cookie, message).filter(|it| it.end));
                take(message);
            }
        })?;
        if let Some(end) = end {
            answer(group, cookie, end)?;
            self.answered = true;
        }
        // What it said before it went is heard before.
        Ok(if came {
            Received::Some
        } else if group.view.gone.is_some() {
            Received::Ended
        } else {
            Received::Nothing
        })
    }

    fn helper(&self) -> Option<u32> {
        match &self.stage {
            Stage::Member(group) => Some(group.daemon()),
            _ => None,
        }
    }
}

impl Drop for CpgReader {
    fn drop(&mut self) {
        let Stage::Member(group) = &mut self.stage else {
            return;
        };
        // The daemon sends the answer again if it was lost on the way: it is there until the writer has it.
        let until = Instant::now() + END_PATIENCE;
        while self.answered && group.view.gone.is_none() && Instant::now() < until {
            if group.turn(LOOK, &mut |_, _| {}).is_err() {
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
    fn a_reader_hears_where_its_own_writer_is() {
        let patience = Duration::from_secs(20);
        let reader = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let writer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = reader.local_addr().unwrap();
        let mut knock = [0; HEADER_BYTES];
        KNOCK.write(7, &mut knock);
        writer.send_to(b"?", at).unwrap();
        assert_eq!(knocked(&reader, 7, patience).unwrap(), None);
        writer.send_to(&knock, at).unwrap();
        assert_eq!(knocked(&reader, 8, patience).unwrap(), None);
        writer.send_to(&knock, at).unwrap();
        let heard = knocked(&reader, 7, patience).unwrap();
        assert_eq!(heard, Some(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn an_address_that_has_no_number_is_refused() {
        assert!(ipv4(IpAddr::from([10, 77, 0, 1])).is_ok());
        assert!(ipv4("::1".parse().unwrap()).is_err());
    }
}
