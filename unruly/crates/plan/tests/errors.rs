//! Every complaint about a plan, word for word.

use unruly_plan::Plan;

const MESH: &str = "name = \"a\"\n[run]\nduration = \"60s\"\n[mesh]\nagents = 7\ngroups = [3, 4]\n";
const DRIVE: &str = "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\nrate = \"100/s\"\n";

#[track_caller]
fn refused(text: &str, message: &str) {
    match Plan::parse("plan.toml", text) {
        Ok(_) => panic!("accepted, but wanted: {message}"),
        Err(error) => assert_eq!(error.to_string(), message),
    }
}

/// A mesh (six lines) with more lines after it.
#[track_caller]
fn mesh(lines: &str, message: &str) {
    refused(&format!("{MESH}{lines}"), message);
}

/// A drive (five lines) with more lines after it.
#[track_caller]
fn drive(lines: &str, message: &str) {
    refused(&format!("{DRIVE}{lines}"), message);
}

/// A mesh with one of its lines replaced.
#[track_caller]
fn mesh_but(from: &str, to: &str, message: &str) {
    assert!(MESH.contains(from));
    refused(&MESH.replace(from, to), message);
}

#[track_caller]
fn drive_but(from: &str, to: &str, message: &str) {
    assert!(DRIVE.contains(from));
    refused(&DRIVE.replace(from, to), message);
}

/// A mesh with a stop, from the third line of the fault on.
#[track_caller]
fn stop(lines: &str, message: &str) {
    mesh(&format!("[[fault]]\nkind = \"stop\"\n{lines}"), message);
}

#[test]
fn the_plans_these_tests_break_are_good() {
    Plan::parse("plan.toml", MESH).unwrap();
    Plan::parse("plan.toml", DRIVE).unwrap();
}

#[test]
fn text_that_is_not_toml_is_refused_with_its_line() {
    mesh(
        "body = = 3\n",
        "plan.toml:7: not TOML: extra `=`, expected nothing; must be TOML 1.0; hint: see unruly/docs/plan-format.md",
    );
    mesh(
        "agents = 8\n",
        "plan.toml:7: not TOML: duplicate key; must be TOML 1.0; hint: see unruly/docs/plan-format.md",
    );
    refused(
        &"#".repeat(1_048_577),
        "plan.toml:1: the text is 1048577 bytes; must be at most 1 MiB; hint: is this the plan?",
    );
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known() {
    mesh_but(
        "duration",
        "durations",
        r#"plan.toml:3: unknown key "durations" in [run]; known: duration, warmup, repeat, hosts, listen, until, slo, goodput, scale; hint: did you mean duration"#,
    );
    mesh(
        "tranport = \"udp\"",
        r#"plan.toml:7: unknown key "tranport" in [mesh]; known: agents, groups, period, regroup, workloads, transport, runtime, timeout, in_flight, body, disk_file, port; hint: did you mean transport"#,
    );
    mesh(
        "colour = 1",
        r#"plan.toml:7: unknown key "colour" in [mesh]; known: agents, groups, period, regroup, workloads, transport, runtime, timeout, in_flight, body, disk_file, port; hint: remove it"#,
    );
    drive(
        "disk_file = 5",
        r#"plan.toml:6: unknown key "disk_file" in [drive]; known: transport, address, clients, processes, arrivals, rate, ramp, dispersion, burst_share, burst_factor, on, off, shape, times, think, payload, timeout, in_flight, scheduling, requests, url, system, store, operations, keys, order, skew, value, level, pipeline, retries, preload, connections, expect, method, headers, body, prompt, proto, cookies, trace, trace_url, spans, data, message, scenario, sql, auth, keep_alive, http2, ca_cert, client_cert, client_key, insecure, keep; hint: remove it"#,
    );
    mesh(
        "[probes]",
        r#"plan.toml:7: unknown key "probes" in the plan; known: name, seed, tag, run, mesh, drive, stream, compete, jvm, probe, tap, host, fault, pin, quota, service, matrix; hint: did you mean probe"#,
    );
    mesh(
        "[probe]\nrate = 1",
        r#"plan.toml:8: unknown key "rate" in [probe]; known: enabled, period; hint: remove it"#,
    );
    mesh(
        "[[fault]]\nwhen = \"1s\"",
        r#"plan.toml:8: unknown key "when" in [[fault]]; known: kind, process, at, duration, every, cpu, threads, cores, delay, jitter, loss; hint: remove it"#,
    );
}

#[test]
fn names_and_tags_that_do_not_fit_are_refused() {
    mesh_but(
        "\"a\"",
        "\".a\"",
        r#"plan.toml:1: name is ".a"; must be 1 to 64 of A-Z a-z 0-9 . _ -, not . first; hint: name = "demo""#,
    );
    mesh_but(
        "\"a\"",
        "\"a/b\"",
        r#"plan.toml:1: name is "a/b"; must be 1 to 64 of A-Z a-z 0-9 . _ -, not . first; hint: name = "demo""#,
    );
    mesh_but(
        "\"a\"",
        "\"\"",
        r#"plan.toml:1: name is ""; must be 1 to 64 of A-Z a-z 0-9 . _ -, not . first; hint: name = "demo""#,
    );
    refused(
        &MESH.replace("\"a\"", &format!("\"{}\"", "a".repeat(65))),
        r#"plan.toml:1: name is "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..; must be 1 to 64 of A-Z a-z 0-9 . _ -, not . first; hint: name = "demo""#,
    );
    mesh_but(
        "name = \"a\"\n",
        "",
        r#"plan.toml:1: name is missing in the plan; must be 1 to 64 of A-Z a-z 0-9 . _ -, not . first; hint: name = "demo""#,
    );
    mesh_but(
        "\"a\"",
        "\"a\"\ntag = \"a\\nb\"",
        r#"plan.toml:2: tag is "a\nb"; must be at most 256 characters on one line; hint: tag = "before the fix""#,
    );
    mesh_but(
        "\"a\"",
        "\"a\"\nseed = -1",
        "plan.toml:2: seed is -1; must be at least 0; hint: seed = 1",
    );
}

#[test]
fn durations_that_are_absurd_are_refused() {
    mesh_but(
        "60s",
        "0s",
        r#"plan.toml:3: duration is "0s"; must be above 0; hint: duration = "60s""#,
    );
    mesh_but(
        "60s",
        "-60s",
        r#"plan.toml:3: duration is "-60s"; must be above 0; hint: duration = "60s""#,
    );
    mesh_but(
        "60s",
        "401d",
        r#"plan.toml:3: duration is "401d"; must be at most 400d; hint: duration = "60s""#,
    );
    mesh_but(
        "60s",
        "99999999999999999999d",
        r#"plan.toml:3: duration is "99999999999999999999d"; must be at most 400d; hint: duration = "60s""#,
    );
    mesh_but(
        "60s",
        "60m",
        r#"plan.toml:3: duration is "60m"; must be a duration (ns, us, ms, s, min, h, d); hint: duration = "60s""#,
    );
    mesh_but(
        "60s",
        "0.5ns",
        r#"plan.toml:3: duration is "0.5ns"; must be a whole number of ns; hint: duration = "60s""#,
    );
    mesh_but(
        "60s",
        "999ms",
        r#"plan.toml:4: period is "1s", longer than the run's "999ms"; must be at most [run] duration, or no round is measured; hint: in [run], duration = "1s""#,
    );
    mesh_but(
        "\"60s\"",
        "\"60s\"\nwarmup = \"2d\"",
        r#"plan.toml:4: warmup is "2d"; must be at most 1d; hint: warmup = "3s""#,
    );
    mesh_but(
        "\"60s\"",
        "\"60s\"\nrepeat = 0",
        "plan.toml:4: repeat is 0; must be at least 1; hint: repeat = 5",
    );
    mesh_but(
        "\"60s\"",
        "\"60s\"\nrepeat = 1001",
        "plan.toml:4: repeat is 1001; must be at most 1000; hint: repeat = 5",
    );
    mesh_but(
        "\"60s\"",
        "\"60s\"\nhosts = \"vms\"",
        r#"plan.toml:4: hosts is "vms"; must be one of processes, namespaces; hint: hosts = "processes""#,
    );
    mesh_but(
        "[run]\nduration = \"60s\"\n",
        "",
        r#"plan.toml:1: [run] is missing in the plan; must be a table; hint: [run] with duration = "60s""#,
    );
    mesh_but(
        "duration = \"60s\"\n",
        "",
        r#"plan.toml:2: duration is missing in [run]; must be a duration; hint: duration = "60s""#,
    );
}

#[test]
fn values_of_the_wrong_type_say_what_they_are_and_what_was_wanted() {
    mesh_but(
        "\"60s\"",
        "true",
        r#"plan.toml:3: duration is a boolean true; must be a duration; hint: duration = "60s""#,
    );
    mesh_but(
        "agents = 7",
        "agents = \"7\"",
        r#"plan.toml:5: agents is a string "7"; must be an integer; hint: agents = 7"#,
    );
    mesh_but(
        "agents = 7",
        "agents = 7.5",
        "plan.toml:5: agents is a float 7.5; must be an integer; hint: agents = 7",
    );
    mesh_but(
        "[3, 4]",
        "3",
        "plan.toml:6: groups is an integer 3; must be an array; hint: groups = [7]",
    );
    mesh_but(
        "[3, 4]",
        "[3, \"4\"]",
        r#"plan.toml:6: groups holds "4"; must hold integers from 1 to 7; hint: groups = [7]"#,
    );
    mesh_but(
        "\"a\"",
        "true",
        r#"plan.toml:1: name is a boolean true; must be a string; hint: name = "demo""#,
    );
    mesh(
        "transport = [\"tcp\"]",
        r#"plan.toml:7: transport is an array ["tcp"]; must be a string; hint: transport = "tcp""#,
    );
    mesh(
        "[probe]\nenabled = \"no\"",
        r#"plan.toml:8: enabled is a string "no"; must be true or false; hint: enabled = true"#,
    );
    refused(
        "run = 3\nname = \"a\"",
        "plan.toml:1: run is an integer 3; must be a table; hint: [run]",
    );
    mesh(
        "[fault]\nkind = \"kill\"",
        "plan.toml:7: fault is a table; must be an array of tables; hint: write [[fault]], with two brackets",
    );
}

#[test]
fn a_plan_has_exactly_one_load() {
    mesh(
        "[drive]\nrate = \"1/s\"",
        "plan.toml:7: the plan has both [mesh] and [drive]; must have exactly one of [mesh], [drive] and [stream]; hint: remove one, or make two plans",
    );
    refused(
        "name = \"a\"\n[run]\nduration = \"1s\"",
        r#"plan.toml:1: the plan has none of [mesh], [drive] and [stream]; must have exactly one of [mesh], [drive] and [stream]; hint: add [drive] with rate = "100/s""#,
    );
}

#[test]
fn meshes_that_cannot_be_are_refused() {
    mesh_but(
        "agents = 7",
        "agents = 0",
        "plan.toml:5: agents is 0; must be at least 1; hint: agents = 7",
    );
    mesh_but(
        "agents = 7",
        "agents = 1001",
        "plan.toml:5: agents is 1001; must be at most 1000; hint: agents = 7",
    );
    mesh_but(
        "agents = 7\n",
        "",
        "plan.toml:4: agents is missing in [mesh]; must be an integer; hint: agents = 7",
    );
    mesh_but(
        "[3, 4]",
        "[]",
        "plan.toml:6: groups is []; must hold at least one value; hint: groups = [7]",
    );
    mesh_but(
        "[3, 4]",
        "[3, 8]",
        "plan.toml:6: groups holds 8; must hold integers from 1 to 7; hint: groups = [7]",
    );
    mesh_but(
        "[3, 4]",
        "[0]",
        "plan.toml:6: groups holds 0; must hold integers from 1 to 7; hint: groups = [7]",
    );
    mesh_but(
        "[3, 4]",
        "[1, 1, 1, 1, 1, 1, 1, 1]",
        "plan.toml:6: groups holds 8 sizes; must hold at most as many as there are agents, 7; hint: groups = [7]",
    );
    mesh_but(
        "groups = [3, 4]\n",
        "",
        "plan.toml:4: groups is missing in [mesh]; must be an array of sizes; hint: groups = [7]",
    );
    mesh(
        "period = \"1us\"",
        r#"plan.toml:7: period is "1us"; must be at least 1ms; hint: period = "1s""#,
    );
    mesh(
        "regroup = \"500ms\"",
        r#"plan.toml:7: regroup is "500ms"; must be at least the period, 1s; hint: regroup = "1d""#,
    );
}

#[test]
fn mesh_options_that_cannot_be_are_refused() {
    mesh(
        "workloads = []",
        r#"plan.toml:7: workloads is []; must hold at least one value; hint: workloads = ["null", "crypto"]"#,
    );
    mesh(
        "workloads = [\"cpu\"]",
        r#"plan.toml:7: workloads holds "cpu"; must hold null, crypto, disk, network, mixed (or A to E); hint: workloads = ["null", "crypto"]"#,
    );
    mesh(
        "workloads = [\"A\", \"null\"]",
        "plan.toml:7: workloads holds null twice; must hold each once; hint: remove one",
    );
    mesh(
        "timeout = \"0s\"",
        r#"plan.toml:7: timeout is "0s"; must be above 0; hint: timeout = "1s""#,
    );
    mesh(
        "in_flight = 0",
        "plan.toml:7: in_flight is 0; must be at least 1; hint: in_flight = 4096",
    );
    mesh(
        "body = \"17MB\"",
        r#"plan.toml:7: body is "17MB"; must be at most 16MB; hint: body = "50KB""#,
    );
    mesh(
        "transport = \"udp\"\nbody = \"65001B\"",
        r#"plan.toml:8: body is "65001B"; must be at most 65KB for udp; hint: transport = "tcp""#,
    );
    mesh(
        "disk_file = \"50043B\"",
        r#"plan.toml:7: disk_file is "50043B"; must hold one record: body and 44 bytes, 50044B; hint: disk_file = "64MiB""#,
    );
    mesh(
        "port = 65530",
        "plan.toml:7: port is 65530; must leave a port up to 65535 for each of 7 agents; hint: port = 7000",
    );
    mesh(
        "port = 0",
        "plan.toml:7: port is 0; must be at least 1; hint: port = 7000",
    );
    mesh(
        "port = 70000",
        "plan.toml:7: port is 70000; must be at most 65535; hint: port = 7000",
    );
}

#[test]
fn drives_that_cannot_be_are_refused() {
    drive_but(
        "100/s",
        "0/s",
        r#"plan.toml:5: rate is "0/s"; must be above 0; hint: rate = "100/s""#,
    );
    drive_but(
        "100/s",
        "-5/s",
        r#"plan.toml:5: rate is "-5/s"; must be above 0; hint: rate = "100/s""#,
    );
    drive_but(
        "100/s",
        "11M/s",
        r#"plan.toml:5: rate is "11M/s"; must be at most 10M/s; hint: rate = "100/s""#,
    );
    drive_but(
        "100/s",
        "abc",
        r#"plan.toml:5: rate is "abc"; must be a rate (/s, k/s, M/s, /min); hint: rate = "100/s""#,
    );
    drive_but(
        "rate = \"100/s\"\n",
        "",
        r#"plan.toml:4: rate is missing in [drive]; must be a rate; hint: rate = "100/s""#,
    );
    drive(
        "arrivals = \"bursty\"",
        r#"plan.toml:6: arrivals is "bursty"; must be one of constant, poisson, closed, mmpp, onoff, replay; hint: arrivals = "constant""#,
    );
    drive(
        "arrivals = \"closed\"",
        r#"plan.toml:5: rate is "100/s"; must be left out: a closed loop and a replay have no rate of their own; hint: remove rate"#,
    );
    drive(
        "think = \"2ms\"",
        r#"plan.toml:6: think is "2ms"; must be left out: only closed arrivals think; hint: remove think"#,
    );
    drive(
        "clients = 0",
        "plan.toml:6: clients is 0; must be at least 1; hint: clients = 1",
    );
    drive(
        "address = \"localhost\"",
        r#"plan.toml:6: address is "localhost"; must be host:port; hint: address = "127.0.0.1:7000""#,
    );
    drive(
        "address = \"::1:80\"",
        r#"plan.toml:6: address is "::1:80"; must be host:port; hint: address = "127.0.0.1:7000""#,
    );
    drive(
        "payload = \"17MB\"",
        r#"plan.toml:6: payload is "17MB"; must be at most 16MB; hint: payload = "64B""#,
    );
    drive(
        "timeout = \"0s\"",
        r#"plan.toml:6: timeout is "0s"; must be above 0; hint: timeout = "10s""#,
    );
    drive(
        "in_flight = 10000001",
        "plan.toml:6: in_flight is 10000001; must be at most 10000000; hint: in_flight = 1000000",
    );
    drive(
        "requests = 0",
        "plan.toml:6: requests is 0; must be at least 1; hint: requests = 10000",
    );
}

#[test]
fn a_tap_that_cannot_be_is_refused() {
    mesh(
        "[tap]",
        "plan.toml:7: the plan has [tap] without [drive]; must be left out: it watches the services that a drive calls; hint: remove [tap], or measure with [drive]",
    );
    drive(
        "[tap]\nservices = [\"redis://h:1\"]",
        r#"plan.toml:7: services holds "redis://h:1"; must hold addresses such as tcp://127.0.0.1:80 or web=tcp://127.0.0.1:80; hint: services = ["web=tcp://127.0.0.1:80", "db=mysql://127.0.0.1:3306"]"#,
    );
    drive(
        "[tap]\nservices = [\"=tcp://h:1\"]",
        r#"plan.toml:7: services holds "=tcp://h:1"; must hold addresses such as tcp://127.0.0.1:80 or web=tcp://127.0.0.1:80; hint: services = ["web=tcp://127.0.0.1:80", "db=mysql://127.0.0.1:3306"]"#,
    );
    drive(
        "[tap]\nport = 1",
        r#"plan.toml:7: unknown key "port" in [tap]; known: on, services, interface; hint: remove it"#,
    );
}

#[test]
fn probes_out_of_range_are_refused() {
    mesh(
        "[probe]\nperiod = \"9ms\"",
        r#"plan.toml:8: period is "9ms"; must be at least 10ms; hint: period = "1s""#,
    );
    mesh(
        "[probe]\nperiod = \"11min\"",
        r#"plan.toml:8: period is "11min"; must be at most 600s; hint: period = "1s""#,
    );
}

#[test]
fn faults_are_refused_that_cannot_be_done_to_their_process() {
    stop(
        "process = \"agent-0\"\nat = \"1s\"\nduration = \"2s\"\nevery = \"2s\"",
        r#"plan.toml:12: every is "2s"; must be longer than the fault, 2s; hint: every = "20s""#,
    );
    stop(
        "process = [\"agent-0\", \"agent-8\"]\nat = \"1s\"\nduration = \"2s\"",
        r#"plan.toml:9: unknown process "agent-8" in [[fault]]; known: agent-0 to agent-6; hint: did you mean agent-0"#,
    );
    drive(
        "[[fault]]\nkind = \"network\"\nprocess = \"echo-0\"\nat = \"1s\"\nduration = \"1s\"",
        r#"plan.toml:6: delay is missing in [[fault]]; or jitter or loss must be above 0: nothing would be done; hint: delay = "5ms""#,
    );
    drive(
        "[[fault]]\nkind = \"network\"\nprocess = \"drive-0\"\nat = \"1s\"\nduration = \"1s\"\nloss = 0.1",
        r#"plan.toml:7: kind is "network"; must be another: no way leads to drive-0 alone; hint: process = "echo-0", or one of a store"#,
    );
    drive(
        "[[fault]]\nkind = \"disk\"\nprocess = \"echo-0\"\nat = \"1s\"\nduration = \"1s\"",
        r#"plan.toml:7: kind is "disk"; must be another: only the processes of a store wait, not echo-0; hint: store = "redis" starts a store for the run"#,
    );
    mesh_but(
        "[run]",
        "[run]\nuntil = \"p99 within 10%\"",
        "plan.toml:5: [run] has until, and the load is a mesh; must be left out: only requests of clients are counted while it runs; hint: remove until, or measure with [drive]",
    );
    drive_but(
        "[run]",
        "[run]\ngoodput = \"ttft < 5\"",
        r#"plan.toml:3: goodput is "ttft < 5"; must be limits of ttft, tpot, gap or e2e, each once and with its unit, such as "ttft < 500ms, e2e < 5s"; hint: goodput = "ttft < 500ms, tpot < 50ms, e2e < 5s""#,
    );
    mesh_but(
        "[run]",
        "[run]\ngoodput = \"e2e < 5s\"",
        "plan.toml:5: [run] has goodput, and the load is a mesh; must be left out: it is about the requests of clients; hint: remove goodput, or measure with [drive]",
    );
    drive_but(
        "[run]",
        "[run]\nuntil = \"p100 within 10%\"",
        r#"plan.toml:3: until is "p100 within 10%"; must be a percentile from p1 and how well it is to be known; hint: until = "p99 within 10%""#,
    );
}

#[test]
fn faults_that_would_come_without_end_are_refused() {
    let often = "[[fault]]\nkind = \"stop\"\nprocess = \"echo-0\"\nat = \"0s\"\nduration = \"1ms\"";
    let days = DRIVE.replace("60s", "1d");
    let plan = |every: &str| format!("{days}{often}\nevery = \"{every}\"");
    refused(
        &plan("10ms"),
        r#"plan.toml:11: every is "10ms"; must be longer: it would come more than 100000 times; hint: every = "864ms""#,
    );
    Plan::parse("plan.toml", &plan("864ms")).unwrap();
}

#[test]
fn more_processes_than_clients_or_keys_are_refused() {
    drive(
        "clients = 2\nprocesses = 3",
        "plan.toml:7: processes is 3; must be at most as many as there are clients, 2; hint: clients = 3",
    );
    drive(
        "clients = 9\nprocesses = 3\nurl = \"null:\"\nkeys = 2",
        "plan.toml:7: processes is 3; must be at most as many as there are keys, 2; hint: keys = 3",
    );
    drive(
        "preload = true",
        r#"plan.toml:6: preload is true; must be left out: an echo server has none; hint: url = "redis://127.0.0.1:6379""#,
    );
}

#[test]
fn a_way_into_a_namespace_is_refused() {
    drive_but(
        "[drive]\nrate = \"100/s\"\n",
        "hosts = \"namespaces\"\n[drive]\nrate = \"100/s\"\n[[fault]]\nkind = \"network\"\nprocess = \"echo-0\"\nat = \"1s\"\nduration = \"1s\"\nloss = 0.1",
        r#"plan.toml:8: kind is "network"; must be another: no way of ours leads into a namespace; hint: leave hosts = "namespaces" out"#,
    );
}

#[test]
fn faults_that_cannot_happen_are_refused() {
    stop(
        "",
        r#"plan.toml:7: process is missing in [[fault]]; must be a process of the plan; hint: process = "agent-0""#,
    );
    stop(
        "process = \"agent-7\"\nat = \"1s\"\nduration = \"1s\"",
        r#"plan.toml:9: unknown process "agent-7" in [[fault]]; known: agent-0 to agent-6; hint: did you mean agent-0"#,
    );
    stop(
        "process = \"agent-0\"\nduration = \"1s\"",
        r#"plan.toml:7: at is missing in [[fault]]; must be a duration; hint: at = "0s""#,
    );
    stop(
        "process = \"agent-0\"\nat = \"60s\"\nduration = \"1s\"",
        r#"plan.toml:10: at is "60s"; must be before the end of measurement at 60s; hint: at = "0s""#,
    );
    stop(
        "process = \"agent-0\"\nat = \"1s\"",
        r#"plan.toml:7: duration is missing in [[fault]]; must be a duration; hint: duration = "1s""#,
    );
    stop(
        "process = \"agent-0\"\nat = \"59s\"\nduration = \"2s\"",
        r#"plan.toml:11: duration is "2s"; must end with measurement, 1s after it began; hint: duration = "1s""#,
    );
    stop(
        "process = \"agent-0\"\nat = \"1s\"\nduration = \"1s\"\ncpu = 1",
        "plan.toml:12: cpu is 1; must be left out: a stop has none; hint: remove cpu",
    );
    mesh(
        "[[fault]]\nkind = \"kill\"\nprocess = \"agent-0\"\nat = \"1s\"\nduration = \"1s\"",
        r#"plan.toml:11: duration is "1s"; must be left out: agent-0 cannot be started again; hint: store = "redis" starts a store for the run"#,
    );
    mesh(
        "[[fault]]\nkind = \"busy\"\nprocess = \"agent-0\"\nat = \"1s\"",
        r#"plan.toml:7: duration is missing in [[fault]]; must be a duration; hint: duration = "1s""#,
    );
    mesh(
        "[[fault]]\nkind = \"busy\"\nprocess = \"agent-0\"\nat = \"1s\"\nduration = \"1s\"\nthreads = 0",
        "plan.toml:12: threads is 0; must be at least 1; hint: threads = 1",
    );
    mesh(
        "[[fault]]\nkind = \"pause\"",
        r#"plan.toml:8: kind is "pause"; must be one of stop, kill, busy, quota, network, disk; hint: kind = "stop""#,
    );
    drive(
        "[[fault]]\nkind = \"kill\"\nprocess = \"echo-1\"\nat = \"1s\"",
        r#"plan.toml:8: unknown process "echo-1" in [[fault]]; known: drive-0, echo-0; hint: did you mean echo-0"#,
    );
    drive(
        "address = \"a:1\"\n[[fault]]\nkind = \"kill\"\nprocess = \"echo-0\"\nat = \"1s\"",
        r#"plan.toml:9: unknown process "echo-0" in [[fault]]; known: drive-0; hint: use drive-0"#,
    );
    drive_but(
        "rate = \"100/s\"",
        "arrivals = \"replay\"",
        r#"plan.toml:4: times is missing in [drive]; must be a file with a time in seconds on each line; hint: times = "times.txt""#,
    );
    let kill = "[[fault]]\nkind = \"kill\"\nprocess = \"agent-0\"\nat = \"1s\"\n";
    mesh(
        &kill.repeat(1_001),
        "plan.toml:7: there are 1001 of [[fault]]; must have at most 1000; hint: make several plans",
    );
}

#[test]
fn pins_that_cannot_be_are_refused() {
    mesh(
        "[pin]\n\"agent-9\" = [1]",
        r#"plan.toml:8: unknown process "agent-9" in [pin]; known: agent-0 to agent-6; hint: did you mean agent-0"#,
    );
    mesh(
        "[pin]\n\"agent-1\" = []",
        r#"plan.toml:8: agent-1 is []; must hold at least one value; hint: "agent-1" = [1]"#,
    );
    mesh(
        "[pin]\n\"agent-1\" = [1, 1]",
        "plan.toml:8: agent-1 holds 1 twice; must hold each CPU once; hint: remove one",
    );
    mesh(
        "[pin]\n\"agent-1\" = [-1]",
        r#"plan.toml:8: agent-1 holds -1; must hold integers from 0 to 8191; hint: "agent-1" = [1]"#,
    );
}

#[test]
fn a_matrix_is_held_to_the_plan_it_varies() {
    mesh(
        "[matrix]\n\"mesh.transport\" = [\"tcp\", \"tcp\"]",
        r#"plan.toml:8: mesh.transport holds "tcp" twice; must hold each value once; hint: remove one"#,
    );
    mesh(
        "[matrix]\n\"mesh.transport\" = []",
        "plan.toml:8: mesh.transport is []; must hold at least one value; hint: give its values in brackets",
    );
    mesh(
        "[matrix]\n\"mesh.transports\" = [\"tcp\"]",
        r#"plan.toml:8: unknown path "mesh.transports" in [matrix]; known: run.duration, run.warmup, run.hosts, run.until, mesh.agents, mesh.groups, mesh.period, mesh.regroup, mesh.workloads, mesh.transport, mesh.runtime, mesh.timeout, mesh.in_flight, mesh.body, mesh.disk_file, mesh.port, compete.kind, compete.occupancy, compete.lead, compete.processes, compete.live, jvm.collector, jvm.heap, probe.enabled, probe.period, tap.on, quota.period, and quota of a process; hint: did you mean mesh.transport"#,
    );
    mesh(
        "[matrix]\n\"drive.rate\" = [\"1/s\"]",
        r#"plan.toml:8: unknown path "drive.rate" in [matrix]; known: run.duration, run.warmup, run.hosts, run.until, mesh.agents, mesh.groups, mesh.period, mesh.regroup, mesh.workloads, mesh.transport, mesh.runtime, mesh.timeout, mesh.in_flight, mesh.body, mesh.disk_file, mesh.port, compete.kind, compete.occupancy, compete.lead, compete.processes, compete.live, jvm.collector, jvm.heap, probe.enabled, probe.period, tap.on, quota.period, and quota of a process; hint: remove it"#,
    );
    mesh(
        "[matrix]\nmesh.transport = [\"tcp\"]",
        r#"plan.toml:8: mesh is a table in [matrix]; must be a path in quotes; hint: "mesh.key" = [..]"#,
    );
    mesh(
        "[matrix]\n\"mesh.agents\" = [7, 2]",
        r#"plan.toml:7: in cell "agents=2", groups holds 3; must hold integers from 1 to 2; hint: groups = [2]"#,
    );
    mesh(
        "[matrix]\n\"mesh.transport\" = [\"tcp\", \"sctp\"]",
        r#"plan.toml:7: in cell "transport=sctp", transport is "sctp"; must be one of tcp, udp; hint: transport = "tcp""#,
    );
    mesh(
        "[matrix]\n\"mesh.agents\" = [\"seven\"]",
        r#"plan.toml:7: in cell "agents=seven", agents is a string "seven"; must be an integer; hint: agents = 7"#,
    );
    mesh(
        "[matrix]\n\"mesh.period\" = [\"1s\", \"1000ms\"]",
        r#"plan.toml:7: cells "period=1s" and "period=1000ms" are the same; must differ; hint: remove one of the values"#,
    );
    let many: Vec<String> = (1..=101).map(|n| n.to_string()).collect();
    let many = many.join(", ");
    mesh(
        &format!("[matrix]\n\"mesh.in_flight\" = [{many}]\n\"mesh.port\" = [{many}]"),
        "plan.toml:7: [matrix] makes 10201 cells; must make at most 10000; hint: make several plans",
    );
}

#[test]
fn a_store_is_refused_what_it_has_not() {
    let store = |lines: &str, message: &str| {
        let head = "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\n";
        refused(&format!("{head}{lines}"), message);
    };
    store(
        "url = \"redis\"",
        "plan.toml:5: url is \"redis\"; must be scheme://host:port, such as redis://127.0.0.1:6379; hint: url = \"redis://127.0.0.1:6379\"",
    );
    store(
        "url = [\"redis://:secret@h\"]",
        "plan.toml:5: url is no text; must be one; hint: url = \"redis://127.0.0.1:6379\"",
    );
    store(
        "url = \"redis://me:secret@h\"",
        "plan.toml:5: url holds a password or a token; must hold none, since plans are kept with their runs; hint: UNRULY_PASSWORD has it; {password} stands for it in the path or the query of http",
    );
    store(
        "url = \"redis://h\"\npayload = \"64B\"",
        "plan.toml:6: payload is \"64B\"; must be left out: value says how long values are; hint: remove payload",
    );
    store(
        "system = \"rmi\"\nvalue = \"1KB\"",
        "plan.toml:6: value is \"1KB\"; must be left out: every request is a call with payload bytes; hint: remove value",
    );
    store(
        "system = \"udp\"\ntransport = \"tcp\"",
        "plan.toml:6: transport is \"tcp\"; must be left out: the system names the server and its transport; hint: remove transport",
    );
    store(
        "system = \"rmi\"\nurl = \"redis://h\"",
        "plan.toml:6: url is \"redis://h\"; must be left out: the system names the server and its transport; hint: remove url",
    );
    store(
        "system = \"\"",
        "plan.toml:5: system is \"\"; must be the name of a system, or its file; hint: system = \"rmi\"",
    );
    store(
        "url = \"redis://h\"\nskew = 2",
        "plan.toml:6: skew is 2; must be left out: only the orders zipf and latest are skewed; hint: order = \"zipf\"",
    );
    store(
        "url = \"redis://h\"\noperations = \"scan\"",
        "plan.toml:6: operations is \"scan\"; must be operations in turn, or shares of 100 %: \"write then read\", \"read 90%, write 10%\"; hint: operations = \"read 90%, write 10%\"",
    );
    store(
        "rate = \"1/s\"\nkeys = 5",
        "plan.toml:6: keys is 5; must be left out: an echo server has none; hint: url = \"redis://127.0.0.1:6379\"",
    );
    store(
        "url = \"redis://h\"\nexpect = \"404\"",
        "plan.toml:6: expect is \"404\"; must be left out: only an http:// URL has it; hint: remove expect",
    );
}

#[test]
fn an_http_server_is_written_to_only_when_the_plan_says_so() {
    let http = |lines: &str, message: &str| {
        let head = "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\n";
        refused(&format!("{head}{lines}"), message);
    };
    http(
        "url = \"http://h/{key}\"",
        "plan.toml:4: the URL has {key}, and no operations say how to use the keys; must be \"read\", or \"write then read\": an HTTP server is written to only when asked; hint: operations = \"read\"",
    );
    http(
        "url = \"http://h/\"\nkeys = 5",
        "plan.toml:6: keys is 5; must be left out: the path has no {key}, so there are no keys; hint: write {key} in the path, where the key belongs",
    );
    http(
        "url = \"http://h/\"\npreload = true",
        "plan.toml:6: preload is true; must be false: the path has no {key}, so there are no keys to write; hint: remove preload",
    );
    http(
        "url = \"http://h/\"\nexpect = \"40x\"",
        "plan.toml:6: expect is \"40x\"; must be status codes from 100 to 599, or classes of them: \"200, 404\", \"2xx, 3xx\"; hint: expect = \"2xx, 404\"",
    );
    http(
        "url = \"http://h/\"\nclients = 4\nprocesses = 2\nconnections = 1",
        "plan.toml:7: processes is 2; must be at most as many as there are connections, 1; hint: connections = 2",
    );
}

#[test]
fn bursts_are_refused_what_they_cannot_be() {
    let bursts = |lines: &str, message: &str| {
        let head = "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\nrate = \"1/s\"\n";
        refused(&format!("{head}{lines}"), message);
    };
    bursts(
        "arrivals = \"mmpp\"",
        "plan.toml:4: dispersion is missing in [drive]; must be a number; hint: dispersion = 100",
    );
    bursts(
        "arrivals = \"mmpp\"\ndispersion = 1",
        "plan.toml:7: dispersion is 1; must be above 1 and below 1000000000; hint: dispersion = 100",
    );
    bursts(
        "arrivals = \"mmpp\"\ndispersion = 9\nburst_factor = 6",
        "plan.toml:8: burst_share times burst_factor is 1.2000000000000002; must be at most 1, or bursts alone would be more than the mean; hint: burst_factor = 3",
    );
    bursts(
        "arrivals = \"poisson\"\ndispersion = 9",
        "plan.toml:7: dispersion is 9; must be left out: only mmpp and a closed loop have one; hint: remove dispersion",
    );
    bursts(
        "arrivals = \"onoff\"\nshape = \"wide\"",
        "plan.toml:7: shape is a string \"wide\"; must be a number; hint: shape = 1.5",
    );
}
