//! Who may stay connected: peers of the run for as long as they like, strangers for some seconds.
//!
//! A connection is a stranger until it has said a valid request of this run. The number of strangers
//! is bounded (the oldest goes first), and so is the number of connections of all kinds. Both bounds
//! follow from how many peers the plan has: at its start all of them are strangers.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use unruly_trace::{DurationNs, MonoNs};

/// A stranger must say a valid request within this time.
const STRANGER_TIMEOUT_NS: DurationNs = DurationNs::seconds(5);
/// Strangers at one time, besides the peers; one more closes the oldest.
const STRANGERS_MAX: usize = 256;

/// A connection. Its own thread, the listener and the answering thread share it.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) stream: TcpStream,
    known: AtomicBool,
    /// How many strangers there are.
    strangers: Arc<AtomicUsize>,
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
        if self.is_stranger() {
            self.was_stranger();
        }
    }

    /// Counts it as a stranger no more. Returns whether it was one.
    fn was_stranger(&self) -> bool {
        let was = !self.known.swap(true, Ordering::Relaxed);
        if was {
            self.strangers.fetch_sub(1, Ordering::Relaxed);
        }
        was
    }

    /// Ends the connection: its thread reads the end of the stream.
    pub(crate) fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn is_stranger(&self) -> bool {
        !self.known.load(Ordering::Relaxed)
    }
}

/// The connections that are open.
#[derive(Debug)]
pub(crate) struct Door {
    guests: BTreeMap<u64, Arc<Guest>>,
    next: u64,
    /// Numbers of the connections, oldest first, from the oldest that was a stranger on.
    line: VecDeque<u64>,
    strangers: Arc<AtomicUsize>,
    peers: usize,
    /// Connections that were turned away.
    pub(crate) refused: u64,
}

impl Door {
    /// A door for a run whose peers make `peers` connections.
    pub(crate) fn new(peers: usize) -> Self {
        Self {
            guests: BTreeMap::new(),
            next: 0,
            line: VecDeque::new(),
            strangers: Arc::default(),
            peers,
            refused: 0,
        }
    }

    /// Most strangers at one time.
    fn strangers_max(&self) -> usize {
        self.peers + STRANGERS_MAX
    }

    /// Most connections at one time. As many strangers as there may be can be closed and not yet
    /// gone.
    fn connections_max(&self) -> usize {
        self.peers + 2 * self.strangers_max()
    }

    /// Lets a connection in, under the number that [`Door::leave`] wants; `None` when it is full.
    pub(crate) fn enter(&mut self, stream: TcpStream, now_ns: MonoNs) -> Option<(u64, Arc<Guest>)> {
        if self.guests.len() >= self.connections_max() {
            self.refused += 1;
            return None;
        }
        if self.strangers.load(Ordering::Relaxed) >= self.strangers_max() {
            self.close_oldest_stranger();
        }
        self.strangers.fetch_add(1, Ordering::Relaxed);
        let guest = Arc::new(Guest {
            stream,
            known: AtomicBool::new(false),
            strangers: Arc::clone(&self.strangers),
            accepted_ns: now_ns,
            sending: Mutex::new(()),
        });
        let number = self.next;
        self.next += 1;
        self.guests.insert(number, Arc::clone(&guest));
        self.line.push_back(number);
        Some((number, guest))
    }

    /// A connection has ended.
    pub(crate) fn leave(&mut self, number: u64) {
        if let Some(guest) = self.guests.remove(&number) {
            self.refused += u64::from(guest.was_stranger());
        }
    }

    /// Closes the stranger that has been connected for longest, if there is one.
    pub(crate) fn close_oldest_stranger(&mut self) {
        if let Some(oldest) = self.oldest_stranger().cloned() {
            self.refused += u64::from(oldest.was_stranger());
            oldest.close();
        }
    }

    /// Closes strangers that have been silent for too long, as long as there are more than peers:
    /// a peer may have nothing to say for a long time. Returns when to look again.
    pub(crate) fn close_silent_strangers(&mut self, now_ns: MonoNs) -> Option<MonoNs> {
        loop {
            if self.strangers.load(Ordering::Relaxed) <= self.peers {
                return None;
            }
            let end_ns = self.oldest_stranger()?.accepted_ns + STRANGER_TIMEOUT_NS;
            if end_ns > now_ns {
                return Some(end_ns);
            }
            self.close_oldest_stranger();
        }
    }

    fn oldest_stranger(&mut self) -> Option<&Arc<Guest>> {
        loop {
            let guest = self.guests.get(self.line.front()?);
            if guest.is_some_and(|guest| guest.is_stranger()) {
                return guest;
            }
            self.line.pop_front();
        }
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
        let mut door = Door::new(1);
        let mut enter = || {
            let (outside, inside) = pair(&listener);
            (outside, door.enter(inside, MonoNs(0)).unwrap())
        };
        let (mut peer, (_, guest)) = enter();
        guest.is_known_now();
        let mut strangers: Vec<_> = (0..=STRANGERS_MAX + 1).map(|_| enter()).collect();
        assert!(!is_closed(&mut peer));
        assert!(is_closed(&mut strangers[0].0));
        assert!(!is_closed(&mut strangers[1].0));
    }

    #[test]
    fn all_peers_of_a_large_run_may_connect_before_the_first_of_them_speaks() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut door = Door::new(400);
        let mut peers: Vec<_> = (0..400)
            .map(|_| {
                let (outside, inside) = pair(&listener);
                door.enter(inside, MonoNs(0)).unwrap();
                outside
            })
            .collect();
        assert!(!peers.iter_mut().any(is_closed));
    }

    #[test]
    fn a_door_is_full_when_more_are_connected_than_peers_and_strangers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut door = Door::new(1);
        let mut outside = Vec::new();
        for _ in 0..door.connections_max() {
            let (peer, inside) = pair(&listener);
            door.enter(inside, MonoNs(0)).unwrap().1.is_known_now();
            outside.push(peer);
        }
        let (_late, inside) = pair(&listener);
        assert!(door.enter(inside, MonoNs(0)).is_none());
        assert_eq!(door.refused, 1);
    }

    #[test]
    fn a_stranger_that_is_silent_for_too_long_is_closed_and_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut door = Door::new(0);
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

    #[test]
    fn as_many_as_there_are_peers_may_be_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut door = Door::new(1);
        let late_ns = MonoNs(0) + STRANGER_TIMEOUT_NS;
        let (mut first, inside) = pair(&listener);
        let (number, _) = door.enter(inside, MonoNs(0)).unwrap();
        assert_eq!(door.close_silent_strangers(late_ns), None);
        assert!(!is_closed(&mut first));
        let (_second, inside) = pair(&listener);
        door.enter(inside, late_ns).unwrap();
        door.close_silent_strangers(late_ns);
        assert!(is_closed(&mut first));
        door.leave(number);
    }
}
