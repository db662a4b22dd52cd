//! What an operator asks the controllers: how the cluster is, and to take a server out of it.

use std::time::{Duration, Instant};

use flurry_core::id::{DurationNs, ServerId};
pub use flurry_core::message::Departure;
use flurry_core::message::{Control, Message};

use crate::Error;
use crate::address::Controllers;
use crate::link::{Link, Transport};
use crate::security::Security;

/// How often the question is repeated: it or its answer may be lost.
const ASK_AGAIN: DurationNs = DurationNs::millis(50);

/// What a message says to a question.
enum Heard<T> {
    /// The answer of the controller that leads.
    Answer(T),
    /// One that stands by.
    Standby,
    /// Something else.
    Nothing,
}

/// Asks the controllers for the state of the cluster. Returns the leader's answer, a JSON object.
///
/// # Errors
///
/// [`Error::NoAnswer`] when no controller answers within `timeout`, [`Error::NoLeader`] when
/// controllers answer and none of them leads, [`Error::Address`] for an address that may not be
/// used.
pub fn status(
    controllers: &Controllers,
    timeout: Duration,
    security: &Security,
) -> Result<String, Error> {
    let question = [Control::StatusQuery];
    ask(controllers, timeout, security, &question, |heard| {
        match heard {
            // One that stands by has nothing to say.
            Control::Status(text) if text.is_empty() => Heard::Standby,
            Control::Status(text) => Heard::Answer(text),
            _ => Heard::Nothing,
        }
    })
}

/// Tells the controller that a server leaves the cluster, see [`Departure`]. Returns when the
/// controller has stored it; a drain takes as long as the others need to copy, see [`status`].
///
/// # Errors
///
/// Those of [`status`], and [`Error::Refused`] with the reason of the controller.
pub fn depart(
    controllers: &Controllers,
    timeout: Duration,
    security: &Security,
    server: u16,
    departure: Departure,
) -> Result<(), Error> {
    let wanted = ServerId(server);
    // A controller that stands by answers the second question only.
    let questions = [Control::Depart(wanted, departure), Control::StatusQuery];
    let refusal = ask(
        controllers,
        timeout,
        security,
        &questions,
        |heard| match heard {
            Control::DepartHeard(server, heard, refusal)
                if (server, heard) == (wanted, departure) =>
            {
                Heard::Answer(refusal)
            }
            Control::Status(text) if text.is_empty() => Heard::Standby,
            _ => Heard::Nothing,
        },
    )?;
    if refusal.is_empty() {
        return Ok(());
    }
    Err(Error::Refused { reason: refusal })
}

fn ask<T>(
    controllers: &Controllers,
    timeout: Duration,
    security: &Security,
    questions: &[Control],
    mut read: impl FnMut(Control) -> Heard<T>,
) -> Result<T, Error> {
    let allowed = controllers.allowed(security)?;
    let mut link = Link::dial(Transport::Udp, false, allowed.any(), security)?;
    let start = Instant::now();
    let mut standby = false;
    while start.elapsed() < timeout {
        for controller in allowed.iter() {
            for question in questions {
                link.send(link.to(controller), &Message::Control(question.clone()));
            }
        }
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_nanos(ASK_AGAIN.0) {
            link.wait(ASK_AGAIN);
            let letter = link.receive();
            let Some(letter) = letter.filter(|it| allowed.has(it.from.address)) else {
                continue;
            };
            let Message::Control(control) = letter.message else {
                continue;
            };
            match read(control) {
                Heard::Answer(answer) => return Ok(answer),
                Heard::Standby => standby = true,
                Heard::Nothing => {}
            }
        }
    }
    let (controllers, waited_ms) = (controllers.clone(), start.elapsed().as_millis());
    Err(if standby {
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
