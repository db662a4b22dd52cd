//! Messages of Kafka: requests as bytes, and what replies say.
//!
//! The library `kafka-protocol` writes the requests. Replies are read here, because the library
//! makes room for as many elements as a reply announces, however short it is: a broken or hostile
//! broker could exhaust the memory. The versions are the last ones before the compact form; Kafka 2.3
//! to 4 and Redpanda have them all.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, FetchRequest, MetadataRequest, ProduceRequest, RequestHeader, SaslAuthenticateRequest,
    SaslHandshakeRequest, TopicName,
};
use kafka_protocol::protocol::{Encodable, StrBytes};
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Record,
    RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use unruly_trace::ErrorKind;

/// Bytes of the length before each message.
pub(super) const LENGTH_BYTES: usize = 4;

pub(super) const PRODUCE: i16 = 7;
pub(super) const FETCH: i16 = 11;
pub(super) const METADATA: i16 = 7;
const HANDSHAKE: i16 = 1;
const AUTHENTICATE: i16 = 0;

/// Most bytes that a fetch returns; one whole batch comes in any case.
const FETCH_BYTES: i32 = 1 << 20;

/// Where the last offset of a batch stands in it, counted from its first.
const LAST_DELTA: usize = 23;

/// Appends a request with its length and header.
fn request(
    out: &mut Vec<u8>,
    (kind, version): (ApiKey, i16),
    correlation: i32,
    body: &impl Encodable,
) {
    let mut message = BytesMut::new();
    let header = RequestHeader::default()
        .with_request_api_key(kind as i16)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(Some(StrBytes::from_static_str("unruly")));
    // Both fail only for what a version cannot say, and these versions can say all of it.
    let _ = header.encode(&mut message, kind.request_header_version(version));
    let _ = body.encode(&mut message, version);
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&message);
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// Asks for the brokers, and for one topic, or for all of them.
pub(super) fn metadata(out: &mut Vec<u8>, correlation: i32, topic: Option<&str>) {
    let named = |it| MetadataRequestTopic::default().with_name(Some(name(it)));
    let body = MetadataRequest::default()
        .with_topics(topic.map(|it| vec![named(it)]))
        .with_allow_auto_topic_creation(false);
    request(out, (ApiKey::Metadata, METADATA), correlation, &body);
}

/// Says that the client logs in with a name and a password.
pub(super) fn handshake(out: &mut Vec<u8>, correlation: i32) {
    let mechanism = StrBytes::from_static_str("PLAIN");
    let body = SaslHandshakeRequest::default().with_mechanism(mechanism);
    request(out, (ApiKey::SaslHandshake, HANDSHAKE), correlation, &body);
}

/// Logs in (RFC 4616).
pub(super) fn authenticate(out: &mut Vec<u8>, correlation: i32, user: &str, password: &str) {
    let body = SaslAuthenticateRequest::default()
        .with_auth_bytes(Bytes::from(format!("\0{user}\0{password}")));
    request(
        out,
        (ApiKey::SaslAuthenticate, AUTHENTICATE),
        correlation,
        &body,
    );
}

/// Writes one record to a partition.
pub(super) fn produce(
    out: &mut Vec<u8>,
    correlation: i32,
    (topic, partition): (&str, i32),
    (acknowledgements, wait_ms): (i16, i32),
    value: Vec<u8>,
) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let timestamp = now.map_or(0, |it| i64::try_from(it.as_millis()).unwrap_or(0));
    let record = Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        timestamp_type: TimestampType::Creation,
        offset: 0,
        sequence: NO_SEQUENCE,
        timestamp,
        key: None,
        value: Some(value.into()),
        headers: Default::default(),
    };
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    let mut batch = BytesMut::new();
    // It fails for other versions and for compression alone.
    let _ = RecordBatchEncoder::encode(&mut batch, [&record], &options);
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(batch.freeze()));
    let data = TopicProduceData::default()
        .with_name(name(topic))
        .with_partition_data(vec![data]);
    let body = ProduceRequest::default()
        .with_acks(acknowledgements)
        .with_timeout_ms(wait_ms)
        .with_topic_data(vec![data]);
    request(out, (ApiKey::Produce, PRODUCE), correlation, &body);
}

/// Reads a partition from an offset on; the broker waits until there is something.
pub(super) fn fetch(
    out: &mut Vec<u8>,
    correlation: i32,
    (topic, partition): (&str, i32),
    offset: i64,
    wait_ms: i32,
) {
    let own = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1);
    let own = FetchTopic::default()
        .with_topic(name(topic))
        .with_partitions(vec![own]);
    let body = FetchRequest::default()
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(FETCH_BYTES)
        .with_topics(vec![own]);
    request(out, (ApiKey::Fetch, FETCH), correlation, &body);
}

/// An error code of Kafka.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Code(pub(super) i16);

impl Code {
    fn known(self) -> Option<ResponseError> {
        ResponseError::try_from_code(self.0)
    }

    /// True if another broker leads the partition now, or soon.
    pub(super) fn has_moved(self) -> bool {
        use ResponseError as It;
        matches!(
            self.known(),
            Some(
                It::NotLeaderOrFollower
                    | It::LeaderNotAvailable
                    | It::FencedLeaderEpoch
                    | It::UnknownTopicOrPartition
                    | It::KafkaStorageError
            )
        )
    }

    /// The kind of failure that it is.
    pub(super) fn kind(self) -> ErrorKind {
        use ResponseError as It;
        match self.known() {
            Some(
                It::LeaderNotAvailable
                | It::NotLeaderOrFollower
                | It::RequestTimedOut
                | It::BrokerNotAvailable
                | It::ReplicaNotAvailable
                | It::NotEnoughReplicas
                | It::NotEnoughReplicasAfterAppend
                | It::FencedLeaderEpoch
                | It::KafkaStorageError
                | It::UnknownTopicOrPartition,
            ) => ErrorKind::Unavailable,
            Some(
                It::TopicAuthorizationFailed
                | It::ClusterAuthorizationFailed
                | It::SaslAuthenticationFailed
                | It::UnsupportedSaslMechanism
                | It::IllegalSaslState,
            ) => ErrorKind::Denied,
            _ => ErrorKind::Store,
        }
    }

    /// Its name and number.
    pub(super) fn words(self) -> String {
        match self.known() {
            None | Some(ResponseError::Unknown(_)) => format!("error {} of Kafka", self.0),
            Some(known) => format!("{known} (error {})", self.0),
        }
    }
}

/// Reads a reply from its start on; `None` where it is too short, or no such reply.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn i16(&mut self) -> Option<i16> {
        self.take(2)?.try_into().ok().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take(4)?.try_into().ok().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take(8)?.try_into().ok().map(i64::from_be_bytes)
    }

    /// A text; the empty one where there is none.
    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.i16()?).unwrap_or(0);
        std::str::from_utf8(self.take(length)?).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.i32()?).unwrap_or(0);
        self.take(length)
    }

    /// How many elements follow; none where there is no list.
    fn count(&mut self) -> Option<usize> {
        Some(usize::try_from(self.i32()?).unwrap_or(0))
    }

    /// Skips a list of numbers of some bytes each.
    fn skip(&mut self, bytes: usize) -> Option<()> {
        let whole = self.count()?.checked_mul(bytes)?;
        self.take(whole).map(|_| ())
    }
}

/// The number of the request that a reply is for, and the rest of the reply.
pub(super) fn correlation(message: &[u8]) -> Option<(i32, &[u8])> {
    let mut reader = Reader(message);
    Some((reader.i32()?, reader.0))
}

/// What an attempt to log in came to.
pub(super) struct LoggedIn<'a> {
    pub(super) code: Code,
    pub(super) words: &'a str,
}

/// Reads the reply to a handshake.
pub(super) fn handshaken(reply: &[u8]) -> Option<(Code, Vec<&str>)> {
    let mut reader = Reader(reply);
    let code = Code(reader.i16()?);
    let count = reader.count()?;
    let mechanisms = (0..count).map(|_| reader.text());
    Some((code, mechanisms.collect::<Option<_>>()?))
}

/// Reads the reply to a login.
pub(super) fn logged_in(reply: &[u8]) -> Option<LoggedIn<'_>> {
    let mut reader = Reader(reply);
    let (code, words) = (Code(reader.i16()?), reader.text()?);
    reader.bytes()?;
    Some(LoggedIn { code, words })
}

/// Reads the reply to one record: its error, and its offset.
pub(super) fn produced(reply: &[u8]) -> Option<(Code, i64)> {
    let mut reader = Reader(reply);
    let topics = reader.count()?;
    reader.text()?;
    let partitions = reader.count()?;
    reader.i32()?;
    let found = (Code(reader.i16()?), reader.i64()?);
    // When it was appended, and where the log begins.
    reader.take(16)?;
    reader.i32()?;
    (topics == 1 && partitions == 1).then_some(found)
}

/// What a fetch came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetched {
    /// A batch that spans the offset came.
    Record,
    /// Nothing came: there is nothing yet, or the broker holds this client back.
    Nothing,
    /// The batch that came is of other offsets.
    Other,
    Refused(Code),
}

/// Reads the reply to a fetch of one partition from an offset on.
pub(super) fn fetched(reply: &[u8], offset: i64) -> Option<Fetched> {
    let mut reader = Reader(reply);
    reader.i32()?;
    let whole = Code(reader.i16()?);
    reader.i32()?;
    let topics = reader.count()?;
    if whole.0 != 0 {
        return Some(Fetched::Refused(whole));
    }
    if topics == 0 {
        return Some(Fetched::Nothing);
    }
    reader.text()?;
    let partitions = reader.count()?;
    reader.i32()?;
    let code = Code(reader.i16()?);
    // The high watermark, the last stable offset, and where the log begins.
    reader.take(24)?;
    // Transactions that were given up.
    reader.skip(16)?;
    reader.i32()?;
    let records = reader.bytes()?;
    (topics == 1 && partitions == 1).then_some(match code {
        Code(0) if records.is_empty() => Fetched::Nothing,
        Code(0) if spans(records, offset) => Fetched::Record,
        Code(0) => Fetched::Other,
        code => Fetched::Refused(code),
    })
}

/// True if the first batch of some records spans an offset.
fn spans(records: &[u8], offset: i64) -> bool {
    let first = Reader(records).i64();
    let delta = records
        .get(LAST_DELTA..)
        .and_then(|rest| Reader(rest).i32());
    let (Some(first), Some(delta)) = (first, delta) else {
        return false;
    };
    first <= offset && offset <= first.saturating_add(delta.into())
}

/// What a broker says of itself, the others, and topics.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Description {
    /// The number, host and port of each broker.
    pub(super) brokers: Vec<(i32, String, u16)>,
    pub(super) topics: Vec<TopicDescription>,
}

/// What a broker says of a topic.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TopicDescription {
    pub(super) code: Code,
    pub(super) name: String,
    /// It is one of Kafka's own.
    pub(super) is_internal: bool,
    pub(super) partitions: Vec<PartitionDescription>,
}

/// What a broker says of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PartitionDescription {
    pub(super) number: i32,
    /// The number of the broker that leads it.
    pub(super) leader: i32,
    /// How often it has had another leader.
    pub(super) epoch: i32,
}

/// Reads the reply to a question about topics.
pub(super) fn described(reply: &[u8]) -> Option<Description> {
    let mut reader = Reader(reply);
    reader.i32()?;
    let mut brokers = Vec::new();
    for _ in 0..reader.count()? {
        let (number, host) = (reader.i32()?, reader.text()?.to_owned());
        brokers.push((number, host, u16::try_from(reader.i32()?).ok()?));
        reader.text()?;
    }
    // The name of the cluster and the number of its controller.
    reader.text()?;
    reader.i32()?;
    let mut topics = Vec::new();
    for _ in 0..reader.count()? {
        topics.push(topic_of(&mut reader)?);
    }
    Some(Description { brokers, topics })
}

fn topic_of(reader: &mut Reader<'_>) -> Option<TopicDescription> {
    let (code, name) = (Code(reader.i16()?), reader.text()?.to_owned());
    let is_internal = reader.take(1)? != [0];
    let mut partitions = Vec::new();
    for _ in 0..reader.count()? {
        reader.i16()?;
        partitions.push(PartitionDescription {
            number: reader.i32()?,
            leader: reader.i32()?,
            epoch: reader.i32()?,
        });
        // The replicas, those in sync, and those that are gone.
        reader.skip(4)?;
        reader.skip(4)?;
        reader.skip(4)?;
    }
    Some(TopicDescription {
        code,
        name,
        is_internal,
        partitions,
    })
}
