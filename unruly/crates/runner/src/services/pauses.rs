//! Reads the pauses of a JVM, collections and safepoints, from the JVM's own log.
//!
//! The log uses JVM unified logging with `timenanos`, which is this host's monotonic clock. The JVM
//! writes a line when the pause is over.

/// A time in which no thread of the JVM ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pause {
    /// `gc`, or `safepoint` and its variants. Imported data uses the same words.
    pub(crate) kind: &'static str,
    /// The reason for the pause.
    pub(crate) detail: String,
    /// Monotonic.
    pub(crate) started_ns: i64,
    /// Monotonic.
    pub(crate) ended_ns: i64,
}

/// The pauses in a log, and in those that it was moved to when the process was started again. What is no pause
/// is passed over, also a line that the end of the process cut.
pub(crate) fn pauses(log: &str) -> Vec<Pause> {
    let earlier = (0..).map(|number| format!("{log}.{number}"));
    let earlier = earlier.map_while(|path| std::fs::read(path).ok());
    let mut pauses = Vec::new();
    for text in earlier.chain(std::fs::read(log)) {
        let text = String::from_utf8_lossy(&text);
        pauses.extend(text.lines().filter_map(pause));
    }
    pauses
}

fn pause(line: &str) -> Option<Pause> {
    let (at, rest) = line.strip_prefix('[')?.split_once("ns]")?;
    let ended_ns: i64 = at.trim().parse().ok()?;
    if rest.contains("[safepoint") {
        return safepoint(rest, ended_ns);
    }
    let (_, words) = rest.split_once("] GC(")?;
    let (_, said) = words.trim_end().split_once(") Pause ")?;
    let (what, took) = said.rsplit_once(' ')?;
    let took_ns = milliseconds(took)?;
    // What it freed stands between the reason and how long it took.
    let reason = what.rsplit_once(' ').map_or(what, |(reason, _)| reason);
    Some(Pause {
        kind: "gc",
        detail: format!("Pause {}", reason.trim()),
        started_ns: ended_ns - took_ns,
        ended_ns,
    })
}

fn safepoint(rest: &str, ended_ns: i64) -> Option<Pause> {
    let (_, said) = rest.split_once("Safepoint \"")?;
    let (reason, parts) = said.split_once('"')?;
    let (_, total) = parts.split_once("Total: ")?;
    let took_ns: i64 = total.split_whitespace().next()?.parse().ok()?;
    Some(Pause {
        kind: "safepoint",
        detail: reason.to_owned(),
        started_ns: ended_ns - took_ns,
        ended_ns,
    })
}

fn milliseconds(text: &str) -> Option<i64> {
    let number: f64 = text.strip_suffix("ms")?.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a pause of a process's life"
    )]
    let nanoseconds = (number * 1e6).round() as i64;
    (nanoseconds >= 0).then_some(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_and_its_safepoint_are_pauses_that_end_with_their_line() {
        let young = "[5000000000ns][info ][gc          ] GC(3) Pause Young (Normal) (G1 Evacuation Pause) 25M->3M(512M) 3.456ms";
        let pause = pause(young).unwrap();
        assert_eq!(pause.kind, "gc");
        assert_eq!(pause.detail, "Pause Young (Normal) (G1 Evacuation Pause)");
        assert_eq!(
            (pause.started_ns, pause.ended_ns),
            (4_996_544_000, 5_000_000_000)
        );
        let safe = "[5000000100ns][info ][safepoint   ] Safepoint \"G1CollectForAllocation\", Time since last: 9 ns, Reaching safepoint: 10 ns, Cleanup: 2 ns, At safepoint: 60 ns, Total: 72 ns";
        let pause = super::pause(safe).unwrap();
        assert_eq!(
            (pause.kind, pause.detail.as_str()),
            ("safepoint", "G1CollectForAllocation")
        );
        assert_eq!(
            (pause.started_ns, pause.ended_ns),
            (5_000_000_028, 5_000_000_100)
        );
    }

    #[test]
    fn other_lines_and_lines_cut_short_are_none() {
        for line in [
            "",
            "[12ns][info ][gc,start    ] GC(3) Pause Young (Normal) (G1 Evacuation Pause)",
            "[12ns][info ][gc          ] GC(3) Concurrent Mark Cycle 12.1ms",
            "[12ns][info ][gc,phases   ] GC(3)   Evacuate Collection Set: 1.1ms",
            "[12ns][info ][safepoint   ] Safepoint \"G1Coll",
            "[99",
            "no log at all ) Pause x",
        ] {
            assert_eq!(pause(line), None, "{line}");
        }
    }
}
