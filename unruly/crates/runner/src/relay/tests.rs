use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::time::Instant;

use unruly_plan::DurationNs;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn network(delay_ns: u64, loss: f64) -> Network {
    Network {
        delay: DurationNs(delay_ns),
        jitter: DurationNs(delay_ns / 2),
        loss,
    }
}

/// A server of streams that says what it hears, once, and the way to it.
fn echo() -> (Relay, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let behind = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 4_096];
            while let Ok(count) = stream.read(&mut bytes)
                && count > 0
            {
                if stream.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
        }
    });
    let relay = Relay::start(&[("127.0.0.1:0".parse().unwrap(), behind)], 7).unwrap();
    let front = relay.addresses()[0];
    (relay, front)
}

fn there_and_back(front: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(front).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let length = sent.len();
    let read = std::thread::spawn(move || {
        let mut heard = vec![0; length];
        reader.read_exact(&mut heard).map(|()| heard).unwrap()
    });
    stream.write_all(sent).unwrap();
    read.join().unwrap()
}

#[test]
fn a_stream_comes_whole_and_in_order_whatever_is_done_to_it() {
    let (relay, front) = echo();
    let sent: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(there_and_back(front, &sent), sent);
    relay.set(Some(network(1_000_000, 0.001)));
    assert_eq!(there_and_back(front, &sent), sent);
    relay.set(None);
    assert_eq!(there_and_back(front, &sent), sent);
    assert!(relay.counts().messages > 0);
}

#[test]
fn a_way_that_is_late_is_late_in_both_directions() {
    let (relay, front) = echo();
    relay.set(Some(Network {
        delay: DurationNs(SECOND_NS / 20),
        jitter: DurationNs(0),
        loss: 0.0,
    }));
    let began = Instant::now();
    assert_eq!(there_and_back(front, b"hello"), b"hello");
    assert!(began.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_share_of_datagrams_is_lost_and_the_rest_finds_its_way_back() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let behind = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 100];
        while let Ok((count, from)) = server.recv_from(&mut bytes) {
            server.send_to(&bytes[..count], from).unwrap();
        }
    });
    let relay = Relay::start(&[("127.0.0.1:0".parse().unwrap(), behind)], 7).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(relay.addresses()[0]).unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let answered = |count: u32| {
        let mut bytes = [0; 100];
        let asked = (0..count).filter(|number| {
            client.send(&number.to_le_bytes()).unwrap();
            client.recv(&mut bytes).is_ok()
        });
        asked.count()
    };
    assert_eq!(answered(50), 50);
    relay.set(Some(network(0, 0.5)));
    // Both directions lose a half, so about a quarter remains.
    let left = answered(40);
    assert!((1..=25).contains(&left), "{left} of 40 came back");
    assert!(relay.counts().lost >= 15, "{:?}", relay.counts());
    relay.set(None);
    assert_eq!(answered(50), 50);
}

#[test]
fn what_is_done_to_a_message_follows_from_the_seed() {
    let now = Instant::now();
    let of = |seed| {
        let way = Way::new(seed);
        way.set(Some(network(SECOND_NS, 0.3)));
        let dues = (0..200).map(|_| way.of_datagram(now).unwrap());
        dues.collect::<Vec<_>>()
    };
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
    let lost = of(3).iter().filter(|due| due.is_none()).count();
    assert!((30..=90).contains(&lost), "{lost} of 200");
}

#[test]
fn a_relay_ends_though_nobody_reads_what_it_has() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let behind = listener.local_addr().unwrap();
    let relay = Relay::start(&[("127.0.0.1:0".parse().unwrap(), behind)], 7).unwrap();
    let mut client = TcpStream::connect(relay.addresses()[0]).unwrap();
    let (_silent, _) = listener.accept().unwrap();
    client
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    // Until everything on the way is full.
    while client.write(&[0; 65_536]).is_ok() {}
    drop(relay);
}

#[test]
fn nobody_behind_is_a_closed_connection_and_a_relay_that_ends_lets_go_of_its_address() {
    // Not a port that was free a moment ago: another test may listen there by now.
    let nobody = "127.0.0.1:1".parse().unwrap();
    let relay = Relay::start(&[("127.0.0.1:0".parse().unwrap(), nobody)], 7).unwrap();
    let front = relay.addresses()[0];
    let mut stream = TcpStream::connect(front).unwrap();
    let mut bytes = [0; 1];
    assert!(matches!(stream.read(&mut bytes), Ok(0) | Err(_)));
    drop(relay);
    TcpListener::bind(front).unwrap();
}
