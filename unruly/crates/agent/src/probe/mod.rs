//! The passive probe: what a host and the processes under test were doing, once a second.
//!
//! A slow request is explained by what else went on in that moment: the processor was taken away,
//! memory was reclaimed, a disk was busy. All of it is counted by the kernel already and shown as
//! text under `/proc` and `/sys`. The probe reads those counters and reports how far each has come
//! since the reading before.
//!
//! The naive way, a program that opens, parses and formats everything each second, is itself a
//! disturbance. So files stay open and are read again with `pread`, buffers are reused, what a
//! sample cost is reported with the sample, and its lateness too.
//!
//! Rules that hold for every metric:
//!
//! * a counter is the difference over `[started_ns, ended_ns]`; a gauge is its value at `ended_ns`
//!   (memory and swap used, resident set, threads, queue lengths, frequency);
//! * what a host does not show is `None`, never 0;
//! * a counter that went backwards was reset: `None` for that interval;
//! * a file that cannot be read costs its own metrics for that interval and no others.
//!
//! Reading (`file`, `host`, `process`) and parsing (`cpu`, `memory`, `disk`, `network`, `cgroup`,
//! `text`) are apart: parsers take bytes and know no file.

mod cgroup;
mod clock;
mod cpu;
mod difference;
mod disk;
mod file;
mod host;
mod memory;
mod network;
mod process;
mod row;
mod sampler;
mod text;

pub(crate) use clock::monotonic_ns;
pub(crate) use cpu::CpuCounters;
pub(crate) use text::{decimal, hexadecimal, lines, words};

pub use row::{METRICS, ResourceRow};
pub use sampler::{Sampler, Watched};
