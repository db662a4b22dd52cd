//! The host's row: which files are read, and what they make of a row.

use std::path::Path;

use super::cgroup::{CgroupCounters, CgroupFiles, Mounts};
use super::cpu::{self, CpuCounters, Shares};
use super::difference::{advance, gauge, scaled};
use super::disk::{self, DiskCounters, DiskKinds};
use super::file::{Buffer, Keep, KeptFile};
use super::memory::{self, Pressure, VirtualMemory};
use super::network::{self, NetworkCounters};
use super::row::ResourceRow;

/// Cores whose frequency is asked. Each question may interrupt the core, so not all of a large
/// host's are.
const FREQUENCY_CORES_MAX: usize = 8;

/// Everything that was read at one time. Times in the kernel's own units.
#[derive(Debug, Default)]
struct Reading {
    cpu: CpuCounters,
    frequency_hz: Option<f64>,
    run_queue_wait_ns: Option<u64>,
    pressure_cpu: Pressure,
    pressure_memory: Pressure,
    pressure_io: Pressure,
    memory_used_bytes: Option<u64>,
    swap_used_bytes: Option<u64>,
    virtual_memory: VirtualMemory,
    disk: Option<DiskCounters>,
    network: Option<NetworkCounters>,
    tcp_retransmits: Option<u64>,
    tcp_needless_retransmits: Option<u64>,
    listen_drops: Option<u64>,
    softnet_squeezes: Option<u64>,
    cgroup: CgroupCounters,
}

/// The host's files, and what they said last.
#[derive(Debug)]
pub(super) struct HostProbe {
    files: Files,
    before: Reading,
    now: Reading,
}

impl HostProbe {
    pub(super) fn new(root: &Path, mounts: &Mounts, keep: Keep, buffer: &mut Buffer) -> Self {
        let files = Files::new(root, mounts, keep, buffer);
        Self {
            files,
            before: Reading::default(),
            now: Reading::default(),
        }
    }

    /// Reads everything again. The previous readings become the baseline.
    pub(super) fn read(&mut self, buffer: &mut Buffer) {
        std::mem::swap(&mut self.before, &mut self.now);
        self.files.read(&mut self.now, buffer);
    }

    /// Writes the difference of the last two readings into `row`.
    pub(super) fn fill(&self, row: &mut ResourceRow) {
        let (before, now) = (&self.before, &self.now);
        fill_cpu(before, now, row);
        fill_pressure(before, now, row);
        fill_memory(before, now, row);
        fill_disk(before, now, row);
        fill_network(before, now, row);
        let (before, now) = (&before.cgroup, &now.cgroup);
        row.cgroup_throttled_periods = advance(before.throttled_periods, now.throttled_periods);
        row.cgroup_throttled_ns = advance(before.throttled_ns, now.throttled_ns);
        row.cgroup_memory_limit_events =
            advance(before.memory_limit_events, now.memory_limit_events);
    }
}

#[derive(Debug)]
struct Files {
    stat: KeptFile,
    schedstat: KeptFile,
    frequencies: Vec<KeptFile>,
    pressure_cpu: KeptFile,
    pressure_memory: KeptFile,
    pressure_io: KeptFile,
    meminfo: KeptFile,
    vmstat: KeptFile,
    diskstats: KeptFile,
    disk_kinds: DiskKinds,
    interfaces: KeptFile,
    snmp: KeptFile,
    netstat: KeptFile,
    softnet: KeptFile,
    cgroup: CgroupFiles,
}

impl Files {
    fn new(root: &Path, mounts: &Mounts, keep: Keep, buffer: &mut Buffer) -> Self {
        let file = |path: &str| KeptFile::new(root.join(path), keep);
        Self {
            stat: file("proc/stat"),
            schedstat: file("proc/schedstat"),
            frequencies: frequency_files(root, keep),
            pressure_cpu: file("proc/pressure/cpu"),
            pressure_memory: file("proc/pressure/memory"),
            pressure_io: file("proc/pressure/io"),
            meminfo: file("proc/meminfo"),
            vmstat: file("proc/vmstat"),
            diskstats: file("proc/diskstats"),
            disk_kinds: DiskKinds::new(root),
            interfaces: file("proc/net/dev"),
            snmp: file("proc/net/snmp"),
            netstat: file("proc/net/netstat"),
            softnet: file("proc/net/softnet_stat"),
            cgroup: CgroupFiles::top(mounts, keep, buffer),
        }
    }

    fn read(&mut self, into: &mut Reading, buffer: &mut Buffer) {
        into.cpu.parse(self.stat.read(buffer).unwrap_or_default());
        let wait = self.schedstat.read(buffer).ok();
        into.run_queue_wait_ns = wait.and_then(cpu::run_queue_wait_ns);
        into.frequency_hz = self.mean_frequency_hz(buffer);
        for (file, pressure) in [
            (&mut self.pressure_cpu, &mut into.pressure_cpu),
            (&mut self.pressure_memory, &mut into.pressure_memory),
            (&mut self.pressure_io, &mut into.pressure_io),
        ] {
            *pressure = file.read(buffer).map(memory::pressure).unwrap_or_default();
        }
        let meminfo = self.meminfo.read(buffer).unwrap_or_default();
        into.memory_used_bytes = memory::used_bytes(meminfo);
        into.swap_used_bytes = memory::swap_used_bytes(meminfo);
        let vmstat = self.vmstat.read(buffer).unwrap_or_default();
        into.virtual_memory = memory::virtual_memory(vmstat);
        let diskstats = self.diskstats.read(buffer).unwrap_or_default();
        into.disk = disk::disks(diskstats, |name| self.disk_kinds.is_disk(name));
        into.network = network::interfaces(self.interfaces.read(buffer).unwrap_or_default());
        let snmp = self.snmp.read(buffer).unwrap_or_default();
        into.tcp_retransmits = network::protocol_value(snmp, b"Tcp:", b"RetransSegs");
        let netstat = self.netstat.read(buffer).unwrap_or_default();
        into.tcp_needless_retransmits = network::needless_retransmits(netstat);
        into.listen_drops = network::protocol_value(netstat, b"TcpExt:", b"ListenDrops");
        into.softnet_squeezes = network::squeezes(self.softnet.read(buffer).unwrap_or_default());
        into.cgroup = self.cgroup.read(buffer);
    }

    fn mean_frequency_hz(&mut self, buffer: &mut Buffer) -> Option<f64> {
        let (mut sum_hz, mut count) = (0.0, 0.0);
        for file in &mut self.frequencies {
            if let Some(hz) = file.read(buffer).ok().and_then(cpu::frequency_hz) {
                sum_hz += hz;
                count += 1.0;
            }
        }
        (count > 0.0).then(|| sum_hz / count)
    }
}

/// The files of up to [`FREQUENCY_CORES_MAX`] cores, spread evenly over those that have one.
fn frequency_files(root: &Path, keep: Keep) -> Vec<KeptFile> {
    let path = |core: usize| {
        root.join(format!(
            "sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq"
        ))
    };
    // Core numbers are dense in practice; the first without a file ends the search.
    let count = (0..4096).take_while(|&core| path(core).exists()).count();
    let step = count.div_ceil(FREQUENCY_CORES_MAX).max(1);
    (0..count)
        .step_by(step)
        .map(|core| KeptFile::new(path(core), keep))
        .collect()
}

fn fill_cpu(before: &Reading, now: &Reading, row: &mut ResourceRow) {
    let shares = match (&before.cpu.all, &now.cpu.all) {
        (Some(earlier), Some(later)) => Shares::between(earlier, later).unwrap_or_default(),
        _ => Shares::default(),
    };
    row.cpu_user_share = shares.user;
    row.cpu_system_share = shares.system;
    row.cpu_iowait_share = shares.iowait;
    row.cpu_steal_share = shares.steal;
    row.cpu_softirq_share = shares.softirq;
    row.cpu_busiest_share = now.cpu.busiest_since(&before.cpu);
    row.cpu_frequency_hz = now.frequency_hz;
    // The probe runs while it reads, so it is always one of them.
    row.run_queue_length = now
        .cpu
        .running
        .map(|running| running.saturating_sub(1) as f64);
    row.context_switches = advance(before.cpu.context_switches, now.cpu.context_switches);
    row.run_queue_wait_ns = advance(before.run_queue_wait_ns, now.run_queue_wait_ns);
}

fn fill_pressure(before: &Reading, now: &Reading, row: &mut ResourceRow) {
    let both = |earlier: &Pressure, later: &Pressure| {
        (
            scaled(earlier.some_us, later.some_us, 1_000),
            scaled(earlier.full_us, later.full_us, 1_000),
        )
    };
    (row.psi_cpu_some_ns, row.psi_cpu_full_ns) = both(&before.pressure_cpu, &now.pressure_cpu);
    (row.psi_memory_some_ns, row.psi_memory_full_ns) =
        both(&before.pressure_memory, &now.pressure_memory);
    (row.psi_io_some_ns, row.psi_io_full_ns) = both(&before.pressure_io, &now.pressure_io);
}

fn fill_memory(before: &Reading, now: &Reading, row: &mut ResourceRow) {
    row.memory_used_bytes = gauge(now.memory_used_bytes);
    row.swap_used_bytes = gauge(now.swap_used_bytes);
    let (before, now) = (&before.virtual_memory, &now.virtual_memory);
    row.swap_in_pages = advance(before.swap_in_pages, now.swap_in_pages);
    row.swap_out_pages = advance(before.swap_out_pages, now.swap_out_pages);
    row.direct_reclaim_pages = advance(before.direct_reclaim_pages, now.direct_reclaim_pages);
    row.minor_faults = advance(before.minor_faults, now.minor_faults);
    row.major_faults = advance(before.major_faults, now.major_faults);
}

fn fill_disk(before: &Reading, now: &Reading, row: &mut ResourceRow) {
    row.disk_queue_length = now.disk.map(|disk| disk.in_flight as f64);
    let (Some(before), Some(now)) = (&before.disk, &now.disk) else {
        return;
    };
    let way = |part: fn(&DiskCounters) -> u64, scale: i64| {
        scaled(Some(part(before)), Some(part(now)), scale)
    };
    row.disk_reads = way(|disk| disk.reads, 1);
    row.disk_writes = way(|disk| disk.writes, 1);
    row.disk_read_bytes = way(|disk| disk.read_sectors, disk::SECTOR_BYTES);
    row.disk_written_bytes = way(|disk| disk.written_sectors, disk::SECTOR_BYTES);
    row.disk_time_ns = way(|disk| disk.busy_ms, 1_000_000);
    row.disk_write_time_ns = way(|disk| disk.write_ms, 1_000_000);
}

fn fill_network(before: &Reading, now: &Reading, row: &mut ResourceRow) {
    row.tcp_retransmits = advance(before.tcp_retransmits, now.tcp_retransmits);
    row.tcp_needless_retransmits = advance(
        before.tcp_needless_retransmits,
        now.tcp_needless_retransmits,
    );
    row.listen_drops = advance(before.listen_drops, now.listen_drops);
    row.softnet_squeezes = advance(before.softnet_squeezes, now.softnet_squeezes);
    let (Some(before), Some(now)) = (&before.network, &now.network) else {
        return;
    };
    let way = |part: fn(&NetworkCounters) -> u64| advance(Some(part(before)), Some(part(now)));
    row.network_received_bytes = way(|sum| sum.received_bytes);
    row.network_sent_bytes = way(|sum| sum.sent_bytes);
    row.network_received_packets = way(|sum| sum.received_packets);
    row.network_sent_packets = way(|sum| sum.sent_packets);
    row.network_errors = way(|sum| sum.errors);
    row.network_drops = way(|sum| sum.drops);
    row.network_collisions = way(|sum| sum.collisions);
}
