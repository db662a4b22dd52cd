//! Cassandra, by its CQL. One session for all clients, as its driver wants it; nothing is tried twice and
//! nothing is asked twice unless the run does it.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use tokio::runtime::{Builder, Handle, Runtime};
use unruly_plan::StoreLevel;

use crate::{Client, Failure, Outcome, Settings, Store};

const PORT: u16 = 9_042;

/// Copies of each key where the URL does not say.
const REPLICAS: &str = "3";

struct Prepared {
    session: Session,
    write: PreparedStatement,
    read: PreparedStatement,
}

pub(crate) struct Cassandra {
    runtime: Runtime,
    prepared: Arc<Prepared>,
}

pub(crate) fn open(settings: &Settings) -> Result<Cassandra> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let prepared = runtime.block_on(prepare(settings))?;
    Ok(Cassandra {
        runtime,
        prepared: Arc::new(prepared),
    })
}

async fn prepare(settings: &Settings) -> Result<Prepared> {
    let consistency = match settings.level {
        None | Some(StoreLevel::Quorum) => Consistency::Quorum,
        Some(StoreLevel::First) => Consistency::One,
        Some(StoreLevel::All) => Consistency::All,
    };
    let profile = ExecutionProfile::builder()
        .consistency(consistency)
        .request_timeout(Some(settings.timeout))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .build();
    let hosts = settings.hosts(PORT);
    let mut builder = SessionBuilder::new()
        .known_nodes(&hosts)
        .default_execution_profile_handle(profile.into_handle());
    if let Some(password) = &settings.password {
        builder = builder.user(&settings.url.user, password.reveal());
    }
    let session = builder.build().await.with_context(|| hosts.join(","))?;
    let replicas = settings.url.option("replicas");
    let replicas: u8 = replicas.unwrap_or(REPLICAS).parse()?;
    let keyspace = settings.url.path.trim_start_matches('/');
    let keyspace = if keyspace.is_empty() {
        "unruly"
    } else {
        keyspace
    };
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    anyhow::ensure!(
        keyspace.chars().all(word),
        "keyspace {keyspace:?}: letters, digits and _ only"
    );
    for statement in [
        format!(
            "create keyspace if not exists {keyspace} with replication = {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
        ),
        format!("create table if not exists {keyspace}.store (key text primary key, value text)"),
    ] {
        session.query_unpaged(statement, &[]).await?;
        session.await_schema_agreement().await?;
    }
    let write = format!("insert into {keyspace}.store (key, value) values (?, ?)");
    let read = format!("select value from {keyspace}.store where key = ?");
    Ok(Prepared {
        write: session.prepare(write).await?,
        read: session.prepare(read).await?,
        session,
    })
}

impl Store for Cassandra {
    fn client(&self, _number: usize) -> Result<Box<dyn Client>> {
        Ok(Box::new(Caller {
            runtime: self.runtime.handle().clone(),
            prepared: Arc::clone(&self.prepared),
        }))
    }
}

struct Caller {
    runtime: Handle,
    prepared: Arc<Prepared>,
}

impl Client for Caller {
    fn write(&mut self, key: &str, value: &str) -> Outcome {
        let Prepared { session, write, .. } = self.prepared.as_ref();
        match self
            .runtime
            .block_on(session.execute_unpaged(write, (key, value)))
        {
            Ok(_) => Outcome::Done,
            Err(error) => failed(&error),
        }
    }

    fn read(&mut self, key: &str) -> Outcome {
        let Prepared { session, read, .. } = self.prepared.as_ref();
        let rows = match self.runtime.block_on(session.execute_unpaged(read, (key,))) {
            Ok(rows) => rows,
            Err(error) => return failed(&error),
        };
        let rows = match rows.into_rows_result() {
            Ok(rows) => rows,
            Err(error) => return Outcome::failed(Failure::Store, &error),
        };
        match rows.maybe_first_row::<(Option<String>,)>() {
            Ok(Some((Some(value),))) => Outcome::Found(value.into_bytes()),
            Ok(_) => Outcome::Missing,
            Err(error) => Outcome::failed(Failure::Store, &error),
        }
    }
}

fn failed(error: &ExecutionError) -> Outcome {
    use RequestAttemptError::{BrokenConnectionError, DbError as Database};
    let kind = match error {
        ExecutionError::LastAttemptError(Database(cause, _)) => match cause {
            DbError::Unavailable { .. }
            | DbError::ReadTimeout { .. }
            | DbError::WriteTimeout { .. }
            | DbError::ReadFailure { .. }
            | DbError::WriteFailure { .. }
            | DbError::Overloaded
            | DbError::IsBootstrapping => Failure::Unavailable,
            DbError::Unauthorized | DbError::AuthenticationError => Failure::Denied,
            _ => Failure::Store,
        },
        ExecutionError::RequestTimeout(_) | ExecutionError::EmptyPlan => Failure::Unavailable,
        ExecutionError::ConnectionPoolError(_)
        | ExecutionError::LastAttemptError(BrokenConnectionError(_)) => Failure::Disconnected,
        _ => Failure::Store,
    };
    Outcome::failed(kind, error)
}
