//! A connection to a broker: the login, and then one record after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use unruly_trace::ErrorKind;

use super::super::template::Turn;
use super::wire::{self, Code, LENGTH_BYTES};
use super::{Login, Records};
use crate::target::{
    ASIDE, Answer, Fate, GREETING, Incoming, Outgoing, ProtocolError, REPLY_BYTES_MAX, Reply,
    Target,
};

/// The message at the start of the input, without its length; `None` when more bytes are needed.
fn message(input: &[u8]) -> Result<Option<&[u8]>, ProtocolError> {
    let Some((length, rest)) = input.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if !(LENGTH_BYTES..=REPLY_BYTES_MAX).contains(&length) {
        return Err(ProtocolError::reply(input, "a reply of Kafka"));
    }
    Ok(rest.get(..length))
}

/// How far the login of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshake,
    Login,
    Ready,
    /// It is of no use: the engine ends it and makes another one, after a pause.
    Broken,
}

/// The login of a connection.
struct Session {
    login: Option<Login>,
    stage: Stage,
}

impl Session {
    const fn new(login: Option<Login>) -> Self {
        Self {
            login,
            stage: Stage::Ready,
        }
    }

    /// Begins anew, and appends the first bytes. Returns how many greetings will come.
    fn begin(&mut self, out: &mut Vec<u8>) -> usize {
        if self.login.is_none() {
            self.stage = Stage::Ready;
            return 0;
        }
        self.stage = Stage::Handshake;
        wire::handshake(out, 0);
        1
    }

    /// Takes a reply before the connection is ready. Returns what the greeting came to, at its end.
    fn take<'a>(
        &mut self,
        reply: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Answer<'a>>, ProtocolError> {
        let wrong = || ProtocolError::reply(reply, "a reply of Kafka to a login");
        let answer = match self.stage {
            Stage::Handshake => {
                let (code, known) = wire::handshaken(reply).ok_or_else(wrong)?;
                if code.0 == 0 {
                    if let Some(Login { user, password }) = &self.login {
                        wire::authenticate(out, 1, user, password);
                    }
                    self.stage = Stage::Login;
                    return Ok(None);
                }
                let words: &[u8] = if known.is_empty() {
                    b"the broker takes no login"
                } else {
                    b"the broker does not take SASL's PLAIN"
                };
                Answer::Failed(ErrorKind::Denied, words)
            }
            _ => {
                let found = wire::logged_in(reply).ok_or_else(wrong)?;
                let words = match found.words {
                    "" => "the broker refuses the login",
                    words => words,
                };
                match found.code {
                    Code(0) => Answer::Done,
                    code => Answer::Failed(code.kind(), words.as_bytes()),
                }
            }
        };
        self.stage = match answer {
            Answer::Done => Stage::Ready,
            _ => Stage::Broken,
        };
        Ok(Some(answer))
    }

    /// Takes a message of the greeting.
    fn greeting<'a>(
        &mut self,
        reply: &'a [u8],
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<Incoming<'a>, ProtocolError> {
        Ok(match self.take(reply, out)? {
            Some(answer) => Incoming::new(GREETING, answer, bytes),
            None => Incoming::new(ASIDE, Answer::Sent, bytes),
        })
    }
}

/// A request that the broker has.
enum Open {
    Record { ticket: u64, partition: i32 },
    Read { ticket: u64, offset: i64 },
    Description,
}

/// A connection over which records are written.
pub(super) struct Connection {
    records: Arc<Records>,
    session: Session,
    /// The place that it leads to.
    place: usize,
    /// Tickets and numbers of requests that were not sent.
    waiting: VecDeque<(u64, u64)>,
    /// In the order in which they were sent, with the number of each on the wire.
    open: VecDeque<(i32, Open)>,
    /// Tickets that nobody waits for any more.
    forgotten: Vec<u64>,
    /// Messages that no request is behind.
    queued: Vec<u8>,
    replies: VecDeque<Reply>,
    /// Requests of this connection so far.
    count: i32,
}

impl Connection {
    pub(super) fn new(records: Arc<Records>, place: usize) -> Self {
        Self {
            session: Session::new(records.login.clone()),
            records,
            place,
            waiting: VecDeque::new(),
            open: VecDeque::new(),
            forgotten: Vec::new(),
            queued: Vec::new(),
            replies: VecDeque::new(),
            count: 0,
        }
    }

    /// Notes a request that is sent now. Returns its number on the wire.
    fn begin(&mut self, open: Open) -> i32 {
        self.count = self.count.wrapping_add(1);
        self.open.push_back((self.count, open));
        self.count
    }

    fn end(&mut self, ticket: u64, fate: Fate, bytes: usize) {
        if let Some(place) = self.forgotten.iter().position(|it| *it == ticket) {
            self.forgotten.swap_remove(place);
            return;
        }
        self.replies.push_back(Reply {
            ticket,
            fate,
            code: None,
            bytes,
        });
    }

    /// A request was refused. Another leader of its partition is asked for.
    fn refused(&mut self, ticket: u64, code: Code, bytes: usize) {
        if code.has_moved() && !self.describes() {
            let number = self.begin(Open::Description);
            wire::metadata(&mut self.queued, number, Some(&self.records.topic.name));
        }
        let fate = Fate::Failed(code.kind(), code.words().into_bytes());
        self.end(ticket, fate, bytes);
    }

    fn describes(&self) -> bool {
        let mut open = self.open.iter();
        open.any(|(_, it)| matches!(it, Open::Description))
    }

    /// Takes the reply to the oldest request.
    fn take(&mut self, number: i32, reply: &[u8], bytes: usize) -> Result<(), ProtocolError> {
        let wrong = || ProtocolError::reply(reply, "the reply of Kafka to this request");
        let (asked, open) = self.open.pop_front().ok_or(ProtocolError::Unasked)?;
        if asked != number {
            return Err(wrong());
        }
        match open {
            Open::Description => {
                let found = wire::described(reply).ok_or_else(wrong)?;
                self.records.topic.learn(&found);
            }
            Open::Record { ticket, partition } => {
                let (code, offset) = wire::produced(reply).ok_or_else(wrong)?;
                if code.0 != 0 {
                    self.refused(ticket, code, bytes);
                } else if self.records.reads && !self.forgotten.contains(&ticket) {
                    let number = self.begin(Open::Read { ticket, offset });
                    let Records { topic, wait_ms, .. } = &*self.records;
                    let place = (topic.name.as_str(), partition);
                    wire::fetch(&mut self.queued, number, place, offset, *wait_ms);
                } else {
                    self.end(ticket, Fate::Done, bytes);
                }
            }
            Open::Read { ticket, offset } => {
                match wire::fetched(reply, offset).ok_or_else(wrong)? {
                    (Code(0), true) => self.end(ticket, Fate::Done, bytes),
                    (Code(0), false) => {
                        let words = b"an acknowledged record was not returned".to_vec();
                        self.end(ticket, Fate::Failed(ErrorKind::Unavailable, words), bytes);
                    }
                    (code, _) => self.refused(ticket, code, bytes),
                }
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Connection")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Target for Connection {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        *self = Self::new(Arc::clone(&self.records), self.place);
        self.session.begin(out)
    }

    fn encode(&mut self, outgoing: &Outgoing<'_>, _out: &mut Vec<u8>) {
        match self.session.stage {
            Stage::Broken => self.end(outgoing.request, Fate::Untouched, 0),
            _ => self.waiting.push_back((outgoing.request, outgoing.number)),
        }
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some(message) = message(input)? else {
            return Ok(None);
        };
        let bytes = LENGTH_BYTES + message.len();
        let (number, reply) = wire::correlation(message).ok_or(ProtocolError::Unasked)?;
        if self.session.stage == Stage::Ready {
            self.take(number, reply, bytes)?;
            return Ok(Some(Incoming::new(ASIDE, Answer::Sent, bytes)));
        }
        let greeting = self.session.greeting(reply, bytes, &mut self.queued)?;
        Ok(Some(greeting))
    }

    fn has_streams(&self) -> bool {
        true
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        if !self.queued.is_empty() {
            out.append(&mut self.queued);
            return None;
        }
        if self.session.stage != Stage::Ready {
            return None;
        }
        let (ticket, request) = self.waiting.pop_front()?;
        let partition = self.records.topic.partition_of(request);
        let number = self.begin(Open::Record { ticket, partition });
        let records = &*self.records;
        let mut value = Vec::new();
        let turn = Turn::new(records.seed, records.portion, request, "");
        records
            .value
            .write(&turn, records.data.as_ref(), &mut value);
        wire::produce(
            out,
            number,
            (&records.topic.name, partition),
            (records.acknowledgements, records.wait_ms),
            value,
        );
        Some(ticket)
    }

    fn next_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    fn is_closing(&self) -> bool {
        self.session.stage == Stage::Broken
    }

    fn is_proven(&self) -> bool {
        self.session.stage == Stage::Ready
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.open.is_empty() && self.replies.is_empty()
    }

    fn forget(&mut self, ticket: u64) {
        if let Some(place) = self.waiting.iter().position(|(it, _)| *it == ticket) {
            self.waiting.remove(place);
        } else {
            self.forgotten.push(ticket);
        }
    }

    fn may_send_again(&self) -> bool {
        false
    }
}

/// A connection on which a broker describes the cluster, before the run.
pub(super) struct Asking {
    session: Session,
    topic: Option<String>,
    /// Messages of the login.
    queued: Vec<u8>,
}

impl Asking {
    /// Asks about one topic, or about all of them.
    pub(super) fn new(login: Option<Login>, topic: Option<&str>) -> Self {
        Self {
            session: Session::new(login),
            topic: topic.map(str::to_owned),
            queued: Vec::new(),
        }
    }
}

impl Target for Asking {
    fn greet(&mut self, out: &mut Vec<u8>) -> usize {
        self.session.begin(out)
    }

    fn encode(&mut self, _outgoing: &Outgoing<'_>, _out: &mut Vec<u8>) {}

    fn encode_census(&mut self, out: &mut Vec<u8>) -> bool {
        wire::metadata(out, 2, self.topic.as_deref());
        true
    }

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<Incoming<'a>>, ProtocolError> {
        let Some(message) = message(input)? else {
            return Ok(None);
        };
        let bytes = LENGTH_BYTES + message.len();
        if self.session.stage == Stage::Ready {
            return Ok(Some(Incoming::new(0, Answer::Done, bytes)));
        }
        let (_, reply) = wire::correlation(message).ok_or(ProtocolError::Unasked)?;
        let greeting = self.session.greeting(reply, bytes, &mut self.queued)?;
        Ok(Some(greeting))
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        out.append(&mut self.queued);
        None
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
    use kafka_protocol::messages::metadata_response::{
        MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };
    use kafka_protocol::messages::produce_response::{
        PartitionProduceResponse, TopicProduceResponse,
    };
    use kafka_protocol::messages::{
        ApiKey, BrokerId, FetchResponse, MetadataResponse, ProduceRequest, ProduceResponse,
        RequestHeader, SaslAuthenticateResponse, SaslHandshakeResponse, TopicName,
    };
    use kafka_protocol::protocol::{Decodable as _, Encodable, StrBytes};
    use kafka_protocol::records::RecordBatchDecoder;
    use proptest::prelude::*;
    use unruly_plan::Portion;
    use unruly_trace::MonoNs;

    use super::super::super::template::{Escape, Template};
    use super::super::super::tests::READ;
    use super::super::topic::Topic;
    use super::super::wire::{FETCH, METADATA, PRODUCE};
    use super::*;
    use crate::targets::Route as _;

    const NAME: &str = "orders";

    fn topic_name() -> TopicName {
        TopicName(StrBytes::from_static_str(NAME))
    }

    /// A reply as a broker sends it, by the library.
    fn reply(number: i32, version: i16, body: &impl Encodable) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        bytes.extend_from_slice(&number.to_be_bytes());
        body.encode(&mut bytes, version).expect("it can be written");
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&length, &bytes[..]].concat()
    }

    fn description(leaders: &[i32]) -> MetadataResponse {
        let broker = |number: i32| {
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(number))
                .with_host(StrBytes::from_static_str("127.0.0.1"))
                .with_port(9092 + number)
        };
        let partition = |(number, leader): (i32, &i32)| {
            MetadataResponsePartition::default()
                .with_partition_index(number)
                .with_leader_id(BrokerId(*leader))
                .with_replica_nodes(vec![BrokerId(1), BrokerId(2)])
                .with_isr_nodes(vec![BrokerId(1)])
        };
        let topic = MetadataResponseTopic::default()
            .with_name(Some(topic_name()))
            .with_partitions((0..).zip(leaders).map(partition).collect());
        MetadataResponse::default()
            .with_brokers(vec![broker(1), broker(2)])
            .with_cluster_id(Some(StrBytes::from_static_str("a cluster")))
            .with_topics(vec![topic])
    }

    fn topic(leaders: &[i32]) -> Topic {
        let bytes = reply(2, METADATA, &description(leaders));
        let (_, rest) = wire::correlation(&bytes[LENGTH_BYTES..]).expect("a number");
        let found = wire::described(rest).expect("a description");
        assert_eq!(found.brokers[1], (2, "127.0.0.1".to_owned(), 9094));
        Topic::of(NAME, &found).expect("a topic")
    }

    fn connection(login: Option<Login>, reads: bool) -> Connection {
        let value = Template::parse("message", "order {sequence}", Escape::Body, None);
        let records = Records {
            topic: Arc::new(topic(&[1, 2])),
            login,
            acknowledgements: -1,
            reads,
            value: value.expect("a template"),
            data: None,
            wait_ms: 1000,
            seed: 1,
            portion: Portion::new(0, 1),
        };
        Connection::new(Arc::new(records), 0)
    }

    fn ready(reads: bool) -> Connection {
        let mut connection = connection(None, reads);
        assert_eq!(connection.greet(&mut Vec::new()), 0);
        connection
    }

    fn ask(connection: &mut Connection, ticket: u64) -> Vec<u8> {
        let outgoing = Outgoing {
            request: ticket,
            number: ticket,
            session: 0,
            intended_ns: MonoNs(0),
            operation: READ,
        };
        connection.encode(&outgoing, &mut Vec::new());
        let mut out = Vec::new();
        assert_eq!(connection.drain(&mut out), Some(ticket));
        out
    }

    fn produced(code: i16, offset: i64) -> ProduceResponse {
        let own = PartitionProduceResponse::default()
            .with_error_code(code)
            .with_base_offset(offset);
        let own = TopicProduceResponse::default()
            .with_name(topic_name())
            .with_partition_responses(vec![own]);
        ProduceResponse::default().with_responses(vec![own])
    }

    fn fetched(code: i16, records: &[u8]) -> FetchResponse {
        let own = PartitionData::default()
            .with_error_code(code)
            .with_records(Some(Bytes::copy_from_slice(records)));
        let own = FetchableTopicResponse::default()
            .with_topic(topic_name())
            .with_partitions(vec![own]);
        FetchResponse::default().with_responses(vec![own])
    }

    fn take(connection: &mut Connection, bytes: &[u8]) -> Option<(u64, Fate)> {
        for end in 0..bytes.len() {
            let part = connection.decode(&bytes[..end]).expect("a part");
            assert!(part.is_none(), "after {end} bytes");
        }
        let incoming = connection.decode(bytes).expect("a reply").expect("whole");
        assert_eq!((incoming.request, incoming.bytes), (ASIDE, bytes.len()));
        connection.next_reply().map(|it| (it.ticket, it.fate))
    }

    /// The batch of a request, and the number of the request on the wire.
    fn batch(request: &[u8]) -> (i32, Bytes) {
        let mut bytes = Bytes::copy_from_slice(&request[LENGTH_BYTES..]);
        let version = ApiKey::Produce.request_header_version(PRODUCE);
        let header = RequestHeader::decode(&mut bytes, version).expect("a header");
        assert_eq!(header.request_api_version, PRODUCE);
        let body = ProduceRequest::decode(&mut bytes, PRODUCE).expect("a request");
        assert_eq!((body.acks, body.timeout_ms), (-1, 1000));
        assert_eq!(body.topic_data[0].name, topic_name());
        let own = &body.topic_data[0].partition_data[0];
        (header.correlation_id, own.records.clone().expect("records"))
    }

    #[test]
    fn a_request_is_a_record_and_its_acknowledgement_the_reply() {
        let mut connection = ready(false);
        let sent = ask(&mut connection, 7);
        let (number, mut records) = batch(&sent);
        let found = RecordBatchDecoder::decode(&mut records).expect("a batch");
        assert_eq!(found.records[0].value, Some(Bytes::from_static(b"order 8")));
        assert!(!connection.is_idle());
        let bytes = reply(number, PRODUCE, &produced(0, 40));
        assert_eq!(take(&mut connection, &bytes), Some((7, Fate::Done)));
        assert!(connection.is_idle());
    }

    #[test]
    fn a_request_that_is_read_ends_when_its_record_was_returned() {
        let mut connection = ready(true);
        let (number, records) = batch(&ask(&mut connection, 7));
        let acknowledged = reply(number, PRODUCE, &produced(0, 0));
        assert_eq!(take(&mut connection, &acknowledged), None);
        let mut out = Vec::new();
        assert_eq!(connection.drain(&mut out), None);
        assert_eq!(out[LENGTH_BYTES..][..4], [0, 1, 0, 11], "a fetch");
        let returned = reply(number + 1, FETCH, &fetched(0, &records));
        assert_eq!(take(&mut connection, &returned), Some((7, Fate::Done)));
    }

    #[test]
    fn an_acknowledged_record_that_is_not_returned_is_a_failure() {
        for (offset, code, records) in [(0, 0, false), (1, 0, true), (0, 1, true)] {
            let mut connection = ready(true);
            let (number, own) = batch(&ask(&mut connection, 7));
            let acknowledged = reply(number, PRODUCE, &produced(0, offset));
            assert_eq!(take(&mut connection, &acknowledged), None);
            let own = if records { &own[..] } else { b"" };
            let returned = reply(number + 1, FETCH, &fetched(code, own));
            let found = take(&mut connection, &returned);
            assert!(matches!(found, Some((7, Fate::Failed(..)))), "{found:?}");
        }
    }

    #[test]
    fn a_broker_that_leads_no_more_is_asked_who_does() {
        let mut connection = ready(false);
        let topic = Arc::clone(&connection.records.topic);
        assert_eq!((topic.place(None, 0), topic.place(None, 1)), (0, 1));
        let (number, _) = batch(&ask(&mut connection, 0));
        let refused = reply(number, PRODUCE, &produced(6, -1));
        let words = b"NotLeaderOrFollower (error 6)".to_vec();
        let failed = Fate::Failed(ErrorKind::Unavailable, words);
        assert_eq!(take(&mut connection, &refused), Some((0, failed)));
        let mut out = Vec::new();
        assert_eq!(connection.drain(&mut out), None);
        assert_eq!(out[LENGTH_BYTES..][..4], [0, 3, 0, 7], "a question");
        let moved = reply(number + 1, METADATA, &description(&[2, 1]));
        assert_eq!(take(&mut connection, &moved), None);
        assert_eq!((topic.place(None, 0), topic.place(None, 1)), (1, 0));
    }

    #[test]
    fn a_reply_to_a_request_that_was_given_up_is_dropped() {
        let mut connection = ready(true);
        let (number, _) = batch(&ask(&mut connection, 7));
        connection.forget(7);
        let bytes = reply(number, PRODUCE, &produced(0, 0));
        assert_eq!(take(&mut connection, &bytes), None);
        assert!(connection.is_idle() && connection.forgotten.is_empty());
    }

    #[test]
    fn a_reply_that_nobody_asked_for_is_not_of_the_protocol() {
        let mut connection = ready(false);
        let bytes = reply(1, PRODUCE, &produced(0, 0));
        assert_eq!(connection.decode(&bytes), Err(ProtocolError::Unasked));
        let (number, _) = batch(&ask(&mut connection, 7));
        let other = reply(number + 1, PRODUCE, &produced(0, 0));
        assert!(connection.decode(&other).is_err());
        assert!(connection.decode(b"HTTP/1.1 400 Bad").is_err());
    }

    #[test]
    fn a_user_logs_in_before_the_first_record_goes() {
        let login = || Login {
            user: "app".to_owned(),
            password: "secret".to_owned(),
        };
        for (code, words, wanted) in [
            (0, "", Answer::Done),
            (58, "no", Answer::Failed(ErrorKind::Denied, b"no")),
            (
                58,
                "",
                Answer::Failed(ErrorKind::Denied, b"the broker refuses the login"),
            ),
        ] {
            let mut connection = connection(Some(login()), false);
            let mut out = Vec::new();
            assert_eq!(connection.greet(&mut out), 1);
            let mechanisms = vec![StrBytes::from_static_str("PLAIN")];
            let greeting = SaslHandshakeResponse::default().with_mechanisms(mechanisms);
            let bytes = reply(0, 1, &greeting);
            let incoming = connection.decode(&bytes).unwrap().expect("whole");
            assert_eq!(incoming.request, ASIDE);
            out.clear();
            assert_eq!(connection.drain(&mut out), None);
            assert!(out.ends_with(b"\0\0\0\x0b\0app\0secret"), "{out:?}");
            let words = Some(StrBytes::from_static_str(words));
            let end = SaslAuthenticateResponse::default()
                .with_error_code(code)
                .with_error_message(words);
            let bytes = reply(1, 0, &end);
            let incoming = connection.decode(&bytes).unwrap().expect("whole");
            assert_eq!((incoming.request, incoming.answer), (GREETING, wanted));
            assert_eq!(connection.is_closing(), code != 0);
        }
        let mut connection = connection(Some(login()), false);
        connection.greet(&mut Vec::new());
        let refusal = SaslHandshakeResponse::default().with_error_code(33);
        let bytes = reply(0, 1, &refusal);
        let incoming = connection.decode(&bytes).unwrap().expect("whole");
        assert!(matches!(
            incoming.answer,
            Answer::Failed(ErrorKind::Denied, _)
        ));
        assert!(connection.is_closing());
    }

    proptest! {
        #[test]
        fn any_reply_is_taken_or_refused(
            body in prop::collection::vec(any::<u8>(), 0..200), number in 0_i32..3,
            reads in any::<bool>(), known in any::<bool>()
        ) {
            let mut connection = ready(reads);
            ask(&mut connection, 1);
            let mut input = u32::try_from(4 + body.len()).unwrap().to_be_bytes().to_vec();
            input.extend_from_slice(&number.to_be_bytes());
            input.extend_from_slice(&body);
            if let Ok(Some(incoming)) = connection.decode(if known { &input } else { &body }) {
                prop_assert!(incoming.bytes <= input.len());
            }
            let _ = (wire::described(&body), wire::fetched(&body, 0), wire::handshaken(&body));
            let _ = (wire::logged_in(&body), wire::produced(&body));
        }

        #[test]
        fn a_list_that_is_longer_than_its_reply_makes_no_room(count in 1_i32..) {
            let mut body = vec![0; 4];
            body.extend_from_slice(&count.to_be_bytes());
            prop_assert_eq!(wire::described(&body), None);
        }
    }
}
