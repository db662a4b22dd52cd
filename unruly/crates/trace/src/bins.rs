//! Response times in logarithmic bins.

use unruly_time::DurationNs;

/// Relative width of a bin, the same as in `unruly/python/unruly/stats/histogram.py`.
const WIDTH: f64 = 0.005;

/// Returns the bin of a response time. One below 1 ns counts as 1 ns.
#[must_use]
pub fn bin(response_ns: DurationNs) -> u32 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "above 2^53 ns, a tenth of a year"
    )]
    let logarithm = (response_ns.0.max(1) as f64).ln() / WIDTH.ln_1p();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "of a positive number of 64 bits"
    )]
    let bin = logarithm.floor() as u32;
    bin
}

/// Returns the edges of a bin in nanoseconds: all of its response times lie between them.
#[must_use]
pub(crate) fn edges(bin: u32) -> (f64, f64) {
    let edge = |number: f64| (number * WIDTH.ln_1p()).exp();
    (edge(bin.into()), edge(f64::from(bin) + 1.0))
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
            assert_eq!(bin(DurationNs(response_ns)), wanted, "{response_ns}");
        }
    }

    #[test]
    fn a_response_time_lies_between_the_edges_of_its_bin() {
        for response_ns in (0..60).map(|power| 1_i64 << power) {
            let (low, high) = edges(bin(DurationNs(response_ns)));
            #[expect(clippy::cast_precision_loss, reason = "a power of two")]
            let exact = response_ns as f64;
            assert!(low <= exact * (1.0 + 1e-9) && exact <= high * (1.0 + 1e-9));
            assert!(high / low < 1.00501, "{low} {high}");
        }
    }
}
