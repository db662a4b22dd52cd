//! A topic: its partitions, and which broker leads each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use unruly_plan::Store;
use unruly_trace::{DurationNs, ErrorKind, MonoNs, monotonic};

use super::wire::{self, Description, PartitionDescription};
use super::{Login, PORT};
use crate::introduction::{Conversation, IntroductionError};
use crate::link::Place;
use crate::target::Answer;
use crate::targets::{DriverError, Protocol, Route, Settings, places_by};

use super::connection::Asking;

/// Topics that an error names at most.
const NAMED_MAX: usize = 10;

/// The least time between two requests that ask another broker than the leader for a partition.
const DOUBT_PERIOD: DurationNs = DurationNs::seconds(1);

/// A topic, and the brokers that lead its partitions.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: String,
    /// The numbers of the brokers, in the order of the places.
    brokers: Vec<i32>,
    partitions: Vec<Partition>,
}

#[derive(Debug)]
struct Partition {
    number: i32,
    /// The place of its leader.
    leader: AtomicUsize,
    /// The epoch of that leader.
    epoch: Mutex<i32>,
    /// The next request goes to another broker.
    doubted: AtomicBool,
    /// How often its leader was doubted, and when last.
    doubts: AtomicUsize,
    doubted_ns: AtomicI64,
}

impl Route for Topic {
    fn places(&self) -> usize {
        self.brokers.len()
    }

    /// The place of the leader. A doubted leader's next request goes to another broker, which says
    /// that it does not lead, and then who does.
    fn place(&self, _key: Option<&str>, request: u64) -> usize {
        let partition = self.partition(request);
        let leader = self.leader_of(request);
        let others = self.brokers.len() - 1;
        if others == 0 || !partition.doubted.swap(false, Ordering::Relaxed) {
            return leader;
        }
        let turn = partition.doubts.load(Ordering::Relaxed);
        (leader + 1 + turn % others) % self.brokers.len()
    }
}

impl Topic {
    /// The topic that a URL names, and the places of the brokers.
    ///
    /// # Errors
    ///
    /// When no host of the URL is a broker, or there is no such topic.
    pub(super) fn find(
        settings: &Settings<'_>,
        login: Option<&Login>,
    ) -> Result<(Self, Vec<Place>), DriverError> {
        let url = &settings.store.url;
        let name = url.path.trim_matches('/');
        let hosts = places_by(settings, PORT, PORT, Protocol::None)?;
        let mut failed = None;
        for place in &hosts {
            let asking = Asking::new(login.cloned(), (!name.is_empty()).then_some(name));
            match describe(place, settings, asking) {
                Ok(found) => {
                    let topic = Self::of(name, &found)?;
                    let places = places_of(&found, settings)?;
                    return Ok((topic, places));
                }
                Err(error) => failed = Some(error),
            }
        }
        Err(failed
            .unwrap_or_else(|| wrong("it has no host", "wanted a broker", "kafka://host/topic")))
    }

    pub(super) fn of(name: &str, found: &Description) -> Result<Self, DriverError> {
        if name.is_empty() {
            let own = found.topics.iter().filter(|it| !it.is_internal);
            let mut names: Vec<&str> = own.map(|it| it.name.as_str()).collect();
            names.sort_unstable();
            let more = names.len().saturating_sub(NAMED_MAX);
            names.truncate(NAMED_MAX);
            let there_are = match (names.is_empty(), more) {
                (true, _) => "the cluster has none".to_owned(),
                (false, 0) => format!("there are {}", names.join(", ")),
                (false, more) => format!("there are {} and {more} more", names.join(", ")),
            };
            let wanted = format!("wanted one; {there_are}");
            return Err(wrong(
                "it names no topic",
                wanted,
                "kafka://host:9092/topic",
            ));
        }
        let Some(topic) = found.topics.iter().find(|it| it.name == name) else {
            return Err(wrong(
                format!("the broker says nothing of {name:?}"),
                WANTED,
                CREATE,
            ));
        };
        if topic.code.0 != 0 {
            let said = format!("topic {name:?}: {}", topic.code.words());
            let hint = match topic.code.kind() {
                ErrorKind::Denied => "may this user describe the topic, and write to it?",
                _ => CREATE,
            };
            return Err(wrong(said, WANTED, hint));
        }
        if topic.partitions.is_empty() {
            return Err(wrong(
                format!("topic {name:?} has no partitions"),
                WANTED,
                CREATE,
            ));
        }
        let brokers: Vec<i32> = brokers_of(found).map(|(number, ..)| *number).collect();
        if brokers.is_empty() {
            return Err(wrong(
                "the broker names no brokers",
                "wanted itself",
                CREATE,
            ));
        }
        let place = |leader: i32| brokers.iter().position(|it| *it == leader).unwrap_or(0);
        let partitions = topic.partitions.iter().map(|it| Partition {
            number: it.number,
            leader: AtomicUsize::new(place(it.leader)),
            epoch: Mutex::new(it.epoch),
            doubted: AtomicBool::new(false),
            doubts: AtomicUsize::new(0),
            doubted_ns: AtomicI64::new(0),
        });
        Ok(Self {
            name: name.to_owned(),
            partitions: partitions.collect(),
            brokers,
        })
    }

    fn partition(&self, request: u64) -> &Partition {
        // It has at least one.
        let turn = usize::try_from(request).unwrap_or(0) % self.partitions.len();
        &self.partitions[turn]
    }

    /// The number of the partition that a request writes to: one after the other.
    pub(super) fn partition_of(&self, request: u64) -> i32 {
        self.partition(request).number
    }

    /// The place of the broker that leads the partition of a request, as far as it is known.
    pub(super) fn leader_of(&self, request: u64) -> usize {
        self.partition(request).leader.load(Ordering::Relaxed)
    }

    /// Lets other brokers be asked who leads the partitions of a silent one, each partition at most once
    /// a second.
    pub(super) fn doubt(&self, place: usize, now_ns: MonoNs) {
        for partition in &self.partitions {
            let before_ns = MonoNs(partition.doubted_ns.load(Ordering::Relaxed));
            let leads = partition.leader.load(Ordering::Relaxed) == place;
            if leads && now_ns - before_ns > DOUBT_PERIOD {
                partition.doubted_ns.store(now_ns.0, Ordering::Relaxed);
                partition.doubts.fetch_add(1, Ordering::Relaxed);
                partition.doubted.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Notes that the broker of a place has written to a partition, which another one was thought to
    /// lead when the record was sent. A description of before may not undo it.
    pub(super) fn is_led(&self, number: i32, place: usize, thought: usize) {
        let known = self.partitions.iter().find(|it| it.number == number);
        let Some(partition) = known.filter(|_| place != thought) else {
            return;
        };
        let mut epoch = partition
            .epoch
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let leader = &partition.leader;
        let changed = leader.compare_exchange(thought, place, Ordering::Relaxed, Ordering::Relaxed);
        if changed.is_ok() {
            *epoch = epoch.saturating_add(1);
        }
    }

    /// Takes the leaders that a later description names. A broker that there was not at the start is
    /// of no use: no connection leads to it. An old leader may not know yet that it is none.
    pub(super) fn learn(&self, found: &Description) {
        let topic = found.topics.iter().find(|it| it.name == self.name);
        let Some(topic) = topic else { return };
        let known: HashMap<i32, &PartitionDescription> =
            topic.partitions.iter().map(|it| (it.number, it)).collect();
        for partition in &self.partitions {
            let Some(now) = known.get(&partition.number) else {
                continue;
            };
            let place = self.brokers.iter().position(|it| *it == now.leader);
            let epoch = partition.epoch.lock();
            let mut epoch = epoch.unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = place.filter(|_| now.epoch >= *epoch) {
                *epoch = now.epoch;
                partition.leader.store(place, Ordering::Relaxed);
            }
        }
    }
}

/// The brokers by their numbers, so that a place is the same broker in all parts of a run.
fn brokers_of(found: &Description) -> impl Iterator<Item = &(i32, String, u16)> {
    let mut brokers: Vec<_> = found.brokers.iter().collect();
    brokers.sort_unstable();
    brokers.into_iter()
}

const WANTED: &str = "wanted a topic that there is";
const CREATE: &str = "create it, for example with kafka-topics.sh --create --topic NAME";

fn wrong(
    wrong: impl Into<String>,
    wanted: impl Into<String>,
    hint: impl Into<String>,
) -> DriverError {
    DriverError::new("url", wrong, wanted, hint)
}

/// The places of the brokers, as they announce themselves.
fn places_of(found: &Description, settings: &Settings<'_>) -> Result<Vec<Place>, DriverError> {
    let mut store: Store = settings.store.clone();
    store.url.hosts = brokers_of(found)
        .map(|(_, host, port)| (host.clone(), Some(*port)))
        .collect();
    let settings = Settings {
        store: &store,
        ..*settings
    };
    places_by(&settings, PORT, PORT, Protocol::None)
}

fn absent(error: &IntroductionError) -> DriverError {
    wrong(
        error.what(),
        "wanted a broker of Kafka 2.3 or newer",
        "is it running, and are the port and the login right?",
    )
    .unreachable(error.is_unreachable())
}

/// Asks a broker for the brokers and a topic.
fn describe(
    place: &Place,
    settings: &Settings<'_>,
    asking: Asking,
) -> Result<Description, DriverError> {
    let until_ns = monotonic() + settings.timeout_ns;
    let met = Conversation::open(place, Box::new(asking), until_ns);
    let mut conversation = met.map_err(|error| absent(&error))?;
    conversation.say(|target, out| target.encode_census(out));
    let heard = conversation.hear(until_ns, |incoming, bytes| match incoming.answer {
        Answer::Failed(_, words) => Err(String::from_utf8_lossy(words).into_owned()),
        _ => {
            let reply = bytes.get(wire::LENGTH_BYTES..).and_then(wire::correlation);
            let found = reply.and_then(|(_, rest)| wire::described(rest));
            found.ok_or_else(|| "it describes no topics".to_owned())
        }
    });
    let heard = heard.map_err(|error| absent(&error))?;
    heard.map_err(|said| {
        wrong(
            format!("{place}: {said}"),
            "wanted a broker of Kafka",
            CREATE,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Code, TopicDescription};
    use super::*;

    /// Partitions with the number of the leader and its epoch.
    fn described(name: &str, code: i16, leaders: &[(i32, i32)]) -> Description {
        let broker = |number: i32| (number, format!("b{number}"), 9092);
        let partition = |(number, (leader, epoch)): (i32, &(i32, i32))| PartitionDescription {
            number,
            leader: *leader,
            epoch: *epoch,
        };
        Description {
            brokers: [9, 7, 8].map(broker).to_vec(),
            topics: vec![TopicDescription {
                code: Code(code),
                name: name.to_owned(),
                is_internal: false,
                partitions: (0..).zip(leaders).map(partition).collect(),
            }],
        }
    }

    fn topic(leaders: &[(i32, i32)]) -> Topic {
        Topic::of("t", &described("t", 0, leaders)).expect("a topic")
    }

    #[test]
    fn requests_go_to_the_leaders_of_the_partitions_in_turn() {
        let topic = topic(&[(8, 0), (7, 0), (9, 0)]);
        let turns = (0..6).map(|it| (topic.partition_of(it), topic.place(None, it)));
        let once = [(0, 1), (1, 0), (2, 2)];
        assert_eq!(turns.collect::<Vec<_>>(), [once, once].concat());
    }

    #[test]
    fn a_leader_that_moved_is_learnt_if_there_is_a_connection_to_it() {
        let topic = topic(&[(7, 3)]);
        for (other, place) in [
            (described("t", 0, &[(5, 4)]), 0),
            (described("other", 0, &[(8, 4)]), 0),
            (described("t", 0, &[(8, 4)]), 1),
            // The old leader does not know it yet.
            (described("t", 0, &[(7, 3)]), 1),
            (described("t", 0, &[(9, 5)]), 2),
        ] {
            topic.learn(&other);
            assert_eq!(topic.place(None, 0), place, "{other:?}");
        }
    }

    #[test]
    fn one_request_a_second_of_a_silent_leader_goes_to_another_broker() {
        let topic = topic(&[(7, 0), (8, 0), (7, 0)]);
        let now = |ms: i64| MonoNs(10_000_000_000) + DurationNs::millis(ms);
        let places = || [0, 1, 2, 3].map(|request| topic.place(None, request));
        topic.doubt(0, now(0));
        // Both partitions of the silent broker are asked for once, the other one is not.
        let first = places();
        assert_eq!(first[1], 1);
        assert_ne!((first[0], first[2]), (0, 0));
        assert_eq!(first[3], 0);
        topic.doubt(0, now(900));
        assert_eq!(places(), [0, 1, 0, 0]);
        topic.doubt(0, now(1_100));
        let second = places();
        let mut asked = [first[0], second[0]];
        asked.sort_unstable();
        assert_eq!(asked, [1, 2], "the next one asks the next broker");
    }

    #[test]
    fn a_broker_that_wrote_the_record_leads_the_partition() {
        let topic = topic(&[(7, 3)]);
        // Another one was learnt meanwhile.
        topic.is_led(0, 2, 1);
        assert_eq!(topic.place(None, 0), 0);
        topic.is_led(0, 2, 0);
        assert_eq!(topic.place(None, 0), 2);
        topic.learn(&described("t", 0, &[(7, 3)]));
        assert_eq!(topic.place(None, 0), 2, "that is a description of before");
        topic.learn(&described("t", 0, &[(9, 4)]));
        assert_eq!(topic.place(None, 0), 2);
        topic.learn(&described("t", 0, &[(8, 5)]));
        assert_eq!(topic.place(None, 0), 1);
    }

    #[test]
    fn what_is_no_topic_is_refused_with_those_that_there_are() {
        let said = |name: &str, found: &Description| {
            let refused = Topic::of(name, found).err();
            refused.expect("refused").to_string()
        };
        let found = described("orders", 0, &[(7, 0)]);
        assert!(said("", &found).contains("there are orders"));
        assert!(said("other", &found).contains("the broker says nothing of \"other\""));
        let absent = described("t", 3, &[]);
        assert!(said("t", &absent).contains("UnknownTopicOrPartition (error 3)"));
        assert!(said("t", &absent).contains("create it"));
        let denied = described("t", 29, &[]);
        assert!(said("t", &denied).contains("may this user"));
        let empty = described("t", 0, &[]);
        assert!(said("t", &empty).contains("has no partitions"));
        let alone = Description {
            brokers: Vec::new(),
            ..described("t", 0, &[(7, 0)])
        };
        assert!(said("t", &alone).contains("names no brokers"));
    }
}
