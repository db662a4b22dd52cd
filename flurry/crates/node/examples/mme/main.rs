//! A mobility management entity whose replicas are killed while phones are in a call.
//!
//! `cargo run --release -p unruly-flurry --example mme` starts a controller and three replicas of the
//! service in [`machine`], each a process, and phones that send signals one after the other. Every ten
//! seconds a replica is killed. Each phone remembers what the network should know of it, and counts
//! every answer that says otherwise.

#![expect(clippy::print_stdout, reason = "its output is its result")]

mod handset;
mod machine;
mod replicas;

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::{Args, Parser, Subcommand};
use flurry::{Controller, ControllerOptions, Level, Server, ServerOptions};
use handset::{Handset, Tally};
use machine::Network;
use replicas::Replicas;

/// The share of signals that must be answered in time.
const WANTED: f64 = 0.999_99;

#[derive(Parser)]
#[command(about = "Phones, and a network whose replicas are killed")]
struct Command {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    city: City,
}

#[derive(Subcommand)]
enum Part {
    /// One replica, as the city starts it
    #[command(hide = true)]
    Replica {
        #[arg(long)]
        id: u16,
        #[arg(long)]
        controller: SocketAddr,
    },
}

#[derive(Args)]
struct City {
    /// Phones
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    handsets: u64,
    /// Signals of all of them together
    #[arg(long, default_value_t = 1_000_000)]
    signals: u64,
    /// Seconds from one kill to the next
    #[arg(long, default_value_t = 10.0)]
    kill_every: f64,
    /// Milliseconds within which a signal has to be answered
    #[arg(long, default_value_t = 500)]
    limit: u64,
}

fn main() -> Result<()> {
    let command = Command::parse();
    match command.part {
        Some(Part::Replica { id, controller }) => replica(id, controller),
        None => city(&command.city),
    }
}

/// Serves until the parent process has ended.
fn replica(id: u16, controller: SocketAddr) -> Result<()> {
    let _server = Server::start_with(&ServerOptions::new(id, controller), &Network)?;
    println!("ready");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest)?;
    Ok(())
}

fn city(city: &City) -> Result<()> {
    let kill_every = Duration::try_from_secs_f64(city.kill_every)?;
    let limit = Duration::from_millis(city.limit);
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&ControllerOptions::new(listen, None))?;
    let address = controller.address();
    let mut replicas = Replicas::start(address, 3)?;
    let (sender, told) = mpsc::channel();
    let begun = Instant::now();
    let (tally, killed) = std::thread::scope(|scope| {
        let killer = scope.spawn(move || replicas.kill_each(kill_every, &told));
        let phones: Vec<_> = (0..city.handsets)
            .map(|number| {
                let share =
                    city.signals / city.handsets + u64::from(number < city.signals % city.handsets);
                scope
                    .spawn(move || Handset::open(address, number, Level::First)?.live(share, limit))
            })
            .collect();
        let mut tally = Tally::default();
        for phone in phones {
            tally.add(&phone.join().map_err(|_| anyhow!("a phone panicked"))??);
        }
        drop(sender);
        let killed = killer
            .join()
            .map_err(|_| anyhow!("the killer panicked"))??;
        anyhow::Ok((tally, killed))
    })?;
    report(city, &tally, killed, begun.elapsed());
    ensure!(tally.lost == 0, "{} conversations were lost", tally.lost);
    Ok(())
}

fn report(city: &City, tally: &Tally, killed: u64, took: Duration) {
    let (share, low, high) = wilson(tally.in_time, tally.signals);
    println!(
        "{} signals of {} phones in {:.1} s, {killed} replicas killed",
        tally.signals,
        city.handsets,
        took.as_secs_f64()
    );
    println!(
        "within {} ms: {:.5} % [{:.5}, {:.5}] (wanted {:.3} %: {}); the slowest {:.1} ms",
        city.limit,
        100.0 * share,
        100.0 * low,
        100.0 * high,
        100.0 * WANTED,
        match (low >= WANTED, high < WANTED) {
            (true, _) => "met",
            (_, true) => "missed",
            _ => "undecided, more signals would decide",
        },
        1e3 * tally.slowest.as_secs_f64()
    );
    println!("failed {}, conversations lost {}", tally.failed, tally.lost);
}

/// A share with its 95 % Wilson interval, which holds near 1 too.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn wilson(hits: u64, of: u64) -> (f64, f64, f64) {
    const Z: f64 = 1.959_964;
    let (count, share) = (of.max(1) as f64, hits as f64 / of.max(1) as f64);
    let centre = (share + Z * Z / (2.0 * count)) / (1.0 + Z * Z / count);
    let spread = (share * (1.0 - share) / count + Z * Z / (4.0 * count * count)).sqrt();
    let half = Z * spread / (1.0 + Z * Z / count);
    (share, (centre - half).max(0.0), (centre + half).min(1.0))
}
