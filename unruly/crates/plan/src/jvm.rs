//! The JVMs that a run starts.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// How the virtual machines of a run are started: those of streams, and those of a competing load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jvm {
    /// Who collects its garbage.
    pub collector: Collector,
    /// The most that its heap may be.
    pub heap: Bytes,
}

impl Jvm {
    /// The JVM of a plan that says nothing of it.
    pub(crate) const DEFAULT: Self = Self {
        collector: Collector::G1,
        heap: Bytes(512 << 20),
    };
}

impl Default for Jvm {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What the agents of a group run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// This program.
    #[default]
    Native,
    /// Every agent runs on its own JVM.
    Jvm,
    /// Agents with even numbers run on this program, and agents with odd numbers on a JVM.
    Mixed,
}

impl Runtime {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Native, Self::Jvm, Self::Mixed];

    /// The name in plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Jvm => "jvm",
            Self::Mixed => "mixed",
        }
    }

    /// Returns true if the agent with this number runs on a JVM.
    #[must_use]
    pub const fn is_jvm_of(self, agent: u16) -> bool {
        match self {
            Self::Native => false,
            Self::Jvm => true,
            Self::Mixed => agent % 2 == 1,
        }
    }
}

/// A garbage collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Collector {
    /// One thread, the world stopped.
    Serial,
    /// Several threads, the world stopped.
    Parallel,
    /// Regions, mostly beside the program.
    G1,
    /// Concurrent, with coloured pointers.
    Z,
    /// Concurrent, with forwarding pointers.
    Shenandoah,
}

impl Collector {
    /// All of them, in the order of the manual.
    pub const ALL: [Self; 5] = [
        Self::Serial,
        Self::Parallel,
        Self::G1,
        Self::Z,
        Self::Shenandoah,
    ];

    /// The name in plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Parallel => "parallel",
            Self::G1 => "g1",
            Self::Z => "z",
            Self::Shenandoah => "shenandoah",
        }
    }

    /// The flag of the virtual machine.
    #[must_use]
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Serial => "-XX:+UseSerialGC",
            Self::Parallel => "-XX:+UseParallelGC",
            Self::G1 => "-XX:+UseG1GC",
            Self::Z => "-XX:+UseZGC",
            Self::Shenandoah => "-XX:+UseShenandoahGC",
        }
    }

    /// Whether it divides the heap between young and old once and for all.
    #[must_use]
    pub const fn has_fixed_generations(self) -> bool {
        matches!(self, Self::Serial | Self::Parallel)
    }
}
