//! The drivers: a file for each system that can be asked, and a line for it here.

mod dns;
mod framed;
mod group_rpc;
mod grpc;
mod http;
mod http2;
mod kafka;
mod library;
mod memcached;
mod null;
mod program;
mod redis;
mod sql;
mod template;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use unruly_plan::{Portion, Secret, Store, Transport};
use unruly_trace::DurationNs;

use crate::link::Place;
use crate::target::Target;
use crate::tls::{TlsClient, TlsError, config};

pub use group_rpc::GroupRpc;

/// What makes a driver of what the plan says.
type Make = fn(&Settings<'_>) -> Result<Box<dyn Driver>, DriverError>;

/// A kind of target: what its URLs are like, and what asks it.
pub struct Scheme {
    /// The scheme of its URLs.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Its URLs.
    pub form: &'static str,
    /// The options of its URLs, and their meanings.
    pub options: &'static [(&'static str, &'static str)],
    make: Make,
}

/// Every target that has a driver.
const SCHEMES: [Scheme; 23] = [
    Scheme {
        name: "redis",
        about: "Redis, and what speaks its protocol",
        form: "redis://[user@]host[:6379][/database]",
        options: &REDIS_OPTIONS,
        make: redis::make,
    },
    Scheme {
        name: "rediss",
        about: "Redis, by TLS",
        form: "rediss://[user@]host[:6379][/database]",
        options: &REDIS_OPTIONS,
        make: redis::make,
    },
    Scheme {
        name: "memcached",
        about: "memcached, over TCP or UDP",
        form: "memcached://host[:11211]",
        options: &[],
        make: memcached::make,
    },
    Scheme {
        name: "memcacheds",
        about: "memcached, by TLS",
        form: "memcacheds://host[:11211]",
        options: &[],
        make: memcached::make,
    },
    Scheme {
        name: "http",
        about: "an HTTP server",
        form: "http://[user@]host[:80]/path?query",
        options: &[],
        make: http::make,
    },
    Scheme {
        name: "https",
        about: "an HTTP server, by TLS",
        form: "https://[user@]host[:443]/path?query",
        options: &[],
        make: http::make,
    },
    Scheme {
        name: "openai",
        about: "a language model, by the API of OpenAI",
        form: "openai://host[:80]/v1",
        options: &OPENAI_OPTIONS,
        make: http::make,
    },
    Scheme {
        name: "openais",
        about: "a language model, by TLS",
        form: "openais://host[:443]/v1",
        options: &OPENAI_OPTIONS,
        make: http::make,
    },
    Scheme {
        name: "grpc",
        about: "a method of gRPC",
        form: "grpc://host[:50051]/package.Service/Method",
        options: &[],
        make: grpc::make,
    },
    Scheme {
        name: "grpcs",
        about: "a method of gRPC, by TLS",
        form: "grpcs://host[:443]/package.Service/Method",
        options: &[],
        make: grpc::make,
    },
    Scheme {
        name: "postgres",
        about: "PostgreSQL",
        form: "postgres://user@host[:5432]/database",
        options: &SQL_OPTIONS,
        make: sql::postgres,
    },
    Scheme {
        name: "mysql",
        about: "MySQL and MariaDB",
        form: "mysql://user@host[:3306]/database",
        options: &SQL_OPTIONS,
        make: sql::mysql,
    },
    Scheme {
        name: "dns",
        about: "a name server, over UDP or TCP",
        form: "dns://host[:53]/name",
        options: &[
            (
                "type",
                "type of the records: A, AAAA, MX, TXT, .. [default: A]",
            ),
            (
                "expect",
                "response codes that count as success [default: NOERROR]",
            ),
        ],
        make: dns::make,
    },
    Scheme {
        name: "tcp",
        about: "a server of messages over TCP, each in a frame",
        form: "tcp://host:port",
        options: &MESSAGE_OPTIONS,
        make: framed::make,
    },
    Scheme {
        name: "tls",
        about: "a server of messages, by TLS",
        form: "tls://host:port",
        options: &MESSAGE_OPTIONS,
        make: framed::make,
    },
    Scheme {
        name: "kafka",
        about: "a topic of Apache Kafka",
        form: "kafka://[user@]host[:9092],../topic",
        options: &KAFKA_OPTIONS,
        make: kafka::make,
    },
    Scheme {
        name: "kafkas",
        about: "a topic of Apache Kafka, by TLS",
        form: "kafkas://[user@]host[:9092],../topic",
        options: &KAFKA_OPTIONS,
        make: kafka::make,
    },
    Scheme {
        name: "cassandra",
        about: "Apache Cassandra, by CQL",
        form: "cassandra://[user@]host[:9042],..[/keyspace]",
        options: &[("replicas", "copies of each row in a keyspace that is made")],
        make: library::make,
    },
    Scheme {
        name: "etcd",
        about: "etcd, by gRPC",
        form: "etcd://host[:2379],..",
        options: &[],
        make: library::make,
    },
    Scheme {
        name: "flurry",
        about: "Flurry, by its public client",
        form: "flurry://host[:7700],..[/session]",
        options: &[],
        make: library::make,
    },
    Scheme {
        name: "garage-k2v",
        about: "Garage, by its K2V",
        form: "garage-k2v://KEY@host[:3904],../bucket",
        options: &[],
        make: library::make,
    },
    Scheme {
        name: "program",
        about: "a program of yours, in any language",
        form: "program:COMMAND",
        options: &[],
        make: program::make,
    },
    Scheme {
        name: "null",
        about: "nothing at all: the latency of unruly itself",
        form: "null:",
        options: &[],
        make: null::make,
    },
];

const SQL_OPTIONS: [(&str, &str); 1] =
    [("tls", "true: the connections speak TLS [default: false]")];

const REDIS_OPTIONS: [(&str, &str); 2] = [
    (
        "cluster",
        "true: the hosts are of a Redis Cluster, which names its other nodes [default: false]",
    ),
    ("replicas", "copies of each write that --level waits for"),
];

const MESSAGE_OPTIONS: [(&str, &str); 2] = [
    (
        "framing",
        "lines, length4 (a length of four bytes) or resp [default: lines]",
    ),
    ("contains", "text that each reply must have"),
];

const KAFKA_OPTIONS: [(&str, &str); 2] = [
    (
        "acks",
        "replicas that acknowledge a record: all that are in sync, or 1 [default: all]",
    ),
    (
        "until",
        "ack, or read: a request ends when a fetch has returned its record [default: ack]",
    ),
];

const OPENAI_OPTIONS: [(&str, &str); 4] = [
    (
        "model",
        "name that the server knows the model by [default: default]",
    ),
    ("max_tokens", "longest reply"),
    ("api", "chat or completions [default: chat]"),
    ("stream", "true or false: tokens one by one [default: true]"),
];

/// What a driver is made of.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// What the plan says of the store.
    pub store: &'a Store,
    /// How requests travel.
    pub transport: Transport,
    /// How long a reply is awaited.
    pub timeout_ns: DurationNs,
    /// What lets the user in.
    pub password: Option<&'a Secret>,
    /// Random values of requests follow from it.
    pub seed: u64,
    /// Which of the requests this process sends.
    pub portion: Portion,
    /// The first half of the ids of its traces.
    pub trace_key: u64,
    /// Where the program `unruly` is, which asks some stores in a process of its own.
    pub own: Option<&'a str>,
}

/// A plan that a driver cannot carry out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("drive.{key}: {wrong}; {wanted}; hint: {hint}")]
pub struct DriverError {
    /// The key of the plan.
    pub key: &'static str,
    /// What is wrong, with the value.
    pub wrong: String,
    /// What was wanted.
    pub wanted: String,
    /// What to do next.
    pub hint: String,
    /// True if nothing answered at the address, so that another host may reach it.
    pub is_unreachable: bool,
}

impl DriverError {
    /// Returns the error of a server that was not reached, if this is one.
    fn unreachable(self, is_unreachable: bool) -> Self {
        Self {
            is_unreachable,
            ..self
        }
    }

    fn new(
        key: &'static str,
        wrong: impl Into<String>,
        wanted: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            key,
            wrong: wrong.into(),
            wanted: wanted.into(),
            hint: hint.into(),
            is_unreachable: false,
        }
    }
}

/// Speaks to one store.
pub trait Driver: Send {
    /// Where it is: the connections of the clients lead to these in turn.
    fn places(&self) -> &[Place];

    /// What the bytes of a new connection to one of the places mean.
    fn target(&self, place: usize) -> Box<dyn Target>;

    /// What the driver sends that no plan holds, in words for the run's events.
    fn about(&self) -> Option<String> {
        None
    }

    /// Which place has a key, where not every place has all of them.
    fn route(&self) -> Option<Arc<dyn Route>> {
        None
    }

    /// Whether all clients share one connection.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Which place of a store has a key. Each client has a connection to every place then.
pub trait Route: Send + Sync + std::fmt::Debug {
    /// How many places there are.
    fn places(&self) -> usize;

    /// The number of the place that has a key, or that takes the request of this number if it has none.
    fn place(&self, key: Option<&str>, request: u64) -> usize;
}

/// The driver of a plan.
///
/// # Errors
///
/// When there is no such driver, or it cannot do what the plan says, or the host is unknown.
pub fn driver(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    let url = &settings.store.url;
    let found = SCHEMES.iter().find(|it| it.name == url.scheme);
    let Some(scheme) = found else {
        let known: Vec<&str> = SCHEMES.iter().map(|it| it.name).collect();
        return Err(DriverError::new(
            "url",
            format!("there is no driver {:?}", url.scheme),
            format!("wanted one of {}", known.join(", ")),
            "any other store can be asked by a program: unruly/docs/drivers.md",
        ));
    };
    if settings.transport == Transport::Udp && !matches!(url.scheme.as_str(), "memcached" | "dns") {
        return Err(DriverError::new(
            "transport",
            format!("{} is not spoken over udp", url.scheme),
            "wanted tcp",
            "remove transport",
        ));
    }
    check_options(settings, scheme)?;
    (scheme.make)(settings)
}

/// Every kind of target.
#[must_use]
pub fn schemes() -> &'static [Scheme] {
    &SCHEMES
}

/// The addresses of the hosts of a URL.
fn addresses(settings: &Settings<'_>, port: u16) -> Result<Vec<SocketAddr>, DriverError> {
    let hosts = settings.store.url.hosts.iter().map(|(host, given)| {
        let port = given.unwrap_or(port);
        let found = (host.as_str(), port).to_socket_addrs().ok();
        found.and_then(|mut found| found.next()).ok_or_else(|| {
            DriverError::new(
                "url",
                format!("{host:?} leads nowhere"),
                "wanted a host that has an address",
                "is the name right?",
            )
            .unreachable(true)
        })
    });
    hosts.collect()
}

/// The places of the hosts of a URL.
fn places(settings: &Settings<'_>, port: u16) -> Result<Vec<Place>, DriverError> {
    let place = match settings.transport {
        Transport::Tcp => Place::Stream,
        Transport::Udp => Place::Datagram,
    };
    Ok(addresses(settings, port)?.into_iter().map(place).collect())
}

/// What the handshake of TLS says of the protocol above it (RFC 7301).
#[derive(Clone, Copy)]
enum Protocol {
    /// Nothing.
    None,
    /// The server may choose this one, or say nothing.
    Offered(&'static [u8]),
    /// The server must choose this one.
    Required(&'static [u8]),
}

/// The places of the hosts of a URL, by TLS where its scheme says so.
fn places_by(
    settings: &Settings<'_>,
    port: u16,
    tls_port: u16,
    protocol: Protocol,
) -> Result<Vec<Place>, DriverError> {
    if !settings.store.url.is_secure() {
        return places(settings, port);
    }
    let wrong = |error: TlsError| {
        let hint = match error.key {
            "ca_cert" => "ca_cert names a PEM file of the authority",
            "url" => "is the name right?",
            _ => "name PEM files of one certificate and its key",
        };
        DriverError::new(
            error.key,
            error.wrong,
            "wanted a file or a name that TLS can use",
            hint,
        )
    };
    let (offered, required) = match protocol {
        Protocol::None => (None, None),
        Protocol::Offered(name) => (Some(name), None),
        Protocol::Required(name) => (Some(name), Some(name)),
    };
    let config = config(&settings.store.tls, offered).map_err(wrong)?;
    let hosts = settings.store.url.hosts.iter();
    let places = hosts
        .zip(addresses(settings, tls_port)?)
        .map(|((host, _), address)| {
            let client = TlsClient::new(&config, host, required).map_err(wrong)?;
            Ok(Place::Secure(address, client))
        });
    places.collect()
}

/// Refuses options of a URL that a target does not have. The query of HTTP belongs to the server.
fn check_options(settings: &Settings<'_>, scheme: &Scheme) -> Result<(), DriverError> {
    let url = &settings.store.url;
    if matches!(scheme.name, "http" | "https") {
        return Ok(());
    }
    let known: Vec<&str> = scheme.options.iter().map(|(name, _)| *name).collect();
    match url.options().find(|(name, _)| !known.contains(name)) {
        None => Ok(()),
        Some((name, _)) => Err(DriverError::new(
            "url",
            format!("{} has no option {name:?}", url.scheme),
            if known.is_empty() {
                "wanted none".to_owned()
            } else {
                format!("wanted {}", known.join(", "))
            },
            format!("unruly targets {}", url.scheme),
        )),
    }
}

/// Refuses a level for a store that has none.
fn without_level(settings: &Settings<'_>) -> Result<(), DriverError> {
    match settings.store.level {
        None => Ok(()),
        Some(level) => Err(DriverError::new(
            "level",
            format!(
                "{} knows no level, and this is {:?}",
                settings.store.url.scheme,
                level.name()
            ),
            "wanted none",
            "remove level",
        )),
    }
}

/// Refuses a path.
fn without_path(settings: &Settings<'_>) -> Result<(), DriverError> {
    let url = &settings.store.url;
    if matches!(url.path.as_str(), "" | "/") {
        return Ok(());
    }
    Err(DriverError::new(
        "url",
        format!("it has the path {:?}", url.path),
        format!("wanted none for {}", url.scheme),
        format!("{}://host:port", url.scheme),
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use unruly_plan::{Load, Plan};

    use super::*;
    use crate::target::{Answer, Incoming, Operation, Outgoing};

    /// The driver of a drive with these lines.
    pub(crate) fn driver_of(
        lines: &str,
        password: Option<&str>,
    ) -> Result<Box<dyn Driver>, String> {
        let text = format!("name = \"t\"\n[run]\nduration = \"1s\"\n[drive]\n{lines}");
        let Load::Drive(drive) = Plan::parse("plan", &text).expect("a plan").load else {
            panic!("a drive was written");
        };
        let password = password.map(|it| Secret::new(it.to_owned()));
        let settings = Settings {
            store: drive.store.as_ref().expect("a store was written"),
            transport: drive.transport,
            timeout_ns: DurationNs::seconds(1),
            password: password.as_ref(),
            seed: 1,
            portion: Portion::new(0, 1),
            trace_key: 0x7ace,
            own: Some("/a/path/to/unruly"),
        };
        driver(&settings).map_err(|error| error.to_string())
    }

    /// A new connection of a drive with these lines, and what it says first.
    pub(crate) fn target_of(lines: &str) -> (Box<dyn Target>, Vec<u8>) {
        let mut target = driver_of(lines, None).expect("a driver").target(0);
        let mut greeting = Vec::new();
        target.greet(&mut greeting);
        (target, greeting)
    }

    pub(crate) fn asked(
        target: &mut dyn Target,
        request: u64,
        operation: Operation<'_>,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let outgoing = Outgoing {
            request,
            number: request,
            session: 3,
            intended_ns: unruly_trace::MonoNs(0),
            operation,
        };
        target.encode(&outgoing, &mut out);
        out
    }

    pub(crate) const READ: Operation<'static> = Operation::Read { key: "k" };
    pub(crate) const WRITE: Operation<'static> = Operation::Write {
        key: "k",
        value: "value",
    };

    /// Takes one whole reply, and sees that no shorter input is taken for one.
    pub(crate) fn reply<'a>(target: &mut dyn Target, input: &'a [u8]) -> (u64, Answer<'a>) {
        for end in 0..input.len() {
            assert_eq!(target.decode(&input[..end]), Ok(None), "after {end} bytes");
        }
        let Incoming {
            request,
            answer,
            bytes,
            ..
        } = whole(target, input);
        assert_eq!(bytes, input.len());
        (request, answer)
    }

    pub(crate) fn whole<'a>(target: &mut dyn Target, input: &'a [u8]) -> Incoming<'a> {
        target
            .decode(input)
            .expect("it is a reply")
            .expect("it is whole")
    }

    #[test]
    fn a_driver_that_is_not_known_is_named_with_those_that_are() {
        let said = driver_of("url = \"oracle://h\"", None)
            .err()
            .expect("there is none");
        assert_eq!(
            said,
            "drive.url: there is no driver \"oracle\"; wanted one of redis, rediss, memcached, memcacheds, http, https, openai, openais, grpc, grpcs, postgres, mysql, dns, tcp, tls, kafka, kafkas, cassandra, etcd, flurry, garage-k2v, program, null; hint: any other store can be asked by a program: unruly/docs/drivers.md"
        );
    }

    #[test]
    fn what_a_driver_does_not_do_is_refused() {
        for (lines, wrong) in [
            (
                "url = \"redis://h\"\ntransport = \"udp\"",
                "redis is not spoken over udp",
            ),
            (
                "url = \"redis://127.0.0.1?x=1\"",
                "redis has no option \"x\"",
            ),
            (
                "url = \"redis://127.0.0.1\"\nlevel = \"quorum\"",
                "\"quorum\" of how many replicas",
            ),
            ("url = \"redis://127.0.0.1/one\"", "the database is \"one\""),
            (
                "url = \"memcached://127.0.0.1\"\nlevel = \"all\"",
                "memcached knows no level",
            ),
            (
                "url = \"memcached://127.0.0.1/x\"",
                "it has the path \"/x\"",
            ),
            (
                "url = \"redis://no-such-host.invalid\"",
                "\"no-such-host.invalid\" leads nowhere",
            ),
            ("url = \"program:\"", "no command"),
        ] {
            let said = driver_of(lines, None).err().expect(lines);
            assert!(said.contains(wrong), "{said}");
        }
    }
}
