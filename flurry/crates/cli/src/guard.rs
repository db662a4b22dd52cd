//! Who may come in to a gateway, and how connections are secured: files that are read again when they
//! change.

use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use clap::Args;
use flurry::{GatewayHandle, Rights, Tls, User, Users};
use unruly_plan::{ClusterGateway, UserRight};

use super::config::level;
use super::say_error;

/// How often files are looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Args)]
pub(super) struct Guard {
    /// Users file with passwords and rights (flurry/docs/security.md); reloaded when it changes
    #[arg(long)]
    users: Option<PathBuf>,
    /// Certificate with its chain, in PEM; reloaded when it changes
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Certificate authorities for clients, in PEM; clients then need a certificate
    #[arg(long, requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

/// When a file was last changed; `None` when it is not there.
type Seen = Vec<Option<SystemTime>>;

fn seen<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Seen {
    let changed = |path: &PathBuf| std::fs::metadata(path).and_then(|it| it.modified()).ok();
    paths.into_iter().map(changed).collect()
}

impl Guard {
    /// That of a gateway in a cluster's file.
    pub(super) fn of(gateway: &ClusterGateway) -> Self {
        let path = |text: &Option<String>| text.as_ref().map(PathBuf::from);
        Self {
            users: path(&gateway.users),
            tls_cert: path(&gateway.tls_cert),
            tls_key: path(&gateway.tls_key),
            tls_client_ca: path(&gateway.tls_client_ca),
        }
    }

    pub(super) fn users(&self) -> Result<Option<Users>> {
        self.users.as_deref().map(read_users).transpose()
    }

    pub(super) fn tls(&self) -> Result<Option<Tls>> {
        let Some((certificate, key)) = self.tls_cert.as_ref().zip(self.tls_key.as_ref()) else {
            return Ok(None);
        };
        let tls = Tls::read(certificate, key, self.tls_client_ca.as_deref())?;
        Ok(Some(tls))
    }

    fn tls_files(&self) -> impl Iterator<Item = &PathBuf> {
        let files = [&self.tls_cert, &self.tls_key, &self.tls_client_ca];
        files.into_iter().flatten()
    }

    /// Passes changed files to the gateway until `ended` disconnects. A file with an error is
    /// reported, and its previous content stays in force.
    pub(super) fn watch(&self, gateway: &GatewayHandle, ended: &Receiver<()>) {
        let (mut users, mut tls) = (seen(&self.users), seen(self.tls_files()));
        while ended.recv_timeout(LOOK_AGAIN) == Err(RecvTimeoutError::Timeout) {
            let now = seen(&self.users);
            if std::mem::replace(&mut users, now.clone()) != now {
                match self.users() {
                    Ok(Some(read)) => {
                        let set = gateway.set_users(read);
                        set.unwrap_or_else(|error| stays(&error.into()));
                    }
                    Ok(None) => {}
                    Err(error) => stays(&error),
                }
            }
            let now = seen(self.tls_files());
            if std::mem::replace(&mut tls, now.clone()) != now {
                match self.tls() {
                    Ok(Some(read)) => gateway.set_tls(read),
                    Ok(None) => {}
                    Err(error) => stays(&error),
                }
            }
        }
    }
}

fn stays(error: &anyhow::Error) {
    say_error(&format!(
        "flurry: {error:#}; the version that was read before stays in use"
    ));
}

fn read_users(path: &Path) -> Result<Users> {
    let place = path.display().to_string();
    anyhow::ensure!(
        std::fs::metadata(path).is_ok_and(|it| it.is_file()),
        "{place}: it is no file; wanted users; hint: flurry/docs/security.md has one to copy"
    );
    flurry::check_secret(path, "users")?;
    let text = std::fs::read_to_string(path).with_context(|| {
        format!(
            "{place}: cannot be read; wanted users; hint: flurry/docs/security.md has one to copy"
        )
    })?;
    let all = unruly_plan::users(&place, &text)?
        .into_iter()
        .map(|entry| User {
            name: entry.name,
            password_hash: entry.password,
            prefixes: entry.keys,
            rights: Rights {
                read: entry.rights.contains(&UserRight::Read),
                write: entry.rights.contains(&UserRight::Write),
                admin: entry.rights.contains(&UserRight::Admin),
            },
            level: entry.level.map(level),
        });
    Ok(Users::new(all.collect())?)
}

/// Longest password.
const PASSWORD_BYTES_MAX: u64 = 64 << 10;

/// Runs `flurry password`: prints the hash of the password on standard input.
pub(super) fn password() -> Result<u8> {
    let mut text = String::new();
    let read = std::io::stdin()
        .lock()
        .take(PASSWORD_BYTES_MAX)
        .read_line(&mut text);
    read.context("standard input: cannot be read; wanted a password; hint: printf %s secret | flurry password")?;
    let password = text.trim_end_matches(['\r', '\n']);
    anyhow::ensure!(
        !password.is_empty(),
        "standard input: it is empty; wanted a password; hint: printf %s secret | flurry password"
    );
    super::say(flurry::hash_password(password)?)?;
    Ok(0)
}
