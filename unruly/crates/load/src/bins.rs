//! Response times in logarithmic bins, for statistics during a run, before its rows are read.

use std::collections::BTreeMap;

use unruly_trace::DurationNs;

/// Relative width of a bin, the same as in `unruly/python/unruly/stats/histogram.py`.
const WIDTH: f64 = 0.005;

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
    let logarithm = (response_ns.0.max(1) as f64).ln() / WIDTH.ln_1p();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "of a positive number of 64 bits"
    )]
    let bin = logarithm.floor() as u32;
    bin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_those_of_the_analysis() {
        // What `unruly.stats.histogram.bucket_index` says of these.
        let known = [
            (0, 0),
            (1, 0),
            (2, 138),
            (1_000, 1_385),
            (1_000_000, 2_770),
            (i64::MAX, 8_755),
        ];
        for (response_ns, wanted) in known {
            assert_eq!(bin(Some(DurationNs(response_ns))), wanted, "{response_ns}");
        }
        assert_eq!(bin(None), FAILED_BIN);
    }
}
