//! A user of a scenario outside a run: one request after the other, each with all that was sent and
//! received.

use std::time::{Duration, Instant};

use unruly_plan::{Step, Walks};
use unruly_trace::{DurationNs, Status, monotonic};

use crate::introduction::{Conversation, IntroductionError};
use crate::target::{Answer, GREETING, Operation, Outgoing};
use crate::targets::Driver;

/// A request and its reply.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The state of the user.
    pub step: Step,
    /// The request.
    pub sent: Vec<u8>,
    /// The reply.
    pub received: Vec<u8>,
    /// What is wrong with the reply, if anything is.
    pub wrong: Option<String>,
    /// From the request to its reply.
    pub took: Duration,
}

/// Lets one user ask up to `most` times, until it goes or a request fails, and reports each exchange.
///
/// # Errors
///
/// When the server is not there, speaks another protocol, or does not answer within `timeout`.
pub fn rehearse(
    driver: &dyn Driver,
    walks: &mut Walks,
    most: usize,
    timeout: Duration,
    report: &mut dyn FnMut(&Exchange),
) -> Result<(), IntroductionError> {
    let Some(place) = driver.places().first() else {
        return Ok(());
    };
    let mut open: Option<Conversation> = None;
    for number in 0..most as u64 {
        let step = walks.next(0);
        if step.begins && number > 0 {
            return Ok(());
        }
        let until_ns = monotonic() + DurationNs::from(timeout);
        let mut conversation = match open.take() {
            Some(conversation) => conversation,
            None => Conversation::open(place, driver.target(0), until_ns)?,
        };
        let outgoing = Outgoing {
            request: number,
            number,
            session: 0,
            intended_ns: monotonic(),
            operation: Operation::Named {
                number: step.state,
                begins: step.begins,
            },
        };
        let mut sent = Vec::new();
        conversation.say(|target, out| {
            let before = out.len();
            target.encode(&outgoing, out);
            sent.extend_from_slice(&out[before..]);
            true
        });
        let began = Instant::now();
        let mut received = Vec::new();
        let (wrong, closes) = loop {
            let heard = conversation.hear(until_ns, |incoming, bytes| {
                received.extend_from_slice(bytes);
                let wrong = match incoming.answer {
                    Answer::Failed(kind, words) => Some(format!(
                        "{}: {}",
                        Status::Error(kind).name_with(incoming.code),
                        String::from_utf8_lossy(words)
                    )),
                    _ => None,
                };
                (incoming.request, wrong, incoming.closes)
            })?;
            if heard.0 != GREETING {
                break (heard.1, heard.2);
            }
        };
        let failed = wrong.is_some();
        report(&Exchange {
            step,
            sent,
            received,
            wrong,
            took: began.elapsed(),
        });
        if failed {
            return Ok(());
        }
        open = (!closes).then_some(conversation);
    }
    Ok(())
}
