//! Faults on purpose: what a network or a machine may do, done to one part, from a seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::time::Duration;

use flurry_core::id::{DurationNs, MonoNs};
use flurry_core::message::Message;
use flurry_core::portal::number_of;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng as _;

use unruly_time::WallNs;

use crate::link::{Letter, Peer};

/// Messages held back at most, by delays and reordering; more are lost.
const HELD_MAX: usize = 65_536;

/// By how much a reordered message is overtaken.
const REORDER: DurationNs = DurationNs::millis(1);

/// Operations with a fault of their own that are remembered at most, the latest.
const OPERATIONS_MAX: usize = 4_096;

/// A delay that no distribution exceeds, so that nothing is kept for ever.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// How long a message is held back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Delay {
    /// Always this long.
    Fixed(Duration),
    /// Anything from the first to the second.
    Uniform(Duration, Duration),
    /// At least this long, with a tail: longer than `k` times as long with the chance `k^-shape`.
    Pareto(Duration, f64),
}

/// Which way a message goes, as the part sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the part.
    Sending,
    /// To the part.
    Receiving,
}

/// Whom a fault is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Concerned {
    /// Everybody.
    #[default]
    All,
    /// Who listens at one of these addresses.
    These(Vec<SocketAddr>),
    /// Everybody else.
    Others(Vec<SocketAddr>),
}

/// What happens to messages. Shares are from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fault {
    /// Whose messages.
    pub concerned: Concerned,
    /// Which way; `None` is both.
    pub direction: Option<Direction>,
    /// Time after the part's start at which the fault begins.
    pub after: Duration,
    /// For so long; `None` is for ever.
    pub lasts: Option<Duration>,
    /// The share that is lost; 1 is isolation.
    pub loss: f64,
    /// The share that comes twice.
    pub duplicate: f64,
    /// The share in which a bit is turned.
    pub corrupt: f64,
    /// The share that is overtaken by those up to a millisecond behind.
    pub reorder: f64,
    /// How long all of them take.
    pub delay: Option<Delay>,
}

/// A part that does nothing at all for a while, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// From the part's start to the first pause, and from one beginning to the next.
    pub every: Duration,
    /// How long a pause is.
    pub lasts: Duration,
}

/// The faults of one part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Faults {
    /// What chance is drawn from.
    pub seed: u64,
    /// What happens to its messages; all that concern one are done to it.
    pub messages: Vec<Fault>,
    /// What happens to the part itself.
    pub pause: Option<Pause>,
}

impl Faults {
    pub(crate) fn is_none(&self) -> bool {
        self.messages.is_empty() && self.pause.is_none()
    }
}

/// A message that is due later, or now.
#[derive(Debug)]
pub(crate) struct Held {
    due: MonoNs,
    number: u64,
    pub(crate) peer: Peer,
    pub(crate) message: Message,
    /// When the kernel had it.
    pub(crate) stamp: WallNs,
    pub(crate) corrupt: bool,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

/// Does the faults of one thread of a part.
#[derive(Debug)]
pub(crate) struct Injector {
    faults: Faults,
    /// Faults of single operations, by operation number.
    operations: BTreeMap<u64, Fault>,
    start: MonoNs,
    random: Pcg64Mcg,
    outgoing: BinaryHeap<Reverse<Held>>,
    incoming: BinaryHeap<Reverse<Held>>,
    number: u64,
    pauses: u64,
}

/// What a fault does, without whom it is about.
#[derive(Debug, Clone, Copy)]
struct Shares {
    loss: f64,
    duplicate: f64,
    corrupt: f64,
    reorder: f64,
    delay: Option<Delay>,
}

/// The number of the owner's operation that a message belongs to.
fn operation(message: &Message) -> Option<u64> {
    let id = match message {
        Message::Request(copy) => copy.request.id,
        Message::Reply(reply) => reply.id,
        Message::Answer(answer) => answer.id,
        Message::Control(_) => return None,
    };
    Some(number_of(id.sequence))
}

fn span(of: Duration) -> DurationNs {
    DurationNs(u64::try_from(of.as_nanos()).unwrap_or(u64::MAX))
}

impl Fault {
    fn is_about(&self, peer: Peer, direction: Direction, since: DurationNs) -> bool {
        let address = SocketAddr::V4(peer.address);
        let concerned = match &self.concerned {
            Concerned::All => true,
            Concerned::These(these) => these.contains(&address),
            Concerned::Others(others) => !others.contains(&address),
        };
        let (from, lasts) = (span(self.after), self.lasts.map(span));
        let ended = lasts.is_some_and(|lasts| since.0 >= from.0.saturating_add(lasts.0));
        concerned && self.direction.is_none_or(|it| it == direction) && since >= from && !ended
    }
}

impl Injector {
    /// Returns the injector of these faults. `stream` is a different number for each thread of one
    /// part.
    pub(crate) fn new(now: MonoNs, faults: Faults, stream: u64) -> Self {
        let state = u128::from(faults.seed) << 64 | u128::from(stream) << 1 | 1;
        let mut random = Pcg64Mcg::new(state);
        // The first numbers of a state with few bits look alike.
        for _ in 0..8 {
            random.next_u64();
        }
        Self {
            faults,
            operations: BTreeMap::new(),
            start: now,
            random,
            outgoing: BinaryHeap::new(),
            incoming: BinaryHeap::new(),
            number: 0,
            pauses: 0,
        }
    }

    /// Does this to every message of one operation too.
    pub(crate) fn add_operation(&mut self, number: u64, fault: Fault) {
        self.operations.insert(number, fault);
        if self.operations.len() > OPERATIONS_MAX {
            self.operations.pop_first();
        }
    }

    /// All that happens to a message.
    fn shares(&self, since: DurationNs, direction: Direction, letter: &Letter) -> Vec<Shares> {
        let own = operation(&letter.message).and_then(|number| self.operations.get(&number));
        let all = self.faults.messages.iter().chain(own);
        all.filter(|fault| fault.is_about(letter.from, direction, since))
            .map(|fault| Shares {
                loss: fault.loss,
                duplicate: fault.duplicate,
                corrupt: fault.corrupt,
                reorder: fault.reorder,
                delay: fault.delay,
            })
            .collect()
    }

    /// From 0 to 1, without 1.
    fn uniform(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let high = (self.random.next_u64() >> 11) as f64;
        high / (1_u64 << 53) as f64
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.uniform() < share
    }

    fn delay(&mut self, delay: Delay) -> DurationNs {
        let drawn = match delay {
            Delay::Fixed(fixed) => fixed,
            Delay::Uniform(low, high) => low + high.saturating_sub(low).mul_f64(self.uniform()),
            Delay::Pareto(least, shape) => {
                let factor = (1.0 - self.uniform()).powf(-1.0 / shape);
                let longest = DELAY_MAX.as_secs_f64() / least.as_secs_f64().max(1e-9);
                least.mul_f64(factor.min(longest))
            }
        };
        span(drawn.min(DELAY_MAX))
    }

    /// Decides what becomes of a message, to or from the letter's peer. What is left of it comes out of [`Self::due`], in time.
    pub(crate) fn take(&mut self, now: MonoNs, direction: Direction, letter: &Letter) {
        let since = now.since(self.start);
        let mut corrupt = false;
        let mut delay = DurationNs(0);
        let mut copies = 1;
        for shares in self.shares(since, direction, letter) {
            if self.chance(shares.loss) {
                return;
            }
            corrupt |= self.chance(shares.corrupt);
            copies += usize::from(self.chance(shares.duplicate));
            if self.chance(shares.reorder) {
                delay.0 = delay.0.saturating_add(REORDER.0);
            }
            if let Some(held) = shares.delay {
                delay.0 = delay.0.saturating_add(self.delay(held).0);
            }
        }
        for _ in 0..copies {
            self.number += 1;
            let held = Held {
                due: now.after(delay),
                number: self.number,
                peer: letter.from,
                message: letter.message.clone(),
                stamp: letter.stamp,
                corrupt,
            };
            let heap = self.heap(direction);
            if heap.len() < HELD_MAX {
                heap.push(Reverse(held));
            }
        }
    }

    fn heap(&mut self, direction: Direction) -> &mut BinaryHeap<Reverse<Held>> {
        match direction {
            Direction::Sending => &mut self.outgoing,
            Direction::Receiving => &mut self.incoming,
        }
    }

    /// The next message whose time has come.
    pub(crate) fn due(&mut self, now: MonoNs, direction: Direction) -> Option<Held> {
        let heap = self.heap(direction);
        let Reverse(first) = heap.peek()?;
        if first.due > now {
            return None;
        }
        heap.pop().map(|Reverse(held)| held)
    }

    /// When to look again.
    pub(crate) fn next(&self) -> Option<MonoNs> {
        let first = |heap: &BinaryHeap<Reverse<Held>>| heap.peek().map(|Reverse(held)| held.due);
        let heaps = [first(&self.outgoing), first(&self.incoming)];
        heaps.into_iter().flatten().min()
    }

    /// How long the part has to do nothing from now on.
    pub(crate) fn pause(&mut self, now: MonoNs) -> Option<Duration> {
        let pause = self.faults.pause?;
        let every = span(pause.every).0.max(1);
        let periods = now.since(self.start).0 / every;
        if periods <= self.pauses {
            return None;
        }
        self.pauses = periods;
        Some(pause.lasts)
    }

    /// When the next pause begins.
    pub(crate) fn next_pause(&self) -> Option<MonoNs> {
        let every = span(self.faults.pause?.every).0.max(1);
        Some(MonoNs(
            self.start
                .0
                .saturating_add(every.saturating_mul(self.pauses + 1)),
        ))
    }
}

#[cfg(test)]
mod tests {
    use flurry_core::message::Control;

    use super::*;
    use crate::link::Transport;

    const NOW: MonoNs = MonoNs(1_000_000_000);

    fn letter(peer: Peer) -> Letter {
        Letter {
            from: peer,
            message: Message::Control(Control::StatusQuery),
            stamp: WallNs(0),
        }
    }

    fn peer(text: &str) -> Peer {
        Peer::listening(Transport::Udp, text.parse().unwrap())
    }

    fn passed(fault: &Fault, sent: u64) -> (u64, u64) {
        let faults = Faults {
            seed: 7,
            messages: vec![fault.clone()],
            pause: None,
        };
        let mut injector = Injector::new(NOW, faults, 0);
        let (mut whole, mut turned) = (0, 0);
        for _ in 0..sent {
            injector.take(NOW, Direction::Sending, &letter(peer("127.0.0.1:1")));
            while let Some(held) =
                injector.due(NOW.after(DurationNs(u64::MAX / 2)), Direction::Sending)
            {
                whole += u64::from(!held.corrupt);
                turned += u64::from(held.corrupt);
            }
        }
        (whole, turned)
    }

    #[test]
    fn the_shares_are_what_was_asked_for() {
        let none = Fault::default();
        assert_eq!(passed(&none, 1_000), (1_000, 0));
        let isolated = Fault {
            loss: 1.0,
            ..none.clone()
        };
        assert_eq!(passed(&isolated, 1_000), (0, 0));
        let lossy = Fault {
            loss: 0.2,
            ..none.clone()
        };
        assert!((7_800..8_200).contains(&passed(&lossy, 10_000).0));
        let twice = Fault {
            duplicate: 0.5,
            ..none.clone()
        };
        assert!((14_700..15_300).contains(&passed(&twice, 10_000).0));
        let turned = Fault {
            corrupt: 0.1,
            ..none
        };
        assert!((850..1_150).contains(&passed(&turned, 10_000).1));
    }

    #[test]
    fn a_fault_is_about_whom_when_and_which_way_it_says() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let fault = Fault {
            concerned: Concerned::These(vec![at("127.0.0.1:1")]),
            direction: Some(Direction::Receiving),
            after: Duration::from_secs(1),
            lasts: Some(Duration::from_secs(2)),
            ..Fault::default()
        };
        let about = |who: &str, direction, second: u64| {
            fault.is_about(peer(who), direction, DurationNs::millis(second * 1_000))
        };
        assert!(about("127.0.0.1:1", Direction::Receiving, 1));
        assert!(!about("127.0.0.1:1", Direction::Receiving, 0), "not yet");
        assert!(!about("127.0.0.1:1", Direction::Receiving, 3), "over");
        assert!(!about("127.0.0.1:1", Direction::Sending, 1));
        assert!(!about("127.0.0.1:2", Direction::Receiving, 1));
        let others = Fault {
            concerned: Concerned::Others(vec![at("127.0.0.1:1")]),
            ..Fault::default()
        };
        assert!(others.is_about(peer("127.0.0.1:2"), Direction::Sending, DurationNs(0)));
        assert!(!others.is_about(peer("127.0.0.1:1"), Direction::Sending, DurationNs(0)));
    }

    #[test]
    fn delays_have_the_distribution_that_was_asked_for() {
        let mut injector = Injector::new(NOW, Faults::default(), 3);
        let ms = Duration::from_millis;
        let mut drawn = |delay| {
            let mut all: Vec<u64> = (0..10_001).map(|_| injector.delay(delay).0).collect();
            all.sort_unstable();
            all
        };
        assert!(drawn(Delay::Fixed(ms(5))).iter().all(|it| *it == 5_000_000));
        let uniform = drawn(Delay::Uniform(ms(2), ms(4)));
        assert!(uniform[0] >= 2_000_000 && uniform[10_000] < 4_000_000);
        assert!((2_950_000..3_050_000).contains(&uniform[5_000]));
        let pareto = drawn(Delay::Pareto(ms(1), 2.0));
        assert!(pareto[0] >= 1_000_000);
        // The median is 2^(1/shape), a hundredth is above 100^(1/shape).
        assert!((1_380_000..1_450_000).contains(&pareto[5_000]));
        assert!((9_000_000..11_500_000).contains(&pareto[9_900]));
        let wild = drawn(Delay::Pareto(ms(1), 0.05));
        assert!(wild[10_000] <= 60_000_000_000, "nothing is held for ever");
    }

    #[test]
    fn a_held_message_is_overtaken_and_the_same_seed_does_the_same() {
        let trace = |seed| {
            let faults = Faults {
                seed,
                messages: vec![Fault {
                    delay: Some(Delay::Uniform(Duration::ZERO, Duration::from_millis(5))),
                    ..Fault::default()
                }],
                pause: None,
            };
            let mut injector = Injector::new(NOW, faults, 0);
            for port in 1..=20 {
                let to = peer(&format!("127.0.0.1:{port}"));
                injector.take(NOW, Direction::Sending, &letter(to));
            }
            let mut order = Vec::new();
            while let Some(held) = injector
                .next()
                .and_then(|at| injector.due(at, Direction::Sending))
            {
                order.push(held.peer.address.port());
            }
            order
        };
        assert_eq!(trace(1), trace(1));
        assert_ne!(trace(1), trace(2));
        assert!(!trace(1).is_sorted());
        assert_eq!(trace(1).len(), 20);
    }

    #[test]
    fn pauses_come_once_a_period() {
        let faults = Faults {
            pause: Some(Pause {
                every: Duration::from_millis(200),
                lasts: Duration::from_millis(20),
            }),
            ..Faults::default()
        };
        let mut injector = Injector::new(NOW, faults, 0);
        let at = |ms| NOW.after(DurationNs::millis(ms));
        assert_eq!(injector.pause(at(199)), None);
        assert_eq!(injector.next_pause(), Some(at(200)));
        assert_eq!(injector.pause(at(200)), Some(Duration::from_millis(20)));
        assert_eq!(injector.pause(at(399)), None);
        assert_eq!(injector.pause(at(1_000)), Some(Duration::from_millis(20)));
    }
}
