//! The file of a cluster: valid files, and every error word for word.

use unruly_plan::{
    Cluster, ClusterDelay, ClusterDirection, ClusterLevel, ClusterTransport, DurationNs, Part,
    known_cluster_keys,
};

const THREE: &str = "[[server]]\nid = 1\nlisten = \"127.0.0.1:7701\"\n[[server]]\nid = 2\nlisten = \"127.0.0.1:7702\"\n[[server]]\nid = 3\nlisten = \"127.0.0.1:7703\"\n";

const WHOLE: &str = r#"
seed = 7
[cluster]
key = "cluster.key"
insecure = false
replicas = 2
shards = 2
lease = "500ms"
memory = "64MB"
evict = true
stamps = false
spin = "20us"
[controller]
listen = "127.0.0.1:7700"
directory = "state"
[[server]]
id = 1
listen = "127.0.0.2:7701"
[[server]]
id = 2
listen = "127.0.0.3:7701"
[router]
listen = "127.0.0.1:7690"
[[gateway]]
listen = "127.0.0.1:6380"
slots = "8192-16383"
[[gateway]]
listen = "127.0.0.1:6379"
slots = "0-8191"
users = "users.toml"
tls_cert = "cert.pem"
tls_key = "key.pem"
tls_client_ca = "ca.pem"
[client]
level = "hedge"
hedge = "2ms"
timeout = "1s"
transport = "tcp"
spin = "0s"
[[fault]]
part = "server-1"
peer = "server-2"
direction = "send"
after = "1s"
duration = "5s"
isolate = true
[[fault]]
part = "client"
loss = 0.05
duplicate = 0.01
corrupt = 0.001
reorder = 1
delay = "1ms"
delay_to = "3ms"
[[fault]]
part = "router"
delay = "1ms"
delay_shape = 1.5
[[pause]]
part = "server-2"
every = "200ms"
duration = "20ms"
"#;

#[track_caller]
fn refused(text: &str, message: &str) {
    match Cluster::parse("cluster.toml", text) {
        Ok(_) => panic!("accepted, but wanted: {message}"),
        Err(error) => assert_eq!(error.to_string(), message),
    }
}

/// Three servers (nine lines) with more lines after them.
#[track_caller]
fn three(lines: &str, message: &str) {
    refused(&format!("{THREE}{lines}"), message);
}

#[test]
fn three_servers_are_a_cluster() {
    let cluster = Cluster::parse("cluster.toml", THREE).unwrap();
    assert_eq!(cluster.controllers, ["127.0.0.1:7700".parse().unwrap()]);
    assert_eq!((cluster.replicas, cluster.shards), (3, 1));
    assert_eq!(cluster.lease, DurationNs(1_000_000_000));
    assert_eq!(cluster.level, ClusterLevel::First);
    assert_eq!(cluster.transport, ClusterTransport::Udp);
    assert_eq!(
        (cluster.spin, cluster.client_spin),
        (DurationNs(0), DurationNs(50_000))
    );
    assert!(cluster.faults.is_empty() && cluster.pauses.is_empty() && cluster.router.is_none());
}

#[test]
fn every_key_is_read() {
    let cluster = Cluster::parse("cluster.toml", WHOLE).unwrap();
    assert_eq!((cluster.seed, cluster.replicas, cluster.shards), (7, 2, 2));
    assert_eq!(cluster.lease, DurationNs(500_000_000));
    assert_eq!(
        (cluster.memory.0, cluster.evict, cluster.stamps),
        (64_000_000, true, false)
    );
    assert_eq!(
        (cluster.spin, cluster.client_spin),
        (DurationNs(20_000), DurationNs(0))
    );
    assert_eq!(cluster.directory.as_deref(), Some("state"));
    let [last, first] = &cluster.gateways[..] else {
        panic!("{:?}", cluster.gateways)
    };
    assert_eq!(
        (&last.slots, &first.slots),
        (&(8_192..=16_383), &(0..=8_191))
    );
    let files = [
        &first.users,
        &first.tls_cert,
        &first.tls_key,
        &first.tls_client_ca,
    ];
    let files = files.map(|it| it.as_deref().unwrap());
    assert_eq!(files, ["users.toml", "cert.pem", "key.pem", "ca.pem"]);
    assert_eq!(cluster.level, ClusterLevel::Hedge(DurationNs(2_000_000)));
    assert_eq!(cluster.transport, ClusterTransport::Tcp);
    let [isolated, lossy, slow] = &cluster.faults[..] else {
        panic!("{:?}", cluster.faults)
    };
    assert_eq!(
        (isolated.part, isolated.peer),
        (Part::Server(1), Some(Part::Server(2)))
    );
    assert_eq!(isolated.direction, Some(ClusterDirection::Send));
    assert_eq!(
        (isolated.loss, isolated.after),
        (1.0, DurationNs(1_000_000_000))
    );
    assert_eq!(isolated.duration, Some(DurationNs(5_000_000_000)));
    assert_eq!(
        (lossy.loss, lossy.duplicate, lossy.corrupt, lossy.reorder),
        (0.05, 0.01, 0.001, 1.0)
    );
    let millis = |count: u64| DurationNs(count * 1_000_000);
    assert_eq!(
        lossy.delay,
        Some(ClusterDelay::Uniform(millis(1), millis(3)))
    );
    assert_eq!(slow.delay, Some(ClusterDelay::Pareto(millis(1), 1.5)));
    assert_eq!(cluster.pauses[0].part, Part::Server(2));
    for key in known_cluster_keys() {
        let (table, name) = key.split_once('.').unwrap_or(("", &key));
        let shown = [WHOLE, SEVERAL, DISK]
            .concat()
            .contains(&format!("{name} = "));
        assert!(shown, "{key} of {table:?} is not in the examples above");
    }
}

const DISK: &str = r#"[[server]]
id = 4
listen = "127.0.0.1:7704"
disk = "records-4"
"#;

#[test]
fn a_server_keeps_its_records_on_disk_unless_it_is_a_cache() {
    let cluster = Cluster::parse("cluster.toml", &format!("{THREE}{DISK}")).unwrap();
    let disks = cluster.servers.iter().map(|it| it.disk.as_deref());
    assert_eq!(
        disks.collect::<Vec<_>>(),
        [None, None, None, Some("records-4")]
    );
    three(
        &format!("{DISK}[cluster]\nevict = true\n"),
        "cluster.toml:13: disk is \"records-4\"; must be left out where values are evicted, since all of them must be in memory; hint: evict = false",
    );
}

const SEVERAL: &str = r#"[controller]
listen = ["127.0.0.1:7700", "127.0.0.2:7700"]
etcd = "etcds://127.0.0.1/shop"
etcd_ca = "ca.pem"
etcd_cert = "own.pem"
etcd_key = "own.key"
"#;

#[test]
fn several_controllers_agree_with_each_other_without_etcd() {
    let group =
        "[controller]\nlisten = [\"127.0.0.1:7700\", \"127.0.0.2:7700\", \"127.0.0.3:7700\"]\n";
    let cluster = Cluster::parse("cluster.toml", &format!("{THREE}{group}")).unwrap();
    assert_eq!((cluster.controllers.len(), cluster.etcd), (3, None));
}

#[test]
fn several_controllers_keep_their_state_in_etcd() {
    let cluster = Cluster::parse("cluster.toml", &format!("{THREE}{SEVERAL}")).unwrap();
    assert_eq!(cluster.controllers.len(), 2);
    let etcd = cluster.etcd.unwrap();
    assert_eq!(etcd.place, "etcds://127.0.0.1/shop");
    assert_eq!(etcd.authorities.as_deref(), Some("ca.pem"));
    assert_eq!(etcd.certificate.as_deref(), Some("own.pem"));
    assert_eq!(etcd.key.as_deref(), Some("own.key"));
    three(
        "[controller]\nlisten = [\"127.0.0.1:7700\", \"127.0.0.1:7700\"]\n",
        "cluster.toml:11: listen is [\"127.0.0.1:7700\", \"127.0.0.1:7700\"]; must name each address once; hint: listen = [\"127.0.0.1:7700\"]",
    );
    three(
        "[controller]\netcd = \"etcd://127.0.0.1\"\ndirectory = \"state\"\n",
        "cluster.toml:12: directory is \"state\"; must be left out where the state is in etcd; hint: keep one of directory and etcd",
    );
    three(
        "[controller]\netcd = \"\"\n",
        "cluster.toml:11: etcd is \"\"; must not be empty; hint: etcd = \"etcd://10.0.0.1,10.0.0.2,10.0.0.3/shop\"",
    );
}

#[test]
fn the_gateways_of_a_file_serve_each_slot_once() {
    let alone = format!("{THREE}[[gateway]]\nlisten = \"127.0.0.1:6379\"\n");
    let cluster = Cluster::parse("cluster.toml", &alone).unwrap();
    assert_eq!(cluster.gateways[0].slots, 0..=16_383);
    let two = |first: &str, second: &str| {
        format!(
            "[[gateway]]\nlisten = \"127.0.0.1:6379\"\nslots = \"{first}\"\n[[gateway]]\nlisten = \"127.0.0.1:6380\"\nslots = \"{second}\"\n"
        )
    };
    let hint = "slots = \"0-8191\" and slots = \"8192-16383\"";
    for (first, second, message) in [
        (
            "0-8191",
            "7936-16383",
            "15: slots are 7936-16383, and another gateway serves 7936 too; must be one gateway's alone",
        ),
        (
            "0-7935",
            "8192-16383",
            "15: no gateway serves the slots 7936-8191; must serve all together",
        ),
        (
            "256-8191",
            "8192-16383",
            "12: no gateway serves the slots 0-255; must serve all together",
        ),
        (
            "0-8191",
            "8192-16127",
            "15: no gateway serves the slots 16128-16383; must serve all together",
        ),
        (
            "0-8191",
            "8192-16382",
            "15: slots is \"8192-16382\"; must be whole parts of 256 slots",
        ),
        (
            "1-8191",
            "8192-16383",
            "12: slots is \"1-8191\"; must be whole parts of 256 slots",
        ),
        (
            "0-8191",
            "8192-16384",
            "15: slots is \"8192-16384\"; must be FIRST-LAST, both from 0 to 16383",
        ),
        (
            "8191-0",
            "8192-16383",
            "12: slots is \"8191-0\"; must be FIRST-LAST, both from 0 to 16383",
        ),
        (
            "all",
            "8192-16383",
            "12: slots is \"all\"; must be FIRST-LAST, both from 0 to 16383",
        ),
    ] {
        three(
            &two(first, second),
            &format!("cluster.toml:{message}; hint: {hint}"),
        );
    }
    three(
        "[[gateway]]\nlisten = \"127.0.0.1:7702\"\n",
        "cluster.toml:6: server 2 would listen at 127.0.0.1:7702, where a gateway does; must have addresses of their own; hint: a server takes a port for each of its shards",
    );
    three(
        "[[gateway]]\nlisten = \"127.0.0.1:6379\"\ntls_cert = \"cert.pem\"\n",
        "cluster.toml:12: tls_cert is \"cert.pem\"; must come with tls_key; hint: tls_key = \"tls_key.pem\"",
    );
}

#[test]
fn the_manual_names_every_key_and_its_example_is_good() {
    let manual = include_str!("../../../../flurry/docs/configuration.md");
    for key in known_cluster_keys() {
        let name = key.rsplit('.').next().unwrap();
        assert!(
            manual.contains(&format!("`{name}`")),
            "{key} is not in the manual"
        );
    }
    let example = include_str!("../../../../flurry/docs/cluster.toml");
    let cluster = Cluster::parse("cluster.toml", example).unwrap();
    assert_eq!((cluster.servers.len(), cluster.pauses.len()), (3, 1));
}

#[test]
fn what_is_unknown_is_said_with_what_is_known() {
    refused(
        "[[servers]]\nid = 1\n",
        "cluster.toml:1: unknown key \"servers\" in the cluster; known: cluster, controller, server, router, gateway, client, seed, fault, pause; hint: did you mean server",
    );
    three(
        "[cluster]\nreplica = 2\n",
        "cluster.toml:11: unknown key \"replica\" in [cluster]; known: replicas, shards, lease, memory, evict, stamps, spin, key, insecure; hint: did you mean replicas",
    );
    three(
        "[[fault]]\npart = \"server-4\"\nloss = 0.1\n",
        "cluster.toml:11: unknown part \"server-4\" in [[fault]]; known: controller, client, server-1, server-2, server-3; hint: did you mean server-1",
    );
    refused(
        "x = = 1\n",
        "cluster.toml:1: not TOML: extra `=`, expected nothing; must be TOML 1.0; hint: see flurry/docs/configuration.md",
    );
}

#[test]
fn a_cluster_has_servers_at_least_as_many_as_copies() {
    refused(
        "seed = 1\n",
        "cluster.toml:1: [[server]] is missing in the cluster; must hold at least one; hint: [[server]] with id = 1 and listen = \"127.0.0.1:7701\"",
    );
    three(
        "[cluster]\nreplicas = 4\n",
        "cluster.toml:11: replicas is 4; must be at most the 3 servers; hint: add a [[server]] for each",
    );
}

#[test]
fn a_part_listens_on_loopback_at_an_address_of_its_own() {
    for (listen, wanted) in [
        (
            "0.0.0.0:7701",
            "must be an address that the others reach it by",
        ),
        ("[::1]:7701", "must be an IPv4 address"),
        ("somewhere", "must be an address with a port"),
        (
            "127.0.0.1:0",
            "must name a port: the others have to find it",
        ),
    ] {
        refused(
            &format!("[[server]]\nid = 1\nlisten = \"{listen}\"\n"),
            &format!(
                "cluster.toml:3: listen is \"{listen}\"; {wanted}; hint: listen = \"127.0.0.1:7701\""
            ),
        );
    }
    refused(
        "[[server]]\nid = 1\nlisten = \"10.0.0.1:7701\"\n",
        "cluster.toml:3: listen is \"10.0.0.1:7701\"; must be of 127.0.0.0/8: without a key nothing is encrypted and nobody has to say who they are; hint: [cluster] with key = \"cluster.key\" (flurry key prints one)",
    );
    for more in ["key = \"cluster.key\"", "insecure = true"] {
        let text = format!("[cluster]\n{more}\n[[server]]\nid = 1\nlisten = \"10.0.0.1:7701\"\n");
        assert!(Cluster::parse("cluster.toml", &text).is_ok(), "{more}");
    }
    three(
        "[[server]]\nid = 4\nlisten = \"127.0.0.1:7703\"\n",
        "cluster.toml:12: server 4 would listen at 127.0.0.1:7703, where server 3 does; must have addresses of their own; hint: a server takes a port for each of its shards",
    );
    three(
        "[cluster]\nshards = 2\n",
        "cluster.toml:6: server 2 would listen at 127.0.0.1:7702, where server 1 does; must have addresses of their own; hint: a server takes a port for each of its shards",
    );
    three(
        "[[server]]\nid = 3\nlisten = \"127.0.0.1:7704\"\n",
        "cluster.toml:11: id is 3; must be another server's; hint: give each its own",
    );
    three(
        "[router]\nlisten = \"127.0.0.1:7700\"\n",
        "cluster.toml:10: the router would listen at 127.0.0.1:7700, where the controller does; must have addresses of their own; hint: give each its own port",
    );
    refused(
        "[cluster]\nshards = 2\n[[server]]\nid = 1\nlisten = \"127.0.0.1:65535\"\n",
        "cluster.toml:5: server 1 has no port for shard 1; must have a port for each of its shards; hint: use lower ports",
    );
}

#[test]
fn a_fault_does_something_that_can_be() {
    three(
        "[[fault]]\npart = \"client\"\n",
        "cluster.toml:11: a fault that does nothing; must have isolate, loss, duplicate, corrupt, reorder or delay; hint: loss = 0.01",
    );
    three(
        "[[fault]]\nloss = 0.1\n",
        "cluster.toml:10: part is missing in [[fault]]; must be a part; hint: part = \"server-1\"",
    );
    three(
        "[[fault]]\npart = \"client\"\nloss = 1.5\n",
        "cluster.toml:12: loss is 1.5; must be from 0 to 1; hint: loss = 0.01",
    );
    three(
        "[[fault]]\npart = \"client\"\nisolate = true\nloss = 0.5\n",
        "cluster.toml:13: loss is 0.5; must be left out: all is lost; hint: remove loss",
    );
    three(
        "[[fault]]\npart = \"client\"\ndelay_to = \"1ms\"\nloss = 0.1\n",
        "cluster.toml:12: delay_to is \"1ms\"; must come with delay; hint: delay = \"1ms\"",
    );
    three(
        "[[fault]]\npart = \"client\"\ndelay = \"2ms\"\ndelay_to = \"1ms\"\n",
        "cluster.toml:13: delay_to is \"1ms\"; must be at least delay, 2ms; hint: delay_to = \"5ms\"",
    );
    three(
        "[[fault]]\npart = \"client\"\ndelay = \"2ms\"\ndelay_shape = 0\n",
        "cluster.toml:13: delay_shape is 0; must be a number from 0.1 to 100; hint: delay_shape = 1.5",
    );
    three(
        "[[pause]]\npart = \"server-1\"\nevery = \"20ms\"\nduration = \"20ms\"\n",
        "cluster.toml:13: duration is \"20ms\"; must be shorter than every 20ms; hint: duration = \"20ms\"",
    );
    three(
        "[client]\nhedge = \"1ms\"\n",
        "cluster.toml:11: hedge is \"1ms\"; must be left out unless level is \"hedge\"; hint: level = \"hedge\"",
    );
}
