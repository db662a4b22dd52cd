//! Garage through its K2V interface: a store of the Dynamo family. Concurrent writes that did not
//! know of each other coexist until a client that has read them writes again.
//!
//! Each read returns a token of the values it has seen, and the next write of that key carries the
//! token. A read that finds several values returns all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use unruly_plan::utc;
use ureq::Agent;
use ureq::http::{Request, Response};

use crate::signature::{Asked, Signer, sha256};
use crate::{Client, Failure, Outcome, Settings, Store};

const PORT: u16 = 3_904;

/// All keys of a run are in one partition of K2V's, under this name.
const PARTITION: &str = "unruly";

/// What a read has seen of a key.
const TOKEN: &str = "x-garage-causality-token";

/// Longest answer that is taken: the longest value in Base64, several times.
const ANSWER_BYTES_MAX: u64 = 128 << 20;

pub(crate) struct Garage {
    hosts: Vec<String>,
    bucket: String,
    signer: Signer,
    agent: Agent,
    tokens: Arc<Mutex<HashMap<String, String>>>,
}

pub(crate) fn open(settings: &Settings) -> Result<Garage> {
    let bucket = settings.url.path.trim_start_matches('/').to_owned();
    anyhow::ensure!(
        !bucket.is_empty(),
        "no bucket; garage-k2v://KEY@host:port/bucket"
    );
    let secret = settings.password.as_ref().map(|it| it.reveal().to_owned());
    let config = Agent::config_builder()
        .timeout_global(Some(settings.timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(10_000)
        .max_idle_connections_per_host(10_000)
        .proxy(None);
    let garage = Garage {
        hosts: settings.hosts(PORT),
        bucket,
        signer: Signer {
            key_id: settings.url.user.clone(),
            secret: secret.context("no secret of the key; UNRULY_PASSWORD")?,
            region: "garage",
            service: "k2v",
        },
        agent: config.build().new_agent(),
        tokens: Arc::default(),
    };
    for number in 0..garage.hosts.len() {
        if let Outcome::Failed(_, words) = garage.caller(number).read("unruly") {
            anyhow::bail!("{}: {words}", garage.hosts[number]);
        }
    }
    Ok(garage)
}

impl Garage {
    fn caller(&self, number: usize) -> Caller {
        Caller {
            host: self.hosts[number % self.hosts.len()].clone(),
            bucket: self.bucket.clone(),
            signer: self.signer.clone(),
            agent: self.agent.clone(),
            tokens: Arc::clone(&self.tokens),
        }
    }
}

impl Store for Garage {
    fn client(&self, number: usize) -> Result<Box<dyn Client>> {
        Ok(Box::new(self.caller(number)))
    }
}

struct Caller {
    host: String,
    bucket: String,
    signer: Signer,
    agent: Agent,
    tokens: Arc<Mutex<HashMap<String, String>>>,
}

/// An answer, as far as anybody needs it.
struct Answer {
    status: u16,
    token: Option<String>,
    body: Vec<u8>,
}

impl Client for Caller {
    fn write(&mut self, key: &str, value: &str) -> Outcome {
        let token = self.tokens().get(key).cloned();
        match self.ask("PUT", key, value.as_bytes(), token.as_deref()) {
            Ok(Answer {
                status: 200..=299, ..
            }) => Outcome::Done,
            Ok(answer) => answer.failed(),
            Err(outcome) => outcome,
        }
    }

    fn read(&mut self, key: &str) -> Outcome {
        let answer = match self.ask("GET", key, b"", None) {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        match answer.status {
            200..=299 => {}
            404 => return Outcome::Missing,
            _ => return answer.failed(),
        }
        if let Some(token) = answer.token {
            self.tokens().insert(key.to_owned(), token);
        }
        values(&answer.body).map_or_else(|error| Outcome::failed(Failure::Store, &error), found)
    }
}

/// One value, or several with a space between each two; `None` is one that was deleted.
fn found(values: Vec<Option<Vec<u8>>>) -> Outcome {
    let values: Vec<Vec<u8>> = values.into_iter().flatten().collect();
    if values.is_empty() {
        return Outcome::Missing;
    }
    Outcome::Found(values.join(&b' '))
}

/// The values of an answer, which is a list of JSON in Base64.
fn values(body: &[u8]) -> Result<Vec<Option<Vec<u8>>>> {
    let texts: Vec<Option<String>> = serde_json::from_slice(body)?;
    let values = texts
        .into_iter()
        .map(|text| text.map(|text| STANDARD.decode(text)).transpose());
    Ok(values.collect::<Result<_, _>>()?)
}

impl Answer {
    fn failed(&self) -> Outcome {
        let kind = match self.status {
            401 | 403 => Failure::Denied,
            500..=599 => Failure::Unavailable,
            _ => Failure::Store,
        };
        let words = String::from_utf8_lossy(&self.body);
        Outcome::Failed(kind, format!("{} {}", self.status, words.trim()))
    }
}

impl Caller {
    fn tokens(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for one key. An error is one of the connection.
    fn ask(
        &self,
        method: &str,
        key: &str,
        body: &[u8],
        token: Option<&str>,
    ) -> Result<Answer, Outcome> {
        let request = self.signed(method, key, body, token);
        let request = request.map_err(|error| Outcome::failed(Failure::Store, &error))?;
        let answered = self.agent.run(request);
        let answered = answered.map_err(|error| match error {
            ureq::Error::Timeout(_) => Outcome::failed(Failure::Unavailable, &error),
            _ => Outcome::failed(Failure::Disconnected, &error),
        })?;
        answer(answered).map_err(|error| Outcome::failed(Failure::Disconnected, &error))
    }

    fn signed<'a>(
        &self,
        method: &str,
        key: &str,
        body: &'a [u8],
        token: Option<&str>,
    ) -> Result<Request<&'a [u8]>> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let date = utc(i64::try_from(since.as_nanos())?);
        let hash = sha256(body);
        let path = format!("/{}/{PARTITION}", self.bucket);
        // A key of a run has a colon, which a query writes so.
        let query = format!("sort_key={}", key.replace(':', "%3A"));
        let authorization = self.signer.authorization(&Asked {
            method,
            path: &path,
            query: &query,
            headers: &[
                ("host", &self.host),
                ("x-amz-content-sha256", &hash),
                ("x-amz-date", &date),
            ],
            body_sha256: &hash,
            date: &date,
        });
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}?{query}", self.host))
            .header("accept", "application/json")
            .header("x-amz-content-sha256", hash)
            .header("x-amz-date", date)
            .header("authorization", authorization);
        if let Some(token) = token {
            request = request.header(TOKEN, token);
        }
        Ok(request.body(body)?)
    }
}

fn answer(mut answered: Response<ureq::Body>) -> Result<Answer> {
    let token = answered.headers().get(TOKEN);
    let token = token.and_then(|it| it.to_str().ok()).map(str::to_owned);
    let body = answered.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    Ok(Answer {
        body: body.read_to_vec()?,
        status: answered.status().as_u16(),
        token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_all_told_and_what_was_deleted_is_none() {
        let read = |body: &str| found(values(body.as_bytes()).unwrap());
        assert_eq!(read(r#"["YQ=="]"#), Outcome::Found(b"a".to_vec()));
        assert_eq!(read(r#"["YQ==", "Yg=="]"#), Outcome::Found(b"a b".to_vec()));
        assert_eq!(read(r#"["YQ==", null]"#), Outcome::Found(b"a".to_vec()));
        assert_eq!(read("[null]"), Outcome::Missing);
        assert!(values(b"{}").is_err());
        assert!(values(br#"["not base64"]"#).is_err());
    }
}
