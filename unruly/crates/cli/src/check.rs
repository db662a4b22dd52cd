//! `unruly check`: one user goes through a scenario, and each exchange is printed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use unruly_load::{Driver, Exchange, Settings, driver, rehearse};
use unruly_plan::{Load, Plan, Portion, Scenario, Secret, Transport, Url, Walks};
use unruly_program::{password_of, printable};
use unruly_trace::DurationNs;

use crate::cli::{say, say_error};
use crate::drive::flag;
use crate::drive_http::{HttpArguments, scenario};

/// Most lines of a body that are shown, and most characters of a line.
const LINES_MAX: usize = 12;
const LETTERS_MAX: usize = 200;

/// How long a reply is waited for.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// Scenario file, or a HAR file
    #[arg(value_name = "SCENARIO", value_hint = ValueHint::FilePath, conflicts_with = "scenario")]
    file: PathBuf,
    /// Server, such as https://shop.example (default: the url of the scenario)
    #[arg(value_hint = ValueHint::Url)]
    url: Option<String>,
    /// Stop after this many requests
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    requests: usize,
    /// Random seed of the way that the user takes
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Print the scenario instead, and ask nobody: a HAR file becomes TOML
    #[arg(long)]
    print: bool,
    /// File that holds the password or token (default: UNRULY_PASSWORD has it)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    http: HttpArguments,
}

/// Lets one user go through a scenario.
pub(crate) fn check(mut arguments: CheckArguments) -> Result<u8> {
    let file = arguments.file.display().to_string();
    let text = scenario(&file)?;
    let read: Scenario = text.parse().map_err(|error: unruly_plan::PlanError| {
        anyhow::anyhow!(
            "{file}: {}",
            error.to_string().replace("the scenario:", "line ")
        )
    })?;
    if arguments.print {
        return say(text.replace('\r', "").trim_end()).map(|()| 0);
    }
    let url = arguments
        .url
        .as_deref()
        .or_else(|| read.url())
        .with_context(|| {
            format!("{file}: it names no server; hint: unruly check {file} https://HOST")
        })?;
    let (url, typed) = Url::with_password(url).map_err(|error| anyhow::anyhow!("{error}"))?;
    let typed = match &arguments.password_file {
        Some(path) => Some(password_of(path)?),
        None => typed,
    };
    let http = std::mem::take(&mut arguments.http);
    let (values, password) = http.values(typed)?;
    let own = || std::env::var(unruly_load::PASSWORD).ok().map(Secret::new);
    let password = password.or_else(own);
    if values
        .iter()
        .any(|(path, value)| *path == "drive.http2" && value.is_some())
    {
        say_error("--http2 is left out: the exchanges are shown as text, and go over HTTP/1.1");
    }
    let plan = plan(&url, &text, &values)?;
    let Load::Drive(drive) = &plan.load else {
        anyhow::bail!("{url}: it is no store");
    };
    let store = drive.store.as_deref().context("it is no store")?;
    let driver = driver(&Settings {
        store,
        transport: Transport::Tcp,
        timeout_ns: DurationNs::from(TIMEOUT),
        password: password.as_ref(),
        seed: arguments.seed,
        portion: Portion::WHOLE,
        trace_key: arguments.seed,
        own: None,
    })?;
    walk(&arguments, &read, driver.as_ref(), password.as_ref())
}

/// Lets the user go, and prints each exchange when it is over.
fn walk(
    arguments: &CheckArguments,
    scenario: &Scenario,
    driver: &dyn Driver,
    password: Option<&Secret>,
) -> Result<u8> {
    let mut walks = Walks::new(
        scenario,
        arguments.seed,
        1,
        Portion::WHOLE,
        unruly_plan::DurationNs(0),
    );
    let (mut count, mut failed, mut broken) = (0, None, None);
    rehearse(
        driver,
        &mut walks,
        arguments.requests,
        TIMEOUT,
        &mut |exchange| {
            count += 1;
            let name = &scenario.states()[exchange.step.state].name;
            let said = say(&shown(count, name, exchange, password));
            broken = broken.take().or_else(|| said.err());
            if exchange.wrong.is_some() {
                failed = Some(name.clone());
            }
        },
    )?;
    if let Some(error) = broken {
        return Err(error);
    }
    let told = match &failed {
        None => format!("{count} requests: every reply is as it must be"),
        Some(name) => format!("the reply to {name} is not as it must be, so the user stops there"),
    };
    say(&told)?;
    Ok(u8::from(failed.is_some()))
}

/// The plan of one user who asks this server.
fn plan(url: &Url, scenario: &str, values: &[(&'static str, Option<String>)]) -> Result<Plan> {
    let shown = url.to_string();
    let own = [
        ("name", "check"),
        ("run.duration", "1s"),
        ("drive.url", shown.as_str()),
        ("drive.arrivals", "closed"),
        ("drive.scenario", scenario),
    ];
    // Exchanges are shown as text, which HTTP/2 is not.
    let given = values.iter().filter(|(path, _)| *path != "drive.http2");
    let given = given.filter_map(|(path, value)| Some((*path, value.as_deref()?)));
    Plan::of_values("check", own.into_iter().chain(given))
        .map_err(|error| anyhow::anyhow!(error.on_command_line(None, flag)))
}

/// An exchange as people read it.
fn shown(number: usize, name: &str, exchange: &Exchange, password: Option<&Secret>) -> String {
    let took_ms = exchange.took.as_secs_f64() * 1e3;
    let mut told = format!("{number}. {name}\n");
    told += &message(&exchange.sent, "  > ", password);
    told += &message(&exchange.received, "  < ", password);
    told += &match &exchange.wrong {
        None => format!("  fine, {took_ms:.1} ms\n"),
        Some(wrong) => format!("  FAILED: {}\n", opened(wrong, password)),
    };
    told
}

/// A line without the secret and without what a terminal would obey. Basic authentication encodes
/// the secret, so its whole value is hidden.
fn opened(line: &str, password: Option<&Secret>) -> String {
    const BASIC: &str = "Authorization: Basic ";
    if line
        .get(..BASIC.len())
        .is_some_and(|it| it.eq_ignore_ascii_case(BASIC))
    {
        return format!("{BASIC}***");
    }
    let secret = password.map(Secret::reveal).filter(|it| !it.is_empty());
    let open = match secret {
        Some(secret) => line.replace(secret, "***"),
        None => line.to_owned(),
    };
    printable(&open).into_owned()
}

/// A message with a mark before each line; a long body is cut.
fn message(bytes: &[u8], mark: &str, password: Option<&Secret>) -> String {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut told = String::new();
    let mut line = |line: &str| {
        let cut: String = opened(line, password).chars().take(LETTERS_MAX).collect();
        told += format!("{mark}{cut}").trim_end();
        told.push('\n');
    };
    head.lines().for_each(&mut line);
    if !body.is_empty() {
        line("");
        body.lines().take(LINES_MAX).for_each(&mut line);
        let more = body.lines().count().saturating_sub(LINES_MAX);
        if more > 0 {
            line(&format!("... {more} more lines"));
        }
    }
    told
}
