//! The source of a load phase: every key is written once, as fast as the replies come.

use std::collections::VecDeque;

use unruly_trace::MonoNs;

use crate::source::{Due, LOAD, Sessions, Source};

/// Writes `left` keys. Each session writes its next key when the previous one is stored.
#[derive(Debug)]
pub struct LoadSource {
    left: u64,
    ready: VecDeque<(MonoNs, usize)>,
    waiting: usize,
    sessions: Sessions,
}

impl LoadSource {
    /// The writes of `keys` keys, from `now_ns` on.
    #[must_use]
    pub fn new(keys: u64, sessions: Sessions, now_ns: MonoNs) -> Self {
        Self {
            left: keys,
            ready: (0..sessions.sessions).map(|it| (now_ns, it)).collect(),
            waiting: 0,
            sessions,
        }
    }
}

impl Source for LoadSource {
    fn next_at_ns(&mut self) -> Option<MonoNs> {
        let next = self.ready.front().filter(|_| self.left > 0);
        next.map(|(at_ns, _)| *at_ns)
    }

    fn take(&mut self) -> Option<Due> {
        let at_ns = self.next_at_ns()?;
        let (_, session) = self.ready.pop_front()?;
        self.left -= 1;
        self.waiting += 1;
        Some(self.sessions.due(session, at_ns, LOAD, 0))
    }

    fn ended(&mut self, session: usize, now_ns: MonoNs, _answered: bool) {
        self.waiting = self.waiting.saturating_sub(1);
        self.ready.push_back((now_ns, session));
    }

    fn is_over(&mut self) -> bool {
        self.left == 0 && self.waiting == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_asked_for_once_and_each_session_waits_for_its_own() {
        let sessions = Sessions {
            sessions: 2,
            links: 1,
        };
        let mut source = LoadSource::new(3, sessions, MonoNs(10));
        let first = source.take().unwrap();
        assert_eq!((first.intended_ns, first.phase), (MonoNs(10), LOAD));
        assert_eq!(source.take().unwrap().session, 1);
        assert!(source.take().is_none(), "both wait");
        assert!(!source.is_over());
        source.ended(1, MonoNs(20), true);
        let last = source.take().unwrap();
        assert_eq!((last.intended_ns, last.session), (MonoNs(20), 1));
        source.ended(0, MonoNs(30), true);
        assert!(source.take().is_none(), "all are asked for");
        assert!(!source.is_over(), "one is still open");
        source.ended(1, MonoNs(40), true);
        assert!(source.is_over());
    }
}
