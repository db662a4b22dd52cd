//! The last second of each service, for a person who watches: response times, and the requests in
//! flight in each window of 100 ms.

use std::collections::VecDeque;

use unruly_trace::{ColumnNs, DurationNs};

use crate::connection::Ended;
use crate::tracker::{Finished, Tracker};

/// Length of a window.
pub const WINDOW: DurationNs = DurationNs::millis(100);

/// Windows in a second.
const WINDOWS: usize = 10;

/// A turnaround counts only when it has ended, so a second is shown this much later.
pub const LAG: DurationNs = DurationNs::seconds(1);

/// Turnarounds that are kept at most; with more of them a second is not complete.
const KEPT_MAX: usize = 1 << 20;

/// A second of a service.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Second {
    /// Turnarounds that ended well in it.
    pub count: u64,
    /// Turnarounds without a reply whose connection has ended since the second before was given.
    pub failed: u64,
    /// Turnarounds that could not be measured.
    pub unmeasured: u64,
    /// Response times: the median, the 99th percentile and the longest; `None` without any.
    pub response_ns: Option<[DurationNs; 3]>,
    /// Mean number of requests in flight in each window.
    pub in_flight: [f64; WINDOWS],
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    started_ns: ColumnNs,
    ended_ns: ColumnNs,
    ended: Ended,
}

/// Collects turnarounds and gives the seconds of each service.
#[derive(Debug)]
pub struct Windows {
    kept: Vec<VecDeque<Kept>>,
    /// Turnarounds of each service that were cut off since the last second that was given. When one
    /// was is known much later than when its request came.
    failed: Vec<u64>,
}

impl Windows {
    /// Returns windows of this many services.
    #[must_use]
    pub fn new(servers: usize) -> Self {
        Self {
            kept: vec![VecDeque::new(); servers],
            failed: vec![0; servers],
        }
    }

    /// Takes turnarounds that have ended.
    pub fn add(&mut self, finished: &[Finished]) {
        for it in finished {
            let turnaround = &it.turnaround;
            let place = usize::from(it.server);
            self.failed[place] += u64::from(turnaround.ended == Ended::Cut);
            let kept = &mut self.kept[place];
            if kept.len() == KEPT_MAX {
                kept.pop_front();
            }
            kept.push_back(Kept {
                started_ns: turnaround.started_ns,
                ended_ns: turnaround.ended_ns,
                ended: turnaround.ended,
            });
        }
    }

    /// Returns for each service the second that ended one second before `now_ns`, and forgets what
    /// came before it.
    pub fn second(&mut self, tracker: &Tracker, now_ns: ColumnNs) -> Vec<Second> {
        let begin_ns = now_ns - LAG - WINDOW * i64::try_from(WINDOWS).unwrap_or(0);
        let mut seconds = vec![Second::default(); self.kept.len()];
        let mut all: Vec<Vec<DurationNs>> = Vec::new();
        for (kept, second) in self.kept.iter_mut().zip(&mut seconds) {
            kept.retain(|it| it.ended_ns >= begin_ns);
            let mut responses = Vec::new();
            for it in kept.iter() {
                overlap(second, begin_ns, it.started_ns, it.ended_ns);
                if it.ended_ns >= begin_ns + DurationNs::seconds(1) {
                    continue;
                }
                match it.ended {
                    Ended::Ok => responses.push(it.ended_ns - it.started_ns),
                    Ended::Cut => {}
                    Ended::Open | Ended::Overlapped | Ended::Gap | Ended::Joined => {
                        second.unmeasured += 1;
                    }
                }
            }
            all.push(responses);
        }
        let end_ns = begin_ns + DurationNs::seconds(1);
        for it in tracker.open() {
            let place = usize::from(it.server);
            let ended_ns = it.replied_ns.unwrap_or(now_ns);
            overlap(&mut seconds[place], begin_ns, it.started_ns, ended_ns);
            // A reply that was quiet for a second is taken for whole.
            if it
                .replied_ns
                .is_some_and(|it| begin_ns <= it && it < end_ns)
            {
                if it.is_sound {
                    all[place].push(ended_ns - it.started_ns);
                } else {
                    seconds[place].unmeasured += 1;
                }
            }
        }
        for (second, failed) in seconds.iter_mut().zip(&mut self.failed) {
            second.failed = std::mem::take(failed);
        }
        for (second, responses) in seconds.iter_mut().zip(&mut all) {
            second.count = responses.len() as u64;
            second.response_ns = summary(responses);
        }
        seconds
    }
}

/// Adds the time that a request was in flight to each window.
fn overlap(second: &mut Second, begin_ns: ColumnNs, started_ns: ColumnNs, ended_ns: ColumnNs) {
    let mut from_ns = begin_ns;
    for window in &mut second.in_flight {
        let to_ns = from_ns + WINDOW;
        let within = ended_ns.min(to_ns) - started_ns.max(from_ns);
        if within > DurationNs::ZERO {
            *window += within.as_secs_f64() / WINDOW.as_secs_f64();
        }
        from_ns = to_ns;
    }
}

fn summary(responses: &mut [DurationNs]) -> Option<[DurationNs; 3]> {
    responses.sort_unstable();
    let last = responses.len().checked_sub(1)?;
    // The first value that at least this share of all do not exceed.
    let at =
        |percent: usize| responses[(responses.len() * percent).div_ceil(100).saturating_sub(1)];
    Some([at(50), at(99), responses[last]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Segment, Server};

    const MS: i64 = 1_000_000;

    fn says(client: bool, sequence: u32) -> Segment {
        let ends = ["10.0.0.1:4000", "10.0.0.2:443"].map(|it| it.parse().unwrap());
        let (from, to) = if client {
            (ends[0], ends[1])
        } else {
            (ends[1], ends[0])
        };
        Segment {
            from,
            to,
            sequence,
            acknowledged: None,
            bytes: 1,
            opens: false,
            ends: false,
            resets: false,
        }
    }

    #[test]
    fn requests_in_flight_are_those_that_were_open_in_each_window() {
        let mut tracker = Tracker::new(vec![Server::parse("tcp://10.0.0.2:443").unwrap()]);
        let mut windows = Windows::new(1);
        // From 50 ms to 250 ms, and an open one from 900 ms on. The first one of a connection that was
        // there before is not measured.
        let mut opens = says(true, u32::MAX);
        (opens.opens, opens.bytes) = (true, 0);
        tracker.take(&opens, ColumnNs(0), &mut Vec::new());
        for (client, sequence, at_ms) in [(true, 0, 50), (false, 0, 250), (true, 1, 900)] {
            let mut ended = Vec::new();
            tracker.take(&says(client, sequence), ColumnNs(at_ms * MS), &mut ended);
            windows.add(&ended);
        }
        let second = &windows.second(&tracker, ColumnNs(2_000 * MS))[0];
        let wanted = [0.5, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let close = |(found, wanted): (&f64, &f64)| (found - wanted).abs() < 1e-9;
        assert!(
            second.in_flight.iter().zip(&wanted).all(close),
            "{second:?}"
        );
        assert_eq!((second.count, second.unmeasured), (1, 0));
        assert_eq!(second.response_ns, Some([DurationNs::millis(200); 3]));
        // The next second has the open one alone.
        let second = &windows.second(&tracker, ColumnNs(3_000 * MS))[0];
        assert_eq!((second.count, second.response_ns), (0, None));
        assert!(
            second.in_flight.iter().all(|it| (it - 1.0).abs() < 1e-9),
            "{second:?}"
        );
    }
}
