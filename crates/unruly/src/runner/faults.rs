//! Faults that the plan asks for, done to processes by pid and written down as events.

use nix::sys::signal::Signal;
use unruly_plan::{DurationNs, Fault, FaultKind};

/// One thing to do to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deed {
    /// Monotonic instant.
    pub(super) at_ns: i64,
    /// The process.
    pub(super) process: String,
    /// What to send it.
    pub(super) signal: Signal,
}

/// The deeds of a plan in order of time; `measure_ns` is the first measured instant. Busy
/// neighbours are processes of their own and no deeds.
pub(super) fn deeds(faults: &[Fault], measure_ns: i64) -> Vec<Deed> {
    let mut deeds = Vec::new();
    for fault in faults {
        let at_ns = measure_ns.saturating_add(nanoseconds(fault.at));
        let mut add = |at_ns, signal| {
            deeds.push(Deed {
                at_ns,
                process: fault.process.clone(),
                signal,
            });
        };
        match fault.kind {
            FaultKind::Kill => add(at_ns, Signal::SIGKILL),
            FaultKind::Stop => {
                add(at_ns, Signal::SIGSTOP);
                let duration = fault.duration.unwrap_or(DurationNs(0));
                add(at_ns.saturating_add(nanoseconds(duration)), Signal::SIGCONT);
            }
            FaultKind::Busy => {}
        }
    }
    deeds.sort_by_key(|deed| deed.at_ns);
    deeds
}

fn nanoseconds(duration: DurationNs) -> i64 {
    i64::try_from(duration.0).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_two_deeds_and_all_are_in_order_of_time() {
        let fault = |kind, at, duration| Fault {
            kind,
            process: "agent-1".to_owned(),
            at: DurationNs(at),
            duration,
            cpu: None,
            threads: 1,
        };
        let faults = [
            fault(FaultKind::Stop, 10, Some(DurationNs(50))),
            fault(FaultKind::Kill, 30, None),
            fault(FaultKind::Busy, 0, Some(DurationNs(5))),
        ];
        let order: Vec<(i64, Signal)> = deeds(&faults, 1000)
            .into_iter()
            .map(|deed| (deed.at_ns, deed.signal))
            .collect();
        assert_eq!(
            order,
            [
                (1010, Signal::SIGSTOP),
                (1030, Signal::SIGKILL),
                (1060, Signal::SIGCONT)
            ]
        );
    }
}
