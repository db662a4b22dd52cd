//! When the load generator last looked at its connections.
//!
//! A token that waited unread is late, but the server did not delay it. First, while replies in parts
//! are expected, the engine waits for at most a few milliseconds at a time. A return that is later
//! than that shows that the thread was stopped, preempted or throttled. Second, work between two
//! looks counts as well, where bytes were ready as soon as it was over. The kernel's stamps cannot
//! say this: it joins the bytes of several tokens, and keeps the stamp of the last ones.

use unruly_trace::{DurationNs, MonoNs};

/// How long one wait lasts at most.
const WAIT_MAX: DurationNs = DurationNs::millis(5);

/// A look that finds bytes in less has not waited for them.
const AT_ONCE: DurationNs = DurationNs(100_000);

/// A shorter absence is not noted.
const NOTED: DurationNs = DurationNs::millis(1);

/// Since when received bytes may have waited.
#[derive(Debug)]
pub(super) struct Looks {
    /// Some replies come in parts.
    wanted: bool,
    /// When the last wait returned.
    returned_ns: MonoNs,
    /// Bytes that are read now may have come at any time since.
    unseen_since_ns: MonoNs,
}

impl Looks {
    pub(super) const fn new(wanted: bool) -> Self {
        Self {
            wanted,
            returned_ns: MonoNs(0),
            unseen_since_ns: MonoNs(0),
        }
    }

    /// True if replies come in parts, so that waits are short.
    pub(super) const fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// The instant until which to wait.
    pub(super) fn until(&self, began_ns: MonoNs, until_ns: MonoNs) -> MonoNs {
        until_ns.min(began_ns + WAIT_MAX)
    }

    /// Notes a wait: when it began, when it was to end at the latest, and when it returned.
    pub(super) fn returned(&mut self, began_ns: MonoNs, until_ns: MonoNs, now_ns: MonoNs) {
        let before_ns = std::mem::replace(&mut self.returned_ns, now_ns);
        self.unseen_since_ns = if before_ns == MonoNs(0) {
            now_ns
        } else if until_ns <= began_ns || now_ns - began_ns < AT_ONCE {
            before_ns
        } else {
            until_ns.min(now_ns)
        };
    }

    /// Since when a part that is read now may have waited, if that is long enough to be noted.
    pub(super) fn absent_since(&self, now_ns: MonoNs) -> Option<MonoNs> {
        let absent = self.wanted && now_ns - self.unseen_since_ns > NOTED;
        absent.then_some(self.unseen_since_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn looks(waits_ms: &[(i64, i64, i64)]) -> Looks {
        let mut looks = Looks::new(true);
        for (began, until, now) in waits_ms {
            looks.returned(MonoNs(began * MS), MonoNs(until * MS), MonoNs(now * MS));
        }
        looks
    }

    fn absent_ms(looks: &Looks, now: i64) -> Option<i64> {
        looks.absent_since(MonoNs(now * MS)).map(|it| it.0 / MS)
    }

    #[test]
    fn a_wait_is_short_where_parts_are_expected() {
        let long = Looks::new(true).until(MonoNs(7), MonoNs(MS * 1_000));
        assert_eq!(long, MonoNs(7) + WAIT_MAX);
        assert_eq!(Looks::new(true).until(MonoNs(7), MonoNs(9)), MonoNs(9));
    }

    #[test]
    fn bytes_that_end_a_wait_in_time_did_not_wait() {
        assert_eq!(absent_ms(&looks(&[(1, 6, 2), (2, 7, 6)]), 6), None);
    }

    #[test]
    fn a_wait_that_ends_too_late_shows_an_absence_since_its_end() {
        assert_eq!(absent_ms(&looks(&[(1, 6, 2), (2, 7, 300)]), 300), Some(7));
    }

    #[test]
    fn work_between_two_looks_is_an_absence_if_bytes_were_ready_after_it() {
        assert_eq!(absent_ms(&looks(&[(1, 6, 2), (40, 45, 40)]), 40), Some(2));
        assert_eq!(absent_ms(&looks(&[(1, 6, 2), (40, 3, 41)]), 41), Some(2));
        assert_eq!(absent_ms(&looks(&[(1, 6, 2), (40, 45, 44)]), 44), None);
    }

    #[test]
    fn reading_one_connection_delays_the_next_one_that_is_ready() {
        assert_eq!(absent_ms(&looks(&[(1, 6, 2), (2, 7, 6)]), 30), Some(6));
    }

    #[test]
    fn nothing_is_noted_before_the_first_look_or_where_no_parts_are_expected() {
        assert_eq!(absent_ms(&looks(&[(1, 6, 900)]), 900), None);
        assert_eq!(absent_ms(&Looks::new(false), 900), None);
    }
}
