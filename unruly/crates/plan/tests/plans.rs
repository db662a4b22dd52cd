//! What a good plan means: defaults, round trips, cells and their order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use unruly_plan::{
    Arrivals, BitRate, Bytes, Collector, Compete, CompeteKind, Drive, DurationNs, Factor, Fault,
    FaultKind, Hosts, Http, Jvm, KeyOrder, Load, Mesh, Place, Plan, Probe, Protocol, RateHz, Run,
    Runtime, Scheduling, Slo, Store, Stream, Tap, ThinkBursts, Tls, Transport, Until, ValueSize,
    Workload,
};

mod stores;
use stores::store;

const SECOND: u64 = 1_000_000_000;

fn parse(text: &str) -> Plan {
    Plan::parse("plan.toml", text).expect("the plan is good")
}

fn mesh_with(lines: &str) -> Plan {
    let head = "name = \"a\"\n[run]\nduration = \"60s\"\n[mesh]\nagents = 7\ngroups = [3, 4]\n";
    parse(&format!("{head}{lines}"))
}

fn drive_with(lines: &str) -> Plan {
    let head = "name = \"a\"\n[run]\nduration = \"60s\"\nrepeat = 3\n[drive]\n";
    parse(&format!("{head}{lines}"))
}

#[test]
fn a_mesh_has_the_defaults_of_the_manual() {
    let plan = mesh_with("");
    assert_eq!((plan.seed, plan.tag.as_str()), (1, ""));
    let run = Run {
        duration: DurationNs(60 * SECOND),
        warmup: DurationNs(0),
        repeat: 1,
        hosts: Hosts::Processes,
        listen: None,
        until: None,
        slo: Vec::new(),
        goodput: None,
    };
    assert_eq!(plan.run, run);
    assert_eq!(
        plan.probe,
        Some(Probe {
            period: DurationNs(SECOND)
        })
    );
    let mesh = Mesh {
        agents: 7,
        groups: vec![3, 4],
        period: DurationNs(SECOND),
        regroup: DurationNs(86_400 * SECOND),
        workloads: Workload::ALL.to_vec(),
        transport: Transport::Tcp,
        runtime: Runtime::Native,
        timeout: DurationNs(SECOND),
        in_flight: 4_096,
        body: Bytes(50_000),
        disk_file: Bytes(64 << 20),
        port: None,
    };
    assert_eq!(plan.load, Load::Mesh(mesh));
}

#[test]
fn a_drive_has_the_defaults_of_the_manual() {
    let drive = Drive {
        transport: Transport::Tcp,
        address: None,
        clients: 1,
        processes: 1,
        arrivals: Arrivals::Constant {
            rate: RateHz(100.0),
        },
        ramp: None,
        times: None,
        system: None,
        payload: Bytes(64),
        timeout: DurationNs(10 * SECOND),
        in_flight: 1_000_000,
        scheduling: Scheduling::Normal,
        requests: None,
        store: None,
    };
    assert_eq!(drive_with("rate = \"100/s\"").load, Load::Drive(drive));
}

#[test]
fn a_store_has_the_defaults_of_the_manual_and_is_driven_as_fast_as_it_answers() {
    let text = "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\nurl = \"redis://h\"\n";
    let Load::Drive(drive) = Plan::parse("plan", text).expect("a plan").load else {
        panic!("a drive was written");
    };
    assert_eq!(
        drive.arrivals,
        Arrivals::Closed {
            think: DurationNs(0),
            bursts: None,
        }
    );
    let store = Store {
        url: "redis://h".parse().expect("a url"),
        operations: "write then read".parse().expect("operations"),
        keys: 250_000,
        order: KeyOrder::Turn,
        skew: 0.99,
        value: ValueSize::Fixed(Bytes(1_000)),
        level: None,
        pipeline: 1,
        retries: 0,
        preload: false,
        http: None,
        tls: Tls::default(),
        sql: None,
        message: None,
        keep: false,
        calls: None,
        spans: None,
    };
    assert_eq!(drive.store, Some(Box::new(store)));
}

#[test]
fn a_system_is_called_in_a_closed_loop_and_has_no_keys() {
    let drive = |lines: &str| match drive_with(lines).load {
        Load::Drive(drive) => drive,
        _ => panic!("a drive was written"),
    };
    for lines in [
        "system = \"rmi\"\npayload = \"2KB\"",
        "url = \"program:a b\"\npayload = \"2KB\"",
    ] {
        let found = drive(lines);
        assert!(matches!(found.arrivals, Arrivals::Closed { .. }));
        let store = found.store.expect("it is called");
        assert_eq!(store.calls, Some(Bytes(2_000)));
        assert!(!store.has_keys() && !store.preload);
        assert_eq!(store.request_name().as_deref(), Some("call"));
    }
    let store = drive("system = \"rmi\"").store.expect("it is called");
    assert_eq!(
        (store.calls, store.url.system()),
        (Some(Bytes(64)), Some("rmi"))
    );
    // A program without a payload is that of a store.
    let store = drive("url = \"program:a b\"").store.expect("it is asked");
    assert!(store.calls.is_none() && store.has_keys());
}

#[test]
fn the_systems_tcp_and_udp_are_our_own_echo_server() {
    for (name, transport) in [("tcp", Transport::Tcp), ("udp", Transport::Udp)] {
        let Load::Drive(drive) = drive_with(&format!("system = \"{name}\"")).load else {
            panic!("a drive was written");
        };
        assert_eq!((drive.transport, drive.store), (transport, None));
        assert!(matches!(drive.arrivals, Arrivals::Closed { .. }));
    }
}

#[test]
fn a_matrix_varies_systems_of_both_kinds() {
    let plan =
        drive_with("system = \"tcp\"\n[matrix]\n\"drive.system\" = [\"tcp\", \"udp\", \"rmi\"]\n");
    let cells = plan.cells().expect("they are good");
    let names: Vec<&str> = cells.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["system=tcp", "system=udp", "system=rmi"]);
    let called = cells.iter().map(|it| match &it.plan.load {
        Load::Drive(drive) => drive.store.as_ref().and_then(|it| it.url.system()),
        _ => None,
    });
    assert_eq!(called.collect::<Vec<_>>(), [None, None, Some("rmi")]);
}

#[test]
fn nothing_is_written_by_http_unless_it_is_asked_for() {
    let store = |lines: &str| {
        let text = format!("name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\n{lines}");
        match Plan::parse("plan", &text).expect("a plan").load {
            Load::Drive(drive) => drive.store.expect("a store was written"),
            _ => panic!("a drive was written"),
        }
    };
    let plain = store("url = \"http://h/a\"\nclients = 3");
    assert_eq!(
        (
            plain.operations.to_string(),
            plain.preload,
            plain.has_keys()
        ),
        ("read".to_owned(), false, false)
    );
    let http = Http {
        connections: 3,
        expect: "2xx, 3xx".parse().expect("codes"),
        ..Http::default()
    };
    assert_eq!(plain.http, Some(http));
    for (url, operations, preload) in [
        ("http://h/{key}", "read", false),
        ("http://h/a?b={key}", "read", false),
        ("http://h/{key}", "read 90%, write 10%", true),
        ("http://h/{key}", "write then read", false),
        ("http://h/a", "read 90%, write 10%", false),
        ("redis://h", "read", true),
    ] {
        let found = store(&format!("url = {url:?}\noperations = {operations:?}"));
        assert_eq!(found.preload, preload, "{url} {operations}");
        assert_eq!(found.has_keys(), url != "http://h/a", "{url}");
    }
}

#[test]
fn arrivals_are_one_of_six() {
    let arrivals = |lines| match drive_with(lines).load {
        Load::Drive(drive) => drive.arrivals,
        _ => panic!("a drive was written"),
    };
    let poisson = arrivals("arrivals = \"poisson\"\nrate = \"20k/s\"");
    assert_eq!(
        poisson,
        Arrivals::Poisson {
            rate: RateHz(20_000.0)
        }
    );
    let replay = drive_with("arrivals = \"replay\"\ntimes = \"seen.txt\"");
    assert!(matches!(&replay.load, Load::Drive(drive)
        if drive.arrivals == Arrivals::Replay && drive.times.as_deref() == Some("seen.txt")));
    assert_eq!(parse(&replay.to_toml()), replay);
    let it = drive_with("rate = \"1/s\"\nramp = \"20s:9.5, 9s:0\"");
    assert_eq!(parse(&it.to_toml()), it);
    let closed = |think_ns| Arrivals::Closed {
        think: DurationNs(think_ns),
        bursts: None,
    };
    let thinks = "arrivals = \"closed\"\nthink = \"2ms\"";
    assert_eq!(arrivals(thinks), closed(2_000_000));
    assert_eq!(arrivals("arrivals = \"closed\""), closed(0));
}

#[test]
fn workloads_have_letters_and_keep_their_order() {
    let plan = mesh_with("workloads = [\"E\", \"null\", \"C\"]");
    let Load::Mesh(mesh) = plan.load else {
        panic!("a mesh was written")
    };
    assert_eq!(
        mesh.workloads,
        [Workload::Mixed, Workload::Null, Workload::Disk]
    );
    assert_eq!(Workload::ALL.map(Workload::flags), [0, 1, 2, 4, 7]);
}

#[test]
fn a_probe_can_be_switched_off() {
    assert_eq!(mesh_with("[probe]\nenabled = false").probe, None);
}

#[test]
fn faults_and_pins_may_be_inline() {
    let tables = mesh_with("[[fault]]\nkind = \"kill\"\nprocess = \"agent-6\"\nat = \"5s\"");
    assert_eq!(
        tables.faults,
        [Fault {
            kind: FaultKind::Kill,
            processes: vec!["agent-6".to_owned()],
            at: DurationNs(5 * SECOND),
            duration: None,
            every: None,
        }]
    );
    let inline = "name = \"a\"\nfault = [{kind = \"kill\", process = \"agent-6\", at = \"5s\"}]\n\
                  run = {duration = \"60s\"}\nmesh = {agents = 7, groups = [3, 4]}\n";
    assert_eq!(parse(inline), tables);
    let pinned = mesh_with("[pin]\n\"agent-3\" = [1, 2]");
    assert_eq!(
        pinned.pins,
        BTreeMap::from([("agent-3".to_owned(), vec![1, 2])])
    );
}

#[test]
fn a_plan_without_a_matrix_is_one_cell() {
    let plan = mesh_with("");
    let cells = plan.cells().unwrap();
    assert_eq!(cells.len(), 1);
    assert_eq!((cells[0].name.as_str(), &cells[0].plan), ("all", &plan));
    assert_eq!(plan.order(1), [(0, 0)]);
}

#[test]
fn cells_are_every_combination_and_override_the_plan() {
    let plan = drive_with(
        "rate = \"100/s\"\n[matrix]\n\"drive.transport\" = [\"tcp\", \"udp\"]\n\
         \"drive.payload\" = [\"64B\", \"1KB\"]\n\"drive.clients\" = [2]",
    );
    let cells = plan.cells().unwrap();
    let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
    let wanted = [
        "transport=tcp payload=64B clients=2",
        "transport=tcp payload=1KB clients=2",
        "transport=udp payload=64B clients=2",
        "transport=udp payload=1KB clients=2",
    ];
    assert_eq!(names, wanted);
    let Load::Drive(drive) = &cells[3].plan.load else {
        panic!("a drive was written")
    };
    assert_eq!(
        (drive.transport, drive.payload, drive.clients),
        (Transport::Udp, Bytes(1_000), 2)
    );
    assert_eq!(cells[3].factors["drive.payload"], "1KB");
    assert!(cells[3].plan.matrix.is_empty());
}

#[test]
fn factors_that_end_alike_are_named_in_full() {
    let plan = mesh_with("[matrix]\n\"mesh.period\" = [\"1s\"]\n\"probe.period\" = [\"2s\"]");
    assert_eq!(
        plan.cells().unwrap()[0].name,
        "mesh.period=1s probe.period=2s"
    );
}

#[test]
fn lists_can_be_varied() {
    let plan = mesh_with("[matrix]\n\"mesh.groups\" = [[3, 4], [7]]");
    let cells = plan.cells().unwrap();
    assert_eq!(cells[1].name, "groups=[7]");
    let Load::Mesh(mesh) = &cells[1].plan.load else {
        panic!("a mesh was written")
    };
    assert_eq!(mesh.groups, [7]);
}

#[test]
fn each_repeat_holds_every_cell_once_in_an_order_of_its_own() {
    let clients: Vec<String> = (1..=50).map(|n| n.to_string()).collect();
    let matrix = format!(
        "rate = \"1/s\"\n[matrix]\n\"drive.clients\" = [{}]",
        clients.join(",")
    );
    let plan = drive_with(&matrix);
    let order = plan.order(50);
    assert_eq!(order, plan.order(50));
    let repeats: Vec<Vec<usize>> = (0..3)
        .map(|repeat| {
            order
                .iter()
                .filter(|(_, r)| *r == repeat)
                .map(|(cell, _)| *cell)
                .collect()
        })
        .collect();
    for repeat in &repeats {
        assert_eq!(
            repeat.iter().copied().collect::<BTreeSet<_>>(),
            (0..50).collect()
        );
    }
    assert_ne!(repeats[0], repeats[1]);
    assert!(order.is_sorted_by_key(|(_, repeat)| *repeat));
    assert_ne!(Plan { seed: 2, ..plan }.order(50), order);
}

#[test]
fn json_holds_the_whole_plan() {
    let plan = mesh_with("[pin]\n\"agent-3\" = [1]\n[matrix]\n\"mesh.body\" = [\"1KB\"]");
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
}

fn mesh() -> impl Strategy<Value = Load> {
    let numbers = (
        1_u16..=1_000,
        1_000_000_u64..=86_400 * SECOND,
        1_u64..=3_600 * SECOND,
    );
    let sizes = (0_u64..=65_000, 66_000_u64..=1 << 36, 1_u32..=1_000_000);
    let words = (
        any::<bool>(),
        prop::sample::subsequence(Workload::ALL.to_vec(), 1..=5),
    );
    let rest = (
        prop::option::of(1_u16..=64_000),
        prop::collection::vec(1_u16..=1_000, 1..4),
    );
    (numbers, sizes, words, rest).prop_map(|(numbers, sizes, words, rest)| {
        let (agents, period_ns, timeout_ns) = numbers;
        let mut groups: Vec<u16> = rest.1.iter().map(|size| 1 + size % agents).collect();
        groups.truncate(usize::from(agents));
        Load::Mesh(Mesh {
            agents,
            groups,
            period: DurationNs(period_ns),
            regroup: DurationNs(period_ns * 7),
            workloads: words.1,
            transport: if words.0 {
                Transport::Tcp
            } else {
                Transport::Udp
            },
            runtime: Runtime::ALL[usize::from(agents) % 3],
            timeout: DurationNs(timeout_ns),
            in_flight: sizes.2,
            body: Bytes(sizes.0),
            disk_file: Bytes(sizes.1),
            port: rest.0,
        })
    })
}

fn bursts() -> impl Strategy<Value = ThinkBursts> {
    (1e5..1e6_f64, 0.01..0.3_f64, 1.1..3.0_f64).prop_map(
        |(dispersion, burst_share, burst_factor)| ThinkBursts {
            dispersion,
            burst_share,
            burst_factor,
        },
    )
}

fn closed(think_ns: u64, bursts: Option<ThinkBursts>) -> Arrivals {
    Arrivals::Closed {
        think: DurationNs(think_ns),
        bursts,
    }
}

fn arrivals_of_a_plan() -> impl Strategy<Value = Arrivals> {
    let rate = (1e-6_f64..=1e7).prop_map(RateHz);
    let times = (1..SECOND, 1..SECOND).prop_map(|(one, two)| (DurationNs(one), DurationNs(two)));
    prop_oneof![
        rate.clone().prop_map(|rate| Arrivals::Constant { rate }),
        rate.clone().prop_map(|rate| Arrivals::Poisson { rate }),
        (rate.clone(), bursts()).prop_map(|(rate, bursts)| Arrivals::Mmpp {
            rate,
            dispersion: bursts.dispersion,
            burst_share: bursts.burst_share,
            burst_factor: bursts.burst_factor,
        }),
        (rate, times, 1.1..9.0_f64).prop_map(|(rate, (on, off), shape)| Arrivals::OnOff {
            rate,
            on,
            off,
            shape,
        }),
        (1..=SECOND).prop_map(|think_ns| closed(think_ns, None)),
        // Up to a billion users (100,000 clients, 10,000 requests each) who think half a second can have
        // every index of dispersion that `bursts` draws.
        (SECOND / 2..=SECOND, bursts())
            .prop_map(|(think_ns, bursts)| closed(think_ns, Some(bursts))),
    ]
}

fn drive() -> impl Strategy<Value = Load> {
    let address = prop::option::of("[a-z0-9.-]{1,20}:[1-9][0-9]{0,3}");
    let place = prop_oneof![
        address.prop_map(|it| (it, None)),
        store().prop_map(|it| (None, Some(it)))
    ];
    let numbers = (
        1_u32..=100_000,
        0_u64..=65_000,
        1_u64..=SECOND,
        1_u32..=10_000_000,
        prop::option::of(1_u64..=1_000_000_000_000),
    );
    (any::<bool>(), place, arrivals_of_a_plan(), numbers).prop_map(
        |(tcp, (address, store), arrivals, numbers)| {
            let called = store.as_ref().and_then(|it| it.url.system());
            let system = called.map(str::to_owned);
            let payload = store.as_ref().map(|it| it.calls.unwrap_or(Bytes(64)));
            Load::Drive(Drive {
                transport: match tcp || system.is_some() {
                    true => Transport::Tcp,
                    false => Transport::Udp,
                },
                address,
                clients: numbers.0,
                processes: processes(&numbers, store.as_ref()),
                arrivals,
                ramp: None,
                times: None,
                payload: payload.unwrap_or(Bytes(numbers.1)),
                system,
                timeout: DurationNs(numbers.2),
                in_flight: numbers.3,
                scheduling: if numbers.3 % 2 == 0 {
                    Scheduling::Normal
                } else {
                    Scheduling::Realtime
                },
                requests: numbers.4,
                store: store.map(Box::new),
            })
        },
    )
}

/// At most one for each client and key.
fn processes(numbers: &(u32, u64, u64, u32, Option<u64>), store: Option<&Store>) -> u16 {
    let keyed = store.filter(|it| it.has_keys());
    let keys = keyed.map_or(u64::MAX, |it| it.keys);
    let most = u64::from(numbers.0).min(keys).min(64);
    u16::try_from(u64::from(numbers.3) % most + 1).unwrap_or(1)
}

const UNTIL: Until = Until {
    percentile: 99.9,
    within: 0.125,
};

fn targets(some: bool) -> Vec<Slo> {
    let slo = "read p99 < 20ms".parse().expect("a target");
    if some { vec![slo] } else { Vec::new() }
}

fn stream() -> impl Strategy<Value = Load> {
    let protocol = prop::sample::select(Protocol::ALL.to_vec());
    let numbers = (32_u64..=60_000, 1_u32..=1_000, 1_280_u16..=9_000);
    let link = prop::option::of(64_000_u64..=10_000_000_000);
    (protocol, numbers, link, 0..=SECOND).prop_map(
        |(protocol, (message, sample, mtu), link, wind_down)| {
            Load::Stream(Stream {
                protocol,
                readers: if protocol.is_of_group() {
                    mtu % 8 + 1
                } else {
                    1
                },
                message: Bytes(message),
                sample,
                link: link.map(BitRate),
                mtu,
                wind_down: DurationNs(wind_down),
                scheduling: if sample % 2 == 0 {
                    Scheduling::Normal
                } else {
                    Scheduling::Realtime
                },
            })
        },
    )
}

fn compete() -> impl Strategy<Value = Option<Compete>> {
    let kind = prop::sample::select(CompeteKind::ALL.to_vec());
    let numbers = (0.01..=1.0, 0..=SECOND, 1_u16..=256, 1_u64..=1 << 39);
    prop::option::of(
        (kind, numbers).prop_map(|(kind, (occupancy, lead, processes, live))| Compete {
            kind,
            occupancy,
            lead: DurationNs(lead),
            processes,
            live: Bytes(live % (1 << 28) + 1),
        }),
    )
}

/// Returns a fault from the drawn values.
fn fault((kind, at_ns, duration_ns, cpu): (u8, u64, u64, u16), process: &str) -> Fault {
    let busy = FaultKind::Busy {
        cpu: (cpu > 0).then_some(cpu),
        threads: cpu + 1,
    };
    let cores = f64::from(cpu + 1) / 4.0;
    let quota = FaultKind::Quota { cores };
    let kind = [FaultKind::Stop, FaultKind::Kill, busy, quota][usize::from(kind)];
    let again = kind != FaultKind::Kill && cpu % 2 == 0;
    Fault {
        kind,
        processes: vec![process.to_owned()],
        at: DurationNs(at_ns),
        duration: (kind != FaultKind::Kill).then_some(DurationNs(duration_ns)),
        every: again.then_some(DurationNs(2 * duration_ns + 400 * SECOND)),
    }
}

/// The first process has the faults, of which some would end a quota.
fn quotas(processes: &[String], numbers: &BTreeSet<u16>) -> BTreeMap<String, f64> {
    let others = processes.iter().skip(1).zip(numbers);
    let quota = |(process, number): (&String, &u16)| {
        let cores = f64::from(*number) / 8.0 + 0.02;
        (process.clone(), cores)
    };
    others.map(quota).collect()
}

fn pinned(process: &str, cpus: BTreeSet<u16>) -> BTreeMap<String, Vec<u16>> {
    let some = (!cpus.is_empty()).then(|| (process.to_owned(), cpus.into_iter().collect()));
    some.into_iter().collect()
}

fn tap() -> Tap {
    Tap {
        on: true,
        services: vec!["web=tcp://127.0.0.1:80".to_owned()],
        interface: Some("lo".to_owned()),
    }
}

fn hosts(are_processes: bool) -> Hosts {
    if are_processes {
        Hosts::Processes
    } else {
        Hosts::Namespaces
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let names = (
        "[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}",
        0..=i64::MAX.unsigned_abs(),
        "\\PC{0,60}",
    );
    let run = (
        86_400 * SECOND..=400 * 86_400 * SECOND,
        0..=86_400 * SECOND,
        1_u16..=1_000,
    );
    let probe = prop::option::of(10_000_000..=600 * SECOND);
    let faults = prop::collection::vec((0_u8..4, 0..80_000 * SECOND, 1..=SECOND, 0_u16..9), 0..4);
    let pins = prop::collection::btree_set(0_u16..=8_191, 0..4);
    let extras = (faults, pins, any::<bool>(), compete());
    (
        names,
        run,
        prop_oneof![mesh(), drive(), stream()],
        probe,
        extras,
    )
        .prop_map(
            |((name, seed, tag), run, load, probe, (faults, cpus, varied, compete))| {
                let processes = load.processes();
                let process = processes[0].clone();
                let drives = matches!(load, Load::Drive(_));
                let streams = matches!(load, Load::Stream(_));
                let faults = faults.into_iter().map(|drawn| fault(drawn, &process));
                let factor = Factor {
                    path: "run.warmup".to_owned(),
                    values: vec!["1s".to_owned(), "0.25s".to_owned()],
                    place: Place::default(),
                };
                Plan {
                    quotas: quotas(&processes, &cpus),
                    quota_period: DurationNs(if varied { 1_000_000_000 } else { 100_000_000 }),
                    service: BTreeMap::new(),
                    reached: Vec::new(),
                    faults: faults.collect(),
                    pins: pinned(&process, cpus),
                    name,
                    seed,
                    tag,
                    run: Run {
                        duration: DurationNs(run.0),
                        warmup: DurationNs(run.1),
                        repeat: run.2,
                        hosts: hosts(varied && !streams),
                        listen: None,
                        until: (drives && varied).then_some(UNTIL),
                        slo: targets(varied),
                        goodput: drives.then(|| "e2e < 5s".parse().expect("limits")),
                    },
                    load,
                    compete,
                    jvm: varied.then_some(Jvm {
                        collector: Collector::Z,
                        heap: Bytes(1 << 30),
                    }),
                    probe: probe.map(|period_ns| Probe {
                        period: DurationNs(period_ns),
                    }),
                    tap: (drives && varied).then(tap),
                    matrix: if varied { vec![factor] } else { Vec::new() },
                }
            },
        )
}

proptest! {
    #[test]
    fn a_plan_written_out_reads_back_the_same(plan in plan()) {
        let text = plan.to_toml();
        match Plan::parse("plan.toml", &text) {
            Ok(back) => prop_assert_eq!(back, plan),
            Err(error) => prop_assert!(false, "{}\n{}", error, text),
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        let _ = Plan::parse("plan.toml", &text);
    }

    #[test]
    fn no_damage_to_a_plan_makes_the_parser_panic(
        plan in plan(), at: prop::sample::Index, cut in 0_usize..30, put in "\\PC{0,5}"
    ) {
        let mut text: Vec<char> = plan.to_toml().chars().collect();
        let at = at.index(text.len());
        let end = (at + cut).min(text.len());
        text.splice(at..end, put.chars());
        let _ = Plan::parse("plan.toml", &text.into_iter().collect::<String>());
    }
}

#[test]
fn another_value_takes_the_place_of_the_plans_and_of_its_factor() {
    let text = "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\nurl = \"redis://h\"\n[matrix]\n\"drive.keys\" = [1, 2]\n";
    let values = [
        ("store", "etcd"),
        ("drive.keys", "7"),
        ("duration", "5s"),
        ("seed", "9"),
    ];
    let plan = Plan::parse_with("plan", text, &values).expect("a plan");
    let Load::Drive(drive) = &plan.load else {
        panic!("a drive was written");
    };
    let store = drive.store.as_ref().expect("a store");
    assert_eq!((store.url.service(), store.keys), (Some("etcd"), 7));
    assert_eq!(
        (plan.seed, plan.run.duration, plan.matrix.len()),
        (9, DurationNs(5 * SECOND), 0)
    );
    for (key, said) in [
        (
            "stor",
            "--set: there is no key \"stor\"; must be a key of the plan; hint: did you mean store",
        ),
        (
            "period",
            "--set: there is no key \"period\"; must be one of probe.period, quota.period; hint: --set probe.period=..",
        ),
    ] {
        let error = Plan::parse_with("plan", text, &[(key, "1")]).expect_err(said);
        assert_eq!(error.to_string(), said);
    }
}

#[test]
fn a_number_without_a_unit_is_seconds_or_per_second() {
    let plan = |duration: &str, rate: &str| {
        let text = format!("name = \"a\"\n[run]\nduration = {duration}\n[drive]\nrate = {rate}");
        Plan::parse("plan.toml", &text).unwrap()
    };
    let whole = plan("\"2500ms\"", "\"100/s\"");
    assert_eq!(plan("2.5", "100"), whole);
    assert_eq!(plan("\"2.5\"", "\"100\""), whole);
}
