//! A quota of CPU time for a process and all that it has started, by a control group of their own.
//!
//! A group stays until it is dropped, at the end of the trial. A runner that is
//! killed leaves an empty group at most, and the next quota takes that away.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use unruly_plan::{DurationNs, FaultKind};

use super::trial::Trial;
use crate::reach::Action;

/// Groups of ours have this in their names, before the runner's number.
const PREFIX: &str = "unruly-";

/// A control group of processes that together get no more CPU time than they are allowed.
#[derive(Debug)]
pub(super) struct Quota {
    group: PathBuf,
    /// The group in which the first process was.
    before: PathBuf,
    /// True if these are control groups of the first version.
    first: bool,
    pids: Vec<u32>,
}

impl Quota {
    /// Moves `pids` and all their present and future descendants to a group of their own, which
    /// has no limit yet.
    ///
    /// # Errors
    ///
    /// Fails if there is no process, or if this host does not allow a new control group.
    pub(super) fn hold(pids: &[u32]) -> Result<Self> {
        let pid = *pids.first().context("there is no process for a quota")?;
        let told = || refused(pid);
        let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).with_context(told)?;
        let (root, before, first) = place(&cgroup).with_context(told)?;
        sweep(&root);
        let group = root.join(format!("{PREFIX}{}-{pid}", std::process::id()));
        if !first {
            // The children of the root may have quotas once it says so; there it may already.
            let _ = std::fs::write(root.join("cgroup.subtree_control"), "+cpu");
        }
        std::fs::create_dir(&group).with_context(told)?;
        let pids = pids.to_vec();
        let quota = Self {
            group,
            before,
            first,
            pids,
        };
        let members = quota.group.join("cgroup.procs");
        for member in with_descendants(&quota.pids) {
            let joined = std::fs::write(&members, member.to_string());
            // One that was started by another may have ended meanwhile.
            if quota.pids.contains(&member) {
                joined.with_context(told)?;
            }
        }
        Ok(quota)
    }

    /// Limits the group to `cores` cores in each `period`; `None` takes the limit off.
    ///
    /// # Errors
    ///
    /// Fails if the group's files cannot be written.
    pub(super) fn limit(&self, cores: Option<f64>, period: DurationNs) -> Result<()> {
        for (name, text) in limits(cores, period, self.first) {
            std::fs::write(self.group.join(name), text).with_context(|| refused(self.pids[0]))?;
        }
        Ok(())
    }
}

fn refused(pid: u32) -> String {
    format!(
        "quota: process {pid} cannot be given one; wanted a control group that may be written; hint: run as root, or leave the quota out"
    )
}

impl Trial<'_> {
    /// Gives each process of the plan's quotas its own, before it has anything to do. A cell without
    /// competing load lacks the processes of that load.
    ///
    /// A process that a fault will limit gets its group now as well, still without a limit. The
    /// kernel counts throttled time by group. A group that lasted as long as the fault would lose
    /// the counts of its first and last moments.
    ///
    /// # Errors
    ///
    /// When no control group may be made here.
    pub(super) fn set_quotas(&mut self) -> Result<()> {
        let names = self.processes.victims();
        let faults = self.plan.faults.iter();
        let limited = faults.filter(|it| matches!(it.kind, FaultKind::Quota { .. }));
        let victims = limited.filter_map(|it| it.victim(names.iter().map(String::as_str)));
        let mut wanted: BTreeSet<String> = self.plan.quotas.keys().cloned().collect();
        wanted.extend(victims.flat_map(|name| self.processes.candidates(name)));
        let period = self.plan.quota_period;
        for process in wanted {
            let cores = self.plan.quotas.get(&process).copied();
            if let Some(child) = self.processes.there(&process) {
                child.instruct(Action::Limit(cores, period));
                continue;
            }
            let pids = self.processes.pids_of(&process);
            if pids.is_empty() {
                continue;
            }
            let told = || format!("[quota] {process}");
            let quota = Quota::hold(&pids).with_context(told)?;
            if cores.is_some() {
                quota.limit(cores, period).with_context(told)?;
            }
            self.quotas.insert(process, quota);
        }
        Ok(())
    }

    /// Limits a process because of a fault, and all that it has started.
    ///
    /// # Errors
    ///
    /// When the process is gone, or no control group may be made here.
    pub(super) fn limit_cpu(&mut self, process: &str, cores: f64) -> Result<()> {
        let period = self.plan.quota_period;
        if let Some(child) = self.processes.there(process) {
            child.instruct(Action::Limit(Some(cores), period));
            return Ok(());
        }
        let pids = self.processes.pids_of(process);
        // A process that was started again is in no group yet.
        if self.quotas.get(process).is_none_or(|it| it.pids != pids) {
            self.quotas.insert(process.to_owned(), Quota::hold(&pids)?);
        }
        self.quotas[process].limit(Some(cores), period)
    }

    /// Takes the limit of a fault off a process. A plan has no other limit for it.
    ///
    /// # Errors
    ///
    /// When the group's files cannot be written.
    pub(super) fn unlimit_cpu(&mut self, process: &str) -> Result<()> {
        let period = self.plan.quota_period;
        if let Some(child) = self.processes.there(process) {
            child.instruct(Action::Limit(None, period));
            return Ok(());
        }
        let quota = self.quotas.get(process);
        quota.map_or(Ok(()), |it| it.limit(None, period))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let members = self.group.join("cgroup.procs");
        let left = std::fs::read_to_string(&members).unwrap_or_default();
        for pid in left.lines() {
            // One that has ended meanwhile needs no place.
            let _ = std::fs::write(self.before.join("cgroup.procs"), pid);
        }
        let _ = std::fs::remove_dir(&self.group);
    }
}

/// These processes and all that they have started.
fn with_descendants(pids: &[u32]) -> Vec<u32> {
    let parents = parents();
    let mut found = pids.to_vec();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = parents.iter().filter(|(_, its)| *its == parent);
        let new = children
            .map(|(pid, _)| *pid)
            .filter(|it| !found.contains(it));
        found.extend(new.collect::<Vec<u32>>());
        next += 1;
    }
    found
}

/// All processes of this host, each with the one that started it.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything, and is in brackets.
        let (_, rest) = stat.rsplit_once(')')?;
        let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent))
    })
    .collect()
}

/// Where groups are made, where the process is now, and whether these are groups of the first version.
fn place(cgroup: &str) -> Result<(PathBuf, PathBuf, bool)> {
    let inside = |path: &str| path.trim_start_matches('/').to_owned();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, Some(names), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if names.split(',').any(|name| name == "cpu") {
            let places = [names, "cpu"].map(|name| Path::new("/sys/fs/cgroup").join(name));
            if let Some(root) = places.into_iter().find(|root| root.is_dir()) {
                return Ok((root.clone(), root.join(inside(path)), true));
            }
        }
    }
    let unified = cgroup.lines().find_map(|line| line.strip_prefix("0::"));
    let root = PathBuf::from("/sys/fs/cgroup");
    match unified {
        Some(path) if root.join("cgroup.controllers").is_file() => {
            Ok((root.clone(), root.join(inside(path)), false))
        }
        _ => bail!("there are no control groups for CPU time"),
    }
}

/// The files of a group that hold its limit, with their contents; without `cores` there is none.
fn limits(cores: Option<f64>, period: DurationNs, first: bool) -> Vec<(&'static str, String)> {
    let period = period.0 as f64 / 1e3;
    let quota = cores.map(|it| format!("{:.0}", it * period));
    if first {
        return vec![
            ("cpu.cfs_period_us", format!("{period:.0}")),
            ("cpu.cfs_quota_us", quota.unwrap_or_else(|| "-1".to_owned())),
        ];
    }
    let quota = quota.unwrap_or_else(|| "max".to_owned());
    vec![("cpu.max", format!("{quota} {period:.0}"))]
}

/// Takes away groups of runners that are gone.
fn sweep(root: &Path) {
    let Ok(entries) = std::fs::read_dir(root) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let runner = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let runner = runner.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if runner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // One that still has members stays.
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use unruly_plan::DEFAULT_QUOTA_PERIOD;

    use super::*;

    #[test]
    fn a_quota_is_written_as_each_version_of_control_groups_wants_it() {
        let period = DEFAULT_QUOTA_PERIOD;
        assert_eq!(
            limits(Some(0.2), period, false),
            [("cpu.max", "20000 100000".to_owned())]
        );
        let first = limits(Some(1.5), period, true);
        assert_eq!(first[0], ("cpu.cfs_period_us", "100000".to_owned()));
        assert_eq!(first[1], ("cpu.cfs_quota_us", "150000".to_owned()));
    }

    #[test]
    fn a_quota_is_given_in_the_period_of_the_plan() {
        let period = DurationNs(5_000_000);
        assert_eq!(
            limits(Some(0.5), period, false),
            [("cpu.max", "2500 5000".to_owned())]
        );
        let first = limits(Some(0.5), period, true);
        assert_eq!(first[0], ("cpu.cfs_period_us", "5000".to_owned()));
        assert_eq!(first[1], ("cpu.cfs_quota_us", "2500".to_owned()));
    }

    #[test]
    fn a_group_without_a_limit_is_written_as_each_version_wants_it() {
        let period = DEFAULT_QUOTA_PERIOD;
        let unlimited = limits(None, period, false);
        assert_eq!(unlimited, [("cpu.max", "max 100000".to_owned())]);
        let first = limits(None, period, true);
        assert_eq!(first[1], ("cpu.cfs_quota_us", "-1".to_owned()));
    }

    #[test]
    fn what_a_process_has_started_is_found_and_nobody_else() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = String::new();
        let output = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut told).unwrap();
        let grandchild: u32 = told.trim().parse().unwrap();
        let found = with_descendants(&[child.id()]);
        let ends = nix::unistd::Pid::from_raw(grandchild.cast_signed());
        nix::sys::signal::kill(ends, nix::sys::signal::Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert_eq!(found, [child.id(), grandchild]);
    }

    #[test]
    fn a_process_without_a_place_for_cpu_time_is_refused() {
        let said = place("8:pids:/\n").unwrap_err().to_string();
        assert_eq!(said, "there are no control groups for CPU time");
    }
}
