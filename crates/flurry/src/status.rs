//! What the controller says of its cluster.

use std::time::{Duration, Instant};

use flurry_core::id::DurationNs;
use flurry_core::message::{Control, Message};

use crate::Error;
use crate::address::Controllers;
use crate::link::{Link, Transport};
use crate::security::Security;

/// How often the question is repeated: it or its answer may be lost.
const ASK_AGAIN: DurationNs = DurationNs::millis(50);

/// Asks the controllers how the cluster is; the answer is a JSON object, of the one that leads.
///
/// # Errors
///
/// [`Error::NoAnswer`] within `patience`, [`Error::NoLeader`] when controllers answer and none of them
/// leads, [`Error::Address`] for an address that may not be used.
pub fn status(
    controllers: &Controllers,
    patience: Duration,
    security: &Security,
) -> Result<String, Error> {
    let allowed = controllers.allowed(security)?;
    let mut link = Link::dial(Transport::Udp, false, allowed.any(), security)?;
    let start = Instant::now();
    let mut waiting = false;
    while start.elapsed() < patience {
        for controller in allowed.iter() {
            link.send(link.to(controller), &Message::Control(Control::StatusQuery));
        }
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_nanos(ASK_AGAIN.0) {
            link.wait(ASK_AGAIN);
            match link.receive() {
                Some(letter) if !allowed.has(letter.from.address) => {}
                Some(letter) => match letter.message {
                    // One that stands by has nothing to say.
                    Message::Control(Control::Status(text)) if text.is_empty() => waiting = true,
                    Message::Control(Control::Status(text)) => return Ok(text),
                    _ => {}
                },
                None => {}
            }
        }
    }
    let (controllers, waited_ms) = (controllers.clone(), start.elapsed().as_millis());
    Err(if waiting {
        Error::NoLeader {
            controllers,
            waited_ms,
        }
    } else {
        Error::NoAnswer {
            controllers,
            waited_ms,
        }
    })
}
