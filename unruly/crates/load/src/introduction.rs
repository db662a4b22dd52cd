//! Checks before a run that the store answers and accepts the login. One clear error is better than
//! a run that fails a million times because of a wrong password.

use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};
use unruly_trace::{DurationNs, ErrorKind, MonoNs, monotonic};

use crate::link::{Link, Place};
use crate::poller::Poller;
use crate::socket::receive_waiting;
use crate::target::{
    Answer, GREETING, Incoming, Outgoing, ProtocolError, REPLY_BYTES_MAX, Reply, Target,
};
use crate::targets::Driver;
use crate::tls::OtherProtocol;

/// Longest answer: that of a rehearsal is a whole reply.
const ANSWER_BYTES_MAX: usize = REPLY_BYTES_MAX;

/// How long the first word of a server by TLS is waited for. Most send a ticket at once.
const FIRST_WORD: DurationNs = DurationNs::millis(100);

/// Why a store is not driven.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {wrong}; wanted {wanted}; hint: {hint}")]
pub struct IntroductionError {
    place: String,
    wrong: String,
    wanted: &'static str,
    hint: &'static str,
    is_unreachable: bool,
}

impl IntroductionError {
    /// True if nothing answered at the address, so that another host may reach it.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }

    /// The place and the fault, without the rest.
    pub(crate) fn what(&self) -> String {
        format!("{}: {}", self.place, self.wrong)
    }
}

/// Connects once to every place of a driver, and waits for its greeting.
///
/// # Errors
///
/// Fails if a place is missing, rejects the login, speaks another protocol, or is silent for
/// `timeout`.
pub fn introduce(driver: &dyn Driver, timeout: Duration) -> Result<(), IntroductionError> {
    for (number, place) in driver.places().iter().enumerate() {
        let until_ns = monotonic() + DurationNs::from(timeout);
        if place.can_be_met() {
            meet(place, driver.target(number), until_ns)?;
        }
    }
    Ok(())
}

fn meet(
    place: &Place,
    target: Box<dyn Target>,
    until_ns: MonoNs,
) -> Result<Conversation, IntroductionError> {
    let mut link = Link::new(place.clone());
    connect(&mut link, until_ns).map_err(|error| unreachable_place(place, &error))?;
    let mut input = Vec::new();
    agree(&mut link, &mut input, until_ns).map_err(|error| untrusted(place, &error))?;
    let mut conversation = Conversation {
        place: place.clone(),
        link,
        target,
        input,
    };
    let mut expected = 0;
    conversation.say(|target, out| {
        expected = target.greet(out);
        expected > 0
    });
    while expected > 0 {
        if monotonic() >= until_ns {
            return Err(silent(place, &io::ErrorKind::TimedOut.into()));
        }
        let heard = conversation.hear(until_ns, |incoming, _| match incoming.answer {
            Answer::Failed(kind, words) => Err(refused(place, kind, words)),
            _ => Ok(incoming.request),
        });
        expected -= usize::from(heard?? == GREETING);
    }
    Ok(conversation)
}

/// A connection outside a run, on which one thing is asked after the other.
pub(crate) struct Conversation {
    place: Place,
    link: Link,
    target: Box<dyn Target>,
    input: Vec<u8>,
}

impl Conversation {
    /// Connects to a place and hears its greeting out.
    pub(crate) fn open(
        place: &Place,
        target: Box<dyn Target>,
        until_ns: MonoNs,
    ) -> Result<Self, IntroductionError> {
        meet(place, target, until_ns)
    }

    /// Queues what `encode` appends. Returns what it returns: whether there is something.
    pub(crate) fn say(
        &mut self,
        encode: impl FnOnce(&mut dyn Target, &mut Vec<u8>) -> bool,
    ) -> bool {
        let mut said = false;
        let target = self.target.as_mut();
        self.link.queue(None, |out| said = encode(target, out));
        said
    }

    /// Queues the messages that a target with streams has for the server.
    fn drain(&mut self) {
        while self.say(|target, out| {
            let before = out.len();
            target.drain(out).is_some() || out.len() > before
        }) {}
    }

    /// Sends a request over a connection with streams, and returns what became of it.
    pub(crate) fn ask_in_stream(
        &mut self,
        outgoing: &Outgoing<'_>,
        until_ns: MonoNs,
    ) -> Result<Reply, IntroductionError> {
        self.target.encode(outgoing, &mut Vec::new());
        loop {
            self.drain();
            if let Some(reply) = self.target.next_reply() {
                return Ok(reply);
            }
            // A server that goes on talking is none that answers.
            if monotonic() >= until_ns {
                return Err(silent(&self.place, &io::ErrorKind::TimedOut.into()));
            }
            self.hear(until_ns, |_, _| ())?;
        }
    }

    /// Sends the queued bytes, and returns the result of `take` for the next reply and its bytes.
    pub(crate) fn hear<T>(
        &mut self,
        until_ns: MonoNs,
        take: impl FnOnce(&Incoming<'_>, &[u8]) -> T,
    ) -> Result<T, IntroductionError> {
        loop {
            let decoded = self.target.decode(&self.input);
            let decoded = decoded.map_err(|error| stranger(&self.place, &error))?;
            if let Some(incoming) = decoded {
                let bytes = incoming.bytes;
                let taken = take(&incoming, &self.input[..bytes.min(self.input.len())]);
                self.input.drain(..bytes);
                if self.target.wants_tls() {
                    self.start_tls(until_ns)?;
                }
                return Ok(taken);
            }
            self.drain();
            let heard = exchange(&mut self.link, &mut self.input, until_ns);
            if let Err(error) = heard {
                return self.end(&error, take);
            }
        }
    }

    /// Begins TLS, which the server has agreed to.
    fn start_tls(&mut self, until_ns: MonoNs) -> Result<(), IntroductionError> {
        if !self.input.is_empty() {
            let wanted = "nothing in the clear after the consent to TLS";
            let error = ProtocolError::reply(&self.input, wanted);
            return Err(stranger(&self.place, &error));
        }
        self.drain();
        let begun = self.link.start_tls();
        self.target.tls_began();
        let agreed = begun.and_then(|()| agree(&mut self.link, &mut self.input, until_ns));
        agreed.map_err(|error| untrusted(&self.place, &error))
    }

    /// A reply that ends with the connection, or why there is none.
    fn end<T>(
        &mut self,
        error: &io::Error,
        take: impl FnOnce(&Incoming<'_>, &[u8]) -> T,
    ) -> Result<T, IntroductionError> {
        let over = error.kind() == io::ErrorKind::UnexpectedEof;
        let ended = over.then(|| self.target.decode_end(&self.input));
        match ended {
            Some(Ok(Some(incoming))) => Ok(take(&incoming, &self.input)),
            _ => Err(silent(&self.place, error)),
        }
    }
}

/// Makes the handshake of TLS, where the place speaks it. A server that wants another client ends it
/// after our last message only, so its first word is waited for a moment.
fn agree(link: &mut Link, input: &mut Vec<u8>, until_ns: MonoNs) -> io::Result<()> {
    if !link.is_secure() {
        return Ok(());
    }
    while !link.is_ready() {
        exchange(link, input, until_ns)?;
    }
    match exchange(link, input, monotonic() + FIRST_WORD) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(()),
        other => other,
    }
}

fn connect(link: &mut Link, until_ns: MonoNs) -> io::Result<()> {
    link.connect()?;
    let mut poller = Poller::new()?;
    if let Some(socket) = link.socket() {
        poller.add(socket, 0, true)?;
    }
    while !link.is_open() {
        let mut ready = false;
        poller.wait(Some(until_ns), false, &mut |_, _, writable| {
            ready |= writable;
        })?;
        if ready {
            link.finish_connect()?;
        } else if monotonic() >= until_ns {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Sends the queued bytes, and waits for an event on the connection.
fn exchange(link: &mut Link, input: &mut Vec<u8>, until_ns: MonoNs) -> io::Result<()> {
    let (mut space, mut control) = (vec![0; 4_096], vec![0; 256]);
    loop {
        // A server that hung up may have sent the reason first.
        let _ = link.flush(&mut |_, _| {});
        let Some(socket) = link.socket() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        match receive_waiting(socket, &mut space, &mut control) {
            Ok(received) if received.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(received) => {
                let came = &space[..received.bytes];
                if link.is_secure() {
                    link.decrypt(came, monotonic(), input)?;
                } else {
                    input.extend_from_slice(came);
                }
                if input.len() > ANSWER_BYTES_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                return Ok(());
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
        if monotonic() >= until_ns {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

fn unreachable_place(place: &Place, error: &io::Error) -> IntroductionError {
    let wrong = match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        io::ErrorKind::TimedOut => "nothing answers there".to_owned(),
        _ => format!("cannot be reached: {error}"),
    };
    IntroductionError {
        place: place.to_string(),
        wrong,
        wanted: "the server that the URL names",
        hint: "is it running, and is the port right?",
        is_unreachable: true,
    }
}

/// Returns why a certificate is not accepted, in words.
fn words_of(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => "nobody whom this host trusts issued it".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".to_owned()
        }
        other => other.to_string(),
    }
}

/// Says why the TLS handshake with a place failed.
fn untrusted(place: &Place, error: &io::Error) -> IntroductionError {
    if let Some(other) = error
        .get_ref()
        .and_then(|it| it.downcast_ref::<OtherProtocol>())
    {
        return IntroductionError {
            place: place.to_string(),
            is_unreachable: false,
            wrong: other.to_string(),
            wanted: "a server of HTTP/2",
            hint: "leave out --http2",
        };
    }
    let cause = error.get_ref().and_then(|it| it.downcast_ref());
    let (wrong, hint) = match cause {
        Some(rustls::Error::InvalidCertificate(why)) => (
            format!("its certificate is not accepted: {}", words_of(why)),
            match why {
                CertificateError::UnknownIssuer => {
                    "name its authority with --ca-cert FILE, or accept any certificate with --insecure"
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => {
                    "write the host as the certificate names it"
                }
                _ => "renew the certificate, or accept any with --insecure",
            },
        ),
        Some(rustls::Error::AlertReceived(alert)) => (
            format!("it refused the TLS handshake: {alert:?}"),
            match alert {
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnknownCA => {
                    "it wants a certificate of the client: --client-cert FILE --client-key FILE"
                }
                AlertDescription::NoApplicationProtocol => {
                    "it does not speak the version of HTTP that was asked for: with or without --http2"
                }
                AlertDescription::UnrecognisedName => "write the host as the server names itself",
                _ => "which versions of TLS does the server allow? unruly speaks 1.2 and 1.3",
            },
        ),
        _ => (
            format!("the TLS handshake failed: {error}"),
            match place {
                Place::Upgraded(..) => "does the server speak TLS? without it, leave out tls=true",
                _ => {
                    "does the server speak TLS on that port? without it, leave out the s of the scheme"
                }
            },
        ),
    };
    IntroductionError {
        place: place.to_string(),
        is_unreachable: false,
        wrong,
        wanted: "a server that speaks TLS and proves its name",
        hint,
    }
}

fn silent(place: &Place, error: &io::Error) -> IntroductionError {
    let wrong = match error.kind() {
        io::ErrorKind::TimedOut => "it took the connection and says nothing".to_owned(),
        io::ErrorKind::UnexpectedEof => "it closed the connection without a word".to_owned(),
        _ => format!("the connection failed: {error}"),
    };
    IntroductionError {
        place: place.to_string(),
        is_unreachable: false,
        wrong,
        wanted: "an answer to a greeting",
        hint: match place {
            Place::Program { .. } => {
                "it must say \"unruly 1\" when it is ready: unruly/docs/drivers.md"
            }
            _ => "does that store listen there, and without TLS?",
        },
    }
}

fn stranger(place: &Place, error: &ProtocolError) -> IntroductionError {
    IntroductionError {
        place: place.to_string(),
        is_unreachable: false,
        wrong: match error {
            ProtocolError::Reply { found, .. } => format!("it says {found:?}"),
            other => other.to_string(),
        },
        wanted: "the server that the URL names",
        hint: "something else listens there",
    }
}

fn refused(place: &Place, kind: ErrorKind, words: &[u8]) -> IntroductionError {
    let said = String::from_utf8_lossy(words);
    IntroductionError {
        place: place.to_string(),
        is_unreachable: false,
        wrong: format!("it says {:?}", said.trim()),
        wanted: match kind {
            ErrorKind::Store => "its consent to what the plan sends",
            _ => "to be let in",
        },
        hint: match kind {
            ErrorKind::Denied => {
                "scheme://user@host in the url, and the password in UNRULY_PASSWORD"
            }
            ErrorKind::Store => {
                "is the statement or the command right, and is what it names there?"
            }
            _ => "is it running, and is the url right?",
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::targets::tests::driver_of;

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Returns the result for a server that answers a Redis greeting like this, or hangs up.
    fn met(answer: Option<&'static [u8]>) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            if let Some(answer) = answer {
                let mut asked = [0; 64];
                let _ = stream.read(&mut asked).unwrap();
                stream.write_all(answer).unwrap();
                // The server reads until the client hangs up. Unread bytes would reset the
                // connection, and the answer would be lost.
                while stream.read(&mut asked).is_ok_and(|bytes| bytes > 0) {}
            }
        });
        let driver = driver_of(&format!("url = \"redis://{address}\""), None).unwrap();
        let met = introduce(driver.as_ref(), TIMEOUT);
        server.join().unwrap();
        met.map_err(|error| error.to_string().replace(&address.to_string(), "PLACE"))
    }

    #[test]
    fn a_store_that_answers_is_met() {
        assert_eq!(met(Some(b"+PONG\r\n")), Ok(()));
    }

    #[test]
    fn a_store_that_does_not_let_us_in_is_told_in_its_own_words() {
        assert_eq!(
            met(Some(b"-NOAUTH Authentication required.\r\n")).unwrap_err(),
            "PLACE: it says \"NOAUTH Authentication required.\"; wanted to be let in; hint: scheme://user@host in the url, and the password in UNRULY_PASSWORD"
        );
    }

    #[test]
    fn whatever_else_listens_there_is_named() {
        let said = met(Some(b"HTTP/1.1 400 Bad Request\r\n\r\n")).unwrap_err();
        assert!(said.contains("it says \"HTTP/1.1 400"), "{said}");
        let said = met(None).unwrap_err();
        assert!(said.contains("wanted an answer to a greeting"), "{said}");
    }

    #[test]
    fn a_port_where_nothing_listens_is_told() {
        // Not a port that was free a moment ago: another test may listen there by now.
        let free = "127.0.0.1:1";
        let driver = driver_of(&format!("url = \"redis://{free}\""), None).unwrap();
        let said = introduce(driver.as_ref(), TIMEOUT).unwrap_err().to_string();
        assert!(said.contains("nothing listens there"), "{said}");
    }

    #[test]
    fn a_program_has_the_password_in_its_environment() {
        let command = "url = \"program:sh -c '[ $UNRULY_PASSWORD = secret ] && echo unruly 1'\"";
        for (password, met) in [(Some("secret"), true), (Some("other"), false)] {
            let driver = driver_of(command, password).unwrap();
            assert_eq!(introduce(driver.as_ref(), TIMEOUT).is_ok(), met);
        }
    }

    #[test]
    fn a_program_is_met_when_it_says_that_it_is_ready() {
        let met = |command: &str| {
            let driver = driver_of(&format!("url = \"program:{command}\""), None).unwrap();
            introduce(driver.as_ref(), TIMEOUT).map_err(|error| error.to_string())
        };
        assert_eq!(met("echo unruly 1"), Ok(()));
        let said = met("true").unwrap_err();
        assert!(said.contains("must say \"unruly 1\""), "{said}");
        let said = met("echo hello").unwrap_err();
        assert!(said.contains("it says \"hello\""), "{said}");
    }
}
