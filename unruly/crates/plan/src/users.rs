//! The users of a gateway, in a file of their own.

use crate::cluster::{ClusterLevel, level};
use crate::error::PlanError;
use crate::section::{Section, Source};

const MANUAL: &str = "see flurry/docs/security.md";

const USER: &[&str] = &["name", "password", "keys", "rights", "level", "hedge"];

/// Users of one gateway at most.
const MAX_USERS: usize = 10_000;

/// A class of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserRight {
    /// Those that read keys.
    Read,
    /// Those that write keys.
    Write,
    /// Those that look at all keys, at other clients, and at the gateway.
    Admin,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserEntry {
    /// Its name.
    pub name: String,
    /// The hash of its password.
    pub password: String,
    /// What its keys may begin with; an empty one is any.
    pub keys: Vec<String>,
    /// What it may do with them.
    pub rights: Vec<UserRight>,
    /// Which replies its operations wait for, when the file says so.
    pub level: Option<ClusterLevel>,
}

/// Reads users and checks them. `path_for_messages` is what errors call the text; nothing is opened.
///
/// # Errors
///
/// What is wrong first, with its line: text that is not TOML, a key that is unknown or missing, a value
/// of the wrong type, two users of one name, or none at all.
pub fn users(path_for_messages: &str, text: &str) -> Result<Vec<UserEntry>, PlanError> {
    let source = Source {
        path: path_for_messages,
        text,
    };
    let document = source.document(MANUAL)?;
    let top = source.top(&document, "the users");
    top.check_keys(&["user"])?;
    let sections = top.tables(
        "user",
        "[[user]]",
        MAX_USERS,
        "let several programs share one",
    )?;
    if sections.is_empty() {
        let hint = "[[user]] with name, password, keys and rights";
        return Err(top.missing("[[user]]", "must hold at least one", hint.to_owned()));
    }
    let mut users: Vec<UserEntry> = Vec::new();
    for section in &sections {
        let user = user(section)?;
        if users.iter().any(|other| other.name == user.name) {
            let wanted = "must be another for each user";
            return Err(section.refuse("name", wanted, "name = \"another\""));
        }
        users.push(user);
    }
    Ok(users)
}

fn user(section: &Section<'_>) -> Result<UserEntry, PlanError> {
    section.check_keys(USER)?;
    let needed = |key: &str, example: &str, wanted: &str| {
        let hint = format!("{key} = {example:?}");
        let text = section.text(key, &hint)?;
        text.filter(|text| !text.is_empty())
            .map(str::to_owned)
            .ok_or_else(|| section.missing(key, wanted, hint))
    };
    let hint = "what `flurry password` prints";
    let password = needed("password", hint, "must be the hash of a password")?;
    if !password.starts_with("$argon2") {
        // Not the value: it may be a password.
        let wrong = "password is no hash of one";
        return Err(section.complain("password", wrong.to_owned(), "must be a hash", hint));
    }
    let rights = words(section, "rights", "rights = [\"read\", \"write\"]")?;
    let rights = rights.into_iter().map(|right| match right.as_str() {
        "read" => Ok(UserRight::Read),
        "write" => Ok(UserRight::Write),
        "admin" => Ok(UserRight::Admin),
        other => {
            let wrong = format!("rights holds {other:?}");
            let wanted = "must hold read, write or admin";
            Err(section.complain("rights", wrong, wanted, "rights = [\"read\", \"write\"]"))
        }
    });
    Ok(UserEntry {
        name: needed("name", "cart", "must be the user's name")?,
        password,
        keys: words(section, "keys", "keys = [\"cart:\"], or [\"\"] for all")?,
        rights: rights.collect::<Result<_, _>>()?,
        level: section.has("level").then(|| level(section)).transpose()?,
    })
}

/// A list of strings that must be there.
fn words(section: &Section<'_>, key: &str, hint: &str) -> Result<Vec<String>, PlanError> {
    let wanted = "must be an array of strings";
    let Some(values) = section.list(key, hint)? else {
        return Err(section.missing(key, wanted, hint.to_owned()));
    };
    let words = values.into_iter().map(|value| {
        let text = value.as_str().map(str::to_owned);
        let wrong = || format!("{key} holds {}", value.to_string().trim());
        text.ok_or_else(|| section.complain(key, wrong(), wanted, hint))
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"
[[user]]
name = "cart"
password = "$argon2id$v=19$m=8192,t=2,p=1$c2FsdA$aGFzaA"
keys = ["cart:"]
rights = ["read", "write"]
level = "quorum"
"#;

    fn wrong(text: &str) -> String {
        users("users.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn a_user_is_read_with_everything_that_it_may() {
        let all = users("users.toml", ONE).unwrap();
        let [user] = all.as_slice() else {
            panic!("{all:?}")
        };
        assert_eq!(user.name, "cart");
        assert_eq!(user.keys, ["cart:"]);
        assert_eq!(user.rights, [UserRight::Read, UserRight::Write]);
        assert_eq!(user.level, Some(ClusterLevel::Quorum));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (from, to, said) in [
            ("\"write\"", "\"wrote\"", "rights holds \"wrote\""),
            ("keys = [\"cart:\"]", "keys = [1]", "keys holds 1"),
            ("keys = [\"cart:\"]", "", "keys"),
            ("name = \"cart\"", "", "name"),
            ("level = \"quorum\"", "level = \"most\"", "level"),
            ("level = \"quorum\"", "colour = 1", "colour"),
        ] {
            let refused = wrong(&ONE.replace(from, to));
            assert!(refused.contains(said), "{refused}");
            assert!(refused.starts_with("users.toml:"), "{refused}");
        }
        assert!(wrong("").contains("at least one"));
        assert!(wrong(&format!("{ONE}{ONE}")).contains("another for each user"));
    }

    #[test]
    fn a_password_in_clear_is_refused_and_not_repeated() {
        let refused = wrong(&ONE.replace("$argon2id$v=19$m=8192,t=2,p=1$c2FsdA$aGFzaA", "hunter2"));
        assert!(
            refused.contains("flurry password") && !refused.contains("hunter2"),
            "{refused}"
        );
    }
}
