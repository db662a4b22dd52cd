//! Numbers with their names, as Prometheus's text format has them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::histogram::{BOUNDS_S, Histogram};

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, Clone)]
struct Family {
    kind: Kind,
    help: &'static str,
    lines: Vec<String>,
}

/// Numbers of one thread, or of several together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    families: BTreeMap<&'static str, Family>,
    /// Name of the part that the metrics belong to.
    part: String,
}

impl Page {
    pub(crate) fn of(part: &str) -> Self {
        Self {
            families: BTreeMap::new(),
            part: part.to_owned(),
        }
    }

    fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> &mut Family {
        self.families.entry(name).or_insert_with(|| Family {
            kind,
            help,
            lines: Vec::new(),
        })
    }

    /// `{part="...",...}`. Values come from this program alone, and need no escaping.
    fn labels(&self, more: &[(&str, &str)]) -> String {
        let mut text = format!("{{part=\"{}\"", self.part);
        for (name, value) in more {
            // Writing to memory cannot fail.
            let _ = write!(text, ",{name}=\"{value}\"");
        }
        text + "}"
    }

    fn number(
        &mut self,
        kind: Kind,
        (name, help): (&'static str, &'static str),
        labels: &[(&str, &str)],
        value: f64,
    ) {
        let labels = self.labels(labels);
        let family = self.family(name, kind, help);
        family.lines.push(format!("{name}{labels} {value}"));
    }

    /// What only grows. Its name ends with `_total`.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a counter of 2^53 is not worth a digit"
    )]
    pub(crate) fn counter(
        &mut self,
        name: (&'static str, &'static str),
        labels: &[(&str, &str)],
        value: u64,
    ) {
        self.number(Kind::Counter, name, labels, value as f64);
    }

    /// What is so now.
    pub(crate) fn gauge(
        &mut self,
        name: (&'static str, &'static str),
        labels: &[(&str, &str)],
        value: f64,
    ) {
        self.number(Kind::Gauge, name, labels, value);
    }

    /// How long things took. Its name ends with `_seconds`.
    pub(crate) fn histogram(
        &mut self,
        (name, help): (&'static str, &'static str),
        labels: &[(&str, &str)],
        histogram: &Histogram,
    ) {
        let mut lines = Vec::new();
        let ends = BOUNDS_S
            .iter()
            .map(f64::to_string)
            .chain(["+Inf".to_owned()]);
        let mut all = 0;
        for (end, count) in ends.zip(histogram.cumulated()) {
            let labels = self.labels(&[labels, &[("le", end.as_str())]].concat());
            lines.push(format!("{name}_bucket{labels} {count}"));
            all = count;
        }
        let labels = self.labels(labels);
        lines.push(format!("{name}_sum{labels} {}", histogram.sum_s));
        lines.push(format!("{name}_count{labels} {all}"));
        self.family(name, Kind::Histogram, help).lines.extend(lines);
    }

    /// Adds the numbers of another thread.
    pub(super) fn add(&mut self, other: &Self) {
        for (name, family) in &other.families {
            let own = self.family(name, family.kind, family.help);
            own.lines.extend(family.lines.iter().cloned());
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.families {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
            for line in &family.lines {
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_name_is_explained_once_whoever_tells_it() {
        let page = |part: &str, value| {
            let mut page = Page::of(part);
            page.counter(("a_total", "All a."), &[("kind", "x")], value);
            page
        };
        let mut whole = Page::default();
        whole.add(&page("one", 1));
        whole.add(&page("two", 2));
        assert_eq!(
            whole.text(),
            "# HELP a_total All a.\n# TYPE a_total counter\n\
             a_total{part=\"one\",kind=\"x\"} 1\na_total{part=\"two\",kind=\"x\"} 2\n"
        );
    }

    #[test]
    fn a_histogram_ends_with_all_its_sum_and_its_count() {
        let mut histogram = Histogram::default();
        histogram.note(Duration::from_millis(3));
        let mut page = Page::of("p");
        page.histogram(("t_seconds", "Time."), &[], &histogram);
        let text = page.text();
        assert!(
            text.contains("t_seconds_bucket{part=\"p\",le=\"0.002\"} 0\n"),
            "{text}"
        );
        assert!(
            text.contains("t_seconds_bucket{part=\"p\",le=\"0.005\"} 1\n"),
            "{text}"
        );
        assert!(
            text.ends_with(
                "le=\"+Inf\"} 1\nt_seconds_sum{part=\"p\"} 0.003\nt_seconds_count{part=\"p\"} 1\n"
            ),
            "{text}"
        );
    }
}
