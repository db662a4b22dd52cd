//! Open copies. They are found by their reply, or by the time at which one of their time limits
//! ends.

use std::collections::{HashMap, VecDeque};

use unruly_trace::{Level, MonoNs, Record};

use crate::work::Task;

/// Index of an open copy. `generation` distinguishes a reused place from its earlier use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A copy that is about to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) record: Record,
    /// What its reply is known by, which no other copy has.
    pub(crate) ticket: u64,
    pub(crate) link: usize,
    pub(crate) group: u32,
    /// What a store was asked.
    pub(crate) task: Option<Task>,
    /// Monotonic instant of the schedule.
    pub(crate) intended_ns: MonoNs,
    /// From when on its reply is waited for: since it was due, or since a user was free to ask.
    pub(crate) since_ns: MonoNs,
    /// When the last part of its reply came.
    pub(crate) part_ns: Option<MonoNs>,
    /// How often a place said that another one has its key.
    pub(crate) moves: u8,
    /// It is announced to the place that it is sent to.
    pub(crate) announced: bool,
}

/// A copy that has not ended, or that timed out and may still be answered late.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub(crate) asked: Asked,
    pub(crate) timed_out: bool,
    generation: u32,
    live: bool,
}

/// The copies of one request together.
#[derive(Debug, Clone, Copy)]
struct Group {
    open: u32,
    ok: u32,
    needed: u32,
    answered: bool,
    /// Timed-out copies still hold the place.
    held: u32,
    session: usize,
}

/// What the end of a copy means for its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// This reply gave the request its answer.
    pub(crate) answers: bool,
    /// All copies have ended: `Some(answered)`.
    pub(crate) request_over: Option<bool>,
    /// Whose request it was.
    pub(crate) session: usize,
}

/// All open copies of an engine.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    slots: Vec<Open>,
    free: Vec<u32>,
    groups: Vec<Group>,
    free_groups: Vec<u32>,
    by_reply: HashMap<(u64, u16), u32>,
    open: usize,
    /// The copies in schedule order, one queue for each kind of time limit.
    queues: [VecDeque<Slot>; 3],
}

/// Kinds of time limit. Each has its own delay after the scheduled time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeLimit {
    /// Note the copy in the spool.
    Note = 0,
    /// It has timed out.
    Timeout = 1,
    /// Not even a late reply is expected any more.
    Linger = 2,
}

impl Pending {
    /// Whose request a group is.
    pub(crate) fn session_of(&self, group: u32) -> usize {
        self.groups[group as usize].session
    }

    /// Opens a group of `size` copies that waits for `level`.
    pub(crate) fn open_group(&mut self, size: usize, level: Option<Level>, session: usize) -> u32 {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let needed = match level {
            Some(Level::All) => size,
            Some(Level::Quorum) => size / 2 + 1,
            Some(Level::First) | None => 1,
        };
        let group = Group {
            open: size,
            ok: 0,
            needed,
            answered: false,
            held: size,
            session,
        };
        if let Some(index) = self.free_groups.pop() {
            self.groups[index as usize] = group;
            return index;
        }
        self.groups.push(group);
        u32::try_from(self.groups.len() - 1).unwrap_or(u32::MAX)
    }

    /// Adds a copy of an open group.
    pub(crate) fn insert(&mut self, asked: Asked) -> Slot {
        let key = (asked.ticket, asked.record.server);
        let mut copy = Open {
            asked,
            timed_out: false,
            generation: 0,
            live: true,
        };
        let index = if let Some(index) = self.free.pop() {
            copy.generation = self.slots[index as usize].generation.wrapping_add(1);
            self.slots[index as usize] = copy;
            index
        } else {
            self.slots.push(copy);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        };
        let slot = Slot {
            index,
            generation: self.slots[index as usize].generation,
        };
        let previous = self.by_reply.insert(key, index);
        debug_assert!(
            previous.is_none(),
            "a copy is identified by its ticket and server"
        );
        self.open += 1;
        for queue in &mut self.queues {
            queue.push_back(slot);
        }
        slot
    }

    /// The copy in a slot, if it is still that one.
    pub(crate) fn at(&mut self, slot: Slot) -> Option<&mut Open> {
        let copy = self.slots.get_mut(slot.index as usize)?;
        (copy.live && copy.generation == slot.generation).then_some(copy)
    }

    /// The copy that a reply answers.
    pub(crate) fn find(&self, ticket: u64, server: u16) -> Option<Slot> {
        let index = *self.by_reply.get(&(ticket, server))?;
        Some(Slot {
            index,
            generation: self.slots[index as usize].generation,
        })
    }

    /// Copies that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// A copy ends for its request: answered (`ok`), or failed.
    pub(crate) fn end(&mut self, group: u32, ok: bool) -> Ended {
        let state = &mut self.groups[group as usize];
        state.open -= 1;
        let mut answers = false;
        if ok {
            state.ok += 1;
            answers = state.ok == state.needed && !state.answered;
            state.answered |= answers;
        }
        Ended {
            answers,
            request_over: (state.open == 0).then_some(state.answered),
            session: state.session,
        }
    }

    /// A copy timed out: it ends, but keeps its place for a late reply.
    pub(crate) fn time_out(&mut self, slot: Slot) -> Option<Ended> {
        let copy = self.at(slot)?;
        copy.timed_out = true;
        let group = copy.asked.group;
        self.open -= 1;
        Some(self.end(group, false))
    }

    /// Takes a timeout back: the copy was answered in time, but word of the reply came later.
    /// `request_over` is set if the request had ended without an answer and has one now.
    pub(crate) fn answered_in_time(&mut self, group: u32) -> Ended {
        let state = &mut self.groups[group as usize];
        state.ok += 1;
        let answers = state.ok == state.needed && !state.answered;
        state.answered |= answers;
        Ended {
            answers,
            request_over: (answers && state.open == 0).then_some(true),
            session: state.session,
        }
    }

    /// Takes a copy out for good.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<Open> {
        let copy = self.at(slot)?;
        copy.live = false;
        let copy = copy.clone();
        if !copy.timed_out {
            self.open -= 1;
        }
        self.by_reply
            .remove(&(copy.asked.ticket, copy.asked.record.server));
        self.free.push(slot.index);
        Some(copy)
    }

    /// Gives a group's place free when its last copy is gone.
    pub(crate) fn release(&mut self, group: u32) {
        let state = &mut self.groups[group as usize];
        state.held -= 1;
        if state.held == 0 {
            self.free_groups.push(group);
        }
    }

    /// Returns the next copy whose time limit of this kind ends, without removing it.
    pub(crate) fn first(&mut self, limit: TimeLimit) -> Option<(Slot, MonoNs)> {
        loop {
            let slot = *self.queues[limit as usize].front()?;
            let wanted = self
                .at(slot)
                .map(|copy| (copy.asked.since_ns, copy.timed_out));
            match wanted {
                Some((since_ns, timed_out)) if !(timed_out && limit == TimeLimit::Timeout) => {
                    return Some((slot, since_ns));
                }
                _ => {
                    self.queues[limit as usize].pop_front();
                }
            }
        }
    }

    /// Takes the copy that [`Pending::first`] showed off the queue.
    pub(crate) fn pop(&mut self, limit: TimeLimit) {
        self.queues[limit as usize].pop_front();
    }

    /// Every copy that still holds a place, by link if one is given.
    pub(crate) fn all(&self, link: Option<usize>) -> Vec<Slot> {
        let of_link = |copy: &Open| copy.live && link.is_none_or(|link| copy.asked.link == link);
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, copy)| of_link(copy))
            .map(|(index, copy)| Slot {
                index: u32::try_from(index).unwrap_or(u32::MAX),
                generation: copy.generation,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(request: u64, server: u16, group: u32, intended_ns: MonoNs) -> Asked {
        Asked {
            record: Record {
                request,
                server,
                ..Record::empty()
            },
            ticket: request,
            link: 0,
            group,
            task: None,
            intended_ns,
            since_ns: intended_ns,
            part_ns: None,
            moves: 0,
            announced: false,
        }
    }

    fn ended(answers: bool, request_over: Option<bool>) -> Ended {
        Ended {
            answers,
            request_over,
            session: 5,
        }
    }

    #[test]
    fn the_last_ok_reply_of_a_group_answers_it() {
        let mut pending = Pending::default();
        let group = pending.open_group(2, Some(Level::All), 5);
        assert_eq!(pending.end(group, true), ended(false, None));
        assert_eq!(pending.end(group, true), ended(true, Some(true)));
    }

    #[test]
    fn a_group_with_a_failed_copy_is_never_answered_at_level_all() {
        let mut pending = Pending::default();
        let group = pending.open_group(2, Some(Level::All), 5);
        pending.end(group, false);
        assert_eq!(pending.end(group, true), ended(false, Some(false)));
    }

    #[test]
    fn a_majority_answers_a_quorum_once() {
        let mut pending = Pending::default();
        let group = pending.open_group(3, Some(Level::Quorum), 5);
        assert!(!pending.end(group, true).answers);
        assert!(pending.end(group, true).answers);
        assert_eq!(pending.end(group, true), ended(false, Some(true)));
    }

    #[test]
    fn a_reused_place_is_not_mistaken_for_the_copy_that_was_there() {
        let mut pending = Pending::default();
        let group = pending.open_group(1, None, 5);
        let first = pending.insert(copy(1, 0, group, MonoNs(10)));
        pending.remove(first);
        let second = pending.insert(copy(2, 0, group, MonoNs(20)));
        assert_eq!(first.index, second.index);
        assert!(pending.at(first).is_none());
        assert_eq!(
            pending.first(TimeLimit::Timeout),
            Some((second, MonoNs(20)))
        );
    }

    #[test]
    fn a_reply_in_time_whose_word_is_late_answers_the_request_that_had_ended() {
        let mut pending = Pending::default();
        let group = pending.open_group(2, Some(Level::All), 5);
        let first = pending.insert(copy(1, 0, group, MonoNs(10)));
        let second = pending.insert(copy(1, 1, group, MonoNs(10)));
        pending.time_out(first);
        pending.time_out(second);
        assert_eq!(pending.answered_in_time(group), ended(false, None));
        assert_eq!(pending.answered_in_time(group), ended(true, Some(true)));
    }

    #[test]
    fn a_timed_out_copy_is_still_found_by_its_late_reply() {
        let mut pending = Pending::default();
        let group = pending.open_group(1, None, 5);
        let slot = pending.insert(copy(7, 3, group, MonoNs(10)));
        let found = pending.time_out(slot);
        assert_eq!(found.map(|ended| ended.request_over), Some(Some(false)));
        assert_eq!(pending.open(), 0);
        assert_eq!(pending.find(7, 3), Some(slot));
    }
}
