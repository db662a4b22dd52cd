//! How many requests a process should have made until an instant: what a process that died took with it is
//! the difference to its rows.

use unruly_load::{MeshSource, Phases, Source};
use unruly_plan::{Arrivals, Load, Portion, mix};
use unruly_trace::{DurationNs, MonoNs};

use crate::drive;
use crate::job::Job;

/// Returns how many requests (of a group each copy) the schedule of `job` has until `elapsed` after
/// its first instant; `None` where the requests depend on the answers (closed loops, streams), or the
/// times of a replay cannot be read.
#[must_use]
pub fn due_until(job: &Job, elapsed: DurationNs) -> Option<u64> {
    let run = &job.plan.run;
    match &job.plan.load {
        Load::Drive(drive) if !matches!(drive.arrivals, Arrivals::Closed { .. }) => {
            let seed = mix(job.plan.seed, u64::from(job.repeat));
            let portion = Portion::new(job.id.unwrap_or(0), drive.processes);
            let end_ns = run.warmup.0.saturating_add(run.duration.0);
            let last_ns = u64::try_from(elapsed.0)
                .unwrap_or(0)
                .min(end_ns.saturating_sub(1));
            let offsets = drive::dealt(drive::schedule(drive, seed, run.warmup).ok()?, portion);
            let warmup_ns = run.warmup.0;
            let (mut due, mut measured) = (0, 0);
            let most = drive.requests.map(|requests| portion.count(requests));
            for offset_ns in offsets.take_while(|offset_ns| *offset_ns <= last_ns) {
                if most == Some(measured) {
                    break;
                }
                due += 1;
                measured += u64::from(offset_ns >= warmup_ns);
            }
            Some(due)
        }
        Load::Mesh(mesh) => {
            let start_ns = MonoNs(0);
            let phases = Phases::new(start_ns, run.warmup, run.duration);
            let agent = job.id.unwrap_or(0);
            let mut source = MeshSource::new(mesh.clone(), job.plan.seed, agent, phases);
            let mut due = 0;
            while source
                .next_at_ns()
                .is_some_and(|at_ns| at_ns - start_ns <= elapsed)
            {
                due += source
                    .take()
                    .map_or(0, |request| request.links.len() as u64);
            }
            Some(due)
        }
        Load::Drive(_) | Load::Stream(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use unruly_plan::Plan;

    use super::*;
    use crate::job::{JobKind, PROTOCOL_VERSION};

    fn job(kind: JobKind, id: u16, toml: &str) -> Job {
        Job {
            schema: PROTOCOL_VERSION,
            run: String::new(),
            kind,
            name: String::new(),
            id: Some(id),
            host: String::new(),
            cells: Vec::new(),
            cell: 0,
            repeat: 0,
            cookie: 0,
            listen: String::new(),
            port: 0,
            cpus: Vec::new(),
            bins: false,
            stress: None,
            library: None,
            jvm: None,
            taps: Vec::new(),
            plan: Plan::parse("plan", toml).unwrap(),
        }
    }

    const EVENLY: &str = "name = \"n\"\n[run]\nduration = \"2s\"\nwarmup = \"1s\"\n[drive]\naddress = \"127.0.0.1:1\"\nrate = \"100/s\"\n";

    #[test]
    fn an_even_schedule_is_due_at_its_rate_and_never_beyond_its_end() {
        let job = job(JobKind::Drive, 0, EVENLY);
        assert_eq!(due_until(&job, DurationNs(999_999_999)), Some(100));
        assert_eq!(due_until(&job, DurationNs::seconds(60)), Some(300));
    }

    #[test]
    fn two_processes_have_half_of_it_each() {
        let plan = format!("{EVENLY}clients = 2\nprocesses = 2\n");
        let halves =
            [0, 1].map(|id| due_until(&job(JobKind::Drive, id, &plan), DurationNs(999_999_999)));
        assert_eq!(halves, [Some(50), Some(50)]);
    }

    #[test]
    fn a_closed_loop_has_no_schedule() {
        let plan = EVENLY.replace("rate = \"100/s\"", "arrivals = \"closed\"");
        assert_eq!(
            due_until(&job(JobKind::Drive, 0, &plan), DurationNs(1)),
            None
        );
    }

    #[test]
    fn an_agent_asks_its_group_once_each_period() {
        let plan = "name = \"n\"\n[run]\nduration = \"2s\"\nwarmup = \"0s\"\n[mesh]\nagents = 3\ngroups = [3]\nperiod = \"10ms\"\n";
        let due = due_until(&job(JobKind::Mesh, 1, plan), DurationNs::seconds(1)).unwrap();
        assert!((297..=303).contains(&due), "{due}");
    }
}
