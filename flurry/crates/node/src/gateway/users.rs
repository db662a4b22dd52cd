//! Keeps the users of a gateway and their rights.

use std::collections::BTreeMap;
use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use flurry_core::config::Level;

use super::table::Class;
use crate::{Error, random};

/// Memory in KiB and number of passes of one hash. They make it take a few milliseconds, for the
/// gateway as for an attacker who guesses passwords.
const MEMORY_KIB: u32 = 8_192;
const PASSES: u32 = 2;

/// What a user may do with the keys that it may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights {
    /// Read keys.
    pub read: bool,
    /// Write keys.
    pub write: bool,
    /// Look at all keys, at other clients and at the gateway. With `write` and an empty prefix,
    /// remove all keys at once.
    pub admin: bool,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name. A client that gives a password without a name is the user `default`.
    pub name: String,
    /// What [`hash_password`] made of its password.
    pub password_hash: String,
    /// Prefixes of the keys that it may use. An empty prefix allows all keys.
    pub prefixes: Vec<String>,
    /// What it may do.
    pub rights: Rights,
    /// Level of its operations, instead of the gateway's level.
    pub level: Option<Level>,
}

impl User {
    pub(super) fn may_run(&self, class: Class) -> bool {
        match class {
            Class::Connection => true,
            Class::Read => self.rights.read,
            Class::Write => self.rights.write,
            Class::Admin => self.rights.admin,
        }
    }

    pub(super) fn may_use(&self, key: &[u8]) -> bool {
        let mut prefixes = self.prefixes.iter();
        prefixes.any(|prefix| key.starts_with(prefix.as_bytes()))
    }
}

/// All users of a gateway.
#[derive(Debug, Clone, Default)]
pub struct Users(BTreeMap<String, Arc<User>>);

impl Users {
    /// Returns the levels that users have instead of the gateway's.
    fn levels(&self) -> impl Iterator<Item = Level> {
        self.0.values().filter_map(|user| user.level)
    }

    /// Checks that no user has a level below that of the gateway.
    pub(super) fn keep_level(&self, gateway: Level) -> Result<(), Error> {
        let low = |level: Level| gateway.promises_copies() && !level.promises_copies();
        if self.levels().any(low) {
            return Err(Error::LevelTooLow);
        }
        Ok(())
    }

    /// Users that were read from somewhere.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for two of one name, and for a password that is no hash.
    pub fn new(all: Vec<User>) -> Result<Self, Error> {
        let refused = |name: &str, problem: &str, wanted: &str, hint: &str| Error::Refused {
            reason: format!("user {name}: {problem}; wanted {wanted}; hint: {hint}"),
        };
        let mut users = BTreeMap::new();
        for user in all {
            if let Err(error) = PasswordHash::new(&user.password_hash) {
                let problem = format!("its password is no hash ({error})");
                return Err(refused(
                    &user.name,
                    &problem,
                    "what `flurry password` prints",
                    "never write a password itself into a file",
                ));
            }
            let name = user.name.clone();
            if users.insert(name.clone(), Arc::new(user)).is_some() {
                return Err(refused(
                    &name,
                    "it is there twice",
                    "each once",
                    "remove one",
                ));
            }
        }
        Ok(Self(users))
    }

    pub(super) fn find(&self, name: &str) -> Option<&Arc<User>> {
        self.0.get(name)
    }
}

fn hasher() -> Argon2<'static> {
    let params = Params::new(MEMORY_KIB, PASSES, 1, None).unwrap_or_default();
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Returns a hash of a password that may be stored: Argon2id with a random salt.
///
/// # Errors
///
/// [`Error::Io`] without randomness.
pub fn hash_password(password: &str) -> Result<String, Error> {
    let salt = random::bytes::<16>()?;
    let hash = hasher().hash_password_with_salt(password.as_bytes(), &salt);
    hash.map(|hash| hash.to_string())
        .map_err(|error| Error::io("password", "to hash it", &error))
}

/// Returns whether a password belongs to a hash. The check takes milliseconds.
pub(super) fn is_password(password: &[u8], hash: &str) -> bool {
    let Ok(hash) = PasswordHash::new(hash) else {
        return false;
    };
    hasher().verify_password(password, &hash).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, password: &str) -> User {
        User {
            name: name.to_owned(),
            password_hash: password.to_owned(),
            prefixes: vec!["cart:".to_owned()],
            rights: Rights {
                read: true,
                ..Rights::default()
            },
            level: None,
        }
    }

    #[test]
    fn a_password_is_known_again_and_no_other_is() {
        let hash = hash_password("secret").unwrap();
        assert!(hash.starts_with("$argon2id$"));
        assert!(!hash.contains("secret"));
        assert!(is_password(b"secret", &hash));
        assert!(!is_password(b"Secret", &hash));
        assert!(!is_password(b"", &hash));
        assert_ne!(hash, hash_password("secret").unwrap(), "each has its salt");
    }

    #[test]
    fn a_user_may_do_what_it_was_given_and_nothing_else() {
        let user = user("cart", "$argon2id$");
        assert!(user.may_run(Class::Read) && user.may_run(Class::Connection));
        assert!(!user.may_run(Class::Write) && !user.may_run(Class::Admin));
        assert!(user.may_use(b"cart:17"));
        assert!(!user.may_use(b"cart") && !user.may_use(b"other:cart:"));
    }

    #[test]
    fn a_password_in_clear_and_a_name_used_twice_are_refused() {
        let clear = Users::new(vec![user("a", "secret")])
            .unwrap_err()
            .to_string();
        assert!(
            clear.contains("is no hash") && !clear.contains("secret"),
            "{clear}"
        );
        let hash = hash_password("x").unwrap();
        let twice = Users::new(vec![user("a", &hash), user("a", &hash)]);
        assert!(twice.unwrap_err().to_string().contains("twice"));
    }
}
