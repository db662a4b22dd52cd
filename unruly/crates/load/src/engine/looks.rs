//! When the load generator last looked at its connections.
//!
//! A token or a reply that waited unread is late, but the server did not delay it. First, the engine
//! waits for at most a few milliseconds at a time. A return that is later than that shows that the
//! thread was stopped, preempted or throttled. Second, work between two looks counts as well, where
//! bytes were ready soon after it. The kernel's stamps alone cannot say this. It joins the bytes of
//! several tokens and keeps the stamp of the last ones, and it stamps a segment whose predecessor is
//! lost long before anybody can read it.

use unruly_trace::{DurationNs, MonoNs};

/// How long one wait lasts at most.
const WAIT_MAX: DurationNs = DurationNs::millis(5);

/// A look that finds bytes in less has not waited for them.
const AT_ONCE: DurationNs = DurationNs::millis(1);

/// A shorter absence is not noted of a part of a reply, and a longer one of a whole reply: those are
/// far more.
pub(super) const NOTED_OF_PARTS: DurationNs = DurationNs::millis(1);
pub(super) const NOTED_OF_REPLIES: DurationNs = DurationNs::millis(10);

/// Since when received bytes may have waited.
#[derive(Debug)]
pub(super) struct Looks {
    /// The time of a look is wanted.
    wanted: bool,
    /// When the last wait returned, and whether it left something for the next one.
    returned_ns: MonoNs,
    left: bool,
    /// Looks one after the other of which each left something.
    chain: usize,
    /// Bytes that are read now may have come at any time since.
    unseen_since_ns: MonoNs,
}

impl Looks {
    pub(super) const fn new(wanted: bool) -> Self {
        Self {
            wanted,
            returned_ns: MonoNs(0),
            left: false,
            chain: 0,
            unseen_since_ns: MonoNs(0),
        }
    }

    pub(super) const fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// The instant until which to wait.
    pub(super) fn until(&self, began_ns: MonoNs, until_ns: MonoNs) -> MonoNs {
        if self.wanted {
            until_ns.min(began_ns + WAIT_MAX)
        } else {
            until_ns
        }
    }

    /// Notes a wait: when it began, when it was to end at the latest, and when it returned. If it could
    /// not return all connections that were ready, the others follow in at most `more` looks.
    pub(super) fn returned(
        &mut self,
        (began_ns, until_ns): (MonoNs, MonoNs),
        now_ns: MonoNs,
        more: usize,
    ) {
        let before_ns = std::mem::replace(&mut self.returned_ns, now_ns);
        let since_ns = if before_ns == MonoNs(0) {
            now_ns
        } else if until_ns <= began_ns || now_ns - began_ns < AT_ONCE {
            before_ns
        } else {
            until_ns.min(now_ns)
        };
        self.chain = if more > 0 { self.chain + 1 } else { 0 };
        let left = std::mem::replace(&mut self.left, more > 0 && self.chain <= more);
        self.unseen_since_ns = if left {
            self.unseen_since_ns.min(since_ns)
        } else {
            since_ns
        };
    }

    /// Since when bytes that are read now may have waited, if that is long enough to be noted.
    pub(super) fn absent_since(&self, now_ns: MonoNs, noted: DurationNs) -> Option<MonoNs> {
        let absent = self.wanted && now_ns - self.unseen_since_ns > noted;
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
            look(&mut looks, (*began, *until, *now), 0);
        }
        looks
    }

    fn look(looks: &mut Looks, (began, until, now): (i64, i64, i64), more: usize) {
        let wait = (MonoNs(began * MS), MonoNs(until * MS));
        looks.returned(wait, MonoNs(now * MS), more);
    }

    fn absent_ms(looks: &Looks, now: i64) -> Option<i64> {
        let since = looks.absent_since(MonoNs(now * MS), NOTED_OF_PARTS);
        since.map(|it| it.0 / MS)
    }

    #[test]
    fn a_wait_is_short_where_looks_are_wanted() {
        let (now, far) = (MonoNs(7), MonoNs(MS * 1_000));
        assert_eq!(Looks::new(true).until(now, far), now + WAIT_MAX);
        assert_eq!(Looks::new(true).until(now, MonoNs(9)), MonoNs(9));
        assert_eq!(Looks::new(false).until(now, far), far);
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
    fn what_one_look_leaves_for_the_next_has_waited_as_long() {
        let mut found = looks(&[(1, 6, 2)]);
        look(&mut found, (2, 7, 300), 2);
        look(&mut found, (300, 305, 300), 2);
        look(&mut found, (301, 306, 301), 0);
        assert_eq!(absent_ms(&found, 301), Some(7));
        look(&mut found, (301, 306, 301), 0);
        assert_eq!(absent_ms(&found, 301), None);
    }

    #[test]
    fn a_look_that_always_leaves_something_forgets_what_was_long_read() {
        let mut found = looks(&[(1, 6, 2)]);
        look(&mut found, (2, 7, 300), 2);
        for now in 300..305 {
            look(&mut found, (now, now + 5, now), 2);
        }
        assert_eq!(absent_ms(&found, 304), None);
    }

    #[test]
    fn reading_one_connection_delays_the_next_one_that_is_ready() {
        assert_eq!(absent_ms(&looks(&[(1, 6, 2), (2, 7, 6)]), 30), Some(6));
    }

    #[test]
    fn a_whole_reply_is_noted_after_a_longer_absence_only() {
        let found = looks(&[(1, 6, 2), (2, 7, 16)]);
        assert_eq!(found.absent_since(MonoNs(16 * MS), NOTED_OF_REPLIES), None);
        let late = found.absent_since(MonoNs(18 * MS), NOTED_OF_REPLIES);
        assert_eq!(late, Some(MonoNs(7 * MS)));
    }

    #[test]
    fn nothing_is_noted_before_the_first_look_or_where_none_are_wanted() {
        assert_eq!(absent_ms(&looks(&[(1, 6, 900)]), 900), None);
        assert_eq!(absent_ms(&Looks::new(false), 900), None);
    }
}
