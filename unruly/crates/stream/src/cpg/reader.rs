//! The reading member. It joins the group when its writer has knocked, and acknowledges the end.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::daemon::{self, Places};
use super::functions::Functions;
use super::group::Group;
use super::{LOOK, ROOM_LOOK, ipv4, knock};
use crate::header::{HEADER_BYTES, Header};
use crate::{Options, Reader, Received, out_of_time};

/// Time limit for starting the daemon while other processes start too.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for sending the acknowledgement, and for the writer to leave after it has received
/// it.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Receives the group's messages, and acknowledges the end.
pub(crate) struct CpgReader {
    functions: Functions,
    options: Options,
    own: Ipv4Addr,
    /// The node number of the writer's host, once the writer has knocked.
    writer: u32,
    stage: Stage,
    answered: bool,
}

/// The stage of a reader on its way into the group.
enum Stage {
    /// It waits for a knock.
    Alone(UdpSocket),
    /// Its daemon is starting.
    Joining(JoinHandle<io::Result<Group>>),
    Member(Box<Group>),
    /// It cannot join the group.
    Failed(String),
}

impl CpgReader {
    pub(crate) fn listen(options: &Options, address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let functions = Functions::open(options)?;
        // A missing daemon is reported now, before the run starts.
        daemon::command(options.library.as_deref())?;
        let socket = UdpSocket::bind(address)?;
        let at = socket.local_addr()?;
        let reader = Self {
            functions,
            options: options.clone(),
            own: ipv4(at.ip())?,
            writer: 0,
            stage: Stage::Alone(socket),
            answered: false,
        };
        Ok((reader, at))
    }

    /// Moves towards membership of the group, as far as `timeout` allows.
    fn advance(&mut self, timeout: Duration) -> io::Result<()> {
        let next = match &mut self.stage {
            Stage::Member(_) => return Ok(()),
            Stage::Failed(text) => return Err(io::Error::other(text.clone())),
            Stage::Alone(socket) => {
                let heard = knocked(socket, self.options.cookie, self.own, timeout)?;
                let Some((writer, readers)) = heard else {
                    return Ok(());
                };
                self.writer = writer.to_bits();
                let (functions, options) = (self.functions, self.options.clone());
                let others = readers.into_iter().filter(|it| *it != self.own);
                let places = Places {
                    own: self.own,
                    others: others.chain([writer]).collect(),
                };
                Stage::Joining(std::thread::spawn(move || {
                    Group::join(functions, &options, &places, START_TIMEOUT)
                }))
            }
            Stage::Joining(joining) if !joining.is_finished() => {
                std::thread::sleep(timeout.min(LOOK));
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

/// Returns the writer that knocked and the readers that its knock lists, if a writer of this run
/// knocked within `timeout`.
fn knocked(
    socket: &UdpSocket,
    cookie: u32,
    own: Ipv4Addr,
    timeout: Duration,
) -> io::Result<Option<(Ipv4Addr, Vec<Ipv4Addr>)>> {
    let mut bytes = [0; knock::LONGEST_BYTES];
    socket.set_read_timeout(Some(timeout.max(ROOM_LOOK)))?;
    match socket.recv_from(&mut bytes) {
        Ok((length, from)) => match knock::read(cookie, own, &bytes[..length]) {
            Some(readers) => Ok(Some((ipv4(from.ip())?, readers))),
            None => Ok(None),
        },
        Err(error) if !is_late(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Acknowledges to the writer that everything was read.
fn answer(group: &mut Group, cookie: u32, end: Header) -> io::Result<()> {
    let mut message = [0; HEADER_BYTES];
    end.write(cookie, &mut message);
    let until = Instant::now() + END_TIMEOUT;
    while !group.multicast(&message)? {
        if Instant::now() >= until {
            return Err(out_of_time("the group does not take the answer"));
        }
        group.turn(ROOM_LOOK, &mut |_, _| {})?;
    }
    Ok(())
}

impl Reader for CpgReader {
    fn read(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<Received> {
        self.advance(timeout)?;
        let Stage::Member(group) = &mut self.stage else {
            return Ok(Received::Nothing);
        };
        let (writer, cookie, mut end) = (self.writer, self.options.cookie, None);
        let came = group.turn(timeout, &mut |from, message| {
            if from == writer {
                end = end.or_else(|| Header::read(cookie, message).filter(|it| it.end));
                take(message);
            }
        })?;
        if let Some(end) = end {
            answer(group, cookie, end)?;
            self.answered = true;
        }
        // Every message that the writer sent before it left is received before its departure.
        Ok(if came {
            Received::Some
        } else if group.view.is_gone(writer) {
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
        // The daemon sends the acknowledgement again if it was lost. It must live until the writer
        // has it.
        let until = Instant::now() + END_TIMEOUT;
        while self.answered && !group.view.is_gone(self.writer) && Instant::now() < until {
            if group.turn(LOOK, &mut |_, _| {}).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_hears_where_its_own_writer_is() {
        let timeout = Duration::from_secs(20);
        let reader = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let writer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = reader.local_addr().unwrap();
        let own = Ipv4Addr::LOCALHOST;
        let knock = knock::written(7, &[own]);
        writer.send_to(b"?", at).unwrap();
        assert_eq!(knocked(&reader, 7, own, timeout).unwrap(), None);
        writer.send_to(&knock, at).unwrap();
        assert_eq!(knocked(&reader, 8, own, timeout).unwrap(), None);
        writer.send_to(&knock, at).unwrap();
        let heard = knocked(&reader, 7, own, timeout).unwrap();
        assert_eq!(heard, Some((Ipv4Addr::LOCALHOST, vec![own])));
    }
}
