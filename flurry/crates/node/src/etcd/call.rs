//! Calls of etcd, by the JSON that it speaks over HTTP: each at one of its nodes, the next one where
//! that does not answer.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring::default_provider;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use super::place::{Etcd, EtcdTls};
use crate::{Error, pem};

/// How long a node may take to answer before the next one is asked.
const TIMEOUT: Duration = Duration::from_millis(1_000);

/// No answer is longer: one holds a piece of a state at most.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// Why a call has no answer. What it should do may have been done.
#[derive(Debug)]
pub(super) struct NoAnswer(String);

impl fmt::Display for NoAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What there is under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) value: Vec<u8>,
    /// The revision of etcd that wrote it last.
    pub(super) revision: i64,
}

/// Somebody who calls etcd.
#[derive(Debug)]
pub(super) struct Caller {
    agent: Agent,
    urls: Vec<String>,
    /// The node that answered last.
    at: usize,
}

impl Caller {
    pub(super) fn new(etcd: &Etcd) -> Result<Self, Error> {
        let mut config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None);
        if let Some(tls) = etcd.tls() {
            config = config.tls_config(secured(tls)?);
        }
        Ok(Self {
            agent: config.build().new_agent(),
            urls: etcd.urls(),
            at: 0,
        })
    }

    /// What the first node says that says something.
    pub(super) fn call(&mut self, what: &str, question: &Value) -> Result<Value, NoAnswer> {
        let mut problem = String::new();
        for _ in 0..self.urls.len() {
            let url = &self.urls[self.at];
            match self.ask(&format!("{url}{what}"), question) {
                Ok(answer) => return Ok(answer),
                Err(error) => problem = format!("{url}{what}: {error}"),
            }
            self.at = (self.at + 1) % self.urls.len();
        }
        Err(NoAnswer(problem))
    }

    fn ask(&self, url: &str, question: &Value) -> Result<Value, String> {
        let request = self.agent.post(url).content_type("application/json");
        let said = request.send(question.to_string().as_bytes());
        let mut said = said.map_err(|error| error.to_string())?;
        let body = said.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let text = body.read_to_vec().map_err(|error| error.to_string())?;
        if !said.status().is_success() {
            let start = String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned();
            return Err(format!("{} {start}", said.status()));
        }
        serde_json::from_slice(&text).map_err(|error| format!("its answer is no JSON ({error})"))
    }

    /// What there is under a key, as a majority has it.
    pub(super) fn get(&mut self, key: &str) -> Result<Option<Found>, NoAnswer> {
        let answer = self.call("kv/range", &json!({ "key": text(key.as_bytes()) }))?;
        let Some(found) = answer["kvs"].get(0) else {
            return Ok(None);
        };
        let value = found["value"].as_str().unwrap_or_default();
        Ok(Some(Found {
            value: STANDARD
                .decode(value)
                .map_err(|error| NoAnswer(format!("{key}: {error}")))?,
            revision: number(&found["mod_revision"])
                .ok_or_else(|| NoAnswer(format!("{key}: it has no revision")))?,
        }))
    }

    /// Does all of these or none, if all comparisons hold; the revision of what it did.
    pub(super) fn transact(
        &mut self,
        comparisons: &[Value],
        changes: &[Value],
    ) -> Result<Option<i64>, NoAnswer> {
        let question = json!({ "compare": comparisons, "success": changes });
        let answer = self.call("kv/txn", &question)?;
        let revision = number(&answer["header"]["revision"]);
        match answer["succeeded"].as_bool() {
            Some(true) => revision
                .map(Some)
                .ok_or_else(|| NoAnswer("kv/txn: it has no revision".to_owned())),
            _ => Ok(None),
        }
    }
}

/// A comparison: nobody has written the key since this revision; 0 is that it is not there.
pub(super) fn is_unchanged(key: &str, revision: i64) -> Value {
    json!({
        "key": text(key.as_bytes()),
        "target": "MOD",
        "result": "EQUAL",
        "mod_revision": revision.to_string(),
    })
}

/// A change: the key has this value, as long as the lease lasts where there is one.
pub(super) fn put(key: &str, value: &[u8], lease: Option<i64>) -> Value {
    let lease = lease.unwrap_or(0).to_string();
    json!({ "request_put": { "key": text(key.as_bytes()), "value": text(value), "lease": lease } })
}

/// A change: no key is there any more from the first up to the second, which stays.
pub(super) fn remove_between(first: &str, end: &str) -> Value {
    json!({ "request_delete_range": {
        "key": text(first.as_bytes()), "range_end": text(end.as_bytes()),
    } })
}

/// Bytes as etcd's JSON has them.
pub(super) fn text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A number of 64 bits, which etcd's JSON has as text.
pub(super) fn number(of: &Value) -> Option<i64> {
    of.as_str().and_then(|it| it.parse().ok()).or(of.as_i64())
}

fn secured(tls: &EtcdTls) -> Result<TlsConfig, Error> {
    let roots = certificates(&tls.authorities)?;
    let mut config = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()));
    if let Some((chain, key)) = &tls.own {
        let own = ClientCert::new_with_certs(&certificates(chain)?, private_key(key)?);
        config = config.client_cert(Some(own));
    }
    Ok(config.build())
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, Error> {
    let all = pem::certificates(path)?;
    let owned = all.iter().map(|it| Certificate::from_der(it).to_owned());
    Ok(owned.collect())
}

fn private_key(path: &Path) -> Result<PrivateKey<'static>, Error> {
    let failed =
        |error: &dyn fmt::Display| Error::io(path.display(), "a private key in PEM", &error);
    let text = std::fs::read(path).map_err(|error| failed(&error))?;
    PrivateKey::from_pem(&text).map_err(|error| failed(&error))
}
