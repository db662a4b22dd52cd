//! From two readings of a counter to what happened in between.

/// How far a counter came. `None` when either reading is missing, when it went backwards (it was
/// reset), or when the way does not fit a column.
pub(super) fn advance(before: Option<u64>, after: Option<u64>) -> Option<i64> {
    let way = after?.checked_sub(before?)?;
    i64::try_from(way).ok()
}

/// How far a counter came, in units of which each is `scale` of the column's.
pub(super) fn scaled(before: Option<u64>, after: Option<u64>, scale: i64) -> Option<i64> {
    advance(before, after)?.checked_mul(scale)
}

/// A gauge as a column holds it.
pub(super) fn gauge(value: Option<u64>) -> Option<i64> {
    i64::try_from(value?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_goes_backwards_gives_none() {
        assert_eq!(advance(Some(5), Some(4)), None);
        assert_eq!(advance(Some(5), Some(5)), Some(0));
    }

    #[test]
    fn a_missing_reading_gives_none_and_never_zero() {
        assert_eq!(advance(None, Some(4)), None);
        assert_eq!(advance(Some(4), None), None);
    }

    #[test]
    fn a_way_that_does_not_fit_gives_none() {
        assert_eq!(advance(Some(0), Some(u64::MAX)), None);
        assert_eq!(scaled(Some(0), Some(1 << 62), 1_000), None);
        assert_eq!(advance(Some(u64::MAX - 1), Some(u64::MAX)), Some(1));
    }
}
