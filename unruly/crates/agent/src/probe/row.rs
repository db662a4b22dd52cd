//! One row of the table `resources`, without the columns that say where it comes from.

use serde::Serialize;
use unruly_trace::{ColumnNs, DurationNs};

/// What a host, or a process on it, did in an interval. A metric that is not known is `None`.
///
/// A field is a column of `unruly/schema/trace/resources.schema` by name, in its order. The first word of
/// a description says which rows have it; without one, both have.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ResourceRow {
    /// Name of the watched process; `None` in the host's row.
    pub watched: Option<String>,
    /// Begin of the interval, in column time.
    pub started_ns: ColumnNs,
    /// End of the interval, in column time.
    pub ended_ns: ColumnNs,
    /// How much later than due the sample was taken.
    pub sampler_lag_ns: DurationNs,
    /// Processor time that taking the sample before this one cost.
    pub sampler_cost_ns: DurationNs,
    /// Host: share of all cores' time in user space, niced or not.
    pub cpu_user_share: Option<f64>,
    /// Host: share of all cores' time in the kernel, without interrupts.
    pub cpu_system_share: Option<f64>,
    /// Host: share of all cores' time idle while a task waited for a disk.
    pub cpu_iowait_share: Option<f64>,
    /// Host: share of all cores' time that the hypervisor gave to others.
    pub cpu_steal_share: Option<f64>,
    /// Host: share of all cores' time in soft interrupts.
    pub cpu_softirq_share: Option<f64>,
    /// Host: share of the busiest core's own time that it was not idle.
    pub cpu_busiest_share: Option<f64>,
    /// Host: mean frequency of up to eight cores at the end.
    pub cpu_frequency_hz: Option<f64>,
    /// Host: tasks that ran or wanted to at the end, without the probe itself.
    pub run_queue_length: Option<f64>,
    /// Host: context switches.
    pub context_switches: Option<i64>,
    /// Host: time in which some task waited for a core.
    pub psi_cpu_some_ns: Option<i64>,
    /// Host: time in which every task that could run waited for a core.
    pub psi_cpu_full_ns: Option<i64>,
    /// Host: time in which some task waited for memory.
    pub psi_memory_some_ns: Option<i64>,
    /// Host: time in which every task that could run waited for memory.
    pub psi_memory_full_ns: Option<i64>,
    /// Host: time in which some task waited for a disk.
    pub psi_io_some_ns: Option<i64>,
    /// Host: time in which every task that could run waited for a disk.
    pub psi_io_full_ns: Option<i64>,
    /// Host: memory that is not available, at the end.
    pub memory_used_bytes: Option<i64>,
    /// Host: swap space in use; process: its own pages there; at the end.
    pub swap_used_bytes: Option<i64>,
    /// Host: pages read from swap.
    pub swap_in_pages: Option<i64>,
    /// Host: pages written to swap.
    pub swap_out_pages: Option<i64>,
    /// Host: pages that tasks had to reclaim themselves to get memory.
    pub direct_reclaim_pages: Option<i64>,
    /// Host: reads completed, over all physical disks.
    pub disk_reads: Option<i64>,
    /// Host: writes completed.
    pub disk_writes: Option<i64>,
    /// Host: bytes read.
    pub disk_read_bytes: Option<i64>,
    /// Host: bytes written.
    pub disk_written_bytes: Option<i64>,
    /// Host: time that a disk had anything to do, summed over disks.
    pub disk_time_ns: Option<i64>,
    /// Host: time of all writes, so that two at once count twice.
    pub disk_write_time_ns: Option<i64>,
    /// Host: requests that disks were working on at the end.
    pub disk_queue_length: Option<f64>,
    /// Host: bytes received, over all interfaces with the loopback.
    pub network_received_bytes: Option<i64>,
    /// Host: bytes sent.
    pub network_sent_bytes: Option<i64>,
    /// Host: packets received.
    pub network_received_packets: Option<i64>,
    /// Host: packets sent.
    pub network_sent_packets: Option<i64>,
    /// Host: bad packets, both directions.
    pub network_errors: Option<i64>,
    /// Host: packets dropped by interfaces, both directions.
    pub network_drops: Option<i64>,
    /// Host: collisions.
    pub network_collisions: Option<i64>,
    /// Host: TCP segments sent again.
    pub tcp_retransmits: Option<i64>,
    /// Host: TCP segments sent again that the receiver had already, as its replies said.
    pub tcp_needless_retransmits: Option<i64>,
    /// Host: connections dropped because a listener's queue was full or closed.
    pub listen_drops: Option<i64>,
    /// Host: times that a core left packets waiting, its share being used up.
    pub softnet_squeezes: Option<i64>,
    /// Periods in which the control group was throttled.
    pub cgroup_throttled_periods: Option<i64>,
    /// Time that the control group was throttled.
    pub cgroup_throttled_ns: Option<i64>,
    /// Times that the control group was held up at a memory limit.
    pub cgroup_memory_limit_events: Option<i64>,
    /// Page faults served from memory.
    pub minor_faults: Option<i64>,
    /// Page faults that had to read a disk.
    pub major_faults: Option<i64>,
    /// Time that tasks were ready and waited for a core, summed over tasks.
    pub run_queue_wait_ns: Option<i64>,
    /// Process: time in user space.
    pub user_ns: Option<i64>,
    /// Process: time in the kernel.
    pub system_ns: Option<i64>,
    /// Process: memory resident at the end.
    pub rss_bytes: Option<i64>,
    /// Process: times that a thread gave up its core, summed over threads.
    pub voluntary_switches: Option<i64>,
    /// Process: times that a thread lost its core, summed over threads.
    pub involuntary_switches: Option<i64>,
    /// Process: threads at the end.
    pub threads: Option<i64>,
    /// Number of garbage collections. Always `None` here, because a JVM's agent reports them.
    pub gc_count: Option<i64>,
    /// Time of garbage collections, in nanoseconds. Always `None` here, because a JVM's agent
    /// reports it.
    pub gc_ns: Option<i64>,
}

/// The columns that the probe fills, in the order of the schema.
pub const METRICS: &[&str] = &[
    "watched",
    "started_ns",
    "ended_ns",
    "sampler_lag_ns",
    "sampler_cost_ns",
    "cpu_user_share",
    "cpu_system_share",
    "cpu_iowait_share",
    "cpu_steal_share",
    "cpu_softirq_share",
    "cpu_busiest_share",
    "cpu_frequency_hz",
    "run_queue_length",
    "context_switches",
    "psi_cpu_some_ns",
    "psi_cpu_full_ns",
    "psi_memory_some_ns",
    "psi_memory_full_ns",
    "psi_io_some_ns",
    "psi_io_full_ns",
    "memory_used_bytes",
    "swap_used_bytes",
    "swap_in_pages",
    "swap_out_pages",
    "direct_reclaim_pages",
    "disk_reads",
    "disk_writes",
    "disk_read_bytes",
    "disk_written_bytes",
    "disk_time_ns",
    "disk_write_time_ns",
    "disk_queue_length",
    "network_received_bytes",
    "network_sent_bytes",
    "network_received_packets",
    "network_sent_packets",
    "network_errors",
    "network_drops",
    "network_collisions",
    "tcp_retransmits",
    "tcp_needless_retransmits",
    "listen_drops",
    "softnet_squeezes",
    "cgroup_throttled_periods",
    "cgroup_throttled_ns",
    "cgroup_memory_limit_events",
    "minor_faults",
    "major_faults",
    "run_queue_wait_ns",
    "user_ns",
    "system_ns",
    "rss_bytes",
    "voluntary_switches",
    "involuntary_switches",
    "threads",
    "gc_count",
    "gc_ns",
];

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../schema/trace/resources.schema"
    );
    /// Columns that say where a row comes from; the writer of the trace fills them.
    const ORIGIN: [&str; 4] = ["cell", "repeat", "host", "process"];

    #[test]
    fn metrics_are_the_columns_of_the_schema_in_its_order() {
        let schema = std::fs::read_to_string(SCHEMA).unwrap();
        let columns: Vec<&str> = schema
            .lines()
            .filter_map(|line| line.trim().strip_suffix(';'))
            .map(|line| line.split_whitespace().nth(2).unwrap())
            .collect();
        assert_eq!(columns[..4], ORIGIN);
        assert_eq!(columns[4..], *METRICS);
    }

    #[test]
    fn a_row_has_a_field_for_each_metric_in_the_same_order() {
        let text = serde_json::to_string(&ResourceRow::default()).unwrap();
        let fields: Vec<&str> = text
            .trim_matches(['{', '}'])
            .split(',')
            .map(|field| field.split(':').next().unwrap().trim_matches('"'))
            .collect();
        assert_eq!(fields, METRICS);
    }
}
