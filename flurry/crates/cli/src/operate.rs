//! Runs one operation: opens the session, prints the outcome, and closes the session. A read does
//! not open the session, because another process may own it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use flurry::{Answer, Client, Condition, Operation};
use unruly_plan::DurationNs;

use super::keyed::Keyed;
use super::members::Operator;
use super::{Common, EXIT_NOT, say, say_error};

const TAIL_UNKNOWN: &str =
    "flurry: key: an earlier owner's last writes to it may have been lost with their servers";

pub(super) fn set(
    common: &Common,
    keyed: &Keyed,
    key: OsString,
    value: OsString,
    ttl: Option<DurationNs>,
) -> Result<u8> {
    let operation = Operation::Set {
        value: value.into_vec().into(),
        expires_at: ttl.map(|ttl| flurry::wall_after(Duration::from_nanos(ttl.0))),
        condition: Condition::Always,
    };
    operate(common, keyed, key, &operation)
}

/// Opens the session, performs one operation, prints its result and closes the session.
pub(super) fn operate(
    common: &Common,
    keyed: &Keyed,
    key: OsString,
    operation: &Operation,
) -> Result<u8> {
    let options = common.options(keyed)?;
    ensure!(
        !flurry::is_of_slots(&options.session),
        "flurry: session {}: it belongs to a gateway, which would lose its keys; hint: write with a client of Redis",
        options.session
    );
    let client = Client::open(&options)?;
    let code = match client.call().run(key.into_vec(), operation) {
        Ok(done) => {
            if done.is_tail_unknown {
                say_error(TAIL_UNKNOWN);
            }
            print(done.answer)?
        }
        Err(error) => {
            // The next one should not have to wait for this one's end.
            let _ = client.close();
            return Err(error.into());
        }
    };
    let why = match client.close() {
        Ok(closed) if closed.is_stable => return Ok(code),
        Ok(closed) if closed.unstable > 0 => "a server has not answered yet",
        Ok(_) => "the controller is away",
        Err(flurry::Error::Fenced { .. }) => "somebody else has opened it",
        Err(error) => return Err(error.into()),
    };
    say_error(&format!(
        "flurry: session: not closed, since {why}; the answer stands; hint: `flurry status`"
    ));
    Ok(code)
}

/// Prints the newest value that the servers have of a key, and warns if a newer one may exist.
pub(super) fn observe(operator: &Operator, session: &str, key: OsString) -> Result<u8> {
    let (controllers, security) = (&operator.controllers, &operator.security);
    let key = key.into_vec();
    let session = match session {
        "slots" => flurry::session_of_slots(&key),
        other => other.to_owned(),
    };
    let seen = flurry::observe(controllers, operator.timeout, security, &session, key)?;
    if !seen.is_known {
        say_error(&format!(
            "flurry: session {session}: nobody has opened it yet; hint: --session NAME for another one, --session slots for a key of a gateway"
        ));
    }
    if seen.is_tail_unknown {
        say_error(TAIL_UNKNOWN);
    }
    if !seen.silent.is_empty() {
        let silent: Vec<String> = seen.silent.iter().map(u16::to_string).collect();
        say_error(&format!(
            "flurry: servers {}: they have not answered, and may have a newer value; hint: `flurry status`",
            silent.join(", ")
        ));
    }
    print(seen.answer)
}

fn print(answer: Answer) -> Result<u8> {
    match answer {
        Answer::Value(value) => say(&value)?,
        Answer::Stored => say("ok")?,
        Answer::Number(number) => say(number.to_string())?,
        Answer::NotFound => {
            say_error("(not found)");
            return Ok(EXIT_NOT);
        }
        Answer::NotStored => {
            say_error("(not stored: the value is another)");
            return Ok(EXIT_NOT);
        }
        other => return Err(flurry::Error::unexpected(&other).into()),
    }
    Ok(0)
}
