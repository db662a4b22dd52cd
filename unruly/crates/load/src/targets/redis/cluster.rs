//! A Redis Cluster: which node has which key.
//!
//! First, a host of the URL names the nodes and their slots, before the run. Second, a client has a
//! connection to each node, and sends a request to the node that has the slot of its key. Third, a
//! node that says `MOVED` names the present owner of a slot, for this request and all later ones. So a
//! replica that takes over from a dead node is found as soon as any other node knows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis_protocol::redis_keyslot;
use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;
use unruly_plan::Store;
use unruly_trace::monotonic;

use super::super::{DriverError, Protocol, Settings, places_by};
use super::{NESTING_MAX, PORT, WANTED, command, failure, nesting};
use crate::introduction::{Conversation, IntroductionError};
use crate::link::Place;
use crate::target::{Answer, GREETING, Incoming, Outgoing, ProtocolError, Target};
use crate::targets::Route;

/// Slots of a cluster.
const SLOTS: usize = 16_384;

/// What a node says that has not the slot of a key.
const MOVED: &[u8] = b"MOVED ";

/// What a node says whose slot is being migrated, and which has the key no more.
const ASK: &[u8] = b"ASK ";

/// The nodes of a cluster, and the owners of its slots.
#[derive(Debug)]
pub(super) struct Cluster {
    /// In the order of the places.
    nodes: Vec<Node>,
    owners: Vec<AtomicUsize>,
}

#[derive(Debug)]
struct Node {
    host: String,
    /// Its name, where it has announced one: certificates and `MOVED` may have it.
    name: Option<String>,
    port: u16,
}

impl Route for Cluster {
    fn places(&self) -> usize {
        self.nodes.len()
    }

    fn place(&self, key: Option<&str>, _request: u64) -> usize {
        let slot = redis_keyslot(key.unwrap_or_default().as_bytes());
        self.owners[usize::from(slot) % SLOTS].load(Ordering::Relaxed)
    }
}

impl Cluster {
    /// The cluster of a URL, and the places of its nodes.
    ///
    /// # Errors
    ///
    /// When no host of the URL answers, or the one that does is no node of a cluster.
    pub(super) fn find(
        settings: &Settings<'_>,
        greeting: &Greeting,
    ) -> Result<(Arc<Self>, Vec<Place>), DriverError> {
        let hosts = places_by(settings, PORT, PORT, Protocol::None)?;
        let mut failed = None;
        for (place, (host, _)) in hosts.iter().zip(&settings.store.url.hosts) {
            match describe(place, settings, greeting) {
                Ok(reply) => {
                    let cluster = Self::of_reply(&reply, host).ok_or_else(|| {
                        let shown = String::from_utf8_lossy(&reply[..reply.len().min(80)]);
                        wrong(format!("{place} says {shown:?}"))
                    })?;
                    let places = cluster.places_of_nodes(settings)?;
                    return Ok((Arc::new(cluster), places));
                }
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| wrong("it has no host".to_owned())))
    }

    /// The cluster that a reply to `CLUSTER NODES` describes; `None` if it describes none. Each line is
    /// `id host:port@port flags master .. link slots`. A node that does not know its own address is
    /// `host`.
    fn of_reply(reply: &[u8], host: &str) -> Option<Self> {
        let (RangeFrame::BulkString((start, end)), _) = decode_range(reply).ok()?? else {
            return None;
        };
        let text = std::str::from_utf8(&reply[start..end]).ok()?;
        let mut nodes = Vec::new();
        let mut owners = vec![None; SLOTS];
        for line in text.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, address, flags, _, _, _, _, _, slots @ ..] = &fields[..] else {
                return None;
            };
            // One that nobody can reach, that is not a member yet, or that died and has no slots.
            let is = |word: &str| flags.split(',').any(|it| it == word);
            if is("noaddr") || is("handshake") || (is("fail") && slots.is_empty()) {
                continue;
            }
            for range in slots.iter().filter(|it| !it.starts_with('[')) {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let own = owners.get_mut(first.parse().ok()?..=last.parse().ok()?)?;
                own.fill(Some(nodes.len()));
            }
            let (own, more) = address.split_once('@').unwrap_or((address, ""));
            let (own, port) = own.rsplit_once(':')?;
            let name = more.split(',').nth(1).filter(|it| !it.is_empty());
            nodes.push(Node {
                host: if own.is_empty() { host } else { own }.to_owned(),
                name: name.map(str::to_owned),
                port: port.parse().ok()?,
            });
        }
        // A slot without an owner is asked for at the first node, which says that it has none.
        let owners = owners
            .into_iter()
            .map(|it| AtomicUsize::new(it.unwrap_or(0)));
        (!nodes.is_empty()).then(|| Self {
            nodes,
            owners: owners.collect(),
        })
    }

    fn places_of_nodes(&self, settings: &Settings<'_>) -> Result<Vec<Place>, DriverError> {
        let mut store: Store = settings.store.clone();
        let secure = store.url.is_secure();
        let hosts = self.nodes.iter().map(|node| {
            let named = node.name.as_ref().filter(|_| secure);
            (named.unwrap_or(&node.host).clone(), Some(node.port))
        });
        store.url.hosts = hosts.collect();
        let settings = Settings {
            store: &store,
            ..*settings
        };
        places_by(&settings, PORT, PORT, Protocol::None)
    }

    /// What the words of an error say that the node of a place said: that the key is at another node,
    /// or is on its way there. `None` if the error is of another kind, or names a node that there was not.
    pub(super) fn learn(&self, words: &[u8], place: usize) -> Option<Answer<'static>> {
        let moved = words.starts_with(MOVED);
        let rest = words
            .strip_prefix(MOVED)
            .or_else(|| words.strip_prefix(ASK))?;
        let text = std::str::from_utf8(rest).ok()?;
        let (slot, address) = text.split_once(' ')?;
        let known = self.owners.get(slot.parse::<usize>().ok()?)?;
        let (host, port) = address.split_whitespace().next()?.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        // Without a host it is that of the node which says so.
        let host = match host {
            "" | "?" => self.nodes.get(place)?.host.as_str(),
            host => host,
        };
        let named = |node: &Node| node.host == host || node.name.as_deref() == Some(host);
        let other = self
            .nodes
            .iter()
            .position(|it| it.port == port && named(it))?;
        if !moved {
            return Some(Answer::Ask(other));
        }
        known.store(other, Ordering::Relaxed);
        Some(Answer::Moved)
    }
}

fn wrong(wrong: String) -> DriverError {
    DriverError::new(
        "url",
        wrong,
        "wanted a node of a Redis Cluster that describes it",
        "leave out cluster=true for a server of its own",
    )
}

fn absent(error: &IntroductionError) -> DriverError {
    DriverError::new(
        "url",
        error.what(),
        "wanted a node of a Redis Cluster",
        "is it running, and are the port and the password right?",
    )
    .unreachable(error.is_unreachable())
}

/// The bytes that a connection begins with, and how many replies they have.
#[derive(Debug, Clone, Default)]
pub(super) struct Greeting {
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
}

impl Greeting {
    pub(super) fn say(&mut self, words: &[&str]) {
        command(&mut self.bytes, words);
        self.count += 1;
    }
}

/// Asks a node for the nodes of its cluster. Returns its reply as it came.
fn describe(
    place: &Place,
    settings: &Settings<'_>,
    greeting: &Greeting,
) -> Result<Vec<u8>, DriverError> {
    let until_ns = monotonic() + settings.timeout_ns;
    let asking = Asking {
        greeting: greeting.clone(),
        left: 0,
    };
    let met = Conversation::open(place, Box::new(asking), until_ns);
    let mut conversation = met.map_err(|error| absent(&error))?;
    conversation.say(|_, out| {
        command(out, &["CLUSTER", "NODES"]);
        true
    });
    let heard = conversation.hear(until_ns, |incoming, bytes| match incoming.answer {
        Answer::Failed(_, words) => {
            let words = String::from_utf8_lossy(words);
            Err(wrong(format!("{place}: {words}")))
        }
        _ => Ok(bytes.to_vec()),
    });
    heard.map_err(|error| absent(&error))?
}

/// A connection on which a node describes its cluster.
struct Asking {
    greeting: Greeting,
    /// Replies to the greeting that have not come.
    left: usize,
}

impl Target for Asking {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(&self.greeting.bytes);
        self.left = self.greeting.count;
        self.left
    }

    fn encode(&mut self, _outgoing: &Outgoing<'_>, _out: &mut Vec<u8>) {}

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        if nesting(input) > NESTING_MAX {
            return Err(ProtocolError::reply(input, WANTED));
        }
        let decoded = decode_range(input).map_err(|_| ProtocolError::reply(input, WANTED))?;
        let Some((frame, bytes)) = decoded else {
            return Ok(None);
        };
        let answer = match frame {
            RangeFrame::Error((start, end)) => failure(&input[start..end]),
            _ => Answer::Done,
        };
        let request = if self.left > 0 { GREETING } else { 0 };
        self.left = self.left.saturating_sub(1);
        Ok(Some(Incoming::new(request, answer, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two masters with half of the slots each, a replica of the second, and two nodes that are gone.
    const NODES: [&str; 5] = [
        "aa :7000@17000 myself,master - 0 0 1 connected 0 1-8191 [93-<-bb]",
        "bb 10.0.0.2:7001@17001,name master - 0 0 2 connected 8192-16383",
        "cc 10.0.0.3:7002@17002 slave bb 0 0 2 connected",
        "dd :0@0 slave,noaddr bb 0 0 2 disconnected",
        "ee 10.0.0.5:7003@17003 master,fail - 0 0 2 disconnected",
    ];

    fn reply(lines: &[&str]) -> Vec<u8> {
        let text = lines.join("\n") + "\n";
        format!("${}\r\n{text}\r\n", text.len()).into_bytes()
    }

    fn cluster() -> Cluster {
        Cluster::of_reply(&reply(&NODES), "10.0.0.1").expect("a cluster")
    }

    #[test]
    fn a_key_is_asked_for_at_the_master_of_its_slot() {
        let found = cluster();
        let nodes = ["10.0.0.1:7000", "10.0.0.2:7001", "10.0.0.3:7002"];
        let names = found
            .nodes
            .iter()
            .map(|it| format!("{}:{}", it.host, it.port));
        assert_eq!(names.collect::<Vec<_>>(), nodes);
        // Slots of the specification: 12182 for "foo", 5061 for "bar".
        assert_eq!(
            (found.place(Some("foo"), 0), found.place(Some("bar"), 0)),
            (1, 0)
        );
    }

    #[test]
    fn a_slot_that_moved_is_asked_for_where_the_error_says() {
        let found = cluster();
        assert_eq!(
            found.learn(b"MOVED 12182 10.0.0.3:7002", 0),
            Some(Answer::Moved)
        );
        assert_eq!(found.place(Some("foo"), 0), 2);
        assert_eq!(
            found.learn(b"MOVED 12182 name:7001", 0),
            Some(Answer::Moved)
        );
        assert_eq!(found.place(Some("foo"), 0), 1);
        assert_eq!(found.learn(b"MOVED 12182 :7002", 2), Some(Answer::Moved));
        assert_eq!(found.place(Some("foo"), 0), 2);
        assert_eq!(found.learn(b"MOVED 12182 :7002", 0), None);
        assert_eq!(
            found.learn(b"ASK 12182 10.0.0.2:7001", 0),
            Some(Answer::Ask(1))
        );
        for words in [
            &b"MOVED 12182 10.0.0.9:7002"[..],
            b"MOVED 99999 10.0.0.3:7002",
            b"MOVED x",
            b"ASK 12182 10.0.0.9:7002",
            b"ERR 12182 10.0.0.3:7002",
        ] {
            assert_eq!(found.learn(words, 0), None, "{words:?}");
        }
        assert_eq!(found.place(Some("foo"), 0), 2);
    }

    #[test]
    fn what_describes_no_cluster_is_none() {
        let foreign = [
            &b"*0\r\n"[..],
            b"+OK\r\n",
            b"$0\r\n\r\n",
            b"$9",
            b"$2\r\n\xff\xff\r\n",
        ];
        for reply in foreign {
            assert!(Cluster::of_reply(reply, "h").is_none(), "{reply:?}");
        }
        for line in [
            "aa :7000@17000 master - 0 0 1 connected 0-16384",
            "aa :99999@17000 master - 0 0 1 connected 0",
            "aa 7000 master - 0 0 1 connected 0",
            "aa :7000@17000 master",
        ] {
            assert!(Cluster::of_reply(&reply(&[line]), "h").is_none(), "{line}");
        }
    }
}
