//! Authenticates clients: `AUTH` and `HELLO`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use flurry_core::decimal::decimal;
use flurry_core::resp::{Limits, Reply, Version, error};

use super::about::REDIS_VERSION;
use super::connection::{Connection, Place, Said};
use super::dispatcher::Dispatcher;
use super::passwords::{Found, PasswordChecker, Taken};
use super::users::{User, Users};
use crate::{Error, VALUE_BYTES_MAX};

/// Number of wrong passwords after which the gateway closes a connection.
const WRONG_MAX: u32 = 3;

/// The command whose reply a correct password allows.
#[derive(Debug)]
enum Wanted {
    Entry,
    Hello(Version, Option<String>),
}

#[derive(Debug)]
struct Waiting {
    place: Place,
    password: Bytes,
    wanted: Wanted,
}

/// The users of a gateway, and the clients whose password is being checked.
#[derive(Debug)]
pub(super) struct Authentication {
    users: Users,
    checker: PasswordChecker,
    waiting: BTreeMap<u64, Waiting>,
}

impl Authentication {
    pub(super) fn new(users: Users, checker: PasswordChecker) -> Self {
        Self {
            users,
            checker,
            waiting: BTreeMap::new(),
        }
    }

    /// Replaces the users.
    pub(super) fn change(&mut self, users: Users) {
        self.users = users;
        self.checker.forget();
    }

    /// Returns the present entry of a user, or `None` if the user was removed or has a new
    /// password.
    pub(super) fn still(&self, user: &User) -> Option<&Arc<User>> {
        let found = self.users.find(&user.name)?;
        (found.password_hash == user.password_hash).then_some(found)
    }

    pub(super) fn found(&self) -> Vec<Found> {
        self.checker.found()
    }
}

fn wrong_password() -> Reply {
    error("WRONGPASS invalid username-password pair or user is disabled.")
}

impl Dispatcher {
    /// Returns the limits on the commands of a new client.
    pub(super) fn limits(&self) -> Limits {
        match self.authentication {
            None => Limits::with_words_up_to(VALUE_BYTES_MAX),
            Some(_) => Limits::STRANGER,
        }
    }

    /// Returns the settings of a client that has sent nothing yet.
    pub(super) fn nobody(&self) -> Said {
        Said::new(self.level, self.authentication.is_some())
    }

    /// Resets a connection to its initial state.
    pub(super) fn reset(&mut self, connection: &mut Connection) -> Reply {
        self.forget_transaction(connection);
        connection.said = self.nobody();
        connection.requests.allow(self.limits());
        Reply::Status("RESET")
    }

    pub(super) fn auth(&mut self, connection: &mut Connection, words: &[Bytes]) {
        let (name, password) = match words {
            [_, password] => (Bytes::from_static(b"default"), password),
            [_, name, password] => (name.clone(), password),
            _ => return connection.respond(error("ERR syntax error")),
        };
        if self.authentication.is_none() {
            let reply = match words.len() {
                2 => error(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
                ),
                _ if *name == *b"default" => Reply::Status("OK"),
                _ => wrong_password(),
            };
            return connection.respond(reply);
        }
        self.enter(connection, &name, password, Wanted::Entry);
    }

    pub(super) fn hello(&mut self, connection: &mut Connection, words: &[Bytes]) {
        let mut version = connection.said.version;
        if let Some(word) = words.get(1) {
            version = match decimal(word) {
                Some(2) => Version::Two,
                Some(3) => Version::Three,
                Some(_) => {
                    return connection.respond(error("NOPROTO unsupported protocol version"));
                }
                None => {
                    let refusal = "ERR Protocol version is not an integer or out of range";
                    return connection.respond(error(refusal));
                }
            };
        }
        let (mut entry, mut name) = (None, None);
        let mut options = words.get(2..).unwrap_or_default();
        while let [option, rest @ ..] = options {
            options = match (option.to_ascii_uppercase().as_slice(), rest) {
                (b"AUTH", [user, password, rest @ ..]) => {
                    entry = Some((user, password));
                    rest
                }
                (b"SETNAME", [given, rest @ ..]) => {
                    if let Some(refusal) = super::about::refused_name(given) {
                        return connection.respond(refusal);
                    }
                    name = Some(String::from_utf8_lossy(given).into_owned());
                    rest
                }
                _ => {
                    let option = String::from_utf8_lossy(option);
                    let refusal = format!("ERR Syntax error in HELLO option '{option}'");
                    return connection.respond(error(refusal));
                }
            };
        }
        match entry {
            Some((user, password)) if self.authentication.is_some() => {
                self.enter(connection, user, password, Wanted::Hello(version, name));
            }
            Some((user, _)) if **user != *b"default" => connection.respond(wrong_password()),
            None if connection.said.is_stranger => connection.respond(error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
            )),
            _ => {
                let reply = self.welcome(connection, version, name);
                connection.respond(reply);
            }
        }
    }

    fn enter(
        &mut self,
        connection: &mut Connection,
        name: &Bytes,
        password: &Bytes,
        wanted: Wanted,
    ) {
        let Some(authentication) = &mut self.authentication else {
            return;
        };
        let name = String::from_utf8_lossy(name);
        match authentication
            .checker
            .take(&authentication.users, connection.number, &name, password)
        {
            Taken::Known(user) => {
                let reply = self.admit(connection, user, wanted);
                connection.respond(reply);
            }
            Taken::Full => connection.respond(super::failure(&Error::Busy)),
            Taken::Waits => {
                let waiting = Waiting {
                    place: connection.expect_alone(),
                    password: password.clone(),
                    wanted,
                };
                authentication.waiting.insert(connection.number, waiting);
            }
        }
    }

    /// Handles the result of a password check and answers the client.
    pub(super) fn found(&mut self, connection: &mut Connection, found: Found) {
        let Some(authentication) = &mut self.authentication else {
            return;
        };
        let Some(waiting) = authentication.waiting.remove(&connection.number) else {
            return;
        };
        // The user may have been removed meanwhile.
        let user = found
            .user
            .and_then(|user| authentication.still(&user).cloned());
        let reply = match user {
            Some(user) => {
                authentication.checker.remember(&user, &waiting.password);
                self.admit(connection, user, waiting.wanted)
            }
            None => {
                self.counts.wrong_passwords += 1;
                connection.wrong += 1;
                connection.ends |= connection.wrong >= WRONG_MAX;
                wrong_password()
            }
        };
        connection.settled(waiting.place, reply);
    }

    /// Forgets the password check of a client that is gone.
    pub(super) fn left(&mut self, number: u64) {
        if let Some(authentication) = &mut self.authentication {
            authentication.waiting.remove(&number);
        }
    }

    fn admit(&mut self, connection: &mut Connection, user: Arc<User>, wanted: Wanted) -> Reply {
        connection.said.level = user.level.unwrap_or(self.level);
        connection.said.user = Some(user);
        connection.said.is_stranger = false;
        connection
            .requests
            .allow(Limits::with_words_up_to(VALUE_BYTES_MAX));
        match wanted {
            Wanted::Entry => Reply::Status("OK"),
            Wanted::Hello(version, name) => self.welcome(connection, version, name),
        }
    }

    fn welcome(
        &self,
        connection: &mut Connection,
        version: Version,
        name: Option<String>,
    ) -> Reply {
        connection.said.version = version;
        if let Some(name) = name {
            connection.said.name = name;
        }
        let proto = match version {
            Version::Two => 2,
            Version::Three => 3,
        };
        let mode = if self.cluster.is_alone() {
            "standalone"
        } else {
            "cluster"
        };
        let id = i64::try_from(connection.number).unwrap_or(i64::MAX);
        Reply::Map(vec![
            (Reply::text("server"), Reply::text("redis")),
            (Reply::text("version"), Reply::text(REDIS_VERSION)),
            (Reply::text("proto"), Reply::Integer(proto)),
            (Reply::text("id"), Reply::Integer(id)),
            (Reply::text("mode"), Reply::text(mode)),
            (Reply::text("role"), Reply::text("master")),
            (Reply::text("modules"), Reply::Array(Vec::new())),
        ])
    }
}
