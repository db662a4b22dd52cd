//! A topic: its partitions, and which broker leads each.

use std::sync::atomic::{AtomicUsize, Ordering};

use unruly_plan::Store;
use unruly_trace::monotonic;

use super::wire::{self, Description};
use super::{Login, PORT};
use crate::introduction::{Conversation, IntroductionError};
use crate::link::Place;
use crate::target::Answer;
use crate::targets::{DriverError, Protocol, Route, Settings, places_by};

use super::connection::Asking;

/// Topics that an error names at most.
const NAMED_MAX: usize = 10;

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
}

impl Route for Topic {
    fn places(&self) -> usize {
        self.brokers.len()
    }

    fn place(&self, _key: Option<&str>, request: u64) -> usize {
        let leader = &self.partition(request).leader;
        leader.load(Ordering::Relaxed)
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
            return Err(wrong(said, WANTED, CREATE));
        }
        if topic.partitions.is_empty() {
            return Err(wrong(
                format!("topic {name:?} has no partitions"),
                WANTED,
                CREATE,
            ));
        }
        let brokers: Vec<i32> = found.brokers.iter().map(|(number, ..)| *number).collect();
        let place = |leader: &i32| brokers.iter().position(|it| it == leader).unwrap_or(0);
        let partitions = topic.partitions.iter().map(|(number, leader)| Partition {
            number: *number,
            leader: AtomicUsize::new(place(leader)),
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

    /// Takes the leaders that a later description names. A broker that there was not is of no use: no
    /// connection leads to it.
    pub(super) fn learn(&self, found: &Description) {
        let topics = found.topics.iter().filter(|it| it.name == self.name);
        for (number, leader) in topics.flat_map(|it| &it.partitions) {
            let known = self.partitions.iter().find(|it| it.number == *number);
            let place = self.brokers.iter().position(|it| it == leader);
            if let (Some(partition), Some(place)) = (known, place) {
                partition.leader.store(place, Ordering::Relaxed);
            }
        }
    }
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
    let hosts = found.brokers.iter();
    store.url.hosts = hosts
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

    fn described(name: &str, code: i16, partitions: &[(i32, i32)]) -> Description {
        let broker = |number: i32| (number, format!("b{number}"), 9092);
        Description {
            brokers: [7, 8].map(broker).to_vec(),
            topics: vec![TopicDescription {
                code: Code(code),
                name: name.to_owned(),
                is_internal: false,
                partitions: partitions.to_vec(),
            }],
        }
    }

    #[test]
    fn requests_go_to_the_leaders_of_the_partitions_in_turn() {
        let found = described("t", 0, &[(0, 8), (1, 7), (2, 8)]);
        let topic = Topic::of("t", &found).expect("a topic");
        let turns = (0..6).map(|it| (topic.partition_of(it), topic.place(None, it)));
        let once = [(0, 1), (1, 0), (2, 1)];
        assert_eq!(turns.collect::<Vec<_>>(), [once, once].concat());
    }

    #[test]
    fn a_leader_that_moved_is_learnt_if_there_is_a_connection_to_it() {
        let topic = Topic::of("t", &described("t", 0, &[(0, 7)])).expect("a topic");
        topic.learn(&described("t", 0, &[(0, 9), (5, 8)]));
        assert_eq!(topic.place(None, 0), 0);
        topic.learn(&described("other", 0, &[(0, 8)]));
        assert_eq!(topic.place(None, 0), 0);
        topic.learn(&described("t", 0, &[(0, 8)]));
        assert_eq!(topic.place(None, 0), 1);
    }

    #[test]
    fn what_is_no_topic_is_refused_with_those_that_there_are() {
        let said = |name: &str, found: &Description| {
            let refused = Topic::of(name, found).err();
            refused.expect("refused").to_string()
        };
        let found = described("orders", 0, &[(0, 7)]);
        assert!(said("", &found).contains("there are orders"));
        assert!(said("other", &found).contains("the broker says nothing of \"other\""));
        let absent = described("t", 3, &[]);
        assert!(said("t", &absent).contains("UnknownTopicOrPartition (error 3)"));
        assert!(said("t", &absent).contains("create it"));
        let empty = described("t", 0, &[]);
        assert!(said("t", &empty).contains("has no partitions"));
    }
}
