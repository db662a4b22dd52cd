//! The ways by which messages travel, and what may go wrong on them.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use common::{Cluster, DEADLINE, value};
use flurry::{
    Client, Concerned, Controller, ControllerOptions, Error, Fault, Faults, Level, Operation,
    Options, Router, RouterOptions, Server, ServerOptions, Transport, VALUE_BYTES_MAX,
};
use flurry_core::message::{Control, Message};
use flurry_core::wire;

fn framed(message: &Message) -> BytesMut {
    let mut bytes = BytesMut::new();
    wire::encode(message, &mut bytes);
    let mut frame = BytesMut::new();
    frame.put_u32_le(u32::try_from(bytes.len()).unwrap());
    frame.extend_from_slice(&bytes);
    frame
}

fn client_by(cluster: &Cluster, transport: Transport) -> Client {
    Client::open(&Options {
        transport,
        ..cluster.options("s")
    })
    .unwrap()
}

#[test]
fn every_operation_works_by_every_transport_and_the_next_owner_sees_it() {
    let cluster = Cluster::start();
    for transport in [Transport::Udp, Transport::Tcp, Transport::InProcess] {
        let client = client_by(&cluster, transport);
        for level in [Level::First, Level::Quorum, Level::All] {
            let call = || client.call().at_level(level);
            call().delete("k").unwrap();
            call().set("k", "1").unwrap();
            assert_eq!(call().increment("k", 41).unwrap(), 42, "{transport:?}");
            assert_eq!(call().append("k", "!").unwrap(), 3);
            assert!(call().compare_and_set("k", value("42!"), "done").unwrap());
        }
        assert!(client.close().unwrap().is_stable, "{transport:?}");
    }
    assert_eq!(cluster.client("s").get("k").unwrap(), value("done"));
}

#[test]
fn the_largest_value_travels_by_every_transport() {
    let cluster = Cluster::start();
    for transport in [Transport::Udp, Transport::Tcp, Transport::InProcess] {
        let client = client_by(&cluster, transport);
        let large = Bytes::from(vec![7; VALUE_BYTES_MAX]);
        client.set("large", large.clone()).unwrap();
        assert_eq!(client.get("large").unwrap(), Some(large), "{transport:?}");
        let refused = client
            .set("large", vec![0; VALUE_BYTES_MAX + 1])
            .unwrap_err();
        assert!(matches!(refused, Error::ValueTooLarge { .. }), "{refused}");
        // An append that would make it longer is refused by the servers, and changes nothing.
        let refused = client.append("large", "x").unwrap_err();
        assert!(matches!(refused, Error::ValueTooLarge { .. }), "{refused}");
        client.close().unwrap();
    }
}

#[test]
fn operations_begun_together_are_done_in_order() {
    let cluster = Cluster::start();
    let client = cluster.client("s");
    let append = |text: String| Operation::Append(text.into());
    let begun: Vec<_> = (0..200)
        .map(|number| {
            client
                .call()
                .start("k", &append(format!("{number},")))
                .unwrap()
        })
        .collect();
    for waiting in begun {
        waiting.wait().unwrap();
    }
    let wanted: String = (0..200).map(|number| format!("{number},")).collect();
    assert_eq!(client.get("k").unwrap(), Some(Bytes::from(wanted)));
}

#[test]
fn a_router_of_its_own_serves_many_owners_and_may_be_replaced() {
    let cluster = Cluster::start();
    let start = |listen| {
        Router::start(&RouterOptions {
            listen,
            ..RouterOptions::new(cluster.address)
        })
        .unwrap()
    };
    let router = start("127.0.0.1:0".parse().unwrap());
    let address = router.address();
    let open = |session: &str, transport| {
        Client::open(&Options {
            router: Some(address),
            transport,
            ..cluster.options(session)
        })
        .unwrap()
    };
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let ways = [Transport::Udp, Transport::Tcp, Transport::InProcess];
            open(&format!("s{number}"), ways[number % ways.len()])
        })
        .collect();
    for client in &clients {
        client.set("k", "1").unwrap();
        assert_eq!(client.increment("k", 1).unwrap(), 2);
    }
    assert!(router.counts().received > 0);
    drop(router);
    // What it knew is gone, and nobody misses it.
    let _router = start(address);
    for client in clients {
        assert_eq!(client.increment("k", 1).unwrap(), 3);
        assert!(client.close().unwrap().is_stable);
    }
    assert_eq!(cluster.client("s0").get("k").unwrap(), value("3"));
}

#[test]
fn a_server_that_is_isolated_on_purpose_is_waited_for_by_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = ControllerOptions::new(listen, Some(directory.path().to_owned()));
    let controller = Controller::start(&options).unwrap();
    let address = controller.address();
    let isolated = Faults {
        seed: 1,
        messages: vec![Fault {
            concerned: Concerned::Others(vec![address]),
            loss: 1.0,
            ..Fault::default()
        }],
        pause: None,
    };
    let servers: Vec<Server> = (1..=3)
        .map(|id| {
            let faults = if id == 3 {
                isolated.clone()
            } else {
                Faults::default()
            };
            Server::start(&ServerOptions {
                faults,
                ..ServerOptions::new(id, address)
            })
            .unwrap()
        })
        .collect();
    let client = Client::open(&Options {
        open_timeout: DEADLINE,
        ..Options::new(address, "s")
    })
    .unwrap();
    for level in [Level::First, Level::Quorum] {
        let call = || client.call().at_level(level).within(DEADLINE);
        call().set("k", "1").unwrap();
        assert_eq!(call().get("k").unwrap(), value("1"));
    }
    let all = client
        .call()
        .at_level(Level::All)
        .within(Duration::from_millis(300));
    let unknown = all.set("k", "2").unwrap_err();
    assert!(matches!(unknown, Error::Unknown { .. }), "{unknown}");
    drop(servers);
}

#[test]
fn loss_damage_duplicates_and_delays_on_purpose_cost_time_and_no_answer() {
    let cluster = Cluster::start();
    let rough = Faults {
        seed: 5,
        messages: vec![Fault {
            loss: 0.1,
            duplicate: 0.1,
            corrupt: 0.05,
            reorder: 0.1,
            delay: Some(flurry::Delay::Pareto(Duration::from_micros(50), 1.5)),
            ..Fault::default()
        }],
        pause: None,
    };
    let client = Client::open(&Options {
        faults: rough,
        ..cluster.options("s")
    })
    .unwrap();
    for sum in 1..=200 {
        assert_eq!(client.increment("count", 1).unwrap(), sum);
    }
    assert_eq!(client.get("count").unwrap(), value("200"));
    assert!(client.counts().damaged > 0, "damaged messages were noticed");
    let damaged = |server: &Server| server.counts()[0].damaged;
    assert!(cluster.servers.iter().flatten().map(damaged).sum::<u64>() > 0);
    assert!(client.close().unwrap().is_stable);
}

#[test]
fn a_fault_of_one_operation_is_that_operations_alone() {
    let cluster = Cluster::start();
    let client = cluster.client("s");
    let places = |count: usize| {
        let servers = cluster.servers.iter().take(count).flatten();
        Concerned::These(servers.map(|it| it.addresses()[0]).collect())
    };
    let lost = |count: usize| Fault {
        concerned: places(count),
        loss: 1.0,
        ..Fault::default()
    };
    client.set("k", "1").unwrap();
    let (one, all) = (lost(1), lost(3));
    let call = || client.call().within(Duration::from_millis(300));
    // Two replicas are enough for a quorum, and not for all.
    call()
        .at_level(Level::Quorum)
        .with_fault(&one)
        .set("k", "2")
        .unwrap();
    let refused = call()
        .at_level(Level::All)
        .with_fault(&one)
        .set("other", "1");
    assert!(matches!(refused, Err(Error::Unknown { .. })), "{refused:?}");
    let refused = call().with_fault(&all).get("k");
    assert!(matches!(refused, Err(Error::Unknown { .. })), "{refused:?}");
    // Everything else goes as ever, on the same key too.
    assert_eq!(call().get("k").unwrap(), value("2"));
    client
        .call()
        .at_level(Level::All)
        .set("third", "1")
        .unwrap();
}

#[test]
fn garbage_over_tcp_ends_its_connection_and_disturbs_nobody() {
    let cluster = Cluster::start();
    let client = client_by(&cluster, Transport::Tcp);
    client.set("k", "1").unwrap();
    let places = cluster.servers.iter().flatten().map(|it| it.addresses()[0]);
    for place in places.chain([cluster.address]) {
        for garbage in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[0xff; 4_096],
            &[48, 0, 0, 0, 1, 2, 3, 4],
            &[0, 0, 0, 0],
        ] {
            let mut stream = TcpStream::connect(place).unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            stream.write_all(garbage).unwrap();
            // What is no whole message may still become one: its sender has to give up.
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            // Closed, perhaps harshly; never answered.
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.is_empty(), "{place}: {answer:?}");
        }
        assert_eq!(client.get("k").unwrap(), value("1"));
    }
    assert!(cluster.controller.as_ref().unwrap().counts().damaged > 0);
}

#[test]
fn a_client_that_never_reads_costs_the_others_nothing() {
    let cluster = Cluster::start();
    let client = cluster.client("s");
    client.set("large", vec![1; VALUE_BYTES_MAX]).unwrap();
    let server = cluster.servers[0].as_ref().unwrap().addresses()[0];
    let mut deaf: Vec<TcpStream> = (0..8)
        .map(|_| {
            let stream = TcpStream::connect(server).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    // A router's question, again and again, and its answers unread.
    let question = framed(&Message::Control(Control::ConfigQuery));
    let mut written = 0;
    for _ in 0..20_000 {
        for stream in &mut deaf {
            written += stream.write(&question).unwrap_or(0);
        }
    }
    assert!(written > 0);
    assert_eq!(client.get("large").unwrap().unwrap().len(), VALUE_BYTES_MAX);
    client.set("k", "1").unwrap();
    assert_eq!(client.get("k").unwrap(), value("1"));
}
