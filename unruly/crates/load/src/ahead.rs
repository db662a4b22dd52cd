//! A schedule that is handed out ahead of time, for an engine whose requests another process sends.

use unruly_trace::{DurationNs, MonoNs};

use crate::source::{Due, Source};

/// Hands out the requests of another source `lead_ns` before their scheduled times. The scheduled
/// times stay the same, so the receiver of a request must wait.
#[derive(Debug)]
pub struct Ahead<S> {
    source: S,
    lead_ns: DurationNs,
}

impl<S: Source> Ahead<S> {
    /// `source`, told `lead_ns` earlier.
    #[must_use]
    pub fn new(source: S, lead_ns: DurationNs) -> Self {
        Self { source, lead_ns }
    }
}

impl<S: Source> Source for Ahead<S> {
    fn next_at_ns(&mut self) -> Option<MonoNs> {
        let at_ns = self.source.next_at_ns()?;
        Some(at_ns.saturating_sub(self.lead_ns))
    }

    fn take(&mut self) -> Option<Due> {
        self.source.take()
    }

    fn ended(&mut self, session: usize, now_ns: MonoNs, answered: bool) {
        self.source.ended(session, now_ns, answered);
    }

    fn is_over(&mut self) -> bool {
        self.source.is_over()
    }
}

#[cfg(test)]
mod tests {
    use unruly_plan::{Load, Plan};

    use super::*;
    use crate::source::{MeshSource, Phases};

    fn source() -> MeshSource {
        let text = "name = \"t\"\n[run]\nduration = \"1s\"\n[mesh]\nagents = 3\ngroups = [3]\nperiod = \"10ms\"\n";
        let plan = Plan::parse("plan", text).unwrap();
        let Load::Mesh(mesh) = plan.load else {
            panic!("a mesh was written")
        };
        let phases = Phases::new(MonoNs(5_000_000_000), plan.run.warmup, plan.run.duration);
        MeshSource::new(mesh, 1, 0, phases)
    }

    #[test]
    fn a_request_is_told_earlier_and_stays_due_when_it_is() {
        let (mut plain, mut early) = (source(), Ahead::new(source(), DurationNs::millis(7)));
        let mut told = 0;
        while let Some(at_ns) = plain.next_at_ns() {
            assert_eq!(early.next_at_ns(), Some(at_ns - DurationNs::millis(7)));
            assert_eq!(early.take(), plain.take());
            told += 1;
        }
        assert!(told > 90, "{told}");
        assert!(early.is_over() && early.next_at_ns().is_none());
    }
}
