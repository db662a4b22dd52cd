//! Connections to a broker whose replies the library kafka-protocol writes.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiKey, BrokerId, FetchResponse, MetadataResponse, ProduceRequest, ProduceResponse,
    RequestHeader, SaslAuthenticateResponse, SaslHandshakeResponse, TopicName,
};
use kafka_protocol::protocol::{Decodable as _, Encodable, StrBytes};
use kafka_protocol::records::RecordBatchDecoder;
use proptest::prelude::*;
use unruly_plan::{Portion, Secret};

use super::super::super::template::{Escape, Template};
use super::super::super::tests::{READ, asked};
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
    asked(connection, ticket, READ);
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
    for (offset, code) in [(1, 0), (0, 1)] {
        let mut connection = ready(true);
        let (number, own) = batch(&ask(&mut connection, 7));
        let acknowledged = reply(number, PRODUCE, &produced(0, offset));
        assert_eq!(take(&mut connection, &acknowledged), None);
        let returned = reply(number + 1, FETCH, &fetched(code, &own));
        let found = take(&mut connection, &returned);
        assert!(matches!(found, Some((7, Fate::Failed(..)))), "{found:?}");
    }
}

#[test]
fn a_record_that_is_not_there_yet_is_asked_for_again() {
    let mut connection = ready(true);
    let (number, own) = batch(&ask(&mut connection, 7));
    let acknowledged = reply(number, PRODUCE, &produced(0, 0));
    assert_eq!(take(&mut connection, &acknowledged), None);
    // A broker that holds a client back answers without a topic.
    let held_back = FetchResponse::default().with_throttle_time_ms(200);
    let empty = fetched(0, b"");
    for (step, nothing) in (1..).zip([held_back, empty]) {
        connection.queued.clear();
        assert_eq!(
            take(&mut connection, &reply(number + step, FETCH, &nothing)),
            None
        );
        assert_eq!(
            connection.queued[LENGTH_BYTES..][..4],
            [0, 1, 0, 11],
            "a fetch"
        );
    }
    let returned = reply(number + 3, FETCH, &fetched(0, &own));
    assert_eq!(take(&mut connection, &returned), Some((7, Fate::Done)));
}

#[test]
fn a_record_that_nobody_waits_for_any_more_is_not_asked_for_again() {
    let mut connection = ready(true);
    let (number, _) = batch(&ask(&mut connection, 7));
    let acknowledged = reply(number, PRODUCE, &produced(0, 0));
    assert_eq!(take(&mut connection, &acknowledged), None);
    connection.forget(7);
    connection.queued.clear();
    let nothing = reply(number + 1, FETCH, &fetched(0, b""));
    assert_eq!(take(&mut connection, &nothing), None);
    assert!(connection.is_idle() && connection.queued.is_empty());
}

#[test]
fn a_broker_that_is_silent_for_a_second_is_doubted() {
    let mut connection = ready(false);
    let topic = Arc::clone(&connection.records.topic);
    let now = |connection: &Connection, ms: i64| connection.heard_ns + DurationNs::millis(ms);
    connection.doubt_silence(now(&connection, 5_000));
    assert_eq!(topic.place(None, 0), 0, "nothing was asked");
    let (number, _) = batch(&ask(&mut connection, 0));
    connection.doubt_silence(now(&connection, 900));
    assert_eq!(topic.place(None, 0), 0);
    // A reply is no silence, however old the oldest request is.
    ask(&mut connection, 2);
    connection.heard_ns = now(&connection, -60_000);
    take(&mut connection, &reply(number, PRODUCE, &produced(0, 0)));
    connection.doubt_silence(monotonic());
    assert_eq!(topic.place(None, 0), 0);
    connection.doubt_silence(now(&connection, 1_100));
    assert_eq!([0, 0].map(|request| topic.place(None, request)), [1, 0]);
    // The other broker writes the record: it leads now.
    let mut other = Connection::new(Arc::clone(&connection.records), 1);
    other.greet(&mut Vec::new());
    let (number, _) = batch(&ask(&mut other, 4));
    let written = reply(number, PRODUCE, &produced(0, 0));
    assert_eq!(take(&mut other, &written), Some((4, Fate::Done)));
    assert_eq!(topic.place(None, 0), 1);
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
        password: Secret::new("secret".to_owned()),
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
        connection.waiting.push_back(Waiting {
            ticket: 9,
            request: 9,
        });
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
        // What waits for the login fails with it.
        let failed = connection.next_reply().map(|it| it.ticket);
        assert_eq!(failed, (code != 0).then_some(9));
        assert_eq!(connection.is_idle(), code != 0);
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
