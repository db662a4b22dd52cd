//! The runner: starts the processes of a run, all at one instant, and leaves nothing behind.
//!
//! A run is a sequence of *legs*, one for each cell and repeat, in the order of the seed. Each leg
//! has its own processes. What they say arrives as lines; what they measure they write themselves.

mod child;
mod faults;
mod leg;
mod namespaces;
mod progress;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use unruly_agent::doctor;
use unruly_plan::{Cell as PlanCell, Plan, mix};
use unruly_trace::{
    Cell, ClockPair, Counts, Host, Manifest, RunLock, RunStatus, SCHEMA_VERSION, Tool, recover,
};

use leg::{Leg, LegEnd};
use progress::Progress;

/// How long the runner listens to the host before a run, for its noise floor.
const NOISE: Duration = Duration::from_secs(1);

/// What the command line says of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunOptions {
    /// The run directory.
    pub(crate) output: Option<PathBuf>,
    /// No progress.
    pub(crate) quiet: bool,
}

/// What all legs of a run share.
pub(crate) struct Run {
    pub(crate) directory: PathBuf,
    pub(crate) id: String,
    pub(crate) cells: Vec<PlanCell>,
    pub(crate) cookie: u32,
    pub(crate) stop: Arc<AtomicBool>,
}

/// Measures a plan. Returns the run directory.
///
/// # Errors
///
/// When the run cannot start, or its counts do not add up.
pub(crate) fn run(plan: &Plan, options: &RunOptions) -> Result<PathBuf> {
    let cells = plan.cells()?;
    let origin = ClockPair::now();
    let id = format!("{}-{}", plan.name, utc(origin.wall_ns));
    let directory = options
        .output
        .clone()
        .unwrap_or_else(|| Path::new("runs").join(&id));
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    make_directory(&directory)?;
    let lock = RunLock::take(&directory)?;
    let text = plan.to_toml();
    fs::write(directory.join("plan.toml"), &text).with_context(|| {
        format!(
            "{}: cannot write; wanted a writable directory; hint: -o",
            directory.display()
        )
    })?;
    let noise_floor_ns = doctor::spin(NOISE, &mut |_| {}).floor_ns;
    let mut manifest = new_manifest(plan, &cells, &id, &text, origin);
    manifest.hosts.push(host_of("local", Some(noise_floor_ns)));
    manifest.write(&directory)?;

    #[expect(clippy::cast_possible_truncation, reason = "the low half of a hash")]
    let cookie = mix(plan.seed, origin.wall_ns.cast_unsigned()) as u32;
    let run = Run {
        directory: directory.clone(),
        id,
        cells,
        cookie,
        stop,
    };
    let measured = measure(plan, &run, &mut manifest, options.quiet);
    if let Err(error) = &measured {
        manifest.missing.push(format!("{error:#}"));
        manifest.status = RunStatus::Stopped;
    }
    manifest.ended_ns = Some(ClockPair::now().wall_ns);
    let settled = manifest.settle();
    manifest.write(&directory)?;
    drop(lock);
    measured?;
    // Processes that died left spools; they are taken up now, so that the run is whole.
    recover(&directory)?;
    settled?;
    Ok(directory)
}

/// Runs every leg. The manifest says what became of each.
fn measure(plan: &Plan, run: &Run, manifest: &mut Manifest, quiet: bool) -> Result<()> {
    let order = plan.order();
    let mut progress = Progress::new(plan, order.len(), quiet);
    manifest.status = RunStatus::Complete;
    for (number, (cell, repeat)) in order.into_iter().enumerate() {
        let end = Leg::new(run, cell, repeat)?.run(number, &mut progress)?;
        let LegEnd {
            processes,
            hosts,
            missing,
            stopped,
            started_ns,
        } = end;
        if number == 0 {
            manifest.started_ns = started_ns;
        }
        manifest.processes.extend(processes);
        manifest.missing.extend(missing);
        for name in hosts {
            if !manifest.hosts.iter().any(|host| host.name == name) {
                let noise_floor_ns = manifest.hosts[0].noise_floor_ns;
                manifest.hosts.push(host_of(&name, noise_floor_ns));
            }
        }
        if stopped || run.stop.load(Ordering::Relaxed) {
            manifest.status = RunStatus::Stopped;
            break;
        }
    }
    progress.finish();
    Ok(())
}

fn make_directory(directory: &Path) -> Result<()> {
    let path = directory.display();
    if directory.join(Manifest::FILE).exists() {
        anyhow::bail!("{path}: holds a run already; wanted a new directory; hint: leave -o out");
    }
    fs::create_dir_all(directory.join("logs"))
        .with_context(|| format!("{path}: cannot be made; wanted a writable place; hint: -o"))
}

fn new_manifest(
    plan: &Plan,
    cells: &[PlanCell],
    id: &str,
    text: &str,
    origin: ClockPair,
) -> Manifest {
    let legs = i64::try_from(cells.len() * usize::from(plan.run.repeat)).unwrap_or(i64::MAX);
    let duration_ns = i64::try_from(plan.run.duration.0).unwrap_or(i64::MAX);
    let digest = Sha256::digest(text.as_bytes());
    Manifest {
        schema: SCHEMA_VERSION,
        run: id.to_owned(),
        name: plan.name.clone(),
        tag: plan.tag.clone(),
        tool: Tool {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("UNRULY_COMMIT").to_owned(),
        },
        plan_sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        seed: plan.seed,
        status: RunStatus::Running,
        started_ns: origin.wall_ns,
        ended_ns: None,
        planned_ns: duration_ns.saturating_mul(legs),
        missing: Vec::new(),
        hosts: Vec::new(),
        cells: cells
            .iter()
            .map(|cell| Cell {
                name: cell.name.clone(),
                factors: cell.factors.clone(),
            })
            .collect(),
        processes: Vec::new(),
        counts: Counts::default(),
    }
}

fn host_of(name: &str, noise_floor_ns: Option<i64>) -> Host {
    let facts = doctor::host_facts();
    Host {
        name: name.to_owned(),
        cpu_model: facts.cpu_model,
        cores: facts.cores,
        kernel: facts.kernel,
        clock_source: facts.clock_source,
        virtualised: facts.virtualised,
        memory_bytes: facts.memory_bytes,
        steal_share: facts.steal_share,
        noise_floor_ns,
    }
}

/// `20261120T221100Z` of a wall clock, by the civil-from-days algorithm of Howard Hinnant.
fn utc(wall_ns: i64) -> String {
    let seconds = wall_ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second % 3600 / 60);
    format!(
        "{year:04}{month:02}{day:02}T{hour:02}{minute:02}{:02}Z",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn the_name_of_a_run_has_the_civil_date() {
        assert_eq!(utc(0), "19700101T000000Z");
        assert_eq!(utc(951_827_696_000_000_000), "20000229T123456Z");
        assert_eq!(utc(1_795_212_671_000_000_000), "20261120T221111Z");
    }
}
