//! Clusters of one process, on real sockets.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Cluster, DEADLINE, start_controller, start_server, value};
use flurry::{
    Client, Condition, Controller, ControllerOptions, Controllers, Error, Level, Operation,
    Options, Server, ServerOptions, Set, VALUE_BYTES_MAX,
};

#[test]
fn what_is_set_is_read_back_at_every_level() {
    let cluster = Cluster::start();
    let client = cluster.client("s");
    let hedge = Level::Hedge(flurry::DurationNs::millis(1));
    for level in [Level::First, Level::Quorum, Level::All, hedge, Level::Auto] {
        let call = || client.call().at_level(level);
        assert_eq!(call().get("k").unwrap(), None);
        call().set("k", "1").unwrap();
        assert_eq!(call().get("k").unwrap(), value("1"));
        assert_eq!(call().increment("k", 41).unwrap(), 42);
        assert_eq!(call().append("k", "!").unwrap(), 3);
        assert!(matches!(
            call().increment("k", 1),
            Err(Error::NotANumber { .. })
        ));
        assert!(!call().compare_and_set("k", value("42"), "no").unwrap());
        assert!(call().compare_and_set("k", value("42!"), "yes").unwrap());
        assert_eq!(call().get("k").unwrap(), value("yes"));
        assert!(call().delete("k").unwrap());
        assert!(!call().delete("k").unwrap());
    }
    assert!(client.close().unwrap().is_stable);
}

#[test]
fn a_value_ends_at_its_time_and_a_condition_is_kept() {
    let cluster = Cluster::start();
    let client = cluster.client("s");
    let absent = Set {
        condition: Condition::Absent,
        ..Set::default()
    };
    assert!(client.set_with("k", "1", absent).unwrap());
    assert!(!client.set_with("k", "2", absent).unwrap());
    let short = Set {
        expires_after: Some(Duration::from_millis(20)),
        ..Set::default()
    };
    assert!(client.set_with("k", "3", short).unwrap());
    let start = Instant::now();
    while client.get("k").unwrap().is_some() {
        assert!(start.elapsed() < DEADLINE);
    }
    assert!(start.elapsed() >= Duration::from_millis(10));
}

#[test]
fn with_one_server_stopped_every_operation_still_succeeds() {
    let mut cluster = Cluster::start();
    let client = cluster.client("s");
    client.set("before", "1").unwrap();
    cluster.servers[1] = None;
    for number in 0..100 {
        let key = format!("k{number}");
        let level = if number % 2 == 0 {
            Level::First
        } else {
            Level::Quorum
        };
        let call = || client.call().at_level(level).within(Duration::from_secs(2));
        call().set(key.clone(), "v").unwrap();
        assert_eq!(call().increment("count", 1).unwrap(), number + 1);
        assert_eq!(call().get(key).unwrap(), value("v"));
    }
    assert_eq!(client.get("before").unwrap(), value("1"));
    cluster.until("the stopped one is counted out", |view| {
        view.matches("\"up\"").count() == 2
    });
    assert!(client.close().unwrap().is_stable);
    // A new owner needs nobody who is gone.
    assert_eq!(cluster.client("s").get("count").unwrap(), value("100"));
}

#[test]
fn a_new_server_copies_the_largest_values_too() {
    let mut cluster = Cluster::start();
    let client = cluster.client("s");
    let large = |number: u8| Bytes::from(vec![number; VALUE_BYTES_MAX]);
    for number in 0..8 {
        client.set(format!("large{number}"), large(number)).unwrap();
        client
            .set(format!("small{number}"), vec![number; 9_000])
            .unwrap();
    }
    for id in [1, 2, 3] {
        cluster.servers[id - 1] = None;
        cluster.servers[id - 1] = Some(start_server(u16::try_from(id).unwrap(), cluster.address));
        let address = cluster.servers[id - 1].as_ref().unwrap().addresses()[0].to_string();
        cluster.until("the new life has copied everything", |view| {
            // The old life may be listed as up until the new one is let in.
            let is_in = view.contains(&address) && view.contains("\"changing\":false");
            is_in && view.matches("\"up\"").count() == 3
        });
    }
    // None of the three that took the writes is left.
    for number in 0..8 {
        assert_eq!(
            client.get(format!("large{number}")).unwrap(),
            Some(large(number))
        );
    }
    let told = |server: &Option<Server>| server.as_ref().map_or(0, |it| it.counts()[0].too_long);
    let told: u64 = cluster.servers.iter().map(told).sum();
    assert!(
        told > 0,
        "too long for datagrams: servers must ask over TCP"
    );
}

#[test]
fn a_second_client_on_a_session_fences_the_first() {
    let cluster = Cluster::start();
    let first = cluster.client("s");
    first.set("k", "1").unwrap();
    let second = cluster.client("s");
    assert!(second.epoch() > first.epoch());
    let refused = first.set("k", "2").unwrap_err();
    assert_eq!(
        refused,
        Error::Fenced {
            epoch: second.epoch()
        }
    );
    assert!(matches!(first.get("k"), Err(Error::Fenced { .. })));
    assert!(matches!(first.close(), Err(Error::Fenced { .. })));
    assert_eq!(second.get("k").unwrap(), value("1"));
    assert_eq!(cluster.client("another").get("k").unwrap(), None);
}

#[test]
fn closing_a_session_that_another_has_opened_says_so_at_once() {
    let cluster = Cluster::start();
    // It has written nothing, so that no server has a reason to refuse it anything.
    let first = cluster.client("s");
    let second = cluster.client("s");
    let epoch = second.epoch();
    assert_eq!(first.close(), Err(Error::Fenced { epoch }));
    assert!(second.close().unwrap().is_stable);
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_a_reason_of_its_own() {
    let cluster = Cluster::start();
    let client = cluster.client("s");
    for bytes in [0, 513] {
        let refused = client.get(vec![b'k'; bytes]).unwrap_err();
        assert!(matches!(refused, Error::KeyLength(length) if length.0 == bytes));
    }
    let longest = vec![b'k'; 512];
    let full = Bytes::from(vec![7; VALUE_BYTES_MAX]);
    client.set(longest.clone(), full.clone()).unwrap();
    assert_eq!(client.get(longest.clone()).unwrap(), Some(full.clone()));
    let bytes = VALUE_BYTES_MAX + 1;
    let refused = client.set("k", vec![7; bytes]).unwrap_err();
    assert_eq!(refused, Error::ValueTooLarge { bytes });
    let refused = client.append(longest.clone(), "1").unwrap_err();
    assert_eq!(refused, Error::ValueTooLarge { bytes: 1 });
    assert_eq!(client.get(longest).unwrap(), Some(full.clone()));
    let refused = client.compare_and_set("k", Some(full), "1").unwrap_err();
    assert_eq!(refused, Error::ValueTooLarge { bytes });
    client.call().with_sequence(1_000).set("k", "1").unwrap();
    let refused = client
        .call()
        .with_sequence(1_000)
        .set("k", "2")
        .unwrap_err();
    let last = 1_000;
    assert_eq!(refused, Error::SequenceGoesBack { given: 1_000, last });
    assert_eq!(client.get("k").unwrap(), value("1"));
    let unnamed = Client::open(&cluster.options("")).unwrap_err();
    assert!(matches!(unnamed, Error::Refused { .. }));
    let twice = Server::start(&ServerOptions::new(1, cluster.address)).unwrap_err();
    assert!(twice.to_string().contains("no other server"), "{twice}");
    let elsewhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let more = Controllers::new(vec![elsewhere, cluster.address]).unwrap();
    let told_of_more = Server::start(&ServerOptions::new(1, more)).unwrap_err();
    assert!(
        told_of_more.to_string().contains("no other server"),
        "{told_of_more}"
    );
}

#[test]
fn garbage_to_every_port_harms_nobody() {
    let cluster = Cluster::start();
    let client = cluster.client("s");
    client.set("k", "1").unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let servers = || cluster.servers.iter().flatten();
    let mut ports: Vec<SocketAddr> = servers().flat_map(Server::addresses).collect();
    ports.push(cluster.address);
    let mut number = 88_172_645_463_325_252_u64;
    for round in 0..500_usize {
        let garbage: Vec<u8> = (0..(round * 131) % 1_400)
            .map(|_| {
                number ^= number << 13;
                number ^= number >> 7;
                number ^= number << 17;
                number.to_le_bytes()[0]
            })
            .collect();
        for port in &ports {
            stranger.send_to(&garbage, port).unwrap();
        }
        assert_eq!(
            client.increment("count", 1).unwrap(),
            i64::try_from(round).unwrap() + 1
        );
    }
    assert_eq!(client.get("k").unwrap(), value("1"));
    assert!(servers().all(|server| server.counts()[0].damaged > 0));
    assert!(cluster.controller.as_ref().unwrap().counts().damaged > 0);
    cluster.until("all are up", |view| view.matches("\"up\"").count() == 3);
}

#[test]
fn a_controller_goes_on_from_its_file_and_gives_out_no_epoch_twice() {
    let mut cluster = Cluster::start();
    let mut last = 0;
    for round in 0..3 {
        let client = cluster.client("s");
        assert!(client.epoch().0 > last, "round {round}");
        last = client.epoch().0;
        client.increment("rounds", 1).unwrap();
        cluster.controller = None;
        // Operations go on without it.
        assert_eq!(
            client.get("rounds").unwrap(),
            Some(Bytes::from((round + 1).to_string()))
        );
        cluster.controller = Some(start_controller(cluster.address, cluster.directory.path()));
        if round == 1 {
            assert!(client.close().unwrap().is_stable);
        }
    }
    let client = cluster.client("s");
    assert!(client.epoch().0 > last);
    assert_eq!(client.get("rounds").unwrap(), value("3"));
    assert_eq!(client.tails_unknown(), 0);
}

#[test]
fn a_damaged_file_is_no_new_cluster() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("controller.state"), b"damaged").unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = ControllerOptions::new(listen, Some(directory.path().to_owned()));
    let refused = Controller::start(&options).unwrap_err().to_string();
    assert!(refused.contains("never start without it"), "{refused}");
}

#[test]
fn without_a_controller_an_opening_ends_in_time_and_names_its_address() {
    let nobody = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let options = Options {
        open_timeout: Duration::from_millis(200),
        ..Options::new(nobody, "s")
    };
    let refused = Client::open(&options).unwrap_err();
    assert!(
        matches!(&refused, Error::NoAnswer { controllers, .. } if *controllers == nobody.into())
    );
    assert!(refused.to_string().contains(&nobody.to_string()));
}

#[test]
fn a_controller_without_servers_answers_but_opens_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let controller = start_controller("127.0.0.1:0".parse().unwrap(), directory.path());
    let options = Options {
        open_timeout: Duration::from_millis(300),
        ..Options::new(controller.address(), "s")
    };
    let refused = Client::open(&options).unwrap_err();
    assert!(matches!(refused, Error::NotOpen { .. }), "{refused}");
}

#[test]
fn many_threads_share_a_client() {
    let cluster = Cluster::start();
    let client = cluster.client("s");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    client.increment("count", 1).unwrap();
                }
            });
        }
    });
    assert_eq!(client.get("count").unwrap(), value("400"));
}

#[test]
fn operations_on_a_key_are_done_in_the_order_in_which_they_were_begun() {
    let cluster = Cluster::start();
    let client = cluster.client("s");
    let mut wanted = Vec::new();
    for round in 0..200_u8 {
        // Few under way at once and many: they are handed over in different ways.
        let begun: Vec<_> = (0..round % 40)
            .map(|number| {
                let byte = round.wrapping_add(number);
                wanted.push(byte);
                let append = Operation::Append(Bytes::from(vec![byte]));
                client.call().start("k", &append).unwrap()
            })
            .collect();
        for waiting in begun.into_iter().skip(usize::from(round % 3)) {
            waiting.wait().unwrap();
        }
    }
    let read = client.get("k").unwrap().unwrap();
    assert_eq!(read, wanted);
}

#[test]
fn servers_of_two_threads_serve_too() {
    let controller = Controller::start(&ControllerOptions {
        shards: 2,
        ..ControllerOptions::new("127.0.0.1:0".parse().unwrap(), None)
    })
    .unwrap();
    let address = controller.address();
    let servers: Vec<Server> = (1..=3)
        .map(|id| {
            let options = ServerOptions {
                shards: 2,
                ..ServerOptions::new(id, address)
            };
            Server::start(&options).unwrap()
        })
        .collect();
    let options = Options {
        timeout: DEADLINE,
        open_timeout: DEADLINE,
        ..Options::new(address, "s")
    };
    let client = Client::open(&options).unwrap();
    for number in 0..50 {
        client
            .set(format!("k{number}"), number.to_string())
            .unwrap();
    }
    for number in 0..50 {
        let read = client.get(format!("k{number}")).unwrap();
        assert_eq!(read, Some(Bytes::from(number.to_string())));
    }
    drop(servers);
}
