//! Each protocol over loopback: the reader receives each written message, once and in order if the
//! protocol guarantees that.
//!
//! SCTP in user mode listens on all addresses and allows one stream per process. Corosync's daemon
//! runs once per host. The program's end-to-end tests cover both in network namespaces.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use unruly_plan::Protocol;
use unruly_stream::{
    Account, Counted, HEADER_BYTES, Header, Options, Received, Sent, connect, listen,
};

const MESSAGES: u64 = 3_000;
const COOKIE: u32 = 77;
const TIMEOUT: Duration = Duration::from_secs(20);
/// QUIC and ENet drop a peer that is silent for 30 s.
const SILENCE: Duration = Duration::from_secs(32);
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn options(protocol: Protocol, message_bytes: usize) -> Options {
    Options {
        protocol,
        message_bytes,
        cookie: COOKIE,
        library: std::env::var_os("UNRULY_LIBRARIES").map(Into::into),
    }
}

/// Writes messages after a silence. Tries again when the protocol is full.
fn write_after(options: &Options, to: SocketAddr, messages: u64, silence: Duration) {
    let mut writer = connect(options, &[to], TIMEOUT).expect("a reader is there");
    let until = Instant::now() + silence;
    while Instant::now() < until {
        let turn = Duration::from_millis(20);
        writer.idle(turn).expect("the reader is still there");
    }
    let mut message = vec![0; options.message_bytes];
    for sequence in 0..=messages {
        let end = sequence == messages;
        let stamp_ns = sequence.is_multiple_of(10).then_some(5);
        let header = Header {
            sequence,
            stamp_ns: stamp_ns.filter(|_| !end),
            end,
        };
        header.write(options.cookie, &mut message);
        if end {
            writer
                .finish(&message, TIMEOUT)
                .expect("the reader has all");
            return;
        }
        let until = Instant::now() + TIMEOUT;
        while writer
            .write(&message, Duration::from_millis(20))
            .expect("the stream goes on")
            == Sent::Full
        {
            assert!(Instant::now() < until, "it is full for ever");
        }
    }
}

fn write(options: &Options, to: SocketAddr, messages: u64) {
    write_after(options, to, messages, Duration::ZERO);
}

/// Returns the total counts, and the number of stamped messages.
fn stream(options: &Options, messages: u64, before: impl FnOnce(SocketAddr)) -> (Counted, u64) {
    stream_after(options, messages, before, Duration::ZERO)
}

/// Does the same with a writer that is silent at first.
fn stream_after(
    options: &Options,
    messages: u64,
    before: impl FnOnce(SocketAddr),
    silence: Duration,
) -> (Counted, u64) {
    let (mut reader, at) = listen(options, LOOPBACK).expect("loopback has a port");
    before(at);
    let own = options.clone();
    let writing = std::thread::spawn(move || write_after(&own, at, messages, silence));
    let (mut account, mut stamped, mut said) = (Account::default(), 0, None);
    let until = Instant::now() + TIMEOUT + silence;
    loop {
        let received = reader
            .read(
                Duration::from_millis(100),
                &mut |message| match Header::read(options.cookie, message) {
                    Some(header) if header.end => said = Some(header.sequence),
                    Some(header) => {
                        account.came(header.sequence);
                        stamped += u64::from(header.stamp_ns == Some(5));
                    }
                    None => {}
                },
            )
            .expect("the stream goes on");
        if let (Received::Nothing | Received::Ended, Some(messages)) = (received, said) {
            account.end(messages);
            break;
        }
        assert!(Instant::now() < until, "the end never came");
    }
    // Some protocols confirm the end while they are called, others when the reader closes.
    let until = Instant::now() + Duration::from_secs(1);
    while !writing.is_finished() && Instant::now() < until {
        let _ = reader.read(Duration::from_millis(10), &mut |_| {});
    }
    drop(reader);
    writing.join().expect("the writer ended well");
    (account.take(), stamped)
}

#[test]
fn a_quic_reader_that_goes_at_once_still_confirms_the_end() {
    let own = options(Protocol::Quic, 2_000);
    for _ in 0..20 {
        let (mut reader, at) = listen(&own, LOOPBACK).expect("loopback has a port");
        let options = own.clone();
        let writing = std::thread::spawn(move || write(&options, at, 10));
        let mut over = false;
        while !over {
            reader
                .read(Duration::from_millis(100), &mut |message| {
                    over |= Header::read(COOKIE, message).is_some_and(|it| it.end);
                })
                .expect("the stream goes on");
        }
        drop(reader);
        writing.join().expect("the writer ended well");
    }
}

fn whole(messages: u64) -> Counted {
    Counted {
        messages,
        ..Counted::default()
    }
}

#[test]
fn what_is_promised_to_arrive_arrives_once_and_in_order() {
    let reliable = Protocol::ALL
        .into_iter()
        .filter(|it| it.is_reliable() && !it.is_of_jvm() && it.needs_hosts().is_none())
        .filter(|it| *it != Protocol::KernelSctp);
    for protocol in reliable {
        let found = stream(&options(protocol, 2_000), MESSAGES, |_| {});
        assert_eq!(
            found,
            (whole(MESSAGES), MESSAGES / 10),
            "{}",
            protocol.name()
        );
    }
}

#[test]
fn the_kernel_s_sctp_is_used_or_said_to_be_missing() {
    let options = options(Protocol::KernelSctp, 2_000);
    match listen(&options, LOOPBACK) {
        Ok(_) => assert_eq!(stream(&options, MESSAGES, |_| {}).0, whole(MESSAGES)),
        Err(error) => assert!(
            error
                .to_string()
                .starts_with("this kernel has no SCTP; wanted it; hint: modprobe sctp"),
            "{error}"
        ),
    }
}

#[test]
fn datagrams_that_came_and_those_that_were_lost_are_all_that_were_sent() {
    let (found, _) = stream(&options(Protocol::Udp, 2_000), MESSAGES, |_| {});
    assert_eq!(found.messages + found.lost, MESSAGES);
    assert!(found.messages > 0);
}

#[test]
fn the_shortest_and_long_messages_are_streamed_like_others() {
    for (protocol, message_bytes) in [
        (Protocol::Tcp, HEADER_BYTES),
        (Protocol::Tcp, 1_000_000),
        (Protocol::Quic, 300_000),
        (Protocol::Enet, 100_000),
        (Protocol::Kcp, 60_000),
    ] {
        let found = stream(&options(protocol, message_bytes), 50, |_| {});
        assert_eq!(found.0, whole(50), "{} {message_bytes}", protocol.name());
    }
    let (found, _) = stream(&options(Protocol::Udp, 60_000), 50, |_| {});
    assert_eq!(found.messages + found.lost, 50);
}

#[test]
fn a_stranger_that_comes_first_is_let_go() {
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Quic, Protocol::Kcp] {
        let stranger = |at: SocketAddr| match protocol {
            Protocol::Tcp => {
                let mut stream = TcpStream::connect(at).unwrap();
                stream.write_all(&[7; 4_000]).unwrap();
            }
            _ => {
                let socket = UdpSocket::bind(LOOPBACK).unwrap();
                socket.send_to(&[7; 2_000], at).unwrap();
                socket.send_to(b"?", at).unwrap();
            }
        };
        let (found, _) = stream(&options(protocol, 2_000), MESSAGES, stranger);
        assert_eq!(found.messages + found.lost, MESSAGES, "{}", protocol.name());
        assert_eq!(found.duplicated, 0);
    }
}

#[test]
fn strangers_that_are_silent_or_go_do_not_hold_the_stream_up() {
    for protocol in [Protocol::Quic, Protocol::Kcp] {
        let own = options(protocol, 2_000);
        let (mut reader, at) = listen(&own, LOOPBACK).expect("loopback has a port");
        let (come, has_come) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        // The first stranger begins a message and stays silent. The second connects and leaves.
        let silent = std::thread::spawn(move || {
            let mut begun = connect(&options(protocol, 100), &[at], TIMEOUT).unwrap();
            let word = [7; 100];
            assert_eq!(begun.write(&word, TIMEOUT).unwrap(), Sent::Taken);
            drop(connect(&options(protocol, 2_000), &[at], TIMEOUT).unwrap());
            come.send(()).unwrap();
            let _ = may_go.recv();
            drop(begun);
        });
        let mut read = |take: &mut dyn FnMut(&[u8])| {
            let received = reader.read(Duration::from_millis(20), take);
            received.expect("strangers break nothing")
        };
        while has_come.try_recv().is_err() {
            assert_ne!(
                read(&mut |_| panic!("nobody has said a word")),
                Received::Ended
            );
        }
        let writing = std::thread::spawn(move || write(&own, at, 100));
        let (mut account, mut said) = (Account::default(), None);
        let until = Instant::now() + TIMEOUT;
        // The reader acknowledges the end while it reads.
        while said.is_none() || !writing.is_finished() {
            assert!(Instant::now() < until, "{} is held up", protocol.name());
            read(&mut |message| match Header::read(COOKIE, message) {
                Some(header) if header.end => said = Some(header.sequence),
                Some(header) => account.came(header.sequence),
                None => {}
            });
        }
        assert_eq!((said, account.take().messages), (Some(100), 100));
        drop(reader);
        writing.join().unwrap();
        drop(go);
        silent.join().unwrap();
    }
}

#[test]
fn messages_of_another_run_are_not_counted() {
    let wanted = options(Protocol::Udp, 200);
    let (found, _) = stream(&wanted, 100, |at| {
        let other = Options {
            cookie: COOKIE + 1,
            ..wanted.clone()
        };
        write(&other, at, 50);
    });
    assert_eq!(found.messages + found.lost, 100);
    assert_eq!(found.duplicated, 0);
}

#[test]
fn a_reader_that_is_not_there_is_told_in_time() {
    // The port must never have been free: another test may listen on such a port by now.
    let gone = "127.0.0.1:1".parse().unwrap();
    for protocol in [Protocol::Tcp, Protocol::Quic, Protocol::Enet] {
        let connected = connect(
            &options(protocol, 2_000),
            &[gone],
            Duration::from_millis(300),
        );
        assert!(connected.is_err(), "{}", protocol.name());
    }
}

#[test]
fn a_writer_that_was_silent_for_longer_than_its_protocol_bears_is_still_heard() {
    let silent = [Protocol::Quic, Protocol::Enet].map(|protocol| {
        std::thread::spawn(move || {
            let found = stream_after(&options(protocol, 2_000), 10, |_| {}, SILENCE);
            assert_eq!(found, (whole(10), 1), "{}", protocol.name());
        })
    });
    for it in silent {
        it.join().unwrap();
    }
}
