//! The bytes that one side of a connection has sent, as far as they were seen.
//!
//! Numbers of bytes wrap around. A segment may come twice, late, or not at all.

/// A segment this far from those before it belongs to another connection of the same addresses.
const FAR: u32 = 1 << 28;

/// Holes of a side that are remembered.
const HOLES_MAX: usize = 16;

/// The bytes of one side that were seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent {
    /// The number of the byte after the last one that was seen; the end of the side counts as one.
    pub(crate) next: Option<u32>,
    /// Bytes before it that were not seen yet: the first one, and the one after the last.
    holes: Vec<(u32, u32)>,
    /// There were too many holes to remember.
    is_crowded: bool,
    /// The side sends nothing more.
    has_ended: bool,
}

/// Returns true if a number stands before another one; both wrap around.
pub(crate) const fn is_before(one: u32, other: u32) -> bool {
    // The upper half of all differences are negative ones.
    one.wrapping_sub(other) > u32::MAX / 2
}

impl Sent {
    pub(crate) fn beginning(next: u32) -> Self {
        Self {
            next: Some(next),
            ..Self::default()
        }
    }

    /// Takes a segment. Returns how many of its bytes are new.
    pub(crate) fn take(&mut self, sequence: u32, bytes: u32) -> u32 {
        let next = sequence.wrapping_add(bytes);
        let Some(known) = self.next else {
            *self = Self::beginning(next);
            return bytes;
        };
        if !is_before(known, next) {
            return self.fill(sequence, next);
        }
        self.next = Some(next);
        if !is_before(known, sequence) {
            return next.wrapping_sub(known) + self.fill(sequence, known);
        }
        if self.holes.len() < HOLES_MAX {
            self.holes.push((known, sequence));
        } else {
            self.is_crowded = true;
        }
        bytes
    }

    /// Fills holes with a segment that comes late. Returns how many bytes were missing.
    fn fill(&mut self, first: u32, next: u32) -> u32 {
        let mut filled = 0;
        let mut left = Vec::new();
        for (begin, end) in self.holes.drain(..) {
            let from = if is_before(begin, first) {
                first
            } else {
                begin
            };
            let to = if is_before(next, end) { next } else { end };
            if !is_before(from, to) {
                left.push((begin, end));
                continue;
            }
            filled += to.wrapping_sub(from);
            left.extend(Some((begin, from)).filter(|(begin, end)| begin != end));
            left.extend(Some((to, end)).filter(|(begin, end)| begin != end));
        }
        self.holes = left;
        filled
    }

    /// Notes that the side sends nothing more, which the protocol counts as a byte.
    pub(crate) fn end(&mut self, sequence: u32) {
        let next = sequence.wrapping_add(1);
        if self.next.is_none_or(|known| is_before(known, next)) {
            self.next = Some(next);
            self.has_ended = true;
        }
    }

    /// Returns true if the side has ended, and nothing that it sent is still to come.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended && self.holes.is_empty()
    }

    /// Returns true if content of this side was under way when the other side acknowledged that much.
    pub(crate) fn is_beyond(&self, acknowledged: u32) -> bool {
        let end = u32::from(self.has_ended);
        let content = self.next.map(|next| next.wrapping_sub(end));
        content.is_some_and(|next| is_before(acknowledged, next))
    }

    /// Returns true if the other side has received bytes that were never seen, and forgets them.
    pub(crate) fn was_missed(&mut self, acknowledged: Option<u32>) -> bool {
        let Some(acknowledged) = acknowledged else {
            return false;
        };
        let before = self.holes.len();
        self.holes
            .retain(|(begin, _)| !is_before(*begin, acknowledged));
        let never_shown = self.next.is_some_and(|next| is_before(next, acknowledged));
        if never_shown {
            self.next = Some(acknowledged);
        }
        let crowded = std::mem::take(&mut self.is_crowded);
        never_shown || crowded || self.holes.len() < before
    }

    /// Returns true if a segment is of another connection.
    pub(crate) fn is_far(&self, sequence: u32) -> bool {
        self.next.is_some_and(|known| {
            known
                .wrapping_sub(sequence)
                .min(sequence.wrapping_sub(known))
                > FAR
        })
    }
}
