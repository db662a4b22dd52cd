//! A name server: `dns://host:53/www.example.org?type=A` (RFC 4501), by datagrams or over TCP.
//!
//! First, a query is the name of the URL with its values, and a number that no other open query of
//! the connection has. Second, a reply belongs to the query with its number: over TCP too, replies
//! may come in another order (RFC 7766). Third, its response code says what became of the query.

use std::collections::HashMap;
use std::sync::Arc;

use simple_dns::rdata::OPT;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, TYPE};
use unruly_plan::{Portion, Transport};
use unruly_trace::ErrorKind;

use super::framed::without_login;
use super::template::{Data, Escape, Template, Turn};
use super::{Driver, DriverError, Settings, places, without_level};
use crate::link::Place;
use crate::target::{ASIDE, Answer, Incoming, Outgoing, ProtocolError, Target};

const PORT: u16 = 53;
const WANTED: &str = "a reply of a name server";

/// Bytes of the head of a message.
const HEAD_BYTES: usize = 12;
/// Bytes of the length before a message over TCP.
const LENGTH_BYTES: usize = 2;
/// Longest datagram that the client takes: it passes every usual network whole (RFC 9715).
const DATAGRAM_BYTES: u16 = 1_232;

/// Numbers that queries may have.
const NUMBERS: usize = 1 << 16;

/// Types of records that may be asked for, by their numbers.
const TYPES: [(&str, u16); 14] = [
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("PTR", 12),
    ("MX", 15),
    ("TXT", 16),
    ("AAAA", 28),
    ("SRV", 33),
    ("NAPTR", 35),
    ("DNSKEY", 48),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("CAA", 257),
];

/// Response codes, by their numbers (RFC 6895).
const CODES: [&str; 11] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET",
    "NXRRSET", "NOTAUTH", "NOTZONE",
];

pub(super) fn make(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    without_level(settings)?;
    without_login(settings)?;
    Ok(Box::new(Dns {
        places: places(settings, PORT)?,
        queries: Arc::new(Queries::new(settings)?),
    }))
}

/// The queries of a plan.
#[derive(Debug)]
struct Queries {
    name: Template,
    kind: TYPE,
    /// Numbers of the response codes that count as success.
    expect: Vec<u8>,
    data: Option<Data>,
    transport: Transport,
    seed: u64,
    portion: Portion,
}

impl Queries {
    fn new(settings: &Settings<'_>) -> Result<Self, DriverError> {
        let url = &settings.store.url;
        let wrong = |wrong: String, wanted: String| {
            DriverError::new("url", wrong, wanted, "dns://host/www.example.org?type=A")
        };
        let kind = url.option("type").unwrap_or("A");
        let known = TYPES.iter().find(|(name, _)| *name == kind);
        let Some((_, kind)) = known else {
            let names: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
            let wanted = format!("wanted one of {}", names.join(", "));
            return Err(wrong(format!("the type is {kind:?}"), wanted));
        };
        let file = settings.store.message.as_ref();
        let file = file.and_then(|it| it.data.as_deref());
        let data = file.map(Data::read).transpose()?;
        let path = url.path.strip_prefix('/').unwrap_or(&url.path);
        if path.is_empty() {
            return Err(wrong(
                "it has no name".to_owned(),
                "wanted a name".to_owned(),
            ));
        }
        let queries = Self {
            name: Template::parse("url", path, Escape::Name, data.as_ref())?,
            kind: TYPE::from(*kind),
            expect: expected(url.option("expect").unwrap_or(CODES[0]))?,
            data,
            transport: settings.transport,
            seed: settings.seed,
            portion: settings.portion,
        };
        queries.check(file)?;
        Ok(queries)
    }

    /// Refuses names that no query can have, and a data file of which nothing is asked.
    fn check(&self, file: Option<&str>) -> Result<(), DriverError> {
        if let Some(file) = file.filter(|_| !self.name.has_data()) {
            return Err(DriverError::new(
                "data",
                format!("no value of {file} is sent"),
                "wanted {data.COLUMN} in the name",
                "dns://host/{data.name}",
            ));
        }
        let rows = self.data.as_ref().map_or(1, Data::rows);
        for number in 0..rows {
            let name = self.name(number);
            if name.is_empty() || self.message(0, number).is_none() {
                let key = if file.is_some() { "data" } else { "url" };
                let wanted = "wanted a name of up to 255 bytes, with up to 63 between two dots";
                let hint = "dns://host/www.example.org";
                return Err(DriverError::new(
                    key,
                    format!("the name is {name:?}"),
                    wanted,
                    hint,
                ));
            }
        }
        Ok(())
    }

    /// The name that a request asks for.
    fn name(&self, number: u64) -> String {
        let turn = Turn::new(self.seed, self.portion, number, "");
        let mut name = Vec::new();
        self.name.write(&turn, self.data.as_ref(), &mut name);
        String::from_utf8_lossy(&name).into_owned()
    }

    /// A query; `None` if its name cannot be asked for.
    fn message(&self, id: u16, number: u64) -> Option<Vec<u8>> {
        let name = self.name(number);
        let name = Name::new(&name).ok()?;
        let mut packet = Packet::new_query(id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let kind = QTYPE::TYPE(self.kind);
        let question = Question::new(name, kind, QCLASS::CLASS(CLASS::IN), false);
        packet.questions.push(question);
        *packet.opt_mut() = Some(OPT {
            opt_codes: Vec::new(),
            udp_packet_size: DATAGRAM_BYTES,
            version: 0,
        });
        packet.build_bytes_vec().ok()
    }

    /// What a reply with these flags says.
    fn judge(&self, flags: u16) -> Answer<'static> {
        let code = (flags & 0xf) as u8;
        if self.expect.contains(&code) {
            return match flags & PacketFlag::TRUNCATION.bits() {
                0 => Answer::Done,
                _ => Answer::Failed(
                    ErrorKind::Store,
                    b"the reply is cut off; hint: transport = \"tcp\"",
                ),
            };
        }
        let name = CODES.get(usize::from(code)).unwrap_or(&"an unknown code");
        let kind = match *name {
            "SERVFAIL" => ErrorKind::Unavailable,
            "REFUSED" | "NOTAUTH" => ErrorKind::Denied,
            _ => ErrorKind::Store,
        };
        Answer::Failed(kind, name.as_bytes())
    }
}

/// The numbers of response codes by their names.
fn expected(names: &str) -> Result<Vec<u8>, DriverError> {
    let number = |name: &str| {
        let place = CODES.iter().position(|it| *it == name);
        place.and_then(|it| u8::try_from(it).ok()).ok_or_else(|| {
            DriverError::new(
                "url",
                format!("it expects {name:?}"),
                format!("wanted some of {}", CODES.join(", ")),
                "dns://host/www.example.org?expect=NOERROR,NXDOMAIN",
            )
        })
    };
    names.split(',').map(number).collect()
}

struct Dns {
    places: Vec<Place>,
    queries: Arc<Queries>,
}

impl Driver for Dns {
    fn places(&self) -> &[Place] {
        &self.places
    }

    fn target(&self, _place: usize) -> Box<dyn Target> {
        Box::new(Connection {
            queries: Arc::clone(&self.queries),
            asked: Asked::default(),
        })
    }

    fn about(&self) -> Option<String> {
        self.queries.data.as_ref().map(Data::about)
    }
}

struct Connection {
    queries: Arc<Queries>,
    asked: Asked,
}

/// The open requests of a connection, and the numbers of their queries.
#[derive(Default)]
struct Asked {
    requests: HashMap<u16, u64>,
    ids: HashMap<u64, u16>,
    next: u16,
}

impl Asked {
    /// Gives a request a number that no open one has. If all are taken, it takes the next one, which the
    /// oldest query has: the reply to that one is not expected any more.
    fn begin(&mut self, request: u64) -> u16 {
        while self.requests.len() < NUMBERS && self.requests.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        if let Some(oldest) = self.requests.insert(id, request) {
            self.ids.remove(&oldest);
        }
        self.ids.insert(request, id);
        id
    }

    /// Takes the request whose query has this number.
    fn end(&mut self, id: u16) -> Option<u64> {
        let request = self.requests.remove(&id)?;
        self.ids.remove(&request);
        Some(request)
    }

    fn forget(&mut self, request: u64) {
        if let Some(id) = self.ids.remove(&request) {
            self.requests.remove(&id);
        }
    }
}

impl Target for Connection {
    fn greet(&mut self, _out: &mut Vec<u8>) -> usize {
        self.asked = Asked::default();
        0
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        let id = self.asked.begin(outgoing.request);
        // A name that random values made too long is not sent, and has no reply.
        let Some(message) = self.queries.message(id, outgoing.number) else {
            self.asked.forget(outgoing.request);
            return;
        };
        if self.queries.transport == Transport::Tcp {
            let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
            out.extend_from_slice(&length.to_be_bytes());
        }
        out.extend_from_slice(&message);
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let (message, bytes) = match self.queries.transport {
            Transport::Udp => (input, input.len()),
            Transport::Tcp => {
                let Some(length) = input.first_chunk::<LENGTH_BYTES>() else {
                    return Ok(None);
                };
                let bytes = LENGTH_BYTES + usize::from(u16::from_be_bytes(*length));
                let Some(message) = input.get(LENGTH_BYTES..bytes) else {
                    return Ok(None);
                };
                (message, bytes)
            }
        };
        let Some([first, second, high, low, ..]) = message.first_chunk::<HEAD_BYTES>() else {
            return Err(ProtocolError::reply(message, WANTED));
        };
        let id = u16::from_be_bytes([*first, *second]);
        let flags = u16::from_be_bytes([*high, *low]);
        if flags & PacketFlag::RESPONSE.bits() == 0 {
            return Err(ProtocolError::reply(message, WANTED));
        }
        // A reply to a query that was given up is late, and no error.
        let (request, answer) = match self.asked.end(id) {
            Some(request) => (request, self.queries.judge(flags)),
            None => (ASIDE, Answer::Done),
        };
        Ok(Some(Incoming::new(request, answer, bytes)))
    }

    fn forget(&mut self, request: u64) {
        self.asked.forget(request);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{READ, asked, driver_of, reply, target_of, whole};
    use super::*;

    fn with(options: &str, more: &str) -> Box<dyn Target> {
        let lines = format!("url = \"dns://127.0.0.1/www.example.org{options}\"\n{more}");
        target_of(&lines).0
    }

    /// The reply to a query, with these flags beside that of a reply.
    fn answered(query: &[u8], flags: u16) -> Vec<u8> {
        let mut reply = query.to_vec();
        let flags = (0x8000 | flags).to_be_bytes();
        reply[2..4].copy_from_slice(&flags);
        reply
    }

    #[test]
    fn a_query_asks_for_the_name_of_the_url_and_any_reply_to_it_in_any_order_counts() {
        let mut target = with("?type=MX", "");
        let first = asked(target.as_mut(), 7, READ);
        let second = asked(target.as_mut(), 8, READ);
        let packet = Packet::parse(&first).unwrap();
        assert_eq!(packet.questions[0].qname.to_string(), "www.example.org");
        assert_eq!(packet.questions[0].qtype, QTYPE::TYPE(TYPE::MX));
        assert!(packet.has_flags(PacketFlag::RECURSION_DESIRED));
        let failed = Answer::Failed(ErrorKind::Store, b"NXDOMAIN");
        for (query, flags, request, answer) in
            [(&second, 0, 8, Answer::Done), (&first, 3, 7, failed)]
        {
            let reply = answered(query, flags);
            let found = whole(target.as_mut(), &reply);
            assert_eq!((found.request, found.answer), (request, answer));
        }
        assert_eq!(whole(target.as_mut(), &answered(&first, 0)).request, ASIDE);
    }

    #[test]
    fn over_tcp_a_length_stands_before_each_message() {
        let mut target = with("", "transport = \"tcp\"");
        let query = asked(target.as_mut(), 7, READ);
        let length = u16::from_be_bytes([query[0], query[1]]);
        assert_eq!(usize::from(length), query.len() - LENGTH_BYTES);
        let mut whole = query[..LENGTH_BYTES].to_vec();
        whole.extend(answered(&query[LENGTH_BYTES..], 0));
        assert_eq!(reply(target.as_mut(), &whole), (7, Answer::Done));
    }

    #[test]
    fn what_a_name_server_says_decides_unless_it_is_expected() {
        let mut target = with("?expect=NOERROR,NXDOMAIN", "");
        for (flags, answer) in [
            (3, Answer::Done),
            (
                0x200,
                Answer::Failed(
                    ErrorKind::Store,
                    b"the reply is cut off; hint: transport = \"tcp\"",
                ),
            ),
            (2, Answer::Failed(ErrorKind::Unavailable, b"SERVFAIL")),
            (5, Answer::Failed(ErrorKind::Denied, b"REFUSED")),
            (15, Answer::Failed(ErrorKind::Store, b"an unknown code")),
        ] {
            let query = asked(target.as_mut(), 7, READ);
            assert_eq!(
                whole(target.as_mut(), &answered(&query, flags)).answer,
                answer
            );
        }
    }

    #[test]
    fn a_reply_to_a_forgotten_query_is_late_and_noise_is_an_error() {
        let mut target = with("", "");
        let query = asked(target.as_mut(), 7, READ);
        target.forget(7);
        assert_eq!(whole(target.as_mut(), &answered(&query, 0)).request, ASIDE);
        for noise in [&b"short"[..], &query] {
            assert!(target.decode(noise).is_err());
        }
    }

    #[test]
    fn no_two_open_queries_have_one_number_until_all_are_taken() {
        let mut open = Asked::default();
        let ids: Vec<u16> = (0..NUMBERS as u64).map(|it| open.begin(it)).collect();
        assert_eq!(ids, (0..=u16::MAX).collect::<Vec<_>>());
        open.forget(5);
        assert_eq!(open.begin(70_000), 5);
        // The next number is that of the oldest query after it.
        assert_eq!(open.begin(70_001), 6);
        open.forget(6);
        assert_eq!(open.end(6), Some(70_001));
        assert_eq!(open.end(6), None);
        assert_eq!(open.end(5), Some(70_000));
    }

    #[test]
    fn what_cannot_be_asked_is_refused_before_the_run() {
        let long = "a".repeat(64);
        for (url, wrong) in [
            ("h:1", "it has no name"),
            ("h/a?type=Z", "the type is \"Z\""),
            ("h/a?expect=FINE", "it expects \"FINE\""),
            (&format!("h/{long}.org"), "the name is"),
            ("h/{data.name}", "data"),
            ("h/{sequnce}", "{sequnce} stands for no value"),
            ("h/{password}", "{password} stands for no value"),
        ] {
            let url = url.replacen('h', "127.0.0.1", 1);
            let said = driver_of(&format!("url = \"dns://{url}\""), None);
            let said = said.err().expect(&url);
            assert!(said.contains(wrong), "{said}");
        }
    }
}
