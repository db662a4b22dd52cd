//! Who may stay connected: peers of the run for as long as they like, strangers for some seconds.
//!
//! A connection is a stranger until it has said a valid request of this run. There are never more
//! than a bounded number of strangers (the oldest goes first), nor of connections of all kinds.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use unruly_trace::{DurationNs, MonoNs};

/// A stranger must say a valid request within this time.
const STRANGER_TIMEOUT_NS: DurationNs = DurationNs::seconds(5);
/// Strangers at one time; one more closes the oldest.
const STRANGERS_MAX: usize = 256;
/// Connections at one time, of all kinds; each has a thread.
const CONNECTIONS_MAX: usize = 1024;

/// A connection. Its own thread, the listener and the answering thread share it.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) stream: TcpStream,
    known: AtomicBool,
    accepted_ns: MonoNs,
    sending: Mutex<()>,
}

impl Guest {
    /// Sends whole messages: the disk answers beside the connection's own thread.
    pub(crate) fn send(&self, messages: &[u8]) -> io::Result<()> {
        let _whole = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.stream).write_all(messages)
    }

    /// It has said a valid request.
    pub(crate) fn is_known_now(&self) {
        // Read first: the line is shared, and after the first request nothing changes.
        if !self.known.load(Ordering::Relaxed) {
            self.known.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the connection: its thread reads the end of the stream.
    pub(crate) fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn is_stranger(&self) -> bool {
        !self.known.load(Ordering::Relaxed)
    }
}

/// The connections that are open, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Door {
    guests: BTreeMap<u64, Arc<Guest>>,
    next: u64,
    /// Connections that were turned away.
    pub(crate) refused: u64,
}

impl Door {
    /// Lets a connection in, under the number that [`Door::leave`] wants; `None` when it is full.
    pub(crate) fn enter(&mut self, stream: TcpStream, now_ns: MonoNs) -> Option<(u64, Arc<Guest>)> {
        if self.guests.len() >= CONNECTIONS_MAX {
            self.refused += 1;
            return None;
        }
        let strangers = || self.guests.values().filter(|guest| guest.is_stranger());
        if strangers().count() >= STRANGERS_MAX
            && let Some(oldest) = strangers().next()
        {
            oldest.close();
        }
        let guest = Arc::new(Guest {
            stream,
            known: AtomicBool::new(false),
            accepted_ns: now_ns,
            sending: Mutex::new(()),
        });
        let number = self.next;
        self.next += 1;
        self.guests.insert(number, Arc::clone(&guest));
        Some((number, guest))
    }

    /// A connection has ended.
    pub(crate) fn leave(&mut self, number: u64) {
        if let Some(guest) = self.guests.remove(&number) {
            self.refused += u64::from(guest.is_stranger());
        }
    }

    /// Closes strangers that have been silent for too long. Returns when to look again.
    pub(crate) fn close_silent_strangers(&self, now_ns: MonoNs) -> Option<MonoNs> {
        let mut next_ns = None;
        for guest in self.guests.values().filter(|guest| guest.is_stranger()) {
            let end_ns = guest.accepted_ns + STRANGER_TIMEOUT_NS;
            if end_ns <= now_ns {
                guest.close();
            } else {
                next_ns = Some(next_ns.map_or(end_ns, |next_ns: MonoNs| next_ns.min(end_ns)));
            }
        }
        next_ns
    }

    /// Closes everyone.
    pub(crate) fn close_all(&self) {
        self.guests.values().for_each(|guest| guest.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let outside = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (outside, listener.accept().unwrap().0)
    }

    fn is_closed(outside: &mut TcpStream) -> bool {
        outside.set_nonblocking(true).unwrap();
        matches!(outside.read(&mut [0]), Ok(0))
    }

    #[test]
    fn one_stranger_too_many_closes_the_oldest_and_no_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut door = Door::default();
        let mut enter = || {
            let (outside, inside) = pair(&listener);
            (outside, door.enter(inside, MonoNs(0)).unwrap())
        };
        let (mut peer, (_, guest)) = enter();
        guest.is_known_now();
        let mut strangers: Vec<_> = (0..=STRANGERS_MAX).map(|_| enter()).collect();
        assert!(!is_closed(&mut peer));
        assert!(is_closed(&mut strangers[0].0));
        assert!(!is_closed(&mut strangers[1].0));
    }

    #[test]
    fn a_silent_stranger_is_closed_when_its_time_is_over_and_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut door = Door::default();
        let (mut outside, inside) = pair(&listener);
        let (number, _) = door.enter(inside, MonoNs(7)).unwrap();
        let end_ns = MonoNs(7) + STRANGER_TIMEOUT_NS;
        assert_eq!(door.close_silent_strangers(MonoNs(8)), Some(end_ns));
        assert!(!is_closed(&mut outside));
        assert_eq!(door.close_silent_strangers(end_ns), None);
        assert!(is_closed(&mut outside));
        door.leave(number);
        assert_eq!(door.refused, 1);
    }
}
