//! Where a store is: `redis://127.0.0.1:6379,127.0.0.2:6379/0?replicas=2`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest URL: as long as a screen is wide, many times.
const MAX_URL_CHARS: usize = 4_096;

/// A place as a driver understands it. It never holds a password: plans are kept with their runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Url {
    /// Which driver: `redis`, `memcached`, `program`, ...
    pub scheme: String,
    /// Who is let in; empty for nobody in particular.
    pub user: String,
    /// Hosts, each with its port where one was given.
    pub hosts: Vec<(String, Option<u16>)>,
    /// What follows the hosts, from its `/` on; the command of a program.
    pub path: String,
    /// `?name=value&..`, by name.
    pub options: BTreeMap<String, String>,
}

/// A text that is no URL of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is not of the form.
    #[error("must be scheme://host:port, such as redis://127.0.0.1:6379")]
    Form,
    /// It holds a password.
    #[error("must hold no password, since plans are kept with their runs")]
    Password,
}

/// Schemes whose rest is a command, or nothing.
const WITHOUT_HOSTS: [&str; 3] = ["program", "null", SERVICE];

/// What stands for the key in a URL.
const KEY: &str = "{key}";

/// The scheme of a store that the run starts for itself.
const SERVICE: &str = "service";

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once(':').ok_or(UrlError::Form)?;
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if scheme.is_empty() || !scheme.chars().all(word) || text.len() > MAX_URL_CHARS {
            return Err(UrlError::Form);
        }
        if text.chars().any(char::is_control) {
            return Err(UrlError::Form);
        }
        let mut url = Self {
            scheme: scheme.to_owned(),
            user: String::new(),
            hosts: Vec::new(),
            path: String::new(),
            options: BTreeMap::new(),
        };
        if WITHOUT_HOSTS.contains(&scheme) {
            url.path = rest.trim().to_owned();
            return Ok(url);
        }
        let rest = rest.strip_prefix("//").ok_or(UrlError::Form)?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        for option in options.split('&').filter(|it| !it.is_empty()) {
            let (name, value) = option.split_once('=').ok_or(UrlError::Form)?;
            url.options.insert(name.to_owned(), value.to_owned());
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        path.clone_into(&mut url.path);
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        if user.contains(':') {
            return Err(UrlError::Password);
        }
        user.clone_into(&mut url.user);
        url.hosts = hosts.split(',').map(host).collect::<Result<_, _>>()?;
        Ok(url)
    }
}

/// `name`, `name:port` or `[v6]:port`.
fn host(text: &str) -> Result<(String, Option<u16>), UrlError> {
    let (name, port) = match text.strip_prefix('[') {
        Some(inner) => {
            let (name, rest) = inner.split_once(']').ok_or(UrlError::Form)?;
            let port = if rest.is_empty() {
                None
            } else {
                Some(rest.strip_prefix(':').ok_or(UrlError::Form)?)
            };
            (name, port)
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let bad = |c: char| c.is_whitespace() || matches!(c, '[' | ']' | '@' | '#');
    if name.is_empty() || name.contains(bad) {
        return Err(UrlError::Form);
    }
    let port = match port {
        Some(port) => Some(
            port.parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or(UrlError::Form)?,
        ),
        None => None,
    };
    Ok((name.to_owned(), port))
}

impl Url {
    /// The store of a service of this name, or in this file.
    #[must_use]
    pub fn of_service(name: &str) -> Self {
        Self {
            scheme: SERVICE.to_owned(),
            user: String::new(),
            hosts: Vec::new(),
            path: name.to_owned(),
            options: BTreeMap::new(),
        }
    }

    /// True if an HTTP server is asked.
    #[must_use]
    pub fn is_http(&self) -> bool {
        self.scheme == "http"
    }

    /// True if the path or the query has a place for the key: `{key}`.
    #[must_use]
    pub fn has_key(&self) -> bool {
        let mut parts = self.options.iter().flat_map(|(name, value)| [name, value]);
        self.path.contains(KEY) || parts.any(|part| part.contains(KEY))
    }

    /// The service that a run starts for itself, if it is one.
    #[must_use]
    pub fn service(&self) -> Option<&str> {
        (self.scheme == SERVICE).then_some(self.path.as_str())
    }

    /// The URL of a text that may hold a password, and the password.
    ///
    /// # Errors
    ///
    /// When the rest is no URL.
    pub fn with_password(text: &str) -> Result<(Self, Option<String>), UrlError> {
        let split = text.split_once("://").and_then(|(scheme, rest)| {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let (user, hosts) = authority.rsplit_once('@')?;
            let (user, password) = user.split_once(':')?;
            Some((format!("{scheme}://{user}@{hosts}{path}"), password))
        });
        match split {
            Some((open, password)) => Ok((open.parse()?, Some(password.to_owned()))),
            None => Ok((text.parse()?, None)),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{}:", self.scheme);
        if !WITHOUT_HOSTS.contains(&self.scheme.as_str()) {
            text += "//";
            if !self.user.is_empty() {
                text += &format!("{}@", self.user);
            }
            let hosts = self.hosts.iter().map(|(name, port)| {
                let name = if name.contains(':') {
                    format!("[{name}]")
                } else {
                    name.clone()
                };
                port.map_or_else(|| name.clone(), |port| format!("{name}:{port}"))
            });
            text += &hosts.collect::<Vec<_>>().join(",");
        }
        text += &self.path;
        for (number, (name, value)) in self.options.iter().enumerate() {
            text += &format!("{}{name}={value}", if number == 0 { '?' } else { '&' });
        }
        formatter.pad(&text)
    }
}

impl TryFrom<String> for Url {
    type Error = UrlError;

    fn try_from(text: String) -> Result<Self, UrlError> {
        text.parse()
    }
}

impl From<Url> for String {
    fn from(url: Url) -> Self {
        url.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_is_read_and_written_as_it_was() {
        for text in [
            "redis://127.0.0.1:6379",
            "redis://reader@one:1,two/0?replicas=2&timeout=1s",
            "http://[::1]:8080/path/{key}",
            "program:python3 driver.py --slow",
            "null:",
        ] {
            let url: Url = text.parse().expect("it is one");
            assert_eq!(url.to_string(), text);
        }
        let url: Url = "redis://a:1,[::1]:2".parse().expect("it is one");
        assert_eq!(
            url.hosts,
            [("a".to_owned(), Some(1)), ("::1".to_owned(), Some(2))]
        );
    }

    #[test]
    fn what_is_no_url_is_refused_and_so_is_a_password() {
        for text in [
            "",
            "redis",
            "redis:host",
            "://host",
            "redis://",
            "redis://a,",
            "redis://h:0",
            "redis://h:70000",
            "redis://h h",
            "Redis://h",
            "redis://h?x",
        ] {
            assert_eq!(text.parse::<Url>(), Err(UrlError::Form), "{text}");
        }
        assert_eq!(
            "redis://me:secret@h".parse::<Url>(),
            Err(UrlError::Password)
        );
    }

    #[test]
    fn a_password_is_taken_out_of_a_url_that_a_person_gives() {
        let (url, password) = Url::with_password("redis://me:s@cret@h:1/0").expect("it is one");
        assert_eq!(
            (url.to_string().as_str(), password.as_deref()),
            ("redis://me@h:1/0", Some("s@cret"))
        );
        let (url, password) = Url::with_password("redis://:p@h").expect("it is one");
        assert_eq!((url.user.as_str(), password.as_deref()), ("", Some("p")));
        let (_, none) = Url::with_password("http://h/a:b@c").expect("it is one");
        assert_eq!(none, None);
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_comes_back_as_it_was(text in ".{0,60}") {
            if let Ok(url) = text.parse::<Url>() {
                prop_assert_eq!(url.to_string().parse::<Url>(), Ok(url));
            }
        }
    }
}
