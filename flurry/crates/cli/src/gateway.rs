//! `flurry gateway`: for programs that speak the protocol of Redis.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use flurry::{Gateway, GatewayOptions, GatewayPlace, PART_SLOTS, SLOTS, Transport, are_parts};
use unruly_plan::{Bytes, DurationNs};

use super::config::Config;
use super::guard::Guard;
use super::keyed::Keyed;
use super::level::LevelName;
use super::signals::close_on_signals;
use super::watch::Watch;
use super::{DEFAULT_CONTROLLER, controllers, local, say, transport};

/// How long the opening may wait: a lost server's lease has to end first.
const OPEN_MAX: Duration = Duration::from_secs(10);

pub(super) const DEFAULT_LISTEN: &str = "127.0.0.1:6379";

#[derive(Debug, Args)]
pub(super) struct GatewayArguments {
    /// Address for clients (default: 127.0.0.1:6379); with --config one of its gateways
    #[arg(long)]
    listen: Option<String>,
    /// Addresses of the controllers, separated by commas
    #[arg(long, default_value = DEFAULT_CONTROLLER)]
    controller: String,
    /// Slots to serve, of 0-16383, in whole parts of 256 such as 0-8191
    #[arg(long, default_value = "0-16383", value_parser = slots)]
    slots: RangeInclusive<u16>,
    /// Another gateway and its slots, such as 127.0.0.1:6380=8192-16383; may be repeated
    #[arg(long = "other", value_name = "ADDRESS=SLOTS")]
    others: Vec<String>,
    /// Cluster file, instead of the options for addresses and access
    #[arg(long, conflicts_with_all = ["controller", "slots", "others", "users", "tls_cert"])]
    config: Option<PathBuf>,
    /// Stand by while another gateway serves these slots; serve them once it ends, or the
    /// controller has not heard of it for SILENCE (350ms if not given)
    #[arg(long, value_name = "SILENCE", num_args = 0..=1, default_missing_value = "350ms")]
    standby: Option<DurationNs>,
    /// Replies to wait for unless a client chooses: first, quorum, all, hedge:1ms, auto or disk
    /// (default: first, or from --config). With quorum, all or disk a client may choose only
    /// among these three
    #[arg(long)]
    level: Option<LevelName>,
    /// Time after which the outcome of an operation is unknown (default: 2s, or from --config)
    #[arg(long)]
    timeout: Option<DurationNs>,
    /// Transport to the servers: udp or tcp (default: udp, or from --config)
    #[arg(long, value_parser = transport)]
    transport: Option<Transport>,
    /// Connection limit
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// Keys to remember; the next use of a forgotten key costs a question to the servers
    #[arg(long, default_value_t = 1_000_000)]
    keys: usize,
    /// Memory for operations under way and for writes that some server does not have yet; when it
    /// is full, writes are refused and reads go on
    #[arg(long, value_name = "MEMORY", default_value = "256MB")]
    backlog: Bytes,
    /// Copies of a write at level quorum, all or disk at least (default: more than half of the
    /// cluster's --replicas); with fewer servers left it is refused
    #[arg(long, value_name = "COPIES", value_parser = clap::value_parser!(u8).range(1..=8))]
    min_copies: Option<u8>,
    #[command(flatten)]
    watch: Watch,
    /// Timeout of a client that has not yet authenticated or finished the TLS handshake
    #[arg(long, default_value = "10s")]
    entry_timeout: DurationNs,
    #[command(flatten)]
    guard: Guard,
    /// Time to busy-poll before sleeping; needs a spare core
    #[arg(long, default_value = "0s")]
    spin: DurationNs,
}

impl GatewayArguments {
    /// Which gateway it is, and who may come in.
    fn usual(&self, keyed: &Keyed) -> Result<(GatewayOptions, Guard)> {
        let listen = self.listen.as_deref().map(local).transpose()?;
        if let Some(path) = &self.config {
            let all = Config::read(path, keyed)?.gateways()?;
            let (options, guard) = among(&path.display().to_string(), all, listen)?;
            return Ok((guarded(options, &guard)?, guard));
        }
        let listen = listen.map_or_else(|| local(DEFAULT_LISTEN), Ok)?;
        let usual = GatewayOptions::new(listen, controllers(&self.controller)?);
        let others = self.others.iter().map(|text| other(text));
        let options = GatewayOptions {
            place: GatewayPlace {
                slots: self.slots.clone(),
                ..usual.place
            },
            gateways: others.collect::<Result<_>>()?,
            security: keyed.read()?,
            ..usual
        };
        Ok((guarded(options, &self.guard)?, self.guard.clone()))
    }

    fn options(&self, keyed: &Keyed) -> Result<(GatewayOptions, Guard)> {
        let (usual, guard) = self.usual(keyed)?;
        let timeout = self.timeout.map(|it| Duration::from_nanos(it.0));
        let options = GatewayOptions {
            level: self.level.map_or(usual.level, |it| it.0),
            timeout: timeout.unwrap_or(usual.timeout),
            open_timeout: OPEN_MAX,
            standby: self.standby.map(|it| Duration::from_nanos(it.0)),
            transport: self.transport.unwrap_or(usual.transport),
            connections_max: self.connections,
            keys_max: self.keys,
            backlog_bytes_max: usize::try_from(self.backlog.0).unwrap_or(usize::MAX),
            copies_min: self.min_copies,
            spin: Duration::from_nanos(self.spin.0),
            entry_timeout: Duration::from_nanos(self.entry_timeout.0),
            ..usual
        };
        Ok((options, guard))
    }

    /// Serves until it is killed, or until another gateway has its slots.
    pub(super) fn run(&self, keyed: &Keyed) -> Result<u8> {
        let watched = self.watch.start()?;
        let (options, guard) = self.options(keyed)?;
        let mut gateway = Gateway::start(&GatewayOptions {
            metrics: watched.metrics.clone(),
            ..options.clone()
        })?;
        if gateway.epoch().is_none() {
            say(format!("{}, standing by", named(&gateway, &options.place)))?;
            gateway.wait_until_open()?;
        }
        say(format!("{}\nready", told(&gateway, &options.place)))?;
        serve(gateway, &guard)?;
        Ok(0)
    }
}

/// With who may come in, and how.
pub(super) fn guarded(options: GatewayOptions, guard: &Guard) -> Result<GatewayOptions> {
    Ok(GatewayOptions {
        users: guard.users()?,
        tls: guard.tls()?,
        ..options
    })
}

/// Returns the sentence about a serving gateway.
pub(super) fn told(gateway: &Gateway, place: &GatewayPlace) -> String {
    let epoch = gateway.epoch().unwrap_or_default();
    format!("{}, epoch {}", named(gateway, place), epoch.0)
}

/// Returns a gateway's address and slots as text.
fn named(gateway: &Gateway, place: &GatewayPlace) -> String {
    format!(
        "gateway {} for slots {}-{}",
        gateway.address(),
        place.slots.start(),
        place.slots.end()
    )
}

/// Waits until a gateway ends, and meanwhile hands it what changes of who may come in.
pub(super) fn serve(gateway: Gateway, guard: &Guard) -> Result<()> {
    let handle = gateway.handle();
    close_on_signals(move || handle.close())?;
    let (end, ended) = mpsc::sync_channel::<()>(0);
    std::thread::scope(|scope| {
        let handle = gateway.handle();
        scope.spawn(move || guard.watch(&handle, &ended));
        let outcome = gateway.wait();
        drop(end);
        outcome
    })?;
    Ok(())
}

/// Which of the gateways of a file it is.
fn among(
    place: &str,
    mut all: Vec<(GatewayOptions, Guard)>,
    listen: Option<SocketAddr>,
) -> Result<(GatewayOptions, Guard)> {
    let address = |(options, _): &(GatewayOptions, Guard)| options.place.address;
    let addresses: Vec<String> = all.iter().map(|it| address(it).to_string()).collect();
    let addresses = addresses.join(", ");
    ensure!(
        !all.is_empty(),
        "{place}: it has no [[gateway]]; wanted where it listens; hint: [[gateway]] with listen = \"{DEFAULT_LISTEN}\""
    );
    let Some(listen) = listen else {
        ensure!(
            all.len() == 1,
            "{place}: it has several gateways, {addresses}; wanted to know which this one is; hint: --listen ADDRESS"
        );
        return Ok(all.remove(0));
    };
    let found = all.iter().position(|it| address(it) == listen);
    let Some(index) = found else {
        bail!(
            "--listen {listen}: {place} has no such gateway; wanted one of {addresses}; hint: add a [[gateway]], so that the others know of it"
        );
    };
    Ok(all.remove(index))
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
    if !are_parts(&(first..=last)) {
        return Err(format!(
            "slots are {text}; wanted whole parts of {PART_SLOTS} slots; hint: 0-8191 and 8192-16383"
        ));
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
        assert_eq!(slots("256-511"), Ok(256..=511));
        for text in ["", "5", "5-4", "0-16384", "-1-5", "a-b", "0-8000", "1-255"] {
            assert!(slots(text).is_err(), "{text}");
        }
    }
}
