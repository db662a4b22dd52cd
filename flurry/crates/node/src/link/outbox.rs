//! What goes out as datagrams when a turn ends: what one place gets shares a datagram.

use std::net::{SocketAddrV4, UdpSocket};

use flurry_core::wire::Pack;

use super::seal::Seal;

/// Maximum number of destinations in one turn. A further destination makes the outbox send its
/// messages early.
const PLACES_MAX: usize = 64;

/// Messages that the kernel took, and that it did not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sent {
    pub(super) taken: u64,
    pub(super) not_taken: u64,
}

/// Packs on their way, in the order in which their places were first written to.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    packs: Vec<(SocketAddrV4, Pack)>,
    /// The packs in front that hold something; those behind are kept for their memory.
    used: usize,
}

impl Outbox {
    /// Adds a message for a destination. Returns the messages that had to leave to make room.
    pub(super) fn put(
        &mut self,
        socket: &UdpSocket,
        seal: &mut Option<Seal>,
        to: SocketAddrV4,
        message: &[u8],
    ) -> Sent {
        let mut sent = Sent::default();
        let known = self.packs[..self.used].iter().position(|(at, _)| *at == to);
        let index = known.unwrap_or_else(|| {
            if self.used == PLACES_MAX {
                sent = self.flush(socket, seal);
            }
            if self.used == self.packs.len() {
                self.packs.push((to, Pack::default()));
            }
            self.packs[self.used].0 = to;
            self.used += 1;
            self.used - 1
        });
        let pack = &mut self.packs[index].1;
        if !pack.push(message) {
            send(socket, seal, to, pack, &mut sent);
            pack.push(message);
        }
        sent
    }

    /// Hands everything to the kernel.
    pub(super) fn flush(&mut self, socket: &UdpSocket, seal: &mut Option<Seal>) -> Sent {
        let mut sent = Sent::default();
        for (to, pack) in &mut self.packs[..self.used] {
            send(socket, seal, *to, pack, &mut sent);
        }
        self.used = 0;
        sent
    }
}

fn send(
    socket: &UdpSocket,
    seal: &mut Option<Seal>,
    to: SocketAddrV4,
    pack: &mut Pack,
    sent: &mut Sent,
) {
    let messages = u64::from(pack.messages());
    // What is not taken is lost, as on a network.
    let datagram = match seal {
        None => pack.datagram(),
        Some(seal) => seal.seal(to, pack.datagram()),
    };
    match socket.send_to(datagram, to) {
        Ok(_) => sent.taken += messages,
        Err(_) => sent.not_taken += messages,
    }
    pack.clear();
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use bytes::BytesMut;
    use flurry_core::message::{Control, Message};
    use flurry_core::wire::{self, PACK_BYTES_MAX, Unpack};

    use super::*;

    fn listener() -> (UdpSocket, SocketAddrV4) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let SocketAddr::V4(address) = socket.local_addr().unwrap() else {
            panic!("it was bound to one of version 4")
        };
        (socket, address)
    }

    fn message(text: &str) -> BytesMut {
        let mut bytes = BytesMut::new();
        wire::encode(
            &Message::Control(Control::Status(text.to_owned())),
            &mut bytes,
        );
        bytes
    }

    /// How many messages each datagram that has come holds.
    fn came(socket: &UdpSocket) -> Vec<usize> {
        let mut buffer = vec![0; 1 << 16];
        std::iter::from_fn(|| {
            socket
                .recv(&mut buffer)
                .ok()
                .map(|bytes| buffer[..bytes].to_vec())
        })
        .map(|datagram| Unpack::new(&datagram).filter(Result::is_ok).count())
        .collect()
    }

    #[test]
    fn each_place_gets_one_datagram_and_nothing_before_the_flush() {
        let (socket, _) = listener();
        let places: Vec<_> = (0..3).map(|_| listener()).collect();
        let mut outbox = Outbox::default();
        for turn in 0..2 {
            for number in 0..6 {
                outbox.put(&socket, &mut None, places[number % 3].1, &message("text"));
            }
            outbox.put(&socket, &mut None, places[2].1, &message("more"));
            assert!(places.iter().all(|(place, _)| came(place).is_empty()));
            assert_eq!(outbox.flush(&socket, &mut None).taken, 7, "turn {turn}");
            let counts: Vec<_> = places.iter().map(|(place, _)| came(place)).collect();
            assert_eq!(counts, [[2], [2], [3]]);
        }
    }

    #[test]
    fn what_does_not_fit_goes_out_earlier_and_more_places_than_there_is_room_for_too() {
        let (socket, _) = listener();
        let (place, address) = listener();
        let mut outbox = Outbox::default();
        let long = message(&"{".repeat(PACK_BYTES_MAX / 2));
        assert_eq!(outbox.put(&socket, &mut None, address, &long).taken, 0);
        assert_eq!(outbox.put(&socket, &mut None, address, &long).taken, 1);
        assert_eq!(outbox.flush(&socket, &mut None).taken, 1);
        assert_eq!(came(&place), [1, 1]);
        let nobody = |port: u16| SocketAddrV4::new([127, 0, 0, 9].into(), port);
        let places = u16::try_from(PLACES_MAX).unwrap();
        for port in 1..=places {
            let sent = outbox.put(&socket, &mut None, nobody(port), &message(""));
            assert_eq!(sent.taken + sent.not_taken, 0);
        }
        let sent = outbox.put(&socket, &mut None, nobody(places + 1), &message(""));
        assert_eq!(sent.taken + sent.not_taken, u64::from(places));
    }
}
