//! A phone: the single client of its own context, with message numbers of its own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use flurry::{Answered, Client, Error, Level, Options};

use crate::machine::{Said, Signal, said};

/// Longer than the lease of a server that is lost: what takes longer is a failure.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The key of the context: a session holds one phone.
const KEY: &str = "context";

/// What came of a phone's signals.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) signals: u64,
    /// Answered in time.
    pub(crate) in_time: u64,
    pub(crate) slowest: Duration,
    /// Signals whose answer never came, or was an error.
    pub(crate) failed: u64,
    /// Answers that were not what the phone remembers: a signal lost or done twice.
    pub(crate) lost: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.signals += other.signals;
        self.in_time += other.in_time;
        self.slowest = self.slowest.max(other.slowest);
        self.failed += other.failed;
        self.lost += other.lost;
    }
}

pub(crate) struct Handset {
    client: Client,
    level: Level,
    number: u64,
    remembers: Said,
    random: u64,
}

impl Handset {
    pub(crate) fn open(controller: SocketAddr, number: u64, level: Level) -> Result<Self> {
        let options = Options {
            timeout: TIMEOUT,
            open_timeout: TIMEOUT,
            ..Options::new(controller, format!("handset-{number}"))
        };
        Ok(Self {
            client: Client::open(&options).context("opening a session")?,
            level,
            number: 0,
            remembers: None,
            random: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        })
    }

    /// Sends `signals` signals, one after the other.
    pub(crate) fn live(mut self, signals: u64, limit: Duration) -> Result<Tally> {
        let mut tally = Tally::default();
        for _ in 0..signals {
            let signal = self.next();
            let began = Instant::now();
            let told = self.send(signal);
            let took = began.elapsed();
            tally.signals += 1;
            tally.slowest = tally.slowest.max(took);
            tally.in_time += u64::from(told.is_ok() && took <= limit);
            let wanted = signal.after(self.remembers);
            match told {
                Ok(answered) => {
                    let found = said(&answered.answer)?;
                    tally.lost += u64::from(found != wanted || answered.is_tail_unknown);
                    self.remembers = found;
                }
                Err(_) => {
                    tally.failed += 1;
                    tally.lost += u64::from(!self.resume(wanted)?);
                }
            }
        }
        self.client.close()?;
        Ok(tally)
    }

    /// After a failure: whether the network knows what the phone does, before the signal or after it.
    fn resume(&mut self, wanted: Said) -> Result<bool> {
        let answered = self.send(Signal::Look).context("looking after a failure")?;
        let found = said(&answered.answer)?;
        let before = std::mem::replace(&mut self.remembers, found);
        Ok(found == wanted || found == before)
    }

    fn send(&mut self, signal: Signal) -> Result<Answered, Error> {
        self.number += 1;
        let call = self.client.call().at_level(self.level);
        let call = call.with_sequence(self.number);
        call.apply(KEY, signal.encode(), signal.access())
    }

    fn next(&mut self) -> Signal {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let [area, other, kind, ..] = self.random.to_le_bytes();
        let area = u16::from_le_bytes([area, other]);
        match (self.remembers, kind) {
            (None, _) => Signal::Attach(area),
            (Some(_), 0..2) => Signal::Detach,
            (Some(_), 2..60) => Signal::Look,
            (Some(context), 60..150) if context.in_call => Signal::HangUp,
            (Some(context), 60..150) if !context.in_call => Signal::Call,
            _ => Signal::Enter(area),
        }
    }
}
