//! Control groups, versions 1 and 2: how often a group was throttled or hit its memory limit.
//!
//! A group's files are found in three steps: the process' membership (`/proc/PID/cgroup`) names a
//! path for each hierarchy, `mountinfo` says where each hierarchy is mounted, and inside a
//! container a part of the path is not visible and has to be taken off. Both versions may be
//! mounted side by side with the controllers split between them, so the first of the two that
//! shows a number gives it. Limits of groups further up are not added.

use std::path::{Path, PathBuf};

use super::file::{Buffer, Keep, KeptFile};
use super::text::{lines, value_of, words};

/// The counters in a control group's files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CgroupCounters {
    pub(super) throttled_periods: Option<u64>,
    pub(super) throttled_ns: Option<u64>,
    pub(super) memory_limit_events: Option<u64>,
}

/// Throttling from `cpu.stat` of either version.
fn throttling(cpu_stat: &[u8], counters: &mut CgroupCounters) {
    counters.throttled_periods = value_of(cpu_stat, b"nr_throttled");
    counters.throttled_ns = value_of(cpu_stat, b"throttled_time").or_else(|| {
        value_of(cpu_stat, b"throttled_usec").and_then(|time_us| time_us.checked_mul(1_000))
    });
}

/// Times that the group was held up at a memory limit. Version 1 has one limit and one number in
/// `memory.failcnt`; version 2 has a hard and a soft limit in `memory.events`, and reaching
/// either makes the allocating task reclaim.
fn memory_limit_events(text: &[u8]) -> Option<u64> {
    if let Some(hard) = value_of(text, b"max") {
        return hard.checked_add(value_of(text, b"high").unwrap_or(0));
    }
    super::text::decimal(words(text).next()?)
}

/// Where a hierarchy is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// The group that is visible at the mount point.
    top: String,
    point: PathBuf,
    /// Controllers of a version 1 hierarchy; `None` for version 2.
    controllers: Option<String>,
}

/// All hierarchies that are mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mounts(Vec<Mount>);

impl Mounts {
    /// Reads `/proc/self/mountinfo`. Mount points are taken below `root`.
    pub(super) fn parse(mountinfo: &[u8], root: &Path) -> Self {
        let text = String::from_utf8_lossy(mountinfo);
        Self(
            text.lines()
                .filter_map(|line| Mount::parse(line, root))
                .collect(),
        )
    }

    /// The folders of a group in the order in which to look: version 1 first, since where both
    /// are mounted the controllers are there.
    fn folders(&self, membership: &str, controller: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for version1 in [true, false] {
            for line in membership.lines() {
                let mut parts = line.splitn(3, ':').skip(1);
                let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                    continue;
                };
                let is_ours = if version1 {
                    controllers.split(',').any(|name| name == controller)
                } else {
                    controllers.is_empty()
                };
                if is_ours {
                    let mounts = self
                        .0
                        .iter()
                        .filter(|mount| mount.holds(version1, controller));
                    found.extend(mounts.filter_map(|mount| mount.folder(path)));
                }
            }
        }
        found
    }

    /// The folders at the top of each hierarchy, as far as it is visible here.
    fn top_folders(&self, controller: &str) -> Vec<PathBuf> {
        let holds = |version1| {
            self.0
                .iter()
                .filter(move |mount| mount.holds(version1, controller))
        };
        holds(true)
            .chain(holds(false))
            .map(|mount| mount.point.clone())
            .collect()
    }
}

impl Mount {
    /// `31 30 0:27 /top /mount/point rw - cgroup cgroup rw,cpu,cpuacct`
    fn parse(line: &str, root: &Path) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (top, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let controllers = match right.next()? {
            "cgroup" => Some(right.nth(1)?.to_owned()),
            "cgroup2" => None,
            _ => return None,
        };
        let point = root.join(point.trim_start_matches('/'));
        Some(Self {
            top: top.to_owned(),
            point,
            controllers,
        })
    }

    fn holds(&self, version1: bool, controller: &str) -> bool {
        match &self.controllers {
            Some(names) => version1 && names.split(',').any(|name| name == controller),
            None => !version1,
        }
    }

    /// Returns the folder of the group `path`, or `None` if it lies outside the mounted part.
    fn folder(&self, path: &str) -> Option<PathBuf> {
        let below = path.strip_prefix(self.top.trim_end_matches('/'))?;
        if !below.is_empty() && !below.starts_with('/') || below.contains("/..") {
            return None;
        }
        Some(self.point.join(below.trim_start_matches('/')))
    }
}

/// The files of one group, kept open.
#[derive(Debug, Default)]
pub(super) struct CgroupFiles {
    cpu: Option<KeptFile>,
    memory: Option<KeptFile>,
}

impl CgroupFiles {
    /// The files of the group that a membership (`/proc/PID/cgroup`) names.
    pub(super) fn of(mounts: &Mounts, membership: &[u8], keep: Keep, buffer: &mut Buffer) -> Self {
        let membership = String::from_utf8_lossy(membership);
        let folders = |controller| mounts.folders(&membership, controller);
        Self::choose(&folders("cpu"), &folders("memory"), keep, buffer)
    }

    /// Opens the files at the top of the visible hierarchy. A root group shows little or nothing.
    /// Inside a container, the top is the container's own group.
    pub(super) fn top(mounts: &Mounts, keep: Keep, buffer: &mut Buffer) -> Self {
        Self::choose(
            &mounts.top_folders("cpu"),
            &mounts.top_folders("memory"),
            keep,
            buffer,
        )
    }

    fn choose(cpu: &[PathBuf], memory: &[PathBuf], keep: Keep, buffer: &mut Buffer) -> Self {
        let mut shows = |path: PathBuf, wanted: fn(&[u8]) -> bool| {
            let mut file = KeptFile::new(path, keep);
            file.read(buffer).is_ok_and(wanted).then_some(file)
        };
        let cpu = cpu.iter().find_map(|folder| {
            shows(folder.join("cpu.stat"), |text| {
                value_of(text, b"nr_throttled").is_some()
            })
        });
        let memory = memory.iter().find_map(|folder| {
            ["memory.failcnt", "memory.events"].iter().find_map(|name| {
                shows(folder.join(name), |text| {
                    memory_limit_events(text).is_some()
                })
            })
        });
        Self { cpu, memory }
    }

    pub(super) fn read(&mut self, buffer: &mut Buffer) -> CgroupCounters {
        let mut counters = CgroupCounters::default();
        if let Some(Ok(text)) = self.cpu.as_mut().map(|file| file.read(buffer)) {
            throttling(text, &mut counters);
        }
        if let Some(Ok(text)) = self.memory.as_mut().map(|file| file.read(buffer)) {
            counters.memory_limit_events = memory_limit_events(text);
        }
        counters
    }
}

/// Whether any line of a membership is there at all, so that an empty read is not taken for one.
pub(super) fn is_membership(text: &[u8]) -> bool {
    lines(text).any(|line| line.contains(&b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &[u8] = b"30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
        31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        32 23 0:28 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n\
        33 23 0:29 / /data rw - ext4 /dev/sda1 rw\n";

    fn folders(mountinfo: &[u8], membership: &str, controller: &str) -> Vec<PathBuf> {
        Mounts::parse(mountinfo, Path::new("/r")).folders(membership, controller)
    }

    #[test]
    fn version_1_is_looked_at_before_version_2() {
        let membership = "2:cpu,cpuacct:/a/b\n1:memory:/m\n0::/u\n";
        let found = folders(HYBRID, membership, "cpu");
        assert_eq!(found[0], Path::new("/r/sys/fs/cgroup/cpu/a/b"));
        assert_eq!(found[1], Path::new("/r/sys/fs/cgroup/unified/u"));
        assert_eq!(
            folders(HYBRID, membership, "memory")[0],
            Path::new("/r/sys/fs/cgroup/memory/m")
        );
    }

    #[test]
    fn cpuset_is_not_taken_for_cpu() {
        assert!(folders(HYBRID, "2:cpuset:/a\n", "cpu").is_empty());
    }

    #[test]
    fn the_hidden_part_of_a_containers_path_is_taken_off() {
        let mountinfo = b"1 2 0:3 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let at = |path: &str| folders(mountinfo, &format!("0::{path}\n"), "cpu");
        assert_eq!(at("/docker/ab/x"), [Path::new("/r/sys/fs/cgroup/x")]);
        assert_eq!(at("/docker/ab"), [Path::new("/r/sys/fs/cgroup/")]);
        assert!(at("/docker/abc").is_empty(), "another container");
        assert!(at("/docker/ab/../cd").is_empty());
    }

    #[test]
    fn both_versions_tell_time_in_nanoseconds() {
        let mut counters = CgroupCounters::default();
        throttling(
            b"nr_periods 9\nnr_throttled 5\nthrottled_time 7000\n",
            &mut counters,
        );
        assert_eq!(
            (counters.throttled_periods, counters.throttled_ns),
            (Some(5), Some(7000))
        );
        throttling(
            b"usage_usec 1\nnr_throttled 6\nthrottled_usec 8\n",
            &mut counters,
        );
        assert_eq!(
            (counters.throttled_periods, counters.throttled_ns),
            (Some(6), Some(8000))
        );
        throttling(b"usage_usec 1\n", &mut counters);
        assert_eq!(counters, CgroupCounters::default(), "a root group");
    }

    #[test]
    fn both_limits_of_version_2_count() {
        assert_eq!(
            memory_limit_events(b"low 9\nhigh 3\nmax 4\noom 1\n"),
            Some(7)
        );
        assert_eq!(memory_limit_events(b"12\n"), Some(12));
        assert_eq!(memory_limit_events(b"nonsense\n"), None);
        assert_eq!(memory_limit_events(b""), None);
    }
}
