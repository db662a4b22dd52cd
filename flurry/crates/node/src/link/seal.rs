//! Seals packets: without the cluster's key nobody can read a packet, make one, or use one twice.
//!
//! A packet is `0xf3 0x01`, the sender's random name of 16 bytes, a number of 8 bytes,
//! little-endian, and the message under AES-256-GCM, with its tag of 16 bytes. The key belongs to
//! the sender: it is derived by HKDF from the cluster's key and the sender's name, so no two
//! senders ever use one number with one key. The destination of the packet is sealed with it, so
//! the packet is valid nowhere else.
//!
//! A number is the sender's wall clock in microseconds, and never goes back. So a receiver can
//! refuse an old packet without knowing the sender. It refuses packets that were sent more than a
//! moment ago or before its own start, and packets that it has opened before. The clocks of a
//! cluster must agree within that moment.

use std::collections::HashMap;
use std::net::SocketAddrV4;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use super::window::Window;
use crate::security::ClusterKey;
use crate::{Error, clock, random};

const HEAD: [u8; 2] = [0xf3, 1];
const NAME_BYTES: usize = 16;
const NUMBER_BYTES: usize = 8;
const FRONT_BYTES: usize = HEAD.len() + NAME_BYTES + NUMBER_BYTES;

/// Number of bytes that sealing adds to a message.
pub(crate) const SEAL_BYTES: usize = FRONT_BYTES + MAX_TAG_LEN;

/// How old a packet may be, and how far clocks may differ.
const FRESH_US: u64 = 10_000_000;

/// Senders that are remembered at most.
const SENDERS_MAX: usize = 8_192;

/// Why a packet was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is not sealed, or not with this key, or for somebody else.
    Foreign,
    /// It is old, or was opened before.
    Replayed,
}

type Name = [u8; NAME_BYTES];

/// What is known of a sender.
#[derive(Debug)]
struct Sender {
    key: LessSafeKey,
    window: Window,
}

/// Seals what one link sends, and opens what it receives.
#[derive(Debug)]
pub(crate) struct Seal {
    cluster: ClusterKey,
    name: Name,
    key: LessSafeKey,
    last: u64,
    /// Nothing that was sent before is opened.
    started: u64,
    senders: HashMap<Name, Sender>,
    buffer: Vec<u8>,
}

fn now_us() -> u64 {
    u64::try_from(clock::wall().0 / 1_000).unwrap_or(0)
}

fn key_of(cluster: &ClusterKey, name: &Name) -> Result<LessSafeKey, ring::error::Unspecified> {
    let secret = Salt::new(HKDF_SHA256, name).extract(cluster.bytes());
    let material = secret.expand(&[b"flurry packet"], &AES_256_GCM)?;
    Ok(LessSafeKey::new(UnboundKey::from(material)))
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn bound_to(to: SocketAddrV4) -> Aad<[u8; 6]> {
    let mut bytes = [0; 6];
    bytes[..4].copy_from_slice(&to.ip().octets());
    bytes[4..].copy_from_slice(&to.port().to_be_bytes());
    Aad::from(bytes)
}

impl Seal {
    pub(crate) fn new(cluster: &ClusterKey) -> Result<Self, Error> {
        let name = random::bytes()?;
        let key =
            key_of(cluster, &name).map_err(|error| Error::io("key", "a sender's key", &error))?;
        Ok(Self {
            cluster: cluster.clone(),
            name,
            key,
            last: 0,
            started: now_us(),
            senders: HashMap::new(),
            buffer: Vec::new(),
        })
    }

    /// The wall clock was set back: under its name so far everything would come from the future.
    fn begin_anew(&mut self) {
        if let Ok(name) = random::bytes()
            && let Ok(key) = key_of(&self.cluster, &name)
        {
            (self.name, self.key, self.last) = (name, key, 0);
        }
    }

    /// The packet that brings this to `to`, and nowhere else.
    pub(crate) fn seal(&mut self, to: SocketAddrV4, message: &[u8]) -> &[u8] {
        let now = now_us();
        if self.last > now + FRESH_US / 4 {
            self.begin_anew();
        }
        self.last = now.max(self.last + 1);
        self.buffer.clear();
        self.buffer.extend_from_slice(&HEAD);
        self.buffer.extend_from_slice(&self.name);
        self.buffer.extend_from_slice(&self.last.to_le_bytes());
        self.buffer.extend_from_slice(message);
        let body = &mut self.buffer[FRONT_BYTES..];
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(self.last), bound_to(to), body);
        match tag {
            Ok(tag) => self.buffer.extend_from_slice(tag.as_ref()),
            // This happens only for input longer than any message. The message is lost, and no part
            // of it is sent.
            Err(_) => self.buffer.clear(),
        }
        &self.buffer
    }

    /// What a packet that came to `own` brings.
    pub(crate) fn open<'a>(
        &mut self,
        own: SocketAddrV4,
        packet: &'a mut [u8],
    ) -> Result<&'a [u8], Refused> {
        self.open_at(now_us(), own, packet)
    }

    fn open_at<'a>(
        &mut self,
        now: u64,
        own: SocketAddrV4,
        packet: &'a mut [u8],
    ) -> Result<&'a [u8], Refused> {
        if packet.len() < SEAL_BYTES || packet[..HEAD.len()] != HEAD {
            return Err(Refused::Foreign);
        }
        let (front, body) = packet.split_at_mut(FRONT_BYTES);
        let (mut name, mut number) = ([0; NAME_BYTES], [0; NUMBER_BYTES]);
        name.copy_from_slice(&front[HEAD.len()..HEAD.len() + NAME_BYTES]);
        number.copy_from_slice(&front[HEAD.len() + NAME_BYTES..]);
        let number = u64::from_le_bytes(number);
        if number < self.started || number.abs_diff(now) > FRESH_US {
            return Err(Refused::Replayed);
        }
        if let Some(sender) = self.senders.get_mut(&name) {
            if sender.window.has_had(number) {
                return Err(Refused::Replayed);
            }
            let opened = sender.key.open_in_place(nonce(number), bound_to(own), body);
            let opened = opened.map_err(|_| Refused::Foreign)?;
            sender.window.note(number);
            return Ok(opened);
        }
        let key = key_of(&self.cluster, &name).map_err(|_| Refused::Foreign)?;
        let opened = key.open_in_place(nonce(number), bound_to(own), body);
        let opened = opened.map_err(|_| Refused::Foreign)?;
        self.make_room(now)?;
        let mut sender = Sender {
            key,
            window: Window::default(),
        };
        sender.window.note(number);
        self.senders.insert(name, sender);
        Ok(opened)
    }

    /// Forgets senders of which everything would be refused as old.
    fn make_room(&mut self, now: u64) -> Result<(), Refused> {
        if self.senders.len() >= SENDERS_MAX {
            self.senders
                .retain(|_, sender| sender.window.newest() + 2 * FRESH_US > now);
        }
        if self.senders.len() < SENDERS_MAX {
            Ok(())
        } else {
            Err(Refused::Foreign)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::window::RECENT_MAX;

    const PLACE: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 7);

    fn pair() -> (Seal, Seal) {
        let key = ClusterKey::random().unwrap();
        let receiver = Seal::new(&key).unwrap();
        (Seal::new(&key).unwrap(), receiver)
    }

    #[test]
    fn a_packet_is_opened_where_it_goes_and_hides_what_it_brings() {
        let (mut sender, mut receiver) = pair();
        let mut packet = sender.seal(PLACE, b"the message").to_vec();
        assert_eq!(packet.len(), b"the message".len() + SEAL_BYTES);
        assert!(!packet.windows(7).any(|part| part == b"message"));
        assert_eq!(receiver.open(PLACE, &mut packet), Ok(&b"the message"[..]));
    }

    #[test]
    fn a_packet_is_good_once_and_nowhere_else() {
        let (mut sender, mut receiver) = pair();
        let packet = sender.seal(PLACE, b"m").to_vec();
        let elsewhere = SocketAddrV4::new(*PLACE.ip(), 8);
        assert_eq!(
            receiver.open(elsewhere, &mut packet.clone()),
            Err(Refused::Foreign)
        );
        assert!(receiver.open(PLACE, &mut packet.clone()).is_ok());
        assert_eq!(
            receiver.open(PLACE, &mut packet.clone()),
            Err(Refused::Replayed)
        );
    }

    #[test]
    fn packets_may_overtake_each_other_and_none_is_opened_twice() {
        let (mut sender, mut receiver) = pair();
        let packets: Vec<Vec<u8>> = (0..RECENT_MAX + 20)
            .map(|_| sender.seal(PLACE, b"m").to_vec())
            .collect();
        assert!(receiver.open(PLACE, &mut packets[9].clone()).is_ok());
        assert!(receiver.open(PLACE, &mut packets[3].clone()).is_ok());
        for packet in &packets[10..] {
            assert!(receiver.open(PLACE, &mut packet.clone()).is_ok());
        }
        for packet in &packets {
            assert_eq!(
                receiver.open(PLACE, &mut packet.clone()),
                Err(Refused::Replayed)
            );
        }
    }

    #[test]
    fn what_was_sent_before_the_receiver_began_or_long_ago_is_refused() {
        let key = ClusterKey::random().unwrap();
        let mut sender = Seal::new(&key).unwrap();
        let early = sender.seal(PLACE, b"m").to_vec();
        let mut receiver = Seal::new(&key).unwrap();
        receiver.started = sender.last + 1;
        assert_eq!(
            receiver.open(PLACE, &mut early.clone()),
            Err(Refused::Replayed)
        );
        receiver.started = 0;
        for clock_us in [sender.last + FRESH_US + 1, sender.last - FRESH_US - 1] {
            let opened = receiver
                .open_at(clock_us, PLACE, &mut early.clone())
                .is_ok();
            assert!(!opened, "the clocks are too far apart");
        }
        let soon = sender.last + FRESH_US;
        assert!(receiver.open_at(soon, PLACE, &mut early.clone()).is_ok());
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_silence_its_sender() {
        let (mut sender, mut receiver) = pair();
        sender.last = now_us() + 3_600_000_000;
        let mut packet = sender.seal(PLACE, b"m").to_vec();
        assert!(receiver.open(PLACE, &mut packet).is_ok());
    }

    #[test]
    fn what_is_changed_cut_or_made_with_another_key_is_refused() {
        let (mut sender, mut receiver) = pair();
        let packet = sender.seal(PLACE, b"message").to_vec();
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            assert!(receiver.open(PLACE, &mut changed).is_err(), "byte {at}");
            assert!(
                receiver.open(PLACE, &mut packet[..at].to_vec()).is_err(),
                "cut at {at}"
            );
        }
        let (mut stranger, _) = pair();
        let mut forged = stranger.seal(PLACE, b"message").to_vec();
        assert_eq!(receiver.open(PLACE, &mut forged), Err(Refused::Foreign));
        assert!(
            receiver.open(PLACE, &mut packet.clone()).is_ok(),
            "the true one still is"
        );
    }
}
