//! Looks at passwords, on a thread of its own: each takes milliseconds, and nobody else should wait.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::users::{User, Users, is_password};
use crate::link::Wake;
use crate::{Error, random};

/// Passwords that wait to be looked at; more are told to come back.
const WAITING_MAX: usize = 256;

/// What somebody says who he is.
#[derive(Debug)]
pub(super) struct Claim {
    /// Of which client.
    pub(super) connection: u64,
    pub(super) user: Option<Arc<User>>,
    pub(super) password: Bytes,
}

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) connection: u64,
    /// Who it is; nobody when the password is wrong.
    pub(super) user: Option<Arc<User>>,
}

type Completions = Arc<Mutex<Vec<Found>>>;

/// The thread, and what it has seen before.
#[derive(Debug)]
pub(super) struct PasswordChecker {
    claims: Option<SyncSender<Claim>>,
    found: Completions,
    /// Passwords that were right, by their hash: what is kept is of use to this process alone.
    known: BTreeMap<String, [u8; 32]>,
    secret: [u8; 32],
    thread: Option<JoinHandle<()>>,
}

/// How a claim was taken.
#[derive(Debug)]
pub(super) enum Taken {
    /// It was right before, and is.
    Known(Arc<User>),
    /// It is being looked at.
    Waits,
    /// There are too many.
    Full,
}

impl PasswordChecker {
    pub(super) fn start(wake: Wake) -> Result<Self, Error> {
        let (claims, inbox) = sync_channel(WAITING_MAX);
        let found = Completions::default();
        let completions = Arc::clone(&found);
        // Somebody who does not exist takes as long.
        let nobody = super::users::hash_password("nobody")?;
        let thread = std::thread::Builder::new()
            .name("flurry-passwords".to_owned())
            .spawn(move || look(&inbox, &completions, &wake, &nobody))
            .map_err(|error| Error::io("flurry-passwords", "a thread", &error))?;
        Ok(Self {
            claims: Some(claims),
            found,
            known: BTreeMap::new(),
            secret: random::bytes()?,
            thread: Some(thread),
        })
    }

    fn digest(&self, password: &[u8]) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(self.secret);
        hasher.update(password);
        hasher.finalize().into()
    }

    /// Takes a claim.
    pub(super) fn take(
        &mut self,
        users: &Users,
        connection: u64,
        name: &str,
        password: &Bytes,
    ) -> Taken {
        let user = users.find(name);
        if let Some(user) = user
            && self.known.get(&user.password_hash) == Some(&self.digest(password))
        {
            return Taken::Known(Arc::clone(user));
        }
        let claim = Claim {
            connection,
            user: user.cloned(),
            password: password.clone(),
        };
        match self.claims.as_ref().map(|claims| claims.try_send(claim)) {
            Some(Ok(())) => Taken::Waits,
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => Taken::Full,
        }
    }

    /// Remembers that a password was right.
    pub(super) fn remember(&mut self, user: &User, password: &[u8]) {
        let digest = self.digest(password);
        self.known.insert(user.password_hash.clone(), digest);
    }

    /// What was found since the last time.
    pub(super) fn found(&self) -> Vec<Found> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *found)
    }

    /// Forgets passwords of users that are no more.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }
}

impl Drop for PasswordChecker {
    fn drop(&mut self) {
        self.claims = None;
        if let Some(thread) = self.thread.take() {
            // It ends with the claims.
            let _ = thread.join();
        }
    }
}

fn look(claims: &Receiver<Claim>, completions: &Completions, wake: &Wake, nobody: &str) {
    while let Ok(claim) = claims.recv() {
        let hash = claim
            .user
            .as_ref()
            .map_or(nobody, |user| &user.password_hash);
        let right = is_password(&claim.password, hash);
        let found = Found {
            connection: claim.connection,
            user: claim.user.filter(|_| right),
        };
        completions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(found);
        wake.call();
    }
}
