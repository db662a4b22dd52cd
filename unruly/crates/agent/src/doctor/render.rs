//! An examination as calm text for a terminal.

use std::fmt::Write as _;

use unruly_plan::quantity;
use unruly_trace::DurationNs;

use super::{Diagnosis, Examination, HostFacts, NoiseFloor, Severity};

/// Columns of the text.
const WIDTH: usize = 80;
/// Where the text of a diagnosis begins.
const INDENT: usize = 11;

/// The examination as lines of at most 80 columns, without colours.
#[must_use]
pub fn render(examination: &Examination) -> String {
    let mut text = verdict(&examination.diagnoses);
    text.push_str("\n\n");
    for (name, value) in [
        ("host", host(&examination.host)),
        ("clock", clock(examination)),
        ("noise floor", floor(&examination.noise)),
        ("gaps", gaps(&examination.noise)),
    ] {
        paragraph(&mut text, &format!("  {name:<13}"), &value);
    }
    for diagnosis in &examination.diagnoses {
        text.push('\n');
        let severity = name(diagnosis.severity);
        let what = format!("{} [{}]", diagnosis.what, diagnosis.code);
        paragraph(&mut text, &format!("  {severity:<9}"), &what);
        paragraph(&mut text, &" ".repeat(INDENT), &diagnosis.means);
        if let Some(hint) = &diagnosis.hint {
            paragraph(&mut text, &format!("{:>INDENT$}", "-> "), hint);
        }
    }
    text
}

fn verdict(diagnoses: &[Diagnosis]) -> String {
    let count = |severity| {
        diagnoses
            .iter()
            .filter(|one| one.severity == severity)
            .count()
    };
    match (count(Severity::Spoils), count(Severity::Warns)) {
        (0, 0) => "This host is fit to measure.".to_owned(),
        (0, 1) => "This host is fit to measure, with one warning.".to_owned(),
        (0, warnings) => format!("This host is fit to measure, with {warnings} warnings."),
        _ => "This host is not fit to measure.".to_owned(),
    }
}

fn name(severity: Severity) -> &'static str {
    match severity {
        Severity::Spoils => "spoils",
        Severity::Warns => "warns",
        Severity::Informs => "informs",
    }
}

fn host(host: &HostFacts) -> String {
    let mut parts = vec![host.name.clone()];
    match (host.cores, &host.cpu_model) {
        (Some(cores), Some(model)) => parts.push(format!("{cores} x {model}")),
        (Some(cores), None) => parts.push(format!("cores: {cores}")),
        (None, Some(model)) => parts.push(model.clone()),
        (None, None) => {}
    }
    parts.extend(host.memory_bytes.map(|memory| bytes(memory.unsigned_abs())));
    parts.extend(host.kernel.as_ref().map(|kernel| format!("Linux {kernel}")));
    parts.extend((host.virtualised == Some(true)).then(|| "virtual".to_owned()));
    parts.join(", ")
}

fn clock(examination: &Examination) -> String {
    let noise = &examination.noise;
    format!(
        "{}, {} ns a reading, steps of {}",
        examination
            .host
            .clock_source
            .as_deref()
            .unwrap_or("unknown source"),
        noise.clock_cost_ns.0,
        time(noise.clock_resolution_ns)
    )
}

fn floor(noise: &NoiseFloor) -> String {
    format!(
        "{} in one of ten windows of 10 ms; longest {}",
        time(noise.floor_ns),
        time(noise.longest_ns)
    )
}

fn gaps(noise: &NoiseFloor) -> String {
    let gaps = &noise.gaps;
    format!(
        "{} of {} lost; {} over 10 µs, {} over 100 µs, {} over 1 ms, {} over 10 ms",
        share(noise.lost_share()),
        time(noise.spun_ns),
        gaps.over_10us,
        gaps.over_100us,
        gaps.over_1ms,
        gaps.over_10ms
    )
}

/// Adds `words`, wrapped, behind `head`; the lines after the first begin where it did.
fn paragraph(text: &mut String, head: &str, words: &str) {
    text.push_str(head);
    let indent = head.chars().count();
    let mut column = indent;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{:indent$}", "");
            column = indent;
        } else if column > indent {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}

/// Returns a time as people read it.
pub(super) fn time(time_ns: DurationNs) -> String {
    quantity::duration(time_ns.0 as f64)
}

/// Returns an amount of memory as people read it.
pub(super) fn bytes(count: u64) -> String {
    quantity::memory(count)
}

/// Returns a share as a percentage.
pub(super) fn share(share: f64) -> String {
    quantity::percent(share)
}

#[cfg(test)]
mod tests {
    use super::super::Gaps;
    use super::*;

    fn examination(diagnoses: Vec<Diagnosis>) -> Examination {
        Examination {
            host: HostFacts {
                name: "node-1".to_owned(),
                cpu_model: Some("Xeon".to_owned()),
                cores: Some(4),
                kernel: Some("6.1.0".to_owned()),
                clock_source: Some("tsc".to_owned()),
                virtualised: Some(false),
                memory_bytes: Some(8 << 30),
                steal_share: None,
                noise_floor_ns: Some(DurationNs(412_000)),
            },
            noise: NoiseFloor {
                spun_ns: DurationNs(3_000_000_000),
                gaps: Gaps {
                    over_10us: 12,
                    over_100us: 3,
                    over_1ms: 1,
                    over_10ms: 0,
                },
                longest_ns: DurationNs(4_100_000),
                lost_ns: DurationNs(6_000_000),
                floor_ns: DurationNs(412_000),
                clock_cost_ns: DurationNs(23),
                clock_resolution_ns: DurationNs(21),
            },
            diagnoses,
        }
    }

    fn diagnosis(severity: Severity) -> Diagnosis {
        Diagnosis {
            code: "a_code",
            severity,
            what: "the first is too long for one line ".repeat(3),
            means: "that is bad".to_owned(),
            hint: Some("do this".to_owned()),
        }
    }

    #[test]
    fn a_fit_host_is_told_in_a_few_lines() {
        let expected = "\
This host is fit to measure.

  host         node-1, 4 x Xeon, 8 GiB, Linux 6.1.0
  clock        tsc, 23 ns a reading, steps of 21 ns
  noise floor  412 µs in one of ten windows of 10 ms; longest 4.1 ms
  gaps         0.2 % of 3 s lost; 12 over 10 µs, 3 over 100 µs, 1 over 1 ms, 0
               over 10 ms
";
        assert_eq!(render(&examination(Vec::new())), expected);
    }

    #[test]
    fn a_diagnosis_is_wrapped_and_aligned() {
        let text = render(&examination(vec![diagnosis(Severity::Warns)]));
        let expected = "
  warns    the first is too long for one line the first is too long for one line
           the first is too long for one line [a_code]
           that is bad
        -> do this
";
        assert!(text.ends_with(expected), "{text}");
        assert!(text.starts_with("This host is fit to measure, with one warning.\n"));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn one_that_spoils_makes_the_host_unfit() {
        let examination = examination(vec![diagnosis(Severity::Spoils)]);
        assert!(!examination.is_fit());
        assert!(render(&examination).starts_with("This host is not fit to measure.\n"));
        assert!(self::examination(vec![diagnosis(Severity::Informs)]).is_fit());
    }

    #[test]
    fn numbers_have_the_unit_that_suits_them() {
        assert_eq!(time(DurationNs(999)), "999 ns");
        assert_eq!(time(DurationNs(1_500)), "1.5 µs");
        assert_eq!(time(DurationNs(62_000_000_000)), "62 s");
        assert_eq!(bytes(8 << 20), "8 MiB");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(share(0.0123), "1.23 %");
    }
}
