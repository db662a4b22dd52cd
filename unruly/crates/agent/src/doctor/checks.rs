//! Turns evidence into diagnoses. This file does not touch the host.

use unruly_trace::DurationNs;

use super::Severity::{Informs, Spoils, Warns};
use super::evidence::Evidence;
use super::render::{bytes, share, time};
use super::trials::Trial;
use super::{Diagnosis, NoiseFloor, Severity};

/// Clock sources that are read without asking the kernel or a hypervisor.
const CLOCK_SOURCES_FAST: [&str; 2] = ["tsc", "arch_sys_counter"];
/// Cost of reading the clock above which the reading disturbs the measurement, in nanoseconds. The
/// load generator reads the clock three times per request.
const CLOCK_COST_NS_MAX: DurationNs = DurationNs(200);
/// A loopback round trip takes some ten of these.
const CLOCK_RESOLUTION_NS_MAX: DurationNs = DurationNs(1_000);
const STEAL_SHARE_MAX: f64 = 0.01;
const LOST_SHARE_MAX: f64 = 0.01;
const GAP_NS_MAX: DurationNs = DurationNs(10_000_000);
/// What a generator of load may need at most.
const LOCKED_BYTES_WANTED: u64 = 64 << 20;
const OPEN_FILES_WANTED: u64 = 4_096;
const FREE_BYTES_WANTED: u64 = 1_000_000_000;
/// A store that syncs each write is bound to a thousand a second by this.
const SYNC_NS_NOTED: DurationNs = DurationNs(1_000_000);

/// Judges the evidence, the worst first: that is the order of the checks.
pub(super) fn diagnose(evidence: &Evidence) -> Vec<Diagnosis> {
    type Check = fn(&Evidence) -> Option<Diagnosis>;
    let checks: [Check; 17] = [
        lost_time,
        long_gaps,
        stolen_time,
        busy_host,
        clock_source,
        clock_slow,
        clock_coarse,
        kernel_stamps,
        few_cores,
        cpu_governor,
        locked_memory,
        disk_full,
        open_files,
        no_realtime,
        no_pressure,
        slow_sync,
        virtualised,
    ];
    checks.iter().filter_map(|check| check(evidence)).collect()
}

/// What a person should read before a run on a host with this noise; none where it is fit.
pub(super) fn warning(noise: &NoiseFloor) -> Option<String> {
    let lost = noise.lost_share();
    (lost > LOST_SHARE_MAX).then(|| {
        format!(
            "this host lost {:.0} % of its CPU to other work in {:.0} s: the result may be spoiled; \
             hint: `unruly doctor` says more",
            (lost * 100.0).max(1.0),
            noise.spun_ns.as_secs_f64()
        )
    })
}

fn diagnosis(
    code: &'static str,
    severity: Severity,
    what: String,
    means: &str,
    hint: Option<&str>,
) -> Diagnosis {
    Diagnosis {
        code,
        severity,
        what,
        means: means.to_owned(),
        hint: hint.map(str::to_owned),
    }
}

fn lost_time(evidence: &Evidence) -> Option<Diagnosis> {
    let lost = evidence.noise.lost_share();
    (lost > LOST_SHARE_MAX).then(|| {
        diagnosis(
            "lost_time",
            Spoils,
            format!(
                "something else had {} of the time while we spun; at most {} is fit",
                share(lost),
                share(LOST_SHARE_MAX)
            ),
            "the tail of every latency measured here is this host's, not the target's",
            Some("stop other work on this host, or measure on one of your own"),
        )
    })
}

fn long_gaps(evidence: &Evidence) -> Option<Diagnosis> {
    let noise = &evidence.noise;
    (noise.longest_ns > GAP_NS_MAX).then(|| {
        diagnosis(
            "long_gaps",
            Warns,
            format!(
                "we were stopped for {} at a stretch; {} or less is usual",
                time(noise.longest_ns),
                time(GAP_NS_MAX)
            ),
            "single requests will show such a stop as if the target had made it",
            Some("spin longer to see how often; look for other work, or steal on a virtual host"),
        )
    })
}

fn stolen_time(evidence: &Evidence) -> Option<Diagnosis> {
    let stolen = evidence
        .steal_share
        .filter(|&stolen| stolen > STEAL_SHARE_MAX)?;
    Some(diagnosis(
        "stolen_time",
        Warns,
        format!(
            "the hypervisor gave {} of this host's time to others",
            share(stolen)
        ),
        "all processes here stand still together at times; no probe inside sees why",
        Some("choose a kind of instance with cores of its own, or another time of day"),
    ))
}

fn busy_host(evidence: &Evidence) -> Option<Diagnosis> {
    let (load, cores) = (evidence.load?, evidence.host.cores?);
    let is_busy = load.running > u64::from(cores) || load.mean_1min > f64::from(cores);
    is_busy.then(|| {
        diagnosis(
            "busy_host",
            Warns,
            format!(
                "{} tasks wanted {cores} cores before we began, {:.1} in the mean of a minute",
                load.running, load.mean_1min
            ),
            "the generator and the target will wait for a core, and that wait is in the latency",
            Some("see what runs with `top`, stop it, wait a minute, ask the doctor again"),
        )
    })
}

fn clock_source(evidence: &Evidence) -> Option<Diagnosis> {
    let source = evidence.host.clock_source.as_deref()?;
    (!CLOCK_SOURCES_FAST.contains(&source)).then(|| {
        diagnosis(
            "clock_source",
            Warns,
            format!(
                "clock source is {source}, a reading costs {} ns",
                evidence.noise.clock_cost_ns.0
            ),
            "a reading may ask the kernel or the hypervisor, and take longer under load",
            Some(
                "see available_clocksource beside it in /sys/devices/system/clocksource; \
                 write tsc to current_clocksource if it is there",
            ),
        )
    })
}

fn clock_slow(evidence: &Evidence) -> Option<Diagnosis> {
    let cost_ns = evidence.noise.clock_cost_ns;
    (cost_ns > CLOCK_COST_NS_MAX).then(|| {
        diagnosis(
            "clock_slow",
            Warns,
            format!(
                "a reading of the clock costs {} ns; {} is fit",
                cost_ns.0, CLOCK_COST_NS_MAX.0
            ),
            "it adds to every latency and lowers the rate that one thread can send",
            Some("use the tsc clock source; in a sandbox, see that the vDSO is not blocked"),
        )
    })
}

fn clock_coarse(evidence: &Evidence) -> Option<Diagnosis> {
    let step_ns = evidence.noise.clock_resolution_ns;
    (step_ns > CLOCK_RESOLUTION_NS_MAX).then(|| {
        diagnosis(
            "clock_coarse",
            Warns,
            format!("the clock goes in steps of {}", time(step_ns)),
            "latencies are rounded to such steps; short ones are zero or one step",
            Some("use a finer clock source; trust no difference below a few steps"),
        )
    })
}

fn kernel_stamps(evidence: &Evidence) -> Option<Diagnosis> {
    let trials = [("UDP", &evidence.udp_stamps), ("TCP", &evidence.tcp_stamps)];
    let problems: Vec<String> = trials
        .iter()
        .filter_map(|(protocol, trial)| match trial {
            Trial::Works => None,
            Trial::Missing => Some(format!("{protocol} has none")),
            Trial::Failed(error) => Some(format!("{protocol} could not be tried ({error})")),
        })
        .collect();
    (!problems.is_empty()).then(|| {
        diagnosis(
            "kernel_stamps",
            Warns,
            format!(
                "receive stamps of the kernel over the loopback: {}",
                problems.join(", ")
            ),
            "a reply that waited in our own kernel looks like one that came late",
            Some("use Linux 4.14 or later without a sandbox between (SO_TIMESTAMPING)"),
        )
    })
}

fn few_cores(evidence: &Evidence) -> Option<Diagnosis> {
    (evidence.host.cores == Some(1)).then(|| {
        diagnosis(
            "few_cores",
            Warns,
            "this process may use one core".to_owned(),
            "generator, probe and a target here take turns: each waits for the others",
            Some("measure with two cores or more, or put the target on another host"),
        )
    })
}

fn cpu_governor(evidence: &Evidence) -> Option<Diagnosis> {
    let governor = evidence
        .governors
        .iter()
        .find(|name| *name != "performance")?;
    Some(diagnosis(
        "cpu_governor",
        Warns,
        format!("the cores' frequency is governed by {governor}"),
        "a core that idled is slow for a while: a low rate looks worse than a high one",
        Some("cpupower frequency-set -g performance"),
    ))
}

fn locked_memory(evidence: &Evidence) -> Option<Diagnosis> {
    let limits = &evidence.limits;
    let locked_bytes = limits.locked_bytes?;
    (!limits.may_lock_all && locked_bytes < LOCKED_BYTES_WANTED).then(|| {
        diagnosis(
            "locked_memory",
            Warns,
            format!(
                "at most {} may be locked; {} is wanted",
                bytes(locked_bytes),
                bytes(LOCKED_BYTES_WANTED)
            ),
            "when memory is short the generator's own pages can go, and their faults are measured",
            Some("ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit, or CAP_IPC_LOCK"),
        )
    })
}

fn disk_full(evidence: &Evidence) -> Option<Diagnosis> {
    let free_bytes = evidence
        .free_bytes
        .filter(|&free_bytes| free_bytes < FREE_BYTES_WANTED)?;
    Some(diagnosis(
        "disk_full",
        Warns,
        format!(
            "{} is free in this folder; 1 GB is wanted",
            bytes(free_bytes)
        ),
        "a run records every request, about 5 bytes each, and ends early when the disk is full",
        Some("free some space, or use -o with a folder on another disk"),
    ))
}

fn open_files(evidence: &Evidence) -> Option<Diagnosis> {
    let count = evidence
        .limits
        .open_files
        .filter(|&count| count < OPEN_FILES_WANTED)?;
    Some(diagnosis(
        "open_files",
        Informs,
        format!("{count} files may be open at once"),
        "this bounds the connections that can be driven from here",
        Some("ulimit -n 65536"),
    ))
}

fn no_realtime(evidence: &Evidence) -> Option<Diagnosis> {
    let reason = match &evidence.realtime {
        Trial::Works => return None,
        Trial::Missing => "not available",
        Trial::Failed(error) => error,
    };
    Some(diagnosis(
        "no_realtime",
        Informs,
        format!("real-time priority is refused: {reason}"),
        "the generator competes for cores like any other process; its send lag shows when it lost",
        Some("CAP_SYS_NICE or ulimit -r 1; in a control group also cpu.rt_runtime_us"),
    ))
}

fn no_pressure(evidence: &Evidence) -> Option<Diagnosis> {
    (!evidence.shows_pressure).then(|| {
        diagnosis(
            "no_pressure",
            Informs,
            "the kernel shows no pressure (PSI)".to_owned(),
            "waits for cores, memory and disks are seen less well, so slow requests stay unexplained",
            Some("boot with psi=1, on Linux 4.20 or later"),
        )
    })
}

fn slow_sync(evidence: &Evidence) -> Option<Diagnosis> {
    let sync_ns = evidence
        .sync_ns
        .filter(|&sync_ns| sync_ns > SYNC_NS_NOTED)?;
    Some(diagnosis(
        "slow_sync",
        Informs,
        format!(
            "a write reaches the disk in {} here (fdatasync, median of 20)",
            time(sync_ns)
        ),
        "a store that syncs each write on this disk is no faster than that",
        None,
    ))
}

fn virtualised(evidence: &Evidence) -> Option<Diagnosis> {
    (evidence.host.virtualised == Some(true)).then(|| {
        diagnosis(
            "virtualised",
            Informs,
            "this host is a guest of a hypervisor".to_owned(),
            "other guests share its cores and disks, unseen: repeat runs at different times",
            None,
        )
    })
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
