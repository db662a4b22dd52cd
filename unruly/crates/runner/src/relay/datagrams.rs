//! Datagrams: each asker has a socket of its own behind the relay, so that answers find the way back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Instant;

use super::LOOK_PERIOD;
use super::way::Way;

/// Askers at once; more are not heard.
const ASKERS_MAX: usize = 4_096;

/// Datagrams that are late at once; more are lost, as a full queue of a link loses them.
const LATE_MAX: usize = 65_536;

/// The longest datagram there is.
const DATAGRAM_BYTES: usize = 65_536;

/// A datagram on its way: from which socket it goes, and where to, unless that is connected.
struct Late {
    due: Instant,
    socket: Arc<UdpSocket>,
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
}

/// Passes datagrams on until the way is closed.
pub(super) fn pass(front: UdpSocket, to: SocketAddr, way: &Arc<Way>) {
    let front = Arc::new(front);
    let (sender, receiver) = sync_channel(LATE_MAX);
    std::thread::scope(|scope| {
        scope.spawn(move || send_late(&receiver, way));
        let mut askers: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
        let heard = |bytes: &[u8], from: SocketAddr| {
            let known = askers.get(&from).map(Arc::clone);
            let socket = match known {
                Some(socket) => socket,
                None if askers.len() >= ASKERS_MAX => return,
                None => {
                    let Some(socket) = behind(to) else { return };
                    let (own, back) = (Arc::clone(&socket), Arc::clone(&front));
                    let sender = sender.clone();
                    scope.spawn(move || {
                        listen(&own, way, |bytes, _| {
                            go_on(&back, Some(from), bytes, &sender, way);
                        });
                    });
                    askers.insert(from, Arc::clone(&socket));
                    socket
                }
            };
            go_on(&socket, None, bytes, &sender, way);
        };
        listen(&front, way, heard);
        drop(askers);
        drop(sender);
    });
}

/// Returns a socket that is connected to the process behind the relay. The relay uses the same
/// address, which belongs to this host.
fn behind(to: SocketAddr) -> Option<Arc<UdpSocket>> {
    let socket = UdpSocket::bind((to.ip(), 0)).ok()?;
    socket.connect(to).ok()?;
    Some(Arc::new(socket))
}

fn listen(socket: &UdpSocket, way: &Way, mut heard: impl FnMut(&[u8], SocketAddr)) {
    let mut bytes = vec![0; DATAGRAM_BYTES];
    if socket.set_read_timeout(Some(LOOK_PERIOD)).is_err() {
        return;
    }
    while !way.is_closed() {
        // An error is a timeout, or the process behind the relay is not running now.
        if let Ok((count, from)) = socket.recv_from(&mut bytes) {
            heard(&bytes[..count], from);
        }
    }
}

fn go_on(
    socket: &Arc<UdpSocket>,
    to: Option<SocketAddr>,
    bytes: &[u8],
    sender: &SyncSender<Late>,
    way: &Way,
) {
    match way.of_datagram(Instant::now()) {
        None => send(socket, to, bytes),
        Some(None) => {}
        Some(Some(due)) => {
            // A queue that is full loses it.
            let _ = sender.try_send(Late {
                due,
                socket: Arc::clone(socket),
                to,
                bytes: bytes.to_vec(),
            });
        }
    }
}

/// A datagram that cannot be sent is lost, as any may be.
fn send(socket: &UdpSocket, to: Option<SocketAddr>, bytes: &[u8]) {
    let _ = match to {
        Some(to) => socket.send_to(bytes, to),
        None => socket.send(bytes),
    };
}

/// Sends each delayed datagram at its time, in order of these times.
fn send_late(receiver: &Receiver<Late>, way: &Way) {
    let mut order: BinaryHeap<Reverse<(Instant, u64)>> = BinaryHeap::new();
    let mut held: BTreeMap<u64, Late> = BTreeMap::new();
    let mut number = 0;
    loop {
        let now = Instant::now();
        while let Some(Reverse((due, next))) = order.peek().copied()
            && due <= now
        {
            order.pop();
            if let Some(late) = held.remove(&next) {
                send(&late.socket, late.to, &late.bytes);
            }
        }
        let wait = order.peek().map_or(LOOK_PERIOD, |Reverse((due, _))| {
            due.saturating_duration_since(now).min(LOOK_PERIOD)
        });
        match receiver.recv_timeout(wait) {
            Ok(late) if held.len() < LATE_MAX => {
                order.push(Reverse((late.due, number)));
                held.insert(number, late);
                number += 1;
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if way.is_closed() {
            return;
        }
    }
}
