//! The keys of `[probe]`.

use super::key::{Key, Row, Table, bare, key, table, text};
use super::kinds::Switch;
use crate::limits::{MAX_PROBE_PERIOD, MIN_PROBE_PERIOD};
use crate::model::Probe;
use crate::section::Limits;
use crate::units::DurationNs;

const SECOND: DurationNs = DurationNs(1_000_000_000);

table! {
    /// The keys of `[probe]`.
    PROBE: Option<Probe> = "probe";

    ENABLED: Switch = key(
        "enabled",
        Switch { default: true },
        "`false` runs without the probe",
    ), |it| bare(it.is_some());

    PERIOD: Limits<DurationNs> = key(
        "period",
        Limits::within(MIN_PROBE_PERIOD, MAX_PROBE_PERIOD, SECOND).or(SECOND),
        "from one reading to the next",
    ), |it| it.as_ref().and_then(|it| text(it.period));
}
