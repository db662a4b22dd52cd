//! Taking servers out of the cluster.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use flurry::{Controllers, Departure, Security};

use super::status::{View, seen};
use super::{say, say_error};

/// How often a drain looks how far the others are.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// After this time a drain prints that it waits.
const QUIET: Duration = Duration::from_secs(2);

/// How an operator reaches the controllers.
pub(super) struct Operator {
    pub(super) controllers: Controllers,
    pub(super) security: Security,
    pub(super) timeout: Duration,
}

impl Operator {
    fn depart(&self, server: u16, departure: Departure) -> Result<()> {
        let Self {
            controllers,
            security,
            timeout,
        } = self;
        Ok(flurry::depart(
            controllers,
            *timeout,
            security,
            server,
            departure,
        )?)
    }
}

/// Declares a server gone for good.
pub(super) fn remove(operator: &Operator, server: u16) -> Result<u8> {
    operator.depart(server, Departure::Removed)?;
    let view = seen(operator)?;
    say(format!(
        "server {server} is removed: nobody waits for it; {}",
        after_removal(&view)
    ))?;
    Ok(0)
}

fn after_removal(view: &View) -> String {
    match view.servers_wanted() {
        0 => "the cluster has as many servers as it has copies of each key".to_owned(),
        1 => "hint: start another server, with any number".to_owned(),
        more => format!("hint: start {more} other servers, with any numbers"),
    }
}

/// Waits until other servers hold everything that a server holds.
pub(super) fn drain(operator: &Operator, server: u16, timeout: Duration) -> Result<u8> {
    operator.depart(server, Departure::Drained)?;
    let start = Instant::now();
    let mut told = false;
    loop {
        let view = seen(operator)?;
        if !view.has(server) && !view.is_changing() {
            break;
        }
        if start.elapsed() > timeout {
            bail!(
                "server {server} still holds data after {timeout:?}; hint: flurry status shows what it waits for; flurry drain {server} goes on waiting"
            );
        }
        if !told && start.elapsed() > QUIET && std::io::stderr().is_terminal() {
            told = true;
            say_error("others copy what it holds ...");
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    say(format!(
        "server {server} is drained: others hold all that it held; end its process now\n\
         to take it in again: flurry drain {server} --cancel"
    ))?;
    Ok(0)
}

/// Lets a drained server take part again.
pub(super) fn take_back(operator: &Operator, server: u16) -> Result<u8> {
    operator.depart(server, Departure::TakenBack)?;
    say(format!(
        "server {server} may take part again: it copies its share once its process runs"
    ))?;
    Ok(0)
}
