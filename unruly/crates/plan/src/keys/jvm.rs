//! The keys of `[jvm]`.

use super::key::{Key, Row, Table, key, table, text};
use super::kinds::Choice;
use crate::jvm::{Collector, Jvm};
use crate::limits::MAX_HEAP;
use crate::section::Limits;
use crate::units::Bytes;

table! {
    /// The keys of `[jvm]`.
    JVM: Jvm = "jvm";

    COLLECTOR: Choice<Collector> = key(
        "collector",
        Choice::of(|| Collector::ALL.map(|it| (it.name(), it)).to_vec()).or(Jvm::DEFAULT.collector),
        "the garbage collector",
    ), |it| text(it.collector.name());

    HEAP: Limits<Bytes> = key(
        "heap",
        Limits::above_zero(MAX_HEAP, Jvm::DEFAULT.heap).or(Jvm::DEFAULT.heap),
        "the largest size of the heap",
    ), |it| text(it.heap);
}
