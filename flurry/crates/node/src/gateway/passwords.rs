//! Checks passwords on a separate thread. A check takes milliseconds, and other clients must not
//! wait for it.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::users::{User, Users, is_password};
use crate::link::Wake;
use crate::{Error, random};

/// Maximum number of passwords that wait for their check. Further clients receive an error and may
/// retry.
const WAITING_MAX: usize = 256;

/// A user name and a password that a client has sent.
#[derive(Debug)]
pub(super) struct Claim {
    /// Number of the client's connection.
    pub(super) connection: u64,
    pub(super) user: Option<Arc<User>>,
    pub(super) password: Bytes,
}

/// The result of a check.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) connection: u64,
    /// The user, or `None` if the password is wrong.
    pub(super) user: Option<Arc<User>>,
}

type Completions = Arc<Mutex<Vec<Found>>>;

/// The checking thread, and a memory of correct passwords.
#[derive(Debug)]
pub(super) struct PasswordChecker {
    claims: Option<SyncSender<Claim>>,
    found: Completions,
    /// Digests of correct passwords, by password hash. Only this process can use a digest, since
    /// the secret in it is random.
    known: BTreeMap<String, [u8; 32]>,
    secret: [u8; 32],
    thread: Option<JoinHandle<()>>,
}

/// The immediate result of a claim.
#[derive(Debug)]
pub(super) enum Taken {
    /// The password was correct before and has not changed.
    Known(Arc<User>),
    /// The thread will check the password.
    Waits,
    /// Too many passwords wait already.
    Full,
}

impl PasswordChecker {
    pub(super) fn start(wake: Wake) -> Result<Self, Error> {
        let (claims, inbox) = sync_channel(WAITING_MAX);
        let found = Completions::default();
        let completions = Arc::clone(&found);
        // A check for an unknown user takes as long as one for a known user.
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

    /// Remembers a correct password.
    pub(super) fn remember(&mut self, user: &User, password: &[u8]) {
        let digest = self.digest(password);
        self.known.insert(user.password_hash.clone(), digest);
    }

    /// Returns the results since the last call.
    pub(super) fn found(&self) -> Vec<Found> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *found)
    }

    /// Forgets all correct passwords.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }
}

impl Drop for PasswordChecker {
    fn drop(&mut self) {
        self.claims = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends when the channel of claims closes.
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
