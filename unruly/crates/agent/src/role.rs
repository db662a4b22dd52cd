//! One process from its job file to its last line.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use unruly_plan::{CompeteKind, Load};
use unruly_trace::{Clock, ClockPair};

use crate::control::{Inbox, Ready, Report, report};
use crate::events::Events;
use crate::ground::Ground;
use crate::job::{Job, JobKind, PROTOCOL_VERSION};

/// Runs the process that a job file describes; its rows go to the run `directory`.
///
/// # Errors
///
/// When the job cannot be read or the process cannot do its part. The error is also said in a line.
pub fn run(job_file: &Path, directory: &Path) -> Result<()> {
    give_back_large_blocks();
    let done = Job::read(job_file).and_then(|job| run_job(&job, directory));
    if let Err(error) = &done {
        report(&Report::Finding {
            text: format!("{error:#}"),
            fatal: true,
        });
    }
    done
}

/// Has the allocator give memory from this size on back to the system when it is freed. By itself it
/// keeps ever larger blocks, so that a process is 14 MiB larger after it has sealed a spool for the
/// first time.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 128 << 10;

#[cfg(target_env = "gnu")]
fn give_back_large_blocks() {
    // SAFETY: it changes a setting of the allocator; no other thread has been started.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
}

#[cfg(not(target_env = "gnu"))]
fn give_back_large_blocks() {}

fn run_job(job: &Job, directory: &Path) -> Result<()> {
    stay_on(&job.cpus)?;
    let clock = Clock::new(ClockPair::now());
    let inbox = Inbox::open();
    let mut events = Events::new(job, directory);
    events.now("process started", None, &clock);
    let ground = Ground {
        job,
        directory,
        inbox: &inbox,
        clock: &clock,
    };
    let done = match (job.kind, &job.plan.load) {
        (JobKind::Mesh, Load::Mesh(mesh)) => crate::mesh::run(ground, mesh, &mut events),
        (JobKind::Drive, Load::Drive(drive)) => crate::drive::run(ground, drive, &mut events),
        (JobKind::Echo, load) => {
            let body_bytes = match load {
                Load::Drive(drive) => u32::try_from(drive.payload.0).unwrap_or(u32::MAX),
                Load::Mesh(_) | Load::Stream(_) => 0,
            };
            crate::mesh::run_echo(ground, body_bytes, &mut events)
        }
        (JobKind::Tap, Load::Drive(_)) => crate::tap::run(ground, &mut events),
        (JobKind::Spans, Load::Drive(drive)) => crate::otlp::run(ground, drive, &mut events),
        (JobKind::Writer | JobKind::Reader, Load::Stream(stream))
            if stream.protocol.is_of_jvm() =>
        {
            crate::stream::of_jvm(ground, stream, &mut events)
        }
        (JobKind::Writer, Load::Stream(stream)) => {
            crate::stream::write(ground, stream, &mut events)
        }
        (JobKind::Reader, Load::Stream(stream)) => crate::stream::read(ground, stream, &mut events),
        (JobKind::Compete, _) => match &job.plan.compete {
            Some(compete) if compete.kind == CompeteKind::Gc => {
                crate::collector::run(ground, &mut events)
            }
            Some(compete) => crate::compete::run(ground, compete, &mut events),
            None => Ok(()),
        },
        (JobKind::Probe, _) => {
            say_ready(None, &clock);
            let sampled = crate::passive::run(ground, &mut events);
            crate::client::say_done(None);
            sampled
        }
        (JobKind::Stress, _) => {
            say_ready(None, &clock);
            let stressed = crate::stress::run(ground);
            crate::client::say_done(None);
            stressed
        }
        (kind, _) => anyhow::bail!(
            "{}: kind {} does not fit the plan; wanted its load table; hint: this is a defect, please report it",
            job.name,
            kind.name()
        ),
    };
    events.seal();
    done
}

fn stay_on(cpus: &[u16]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(usize::from(*cpu))
            .with_context(|| no_such_core(*cpu))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| no_such_core(cpus[0]))
}

fn no_such_core(cpu: u16) -> String {
    format!("pin: core {cpu} cannot be used; wanted a core of this host; hint: nproc counts them")
}

/// Says that the process can start.
pub(crate) fn say_ready(address: Option<SocketAddr>, clock: &Clock) {
    say_ready_by(std::process::id(), address, clock);
}

/// Says that it can start, and that another process does its work.
pub(crate) fn say_ready_by(pid: u32, address: Option<SocketAddr>, clock: &Clock) {
    report(&Report::Ready(Ready {
        protocol: PROTOCOL_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid,
        address: address.map(|address| address.to_string()),
        clock: clock.origin(),
        kernel_stamps: crate::doctor::kernel_stamps_work(),
    }));
}
