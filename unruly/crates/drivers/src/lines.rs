//! The lines between a run and a driver.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use unruly_plan::{Secret, StoreLevel, Url};
use unruly_time::{MonoNs, monotonic};

use crate::worker_pool::WorkerPool;
use crate::{Client, Failure, Outcome, Settings, Store, open};

/// Where answers go: whole lines, from any thread.
pub(crate) type Output = Arc<Mutex<dyn Write + Send>>;

/// A request for one of the clients.
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) key: String,
    /// The value of a write.
    pub(crate) value: Option<String>,
}

/// Sends the requests that arrive on `input` to the store at `url`, until `input` ends.
///
/// # Errors
///
/// Fails if a line is not a request, or if nobody reads the answers any more. If the store cannot
/// be reached, the answer line says so.
pub fn serve(
    url: &Url,
    password: Option<&Secret>,
    input: impl BufRead,
    output: impl Write + Send + 'static,
) -> Result<()> {
    let output: Output = Arc::new(Mutex::new(output));
    let mut store: Option<Box<dyn Store>> = None;
    let mut pools: BTreeMap<usize, WorkerPool> = BTreeMap::new();
    for line in input.lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match (words.as_slice(), &store) {
            (["unruly", "1", level, timeout_ns], _) => {
                let settings = Settings {
                    url: url.clone(),
                    password: password.cloned(),
                    level: level_of(level)?,
                    timeout: Duration::from_nanos(timeout_ns.parse()?),
                };
                match open(&settings) {
                    Ok(opened) => {
                        store = Some(opened);
                        say(&output, "unruly 1")?;
                    }
                    Err(error) => {
                        say(&output, &format!("no {}", one_line(&format!("{error:#}"))))?;
                        return Ok(());
                    }
                }
            }
            ([what @ ("read" | "write"), number, client, key, value @ ..], Some(store)) => {
                let client = client.parse()?;
                let request = Request {
                    number: number.parse()?,
                    key: (*key).to_owned(),
                    value: (*what == "write").then(|| value.join(" ")),
                };
                let pool = pools.entry(client);
                let pool = pool.or_insert_with(|| WorkerPool::new(client, &output));
                pool.carry_out(request, store.as_ref())?;
            }
            _ => bail!(
                "{line:?}: no line of a run; wanted read or write; hint: unruly/docs/drivers.md"
            ),
        }
    }
    Ok(())
}

fn level_of(word: &str) -> Result<Option<StoreLevel>> {
    let levels = [StoreLevel::First, StoreLevel::Quorum, StoreLevel::All];
    match word {
        "-" => Ok(None),
        word => {
            let found = levels.into_iter().find(|level| level.name() == word);
            found
                .map(Some)
                .with_context(|| format!("{word:?}: no level"))
        }
    }
}

/// Carries out a request, and writes its result as a line.
pub(crate) fn answer(
    client: &mut dyn Client,
    request: &Request,
    output: &Output,
) -> std::io::Result<()> {
    let sent_ns = monotonic();
    let outcome = match &request.value {
        Some(value) => client.write(&request.key, value),
        None => client.read(&request.key),
    };
    let line = line_of(request.number, sent_ns, monotonic(), &outcome);
    say(output, &line)
}

fn line_of(number: u64, sent_ns: MonoNs, received_ns: MonoNs, outcome: &Outcome) -> String {
    let times = format!("{number} {} {}", sent_ns.0, received_ns.0);
    match outcome {
        Outcome::Done => format!("done {times}"),
        Outcome::Missing => format!("missing {times}"),
        Outcome::Found(value) => match std::str::from_utf8(value) {
            Ok(value) if !value.contains(['\n', '\r']) => format!("found {times} {value}"),
            // No value of ours looks like that, so it is reported as a wrong one.
            _ => format!("found {times} {}", "?".repeat(value.len())),
        },
        Outcome::Failed(kind, words) => {
            format!("failed {times} {} {}", kind.name(), one_line(words))
        }
    }
}

/// Words on one line, and not too many.
fn one_line(words: &str) -> String {
    words.replace(['\n', '\r'], " ").chars().take(500).collect()
}

fn say(output: &Output, line: &str) -> std::io::Result<()> {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    output.write_all(format!("{line}\n").as_bytes())?;
    output.flush()
}

impl Outcome {
    /// A failure, with what there is to say of it.
    pub(crate) fn failed(kind: Failure, error: &impl std::fmt::Display) -> Self {
        Self::Failed(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_one_line_whatever_is_in_it() {
        let line = |outcome| line_of(7, MonoNs(1), MonoNs(2), &outcome);
        assert_eq!(line(Outcome::Done), "done 7 1 2");
        assert_eq!(line(Outcome::Missing), "missing 7 1 2");
        assert_eq!(line(Outcome::Found(b"value".to_vec())), "found 7 1 2 value");
        assert_eq!(line(Outcome::Found(b"a\nb".to_vec())), "found 7 1 2 ???");
        assert_eq!(line(Outcome::Found(vec![0xff])), "found 7 1 2 ?");
        let failed = Outcome::failed(Failure::Unavailable, &"two\nlines");
        assert_eq!(line(failed), "failed 7 1 2 unavailable two lines");
    }

    #[test]
    fn a_store_that_is_not_there_is_said_in_a_line() {
        let said = Arc::new(Mutex::new(Vec::new()));
        struct Shared(Arc<Mutex<Vec<u8>>>);
        impl Write for Shared {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let url = "etcd://127.0.0.1:1".parse().unwrap();
        let greeting = &b"unruly 1 - 1000000000\n"[..];
        serve(&url, None, greeting, Shared(Arc::clone(&said))).unwrap();
        let said = String::from_utf8(said.lock().unwrap().clone()).unwrap();
        assert!(said.starts_with("no 127.0.0.1:1: "), "{said}");
        assert_eq!(said.lines().count(), 1);
    }

    #[test]
    fn what_is_no_line_of_a_run_ends_it() {
        let url: Url = "etcd://127.0.0.1:1".parse().unwrap();
        for line in ["read 1 2 key\n", "hello\n", "unruly 1 some 5\n"] {
            assert!(
                serve(&url, None, line.as_bytes(), Vec::new()).is_err(),
                "{line}"
            );
        }
    }
}
