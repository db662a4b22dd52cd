//! Plans of streams and of what competes with a load.

use unruly_plan::{
    BitRate, Bytes, Compete, CompeteKind, DEFAULT_QUOTA_PERIOD, DurationNs, Hosts, Load, Plan,
    Protocol, Scheduling, Stream,
};

const STREAM: &str = "name = \"a\"\n[run]\nduration = \"60s\"\nhosts = \"namespaces\"\n[stream]\nprotocol = \"tcp\"\n";

fn plan(lines: &str) -> Plan {
    Plan::parse("plan.toml", &format!("{STREAM}{lines}")).expect("a good plan")
}

/// A stream (six lines) with more lines after it.
#[track_caller]
fn refused(lines: &str, message: &str) {
    refused_whole(&format!("{STREAM}{lines}"), message);
}

#[track_caller]
fn refused_whole(text: &str, message: &str) {
    match Plan::parse("plan.toml", text) {
        Ok(_) => panic!("accepted, but wanted: {message}"),
        Err(error) => assert_eq!(error.to_string(), message),
    }
}

#[test]
fn a_stream_has_the_paper_s_messages_and_no_link_unless_it_is_told_otherwise() {
    let found = plan("");
    let wanted = Stream {
        protocol: Protocol::Tcp,
        readers: 1,
        message: Bytes(2_000),
        sample: 100,
        link: None,
        mtu: 1_500,
        wind_down: DurationNs(0),
        scheduling: Scheduling::Normal,
    };
    assert_eq!(found.load, Load::Stream(wanted));
    assert_eq!(found.compete, None);
    assert_eq!(found.load.processes(), ["writer-0", "reader-0"]);
}

#[test]
fn everything_of_a_stream_can_be_said() {
    let lines = "message = \"64B\"\nsample = 1\nlink = \"100Mbit/s\"\nmtu = 9000\nwind_down = \"1s\"\nscheduling = \"realtime\"";
    let Load::Stream(stream) = plan(lines).load else {
        panic!("a stream was written")
    };
    assert_eq!(stream.link, Some(BitRate(100_000_000)));
    assert_eq!((stream.sample, stream.mtu), (1, 9_000));
    assert_eq!(stream.scheduling, Scheduling::Realtime);
}

#[test]
fn what_competes_has_the_paper_s_sizes_unless_it_is_told_otherwise() {
    let found = plan("[compete]\nkind = \"cpu\"").compete;
    let wanted = Compete {
        kind: CompeteKind::Cpu,
        occupancy: 0.6,
        lead: DurationNs(0),
        processes: 4,
        live: Bytes(384 << 20),
    };
    assert_eq!(found, Some(wanted));
}

#[test]
fn one_factor_scales_every_time_of_a_run() {
    let text = "name = \"a\"\n[run]\nduration = \"5min\"\nwarmup = \"30s\"\nscale = 0.05\nhosts = \"namespaces\"\n[stream]\nprotocol = \"tcp\"\nwind_down = \"30s\"\n[compete]\nkind = \"cpu\"\nlead = \"4min\"\n";
    let plan = Plan::parse("plan.toml", text).unwrap();
    assert_eq!(plan.run.duration, DurationNs(15_000_000_000));
    assert_eq!(plan.run.warmup, DurationNs(1_500_000_000));
    assert_eq!(plan.compete.unwrap().lead, DurationNs(12_000_000_000));
    let Load::Stream(stream) = &plan.load else {
        panic!("a stream was written")
    };
    assert_eq!(stream.wind_down, DurationNs(1_500_000_000));
    // What is kept of a run has the times that it had.
    assert_eq!(Plan::parse("again", &plan.to_toml()).unwrap(), plan);
}

#[test]
fn protocols_and_what_competes_are_factors() {
    let found = plan(
        "[compete]\nkind = \"none\"\n[matrix]\n\"compete.kind\" = [\"none\", \"cpu\", \"gc\"]\n\"stream.protocol\" = [\"tcp\", \"quic\"]",
    );
    let names: Vec<String> = found
        .cells()
        .unwrap()
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert_eq!(names.len(), 6);
    assert_eq!(names[3], "kind=cpu protocol=quic");
}

#[test]
fn a_competing_load_goes_with_every_kind_of_load_and_can_be_pinned() {
    let text = "name = \"a\"\n[run]\nduration = \"1s\"\n[drive]\nrate = \"1/s\"\n[compete]\nkind = \"cpu\"\n[pin]\ncompete-0 = [1]\n";
    let plan = Plan::parse("plan.toml", text).unwrap();
    assert_eq!(plan.pins["compete-0"], [1]);
    assert_eq!(plan.run.hosts, Hosts::Processes);
}

#[test]
fn something_is_done_to_one_process_of_a_load_and_its_cores_are_those_of_all() {
    let text = |process: &str| {
        format!(
            "name = \"a\"\n[run]\nduration = \"1s\"\n[drive]\nrate = \"1/s\"\n[compete]\nkind = \"cpu\"\n[[fault]]\nkind = \"kill\"\nprocess = \"{process}\"\nat = \"100ms\"\n"
        )
    };
    let plan = Plan::parse("plan.toml", &text("compete-0-3")).unwrap();
    assert_eq!(plan.faults[0].processes, ["compete-0-3"]);
    let said = Plan::parse("plan.toml", &text("compete-0")).unwrap_err();
    assert!(
        said.to_string().contains("unknown process \"compete-0\""),
        "{said}"
    );
}

#[test]
fn a_mesh_of_hosts_of_their_own_has_a_load_on_each() {
    let text = "name = \"a\"\n[run]\nduration = \"1s\"\nhosts = \"namespaces\"\n[mesh]\nagents = 3\ngroups = [3]\n[compete]\nkind = \"cpu\"\n[pin]\ncompete-2 = [1]\n";
    let plan = Plan::parse("plan.toml", text).unwrap();
    assert_eq!(plan.pins["compete-2"], [1]);
}

#[test]
fn times_that_are_varied_are_not_scaled() {
    refused_whole(
        &format!(
            "{}[matrix]\n\"run.duration\" = [\"1s\", \"2s\"]\n",
            STREAM.replace("[run]\n", "[run]\nscale = 0.5\n")
        ),
        "plan.toml:9: run.duration is varied, and run.scale is 0.5; must be 1: the values of a matrix are taken as they are; hint: scale the values themselves",
    );
}

#[test]
fn what_a_stream_cannot_be_is_refused_with_its_line() {
    refused(
        "message = \"31B\"",
        r#"plan.toml:7: message is "31B"; must be at least 32B; hint: message = "2KB""#,
    );
    refused(
        "sample = 0",
        "plan.toml:7: sample is 0; must be at least 1; hint: sample = 100",
    );
    refused(
        "link = \"1Gb\"",
        r#"plan.toml:7: link is "1Gb"; must be a bit rate (bit/s, kbit/s, Mbit/s, Gbit/s); hint: link = "1Gbit/s""#,
    );
    refused(
        "mtu = 576",
        "plan.toml:7: mtu is 576; must be at least 1280; hint: mtu = 1500",
    );
    refused_whole(
        &STREAM
            .replace("tcp", "udp")
            .replace("[stream]", "[stream]\nmessage = \"66KB\""),
        r#"plan.toml:6: message is "66KB"; must be at most 65KB for udp; hint: protocol = "tcp""#,
    );
    refused_whole(
        &STREAM.replace("tcp", "rudp"),
        r#"plan.toml:6: protocol is "rudp"; must be one of tcp, udp, sctp, kernel-sctp, quic, enet, kcp, corosync-cpg, jvm-tcp, jvm-nio, jvm-udp, jgroups-udp, jgroups-tcp, aeron, aeron-daemon; hint: protocol = "tcp""#,
    );
}

#[test]
fn loopback_has_no_link_and_no_protocol_that_needs_two_hosts() {
    let loopback = STREAM.replace("namespaces", "processes");
    refused_whole(
        &format!("{loopback}link = \"1Gbit/s\""),
        r#"plan.toml:7: link is "1Gbit/s"; must be "none" on loopback, which has no rate; hint: in [run], hosts = "namespaces""#,
    );
    refused_whole(
        &loopback.replace("tcp", "sctp"),
        r#"plan.toml:6: protocol is "sctp"; must be another on loopback: its library listens on all addresses; hint: in [run], hosts = "namespaces""#,
    );
    refused_whole(
        &loopback.replace("tcp", "corosync-cpg"),
        r#"plan.toml:6: protocol is "corosync-cpg"; must be another on loopback: each end needs a daemon, and a host has one; hint: in [run], hosts = "namespaces""#,
    );
}

#[test]
fn what_a_competing_load_cannot_be_is_refused_with_its_line() {
    refused(
        "[compete]\nkind = \"cpu\"\noccupancy = 1.01",
        "plan.toml:9: occupancy is 1.01; must be from 0 to 1; hint: occupancy = 0.01",
    );
    refused(
        "[compete]\nkind = \"cpu\"\noccupancy = 0",
        r#"plan.toml:9: occupancy is 0; must be above 0, and at most 1; hint: kind = "none" competes with nothing"#,
    );
    refused(
        "[compete]\nkind = \"gc\"\nlive = \"600MiB\"",
        r#"plan.toml:9: live is "600MiB"; must be less than the heap, 512MiB; hint: in [jvm], heap = "800MiB""#,
    );
    refused(
        "[compete]\nkind = \"gc\"\nlive = \"384MiB\"\n[jvm]\nheap = \"100MiB\"",
        r#"plan.toml:9: live is "384MiB"; must be less than the heap, 100MiB; hint: in [jvm], heap = "512MiB""#,
    );
    refused(
        "[pin]\ncompete-0 = [0]",
        "plan.toml:8: unknown process \"compete-0\" in [pin]; known: writer-0, reader-0; hint: use writer-0",
    );
    refused_whole(
        &STREAM.replace("[run]", "[run]\nscale = 0"),
        "plan.toml:3: scale is 0; must be above 0.0001 and below 1000; hint: scale = 0.05",
    );
}

#[test]
fn a_command_line_changes_how_long_and_how_often() {
    let values = [("scale", "0.5"), ("repeat", "3"), ("protocol", "udp")];
    // A drive has this key too, and the plan has no drive.
    let values = [&values[..], &[("scheduling", "realtime")]].concat();
    let plan = Plan::parse_with("plan.toml", STREAM, &values).unwrap();
    let Load::Stream(stream) = &plan.load else {
        panic!("a stream was written");
    };
    assert_eq!(stream.scheduling, Scheduling::Realtime);
    assert_eq!(plan.run.duration, DurationNs(30_000_000_000));
    assert_eq!(plan.run.repeat, 3);
}

#[test]
fn only_a_group_has_several_readers_each_a_process_that_may_be_named() {
    let group = "readers = 3\n[quota]\nreader-2 = 0.2\nwriter-0 = 1\n[pin]\nreader-1 = [0]\n";
    let group = STREAM.replace("\"tcp\"", "\"jgroups-tcp\"") + group;
    let plan = Plan::parse("plan.toml", &group).unwrap();
    let names = ["writer-0", "reader-0", "reader-1", "reader-2"];
    assert_eq!(plan.load.processes(), names);
    let quotas: Vec<(&str, f64)> = plan
        .quotas
        .iter()
        .map(|(it, cores)| (it.as_str(), *cores))
        .collect();
    assert_eq!(quotas, [("reader-2", 0.2), ("writer-0", 1.0)]);
    refused(
        "readers = 2",
        "plan.toml:7: readers is 2; must be 1 for tcp, which has no groups; hint: protocol = \"jgroups-tcp\"",
    );
}

#[test]
fn the_period_of_quotas_is_bounded_and_can_be_varied() {
    let varied = plan(
        "[quota]\nperiod = \"10ms\"\nreader-0 = 0.5\n[matrix]\n\"quota.period\" = [\"2ms\", \"1s\"]",
    );
    assert_eq!(varied.quota_period, DurationNs(10_000_000));
    assert!(
        varied
            .to_toml()
            .contains("[quota]\nperiod = \"10ms\"\n\"reader-0\" = 0.5\n")
    );
    let cells = varied.cells().unwrap();
    let periods: Vec<u64> = cells.iter().map(|cell| cell.plan.quota_period.0).collect();
    assert_eq!(periods, [2_000_000, 1_000_000_000]);
    assert_eq!(
        plan("[quota]\nreader-0 = 0.5").quota_period,
        DEFAULT_QUOTA_PERIOD
    );
    for (lines, wanted) in [
        (
            "[quota]\nperiod = \"0.5ms\"",
            "plan.toml:8: period is \"0.5ms\"; must be at least 1ms; hint: period = \"100ms\"",
        ),
        (
            "[quota]\nperiod = \"2s\"",
            "plan.toml:8: period is \"2s\"; must be at most 1s; hint: period = \"100ms\"",
        ),
        (
            "[quota]\nperid = \"10ms\"",
            "plan.toml:8: unknown process \"perid\" in [quota]; known: writer-0, reader-0; hint: did you mean period",
        ),
        (
            "[quota]\nperiod = \"10ms\"\nreader-0 = 0.05",
            "plan.toml:9: reader-0 is 0.05; must be at least 0.1 for a period of 10ms: the kernel takes no less than 1ms in each; hint: \"reader-0\" = 0.1",
        ),
    ] {
        refused(lines, wanted);
    }
}

#[test]
fn a_quota_is_that_of_a_process_and_can_be_varied() {
    let varied = plan(
        "[quota]\nreader-0 = 0.5\n[matrix]\n\"quota.reader-0\" = [0.1, 2]\n\"stream.protocol\" = [\"tcp\", \"udp\"]",
    );
    let cells = varied.cells().unwrap();
    let quotas: Vec<f64> = cells
        .iter()
        .map(|cell| cell.plan.quotas["reader-0"])
        .collect();
    assert_eq!(quotas, [0.1, 0.1, 2.0, 2.0]);
    assert_eq!(cells[0].name, "reader-0=0.1 protocol=tcp");
    for (lines, wanted) in [
        (
            "[quota]\nreader-1 = 1",
            "plan.toml:8: unknown process \"reader-1\" in [quota]; known: writer-0, reader-0; hint: did you mean reader-0",
        ),
        (
            "[quota]\nreader-0 = 0",
            "plan.toml:8: reader-0 is 0; must be above 0.01 and below 1024; hint: reader-0 = 0.5",
        ),
        (
            "[[fault]]\nkind = \"kill\"\nprocess = \"reader-0\"\nat = \"1s\"\n[quota]\nreader-0 = 1",
            "plan.toml:12: reader-0 has a quota, and a fault kill; must have one of them: the fault would end the quota; hint: remove one",
        ),
    ] {
        refused(lines, wanted);
    }
}

#[test]
fn a_quota_of_a_process_can_be_set_from_outside() {
    let with = Plan::parse_with("plan.toml", STREAM, &[("quota.writer-0", "0.25")]);
    assert_eq!(
        with.unwrap().quotas["writer-0"].to_bits(),
        0.25_f64.to_bits()
    );
}
