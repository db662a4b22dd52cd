//! Response times in logarithmic bins, for statistics during a run, before its rows are read.

use std::collections::BTreeMap;

use unruly_trace::DurationNs;

/// The bin of what failed, beyond every other.
pub(crate) const FAILED_BIN: u32 = 1_000_000;

/// How often each bin was met, by operation.
pub type Bins = BTreeMap<(u8, u32), u32>;

/// The bin of a response time; none is a failed one.
#[must_use]
pub fn bin(response_ns: Option<DurationNs>) -> u32 {
    let Some(response_ns) = response_ns else {
        return FAILED_BIN;
    };
    unruly_trace::bin(response_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_beyond_every_response_time() {
        assert_eq!(bin(Some(DurationNs(1_000_000))), 2_770);
        assert!(bin(Some(DurationNs(i64::MAX))) < FAILED_BIN);
        assert_eq!(bin(None), FAILED_BIN);
    }
}
