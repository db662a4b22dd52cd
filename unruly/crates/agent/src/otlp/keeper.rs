//! The choice of the spans that a run keeps: those of the slowest traces, and a part of the others.
//!
//! First, the spans of a trace wait until none has come for [`SETTLE_NS`]: services export their own
//! spans every few seconds. Then the trace is kept if chance chooses it, or if it is among the
//! slowest hundredth of all so far. Chance is the second half of its id, so that the analysis knows
//! which traces it chose. It chooses all of them until [`QUOTA`] spans are kept; from then on every
//! second trace, and so on. The slowest have a quota of their own: when it is used up, half as many
//! are kept. The number of waiting spans is bounded: beyond [`WAITING_MOST`] the oldest traces are
//! judged at once.

use std::collections::{HashMap, VecDeque};

use unruly_plan::unmix;
use unruly_trace::{ColumnNs, DurationNs, MonoNs};

use super::message::{Export, WireSpan};

/// Longer than the five seconds that an exporter lets spans wait unless told otherwise.
pub(super) const SETTLE_NS: DurationNs = DurationNs::seconds(6);
/// Most waiting spans: with their traces some 40 MB. When twice as many wait, new ones are dropped.
const WAITING_MOST: usize = 250_000;
/// Spans that are kept before chance chooses half as many, and as many of the slowest traces.
const QUOTA: u64 = 200_000;
/// Most traces whose late spans share the fate of their trace.
const REMEMBERED_MOST: usize = 200_000;
/// The slowest part of the traces, of which all are kept at first: one in so many.
const SLOWEST: u64 = 100;
/// The largest number that the column of requests holds.
const REQUEST_MOST: u64 = i64::MAX as u64;
/// Most halvings: an id has no more bits to choose by.
const LEVEL_MOST: u32 = 63;
/// Names beyond this number become [`OTHER`].
const NAMES_MOST: usize = 1_000;
/// A longer name is cut.
const NAME_BYTES: usize = 200;
const OTHER: &str = "(other)";
const UNNAMED: &str = "unknown_service";
/// A finer division of each power of two in the histogram of durations.
const BITS: u32 = 5;

/// The request of a trace: the client's number, and the request's.
type Request = (u16, u64);

/// A span of a request, as a row of `spans` needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) service: u32,
    pub(super) name: u32,
    pub(super) kind: u8,
    pub(super) failed: bool,
    pub(super) started_ns: ColumnNs,
    pub(super) ended_ns: ColumnNs,
}

/// A request with its spans.
pub(super) type Trace = (Request, Vec<Span>);

/// The numbers of spans by their fate.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) kept: u64,
    /// Those in traces that no client of this run began.
    pub(super) foreign: u64,
    /// Those that lack a time or an id, or end before they begin.
    pub(super) damaged: u64,
    /// Those in traces that had to be judged before they had settled; they are kept or left out like
    /// others.
    pub(super) early: u64,
    /// Those that were lost: they came after their trace had been left out, or when too many waited.
    pub(super) late: u64,
}

struct Waiting {
    spans: Vec<Span>,
    touched_ns: MonoNs,
}

/// Why a trace is kept, or that it is not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Chosen,
    Slow,
    LeftOut,
}

/// Takes spans, and gives back those to keep.
pub(super) struct Keeper {
    /// The client of each first half of a trace's id, with that half.
    clients: HashMap<u64, u16>,
    waiting: HashMap<Request, Waiting>,
    /// In the order in which they came, each with the second half of its id.
    order: VecDeque<(Request, u64, MonoNs)>,
    held: usize,
    judged: HashMap<Request, Fate>,
    remembered: VecDeque<Request>,
    /// Late spans of traces that are kept.
    late: Vec<Trace>,
    durations: Histogram,
    /// Chance keeps one trace of 2^level.
    level: u32,
    /// The slowest traces that are kept: one in this number of all.
    slowest: u64,
    by_chance: u64,
    slow: u64,
    services: Names,
    names: Names,
    pub(super) counts: Counts,
}

impl Keeper {
    /// For the clients with these first halves of the ids of their traces.
    pub(super) fn new(clients: HashMap<u64, u16>) -> Self {
        Self {
            clients,
            waiting: HashMap::new(),
            order: VecDeque::new(),
            held: 0,
            judged: HashMap::new(),
            remembered: VecDeque::new(),
            late: Vec::new(),
            durations: Histogram::default(),
            level: 0,
            slowest: SLOWEST,
            by_chance: 0,
            slow: 0,
            services: Names::default(),
            names: Names::default(),
            counts: Counts::default(),
        }
    }

    /// Chance keeps one trace of two to the power of this.
    pub(super) fn level(&self) -> u32 {
        self.level
    }

    /// The name of the service with this number.
    pub(super) fn service(&self, number: u32) -> &str {
        self.services.get(number)
    }

    /// The name of a span with this number.
    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number)
    }

    /// Takes the spans that a service exported.
    pub(super) fn take(&mut self, export: &Export, now_ns: MonoNs) {
        for resource in &export.resource_spans {
            let service = resource.resource.as_ref().and_then(|it| it.service());
            let spans = resource.scope_spans.iter().flat_map(|it| &it.spans);
            for span in spans {
                self.counts.received += 1;
                self.take_span(service.unwrap_or(UNNAMED), span, now_ns);
            }
        }
    }

    fn take_span(&mut self, service: &str, wire: &WireSpan, now_ns: MonoNs) {
        let Some((key, chance)) = halves(&wire.trace_id) else {
            self.counts.damaged += 1;
            return;
        };
        let request = unmix(key, chance);
        // a number that no column holds is that of no request of ours
        let known = self.clients.get(&key).filter(|_| request <= REQUEST_MOST);
        let Some(client) = known else {
            self.counts.foreign += 1;
            return;
        };
        let request = (*client, request);
        let Some(span) = self.span(service, wire) else {
            self.counts.damaged += 1;
            return;
        };
        if let Some(fate) = self.judged.get(&request).copied() {
            if fate == Fate::LeftOut || self.late.len() >= WAITING_MOST {
                self.counts.late += 1;
            } else {
                self.count(fate, 1);
                self.late.push((request, vec![span]));
            }
            return;
        }
        if self.held >= 2 * WAITING_MOST {
            self.counts.late += 1;
            return;
        }
        self.held += 1;
        let order = &mut self.order;
        let waiting = self.waiting.entry(request).or_insert_with(|| {
            order.push_back((request, chance, now_ns));
            Waiting {
                spans: Vec::with_capacity(2),
                touched_ns: now_ns,
            }
        });
        waiting.spans.push(span);
        waiting.touched_ns = now_ns;
    }

    fn span(&mut self, service: &str, wire: &WireSpan) -> Option<Span> {
        let started_ns = i64::try_from(wire.start_time_unix_nano).ok()?;
        let ended_ns = i64::try_from(wire.end_time_unix_nano).ok()?;
        let id = wire.span_id.as_slice().try_into().map(u64::from_be_bytes);
        let parent = wire.parent_span_id.as_slice().try_into();
        (started_ns > 0 && started_ns <= ended_ns).then_some(())?;
        Some(Span {
            id: id.ok()?,
            parent: parent.map_or(0, u64::from_be_bytes),
            service: self.services.number(service),
            name: self.names.number(&wire.name),
            kind: u8::try_from(wire.kind).unwrap_or(0),
            failed: wire.status.as_ref().is_some_and(|it| it.code == 2),
            started_ns: ColumnNs(started_ns),
            ended_ns: ColumnNs(ended_ns),
        })
    }

    /// Gives the traces to keep of those that have settled; with `all`, of every trace that waits.
    pub(super) fn settled(&mut self, now_ns: MonoNs, all: bool) -> Vec<Trace> {
        let mut found = std::mem::take(&mut self.late);
        let slow = self.durations.beyond(self.slowest);
        while let Some((request, chance, since_ns)) = self.order.front().copied() {
            let early = self.held > WAITING_MOST;
            if !all && !early && since_ns + SETTLE_NS > now_ns {
                break;
            }
            self.order.pop_front();
            let Some(waiting) = self.waiting.remove(&request) else {
                continue;
            };
            if !all && waiting.touched_ns + SETTLE_NS > now_ns {
                if !early {
                    self.order.push_back((request, chance, waiting.touched_ns));
                    self.waiting.insert(request, waiting);
                    continue;
                }
                self.counts.early += waiting.spans.len() as u64;
            }
            self.held -= waiting.spans.len();
            let fate = self.judge(chance, &waiting.spans, slow);
            self.count(fate, waiting.spans.len() as u64);
            self.remember(request, fate);
            if fate != Fate::LeftOut {
                found.push((request, waiting.spans));
            }
        }
        for (_, spans) in &found {
            self.counts.kept += spans.len() as u64;
        }
        found
    }

    fn judge(&mut self, chance: u64, spans: &[Span], slow: u64) -> Fate {
        let lasted = longest(spans);
        self.durations.add(lasted);
        if chance & ((1 << self.level) - 1) == 0 {
            Fate::Chosen
        } else if lasted >= slow {
            Fate::Slow
        } else {
            Fate::LeftOut
        }
    }

    /// Counts kept spans against the quota of their kind. Half of those so far would have been kept
    /// by the next rule.
    fn count(&mut self, fate: Fate, spans: u64) {
        match fate {
            Fate::Chosen => {
                self.by_chance += spans;
                if self.by_chance > QUOTA && self.level < LEVEL_MOST {
                    self.level += 1;
                    self.by_chance /= 2;
                }
            }
            Fate::Slow => {
                self.slow += spans;
                if self.slow > QUOTA {
                    self.slowest = self.slowest.saturating_mul(2);
                    self.slow /= 2;
                }
            }
            Fate::LeftOut => {}
        }
    }

    fn remember(&mut self, request: Request, fate: Fate) {
        if self.remembered.len() >= REMEMBERED_MOST
            && let Some(oldest) = self.remembered.pop_front()
        {
            self.judged.remove(&oldest);
        }
        self.judged.insert(request, fate);
        self.remembered.push_back(request);
    }
}

/// The two halves of a trace's id.
fn halves(id: &[u8]) -> Option<(u64, u64)> {
    let id: [u8; 16] = id.try_into().ok()?;
    let half = |from: usize| id[from..from + 8].try_into().map(u64::from_be_bytes).ok();
    Some((half(0)?, half(8)?))
}

/// The length of a trace's longest span. The clocks of services differ, and lengths do not.
fn longest(spans: &[Span]) -> u64 {
    let lengths = spans
        .iter()
        .map(|it| it.ended_ns.0.abs_diff(it.started_ns.0));
    lengths.max().unwrap_or(0)
}

/// Counts of durations, each power of two in 32 parts.
struct Histogram {
    bins: Vec<u64>,
    n: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            bins: vec![0; 64 << BITS],
            n: 0,
        }
    }
}

impl Histogram {
    fn add(&mut self, value: u64) {
        self.bins[bin(value)] += 1;
        self.n += 1;
    }

    /// A length that at most one in `part` reach: the end of the bin in which the slowest ones
    /// begin. Nothing reaches it until there are that many.
    fn beyond(&self, part: u64) -> u64 {
        let mut left = self.n / part;
        if left == 0 {
            return u64::MAX;
        }
        for (place, count) in self.bins.iter().enumerate().rev() {
            if *count >= left {
                return least(place + 1);
            }
            left -= count;
        }
        u64::MAX
    }
}

fn bin(value: u64) -> usize {
    let value = value.max(1);
    let power = value.ilog2();
    let rest = if power >= BITS {
        value >> (power - BITS)
    } else {
        value << (BITS - power)
    };
    let rest = usize::try_from(rest & ((1 << BITS) - 1)).unwrap_or(0);
    ((power as usize) << BITS) + rest
}

/// The least value of a bin.
fn least(place: usize) -> u64 {
    let (power, rest) = (place >> BITS, place & ((1 << BITS) - 1));
    let first = (1 << BITS) + rest as u64;
    if power >= BITS as usize {
        first << (power - BITS as usize)
    } else {
        first >> (BITS as usize - power)
    }
}

/// Names, each held once.
#[derive(Default)]
struct Names {
    all: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        let name = &name[..name.floor_char_boundary(NAME_BYTES)];
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        // a name goes to terminals and pages
        let plain = name.replace(|it: char| it.is_control(), "\u{fffd}");
        let name = plain.as_str();
        let name = if self.all.len() >= NAMES_MOST {
            OTHER
        } else {
            name
        };
        let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(name.to_owned()).or_insert(next);
        if number == next {
            self.all.push(name.to_owned());
        }
        number
    }

    fn get(&self, number: u32) -> &str {
        self.all.get(number as usize).map_or(OTHER, String::as_str)
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
