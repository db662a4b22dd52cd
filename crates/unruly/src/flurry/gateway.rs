//! `flurry gateway`: for programs that speak the protocol of Redis.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use flurry::{Gateway, GatewayOptions, GatewayPlace, SLOTS, Transport};
use unruly_plan::DurationNs;

use super::guard::Guard;
use super::keyed::Keyed;
use super::level::LevelName;
use super::watch::Watch;
use super::{DEFAULT_CONTROLLER, controllers, local, say, transport};

/// How long the opening may wait: a lost server's lease has to end first.
const OPEN_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(super) struct GatewayArguments {
    /// Where it listens for clients
    #[arg(long, default_value = "127.0.0.1:6379")]
    listen: String,
    /// Where the controllers listen, with commas between
    #[arg(long, default_value = DEFAULT_CONTROLLER)]
    controller: String,
    /// The slots that it serves, 0-16383 in all
    #[arg(long, default_value = "0-16383", value_parser = slots)]
    slots: RangeInclusive<u16>,
    /// Another gateway and what it serves, such as 127.0.0.1:6380=8192-16383; may be repeated
    #[arg(long = "other", value_name = "ADDRESS=SLOTS")]
    others: Vec<String>,
    /// Which replies to wait for, unless a client wants others: first, quorum, all, hedge:1ms, auto or disk
    #[arg(long, default_value = "first")]
    level: LevelName,
    /// How long an operation may take before its outcome is called unknown
    #[arg(long, default_value = "2s")]
    timeout: DurationNs,
    /// How messages travel to the servers: udp or tcp
    #[arg(long, default_value = "udp", value_parser = transport)]
    transport: Transport,
    /// Clients at most
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// Keys that it remembers at most; a forgotten one costs a question to all servers
    #[arg(long, default_value_t = 1_000_000)]
    keys: usize,
    #[command(flatten)]
    watch: Watch,
    /// How long a client may stay without saying who it is where there are users, or without finishing
    /// the handshake where there is TLS
    #[arg(long, default_value = "10s")]
    entry_timeout: DurationNs,
    #[command(flatten)]
    guard: Guard,
    /// Look for something to do for so long before sleeping; only where a core is spare
    #[arg(long, default_value = "0s")]
    spin: DurationNs,
}

impl GatewayArguments {
    fn options(&self, keyed: &Keyed) -> Result<GatewayOptions> {
        let usual = GatewayOptions::new(local(&self.listen)?, controllers(&self.controller)?);
        let others = self.others.iter().map(|text| other(text));
        Ok(GatewayOptions {
            place: GatewayPlace {
                slots: self.slots.clone(),
                ..usual.place
            },
            gateways: others.collect::<Result<_>>()?,
            level: self.level.0,
            timeout: Duration::from_nanos(self.timeout.0),
            open_timeout: OPEN_MAX,
            transport: self.transport,
            connections_max: self.connections,
            keys_max: self.keys,
            spin: Duration::from_nanos(self.spin.0),
            users: self.guard.users()?,
            entry_timeout: Duration::from_nanos(self.entry_timeout.0),
            tls: self.guard.tls()?,
            security: keyed.read()?,
            ..usual
        })
    }

    /// Serves until it is killed, or until another gateway has its slots.
    pub(super) fn run(&self, keyed: &Keyed) -> Result<u8> {
        let watched = self.watch.start()?;
        let options = GatewayOptions {
            metrics: watched.metrics.clone(),
            ..self.options(keyed)?
        };
        let gateway = Gateway::start(&options)?;
        let slots = &options.place.slots;
        say(format!(
            "gateway {} for slots {}-{}, epoch {}\nready",
            gateway.address(),
            slots.start(),
            slots.end(),
            gateway.epoch().0
        ))?;
        let (end, ended) = mpsc::sync_channel::<()>(0);
        std::thread::scope(|scope| {
            let handle = gateway.handle();
            scope.spawn(move || self.guard.watch(&handle, &ended));
            let outcome = gateway.wait();
            drop(end);
            outcome
        })?;
        Ok(0)
    }
}

fn slots(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || {
        format!(
            "slots are {text}; wanted FIRST-LAST, both from 0 to {}; hint: 0-16383",
            SLOTS - 1
        )
    };
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u16>().ok().filter(|it| *it < SLOTS);
    let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
    if first > last {
        return Err(wrong());
    }
    Ok(first..=last)
}

fn other(text: &str) -> Result<GatewayPlace> {
    let parts = text.split_once('=');
    ensure!(
        parts.is_some(),
        "--other {text}: it has no slots; wanted ADDRESS=SLOTS; hint: 127.0.0.1:6380=8192-16383"
    );
    let (address, range) = parts.unwrap_or_default();
    let address: SocketAddr = local(address)?;
    let slots = slots(range).map_err(anyhow::Error::msg)?;
    Ok(GatewayPlace { address, slots })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_a_range_within_those_that_there_are() {
        assert_eq!(slots("0-16383"), Ok(0..=16_383));
        assert_eq!(slots("7-7"), Ok(7..=7));
        for text in ["", "5", "5-4", "0-16384", "-1-5", "a-b"] {
            assert!(slots(text).is_err(), "{text}");
        }
    }
}
