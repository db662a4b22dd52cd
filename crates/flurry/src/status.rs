//! What the controller says of its cluster.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use flurry_core::id::DurationNs;
use flurry_core::message::{Control, Message};

use crate::Error;
use crate::link::{Link, Transport};
use crate::security::Security;

/// How often the question is repeated: it or its answer may be lost.
const ASK_AGAIN: DurationNs = DurationNs::millis(50);

/// Asks the controller how the cluster is; the answer is a JSON object.
///
/// # Errors
///
/// [`Error::NoAnswer`] within `patience`, [`Error::Address`] for an address that is not of this machine.
pub fn status(
    controller: SocketAddr,
    patience: Duration,
    security: &Security,
) -> Result<String, Error> {
    let to = security.allow(controller)?;
    let mut link = Link::dial(Transport::Udp, false, to, security)?;
    let start = Instant::now();
    while start.elapsed() < patience {
        link.send(link.to(to), &Message::Control(Control::StatusQuery));
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_nanos(ASK_AGAIN.0) {
            link.wait(ASK_AGAIN);
            if let Some(letter) = link.receive()
                && letter.from.address == to
                && let Message::Control(Control::Status(text)) = letter.message
            {
                return Ok(text);
            }
        }
    }
    Err(Error::NoAnswer {
        controller,
        waited_ms: start.elapsed().as_millis(),
    })
}
