//! `unruly watch`: response times of services that already run, from their packets.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueHint};
use unruly_plan::DurationNs;
use unruly_runner::{WatchOptions, read_capture};
use unruly_tap::{Second, Server, is_listening};
use unruly_trace::SegmentMeta;

use crate::cli::{conclude, say, say_error};
use crate::concealed::command;

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Services: tcp://HOST:PORT, or NAME=tcp://HOST:PORT; the host * is every address. Write mysql://
    /// for MySQL and MariaDB, some of whose messages have no reply
    #[arg(required = true, value_name = "SERVICE")]
    services: Vec<String>,
    /// Time to watch (default: until Ctrl-C)
    #[arg(short, long, value_name = "TIME")]
    duration: Option<DurationNs>,
    /// Network interface to watch (default: all of them)
    #[arg(short, long, value_name = "NAME")]
    interface: Option<String>,
    /// Run directory to make (default: runs/watch-UTC)
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// Name of the environment
    #[arg(long, default_value = "")]
    tag: String,
    /// Print each second as a line of JSON
    #[arg(long)]
    json: bool,
    /// Print only the run directory
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

/// The flags of the reader of captures.
#[derive(Debug, Args)]
pub(crate) struct CaptureArguments {
    /// The file
    file: PathBuf,
    /// The run directory
    #[arg(long)]
    out: PathBuf,
    /// The run's id
    #[arg(long)]
    run: String,
    /// Name of the environment
    #[arg(long, default_value = "")]
    tag: String,
    /// The services
    #[arg(long)]
    service: Vec<String>,
}

fn servers(texts: &[String]) -> Result<Vec<Server>> {
    texts.iter().map(|text| Server::parse(text)).collect()
}

/// Watches services, and ends with the verdict.
pub(crate) fn watch(arguments: WatchArguments) -> Result<u8> {
    let servers = servers(&arguments.services)?;
    if !arguments.quiet {
        for server in servers.iter().filter(|it| !is_listening(it)) {
            say_error(&format!(
                "{}: nobody listens there on this host; only traffic to another host can be seen",
                server.name
            ));
        }
    }
    let names: Vec<String> = servers.iter().map(|it| it.name.clone()).collect();
    let widest = names.iter().map(|it| it.chars().count()).max();
    let width = widest.unwrap_or(0).clamp(7, NAME_WIDTH_MAX);
    let options = WatchOptions {
        servers,
        interface: arguments.interface,
        duration: arguments
            .duration
            .map(|it| Duration::from_nanos(it.0).into()),
        output: arguments.output,
        tag: arguments.tag,
        command: command(std::env::args_os()),
    };
    let mut lines = 0_usize;
    let mut broken = Ok(());
    let directory = unruly_runner::watch(&options, &mut |seconds| {
        if arguments.quiet || broken.is_err() {
            return;
        }
        if !arguments.json && lines.is_multiple_of(HEADING_LINES) {
            broken = say(&heading(width));
        }
        lines += seconds.len();
        for (name, second) in names.iter().zip(seconds) {
            let line = if arguments.json {
                json(name, second)
            } else {
                line(name, width, second)
            };
            broken = say(&line);
        }
    })?;
    if arguments.quiet {
        say(&directory.display().to_string())?;
        return Ok(0);
    }
    if arguments.json {
        say_error(&format!("next: unruly verdict {}", directory.display()));
        return Ok(0);
    }
    conclude(&directory)
}

/// The heading is printed again after this many lines.
const HEADING_LINES: usize = 20;
const NAME_WIDTH_MAX: usize = 21;

fn heading(width: usize) -> String {
    format!(
        "{:width$} {:>8} {:>7} {:>7} {:>7}  in flight, by 100 ms",
        "service", "a second", "p50", "p99", "longest"
    )
}

/// A second of a service, as a line of at most 80 columns.
fn line(name: &str, width: usize, second: &Second) -> String {
    let name: String = name.chars().take(width).collect();
    let times = match second.response_ns {
        Some(times) => times.map(|it| short(it.to_std())),
        None => std::array::from_fn(|_| "-".to_owned()),
    };
    let most = second.in_flight.iter().copied().fold(0.0, f64::max);
    let bars: String = second.in_flight.iter().map(|it| bar(*it, most)).collect();
    let told = |count: u64, what: &str| match count {
        0 => String::new(),
        count => format!("  {count} {what}"),
    };
    let (failed, unmeasured) = (
        told(second.failed, "failed"),
        told(second.unmeasured, "unmeasured"),
    );
    format!(
        "{name:width$} {:>8} {:>7} {:>7} {:>7}  {bars} up to {most:.1}{failed}{unmeasured}",
        unruly_trace::grouped(second.count),
        times[0],
        times[1],
        times[2],
    )
}

/// A time in three digits.
fn short(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        it if it >= 1.0 => (it, "s"),
        it if it >= 1e-3 => (it * 1e3, "ms"),
        it => (it * 1e6, "us"),
    };
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}{unit}")
}

/// A bar of eight heights; a window in which nothing was in flight has the lowest.
fn bar(value: f64, most: f64) -> char {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let share = if most > 0.0 { value / most } else { 0.0 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to 7"
    )]
    let place = (share * 7.0).round() as usize;
    BARS[place.min(7)]
}

fn json(name: &str, second: &Second) -> String {
    let times = second.response_ns.map(|it| it.map(|time| time.0));
    let [p50, p99, longest] = times.map_or([None; 3], |it| it.map(Some));
    serde_json::json!({
        "service": name,
        "turnarounds": second.count,
        "failed": second.failed,
        "unmeasured": second.unmeasured,
        "p50_ns": p50,
        "p99_ns": p99,
        "longest_ns": longest,
        "in_flight": second.in_flight,
    })
    .to_string()
}

/// Reads a capture into a run directory, and prints what the import has to know.
pub(crate) fn capture(arguments: &CaptureArguments) -> Result<u8> {
    let meta = SegmentMeta {
        run: arguments.run.clone(),
        host: "imported".to_owned(),
        process: "tap-0".to_owned(),
        tag: arguments.tag.clone(),
    };
    let servers = servers(&arguments.service)?;
    let captured = read_capture(&arguments.file, &servers, &arguments.out, &meta)?;
    say(&serde_json::json!({
        "rows": captured.rows,
        "missing": captured.missing,
        "tiers": captured.tiers,
    })
    .to_string())?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use unruly_trace::DurationNs;

    use super::*;

    #[test]
    fn a_second_is_a_line_that_fits_a_terminal() {
        let second = Second {
            count: 123_456,
            failed: 0,
            unmeasured: 12,
            response_ns: Some([
                DurationNs(61_234),
                DurationNs(4_200_000),
                DurationNs(1_500_000_000),
            ]),
            in_flight: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0, 3.5],
        };
        let line = line("10.120.130.140:65000", 21, &second);
        assert_eq!(
            line,
            "10.120.130.140:65000   123,456  61.2us  4.20ms   1.50s  ▁▂▃▄▅▆▇█▁▅ up to 7.0  12 unmeasured"
        );
        assert!(heading(21).len() <= 80);
    }

    #[test]
    fn a_second_shows_requests_that_had_no_reply() {
        let second = Second {
            failed: 3,
            ..Second::default()
        };
        assert!(line("web", 7, &second).ends_with(" up to 0.0  3 failed"));
    }

    #[test]
    fn a_second_without_requests_has_no_times() {
        let line = line("web", 7, &Second::default());
        assert_eq!(
            line,
            "web            0       -       -       -  ▁▁▁▁▁▁▁▁▁▁ up to 0.0"
        );
    }
}
