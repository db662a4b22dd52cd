//! A quota of CPU time for one process, by a control group of its own.
//!
//! It is undone when it is dropped. A runner that is killed leaves an empty group at most, and the next
//! quota takes that away.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// What is left of the quota is given anew so often.
const PERIOD_US: f64 = 100_000.0;

/// Groups of ours have this in their names, before the runner's number.
const PREFIX: &str = "unruly-";

/// A process that gets no more CPU time than it is allowed.
#[derive(Debug)]
pub(super) struct Quota {
    group: PathBuf,
    /// Where the process was.
    before: PathBuf,
}

impl Quota {
    /// Allows `pid` so many cores from now on.
    ///
    /// # Errors
    ///
    /// When no control group may be made here.
    pub(super) fn set(pid: u32, cores: f64) -> Result<Self> {
        let told = || {
            format!(
                "fault quota: process {pid} cannot be given one; wanted a control group that may be written; hint: run as root, or leave the fault out"
            )
        };
        let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).with_context(told)?;
        let (root, before, first) = place(&cgroup).with_context(told)?;
        sweep(&root);
        let group = root.join(format!("{PREFIX}{}-{pid}", std::process::id()));
        if !first {
            // The children of the root may have quotas once it says so; there it may already.
            let _ = std::fs::write(root.join("cgroup.subtree_control"), "+cpu");
        }
        std::fs::create_dir(&group).with_context(told)?;
        let quota = Self { group, before };
        for (name, text) in limits(cores, first) {
            std::fs::write(quota.group.join(name), text).with_context(told)?;
        }
        let members = quota.group.join("cgroup.procs");
        std::fs::write(members, pid.to_string()).with_context(told)?;
        Ok(quota)
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

/// The files of a group that hold a quota, with what they hold.
fn limits(cores: f64, first: bool) -> Vec<(&'static str, String)> {
    let quota = cores * PERIOD_US;
    if first {
        return vec![
            ("cpu.cfs_period_us", format!("{PERIOD_US:.0}")),
            ("cpu.cfs_quota_us", format!("{quota:.0}")),
        ];
    }
    vec![("cpu.max", format!("{quota:.0} {PERIOD_US:.0}"))]
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
    use super::*;

    #[test]
    fn a_quota_is_written_as_each_version_of_control_groups_wants_it() {
        assert_eq!(limits(0.2, false), [("cpu.max", "20000 100000".to_owned())]);
        let first = limits(1.5, true);
        assert_eq!(first[0], ("cpu.cfs_period_us", "100000".to_owned()));
        assert_eq!(first[1], ("cpu.cfs_quota_us", "150000".to_owned()));
    }

    #[test]
    fn a_process_without_a_place_for_cpu_time_is_refused() {
        let said = place("8:pids:/\n").unwrap_err().to_string();
        assert_eq!(said, "there are no control groups for CPU time");
    }
}
