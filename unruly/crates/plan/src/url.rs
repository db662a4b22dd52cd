//! Where a store is: `redis://127.0.0.1:6379,127.0.0.2:6379/0?replicas=2`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::secret::{Secret, decoded, encoded, is_secret};

/// Longest URL: as long as a screen is wide, many times.
const MAX_URL_CHARS: usize = 4_096;

/// A place as a driver understands it. It never holds a secret, so it can be printed and kept with
/// its run: [`Url::with_password`] takes the secret out of what a person gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Url {
    /// Which driver: `redis`, `memcached`, `program`, ...
    pub scheme: String,
    /// Who is let in, percent-decoded; empty for nobody in particular.
    pub user: String,
    /// Hosts, each with its port where one was given.
    pub hosts: Vec<(String, Option<u16>)>,
    /// What follows the hosts, from its `/` on; the command of a program.
    pub path: String,
    /// What follows a `?`, as it was given: `name=value&..`.
    pub query: String,
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
    /// What stands before an `@` may be a password or a path.
    #[error(
        "must have its @ before the first /, ? or #; hint: in a password write %2F for /, %3F for ?, %23 for # and %40 for @, and in a path %40 for @"
    )]
    Ambiguous,
    /// An HTTP server knows a password by its user.
    #[error("must have a user before its password; hint: --auth bearer sends a token")]
    NoUser,
    /// It holds a password and a token, or two of either.
    #[error("must hold one secret at most")]
    TwoSecrets,
}

/// Schemes whose rest is a command, or nothing.
const WITHOUT_HOSTS: [&str; 4] = [PROGRAM, "null", SERVICE, SYSTEM];

/// Schemes of servers that take a password with a user only.
const OF_USERS: [&str; 4] = ["http", "https", "grpc", "grpcs"];

/// What stands for the key in a URL.
const KEY: &str = "{key}";

/// What stands for the secret in the path or the query of an HTTP URL.
pub const PASSWORD_PLACE: &str = "{password}";

/// The scheme of a program that is asked by lines.
const PROGRAM: &str = "program";

/// The scheme of a store that the run starts for itself.
const SERVICE: &str = "service";

/// The scheme of a middleware system that the run starts for itself, to call it.
const SYSTEM: &str = "system";

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
            query: String::new(),
        };
        if WITHOUT_HOSTS.contains(&scheme) {
            let holds_secret = |word: &str| {
                !matches!(
                    Self::with_password(word),
                    Ok((_, None)) | Err(UrlError::Form)
                )
            };
            if scheme == PROGRAM && rest.split_whitespace().any(holds_secret) {
                return Err(UrlError::Password);
            }
            url.path = rest.trim().to_owned();
            return Ok(url);
        }
        let rest = rest.strip_prefix("//").ok_or(UrlError::Form)?;
        check_at(rest)?;
        // No client of HTTP sends the fragment.
        let rest = match url.is_http() {
            true => rest.split_once('#').map_or(rest, |(rest, _)| rest),
            false => rest,
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        for option in query.split('&').filter(|it| !it.is_empty()) {
            match option.split_once('=') {
                Some((name, value)) if is_secret(name, value) => return Err(UrlError::Password),
                Some(_) => {}
                None if url.is_http() => {}
                None => return Err(UrlError::Form),
            }
        }
        query.clone_into(&mut url.query);
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        path.clone_into(&mut url.path);
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        if user.contains(':') {
            return Err(UrlError::Password);
        }
        url.user = decoded(user).ok_or(UrlError::Form)?;
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
            query: String::new(),
        }
    }

    /// The middleware system of this name, or in this file.
    #[must_use]
    pub fn of_system(name: &str) -> Self {
        Self {
            scheme: SYSTEM.to_owned(),
            ..Self::of_service(name)
        }
    }

    /// Returns each host with its port, or with the usual one of its scheme; a host without either is
    /// left out.
    pub fn places(&self) -> impl Iterator<Item = (&str, u16)> {
        let usual = match self.scheme.as_str() {
            "http" | "openai" => Some(80),
            "https" | "openais" | "grpcs" => Some(443),
            "grpc" => Some(50_051),
            "cassandra" => Some(9_042),
            "etcd" => Some(2_379),
            "flurry" => Some(7_700),
            "garage-k2v" => Some(3_904),
            "redis" | "rediss" => Some(6_379),
            "memcached" | "memcacheds" => Some(11_211),
            "postgres" => Some(5_432),
            "mysql" => Some(3_306),
            "kafka" | "kafkas" => Some(9_092),
            _ => None,
        };
        let hosts = self.hosts.iter();
        hosts.filter_map(move |(host, port)| Some((host.as_str(), port.or(usual)?)))
    }

    /// True if an HTTP server is asked, in the clear or by TLS.
    #[must_use]
    pub fn is_http(&self) -> bool {
        matches!(self.scheme.as_str(), "http" | "https") || self.is_openai() || self.is_grpc()
    }

    /// True if a method of gRPC is called, over HTTP/2.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        matches!(self.scheme.as_str(), "grpc" | "grpcs")
    }

    /// True if a server of language models is asked, which speaks the API of OpenAI over HTTP.
    #[must_use]
    pub fn is_openai(&self) -> bool {
        matches!(self.scheme.as_str(), "openai" | "openais")
    }

    /// True if the clients may keep cookies: a web server is asked.
    #[must_use]
    pub fn may_have_cookies(&self) -> bool {
        matches!(self.scheme.as_str(), "http" | "https")
    }

    /// True if a database is asked in SQL.
    #[must_use]
    pub fn is_sql(&self) -> bool {
        matches!(self.scheme.as_str(), "postgres" | "mysql")
    }

    /// True if a name server is asked.
    #[must_use]
    pub fn is_dns(&self) -> bool {
        self.scheme == "dns"
    }

    /// True if records are written to a topic of Kafka.
    #[must_use]
    pub fn is_kafka(&self) -> bool {
        matches!(self.scheme.as_str(), "kafka" | "kafkas")
    }

    /// True if every request is one message of a form that the plan gives.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        matches!(self.scheme.as_str(), "tcp" | "tls") || self.is_kafka() || self.is_dns()
    }

    /// True if requests may name keys of ours.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        if self.is_http() {
            return self.has_key();
        }
        !self.is_sql() && !self.has_messages()
    }

    /// True if the connections speak TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        let secure = [
            "https",
            "openais",
            "grpcs",
            "rediss",
            "memcacheds",
            "tls",
            "kafkas",
        ];
        let agreed = self.is_sql() && self.option("tls") == Some("true");
        secure.contains(&self.scheme.as_str()) || agreed
    }

    /// True if the path or the query has a place for the key: `{key}`.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.path.contains(KEY) || self.query.contains(KEY)
    }

    /// The options of the query, in their order.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let options = self.query.split('&').filter(|it| !it.is_empty());
        options.map(|it| it.split_once('=').unwrap_or((it, "")))
    }

    /// The value of an option of the query; that of the last, if several have the name.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        let named = self.options().filter(|(it, _)| *it == name);
        named.last().map(|(_, value)| value)
    }

    /// The service or middleware system that a run starts for itself, if it is one.
    #[must_use]
    pub fn service(&self) -> Option<&str> {
        let started = [SERVICE, SYSTEM].contains(&self.scheme.as_str());
        started.then_some(self.path.as_str())
    }

    /// The middleware system that a run starts for itself, if it is one.
    #[must_use]
    pub fn system(&self) -> Option<&str> {
        (self.scheme == SYSTEM).then_some(self.path.as_str())
    }

    /// True if a program of the user is asked by lines.
    #[must_use]
    pub fn is_program(&self) -> bool {
        self.scheme == PROGRAM
    }

    /// True if the path or the query has a place for the secret: `{password}`.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.path.contains(PASSWORD_PLACE) || self.query.contains(PASSWORD_PLACE)
    }

    /// The URL of a text that may hold a secret, and the secret: the password before its hosts,
    /// percent-decoded, or the value of an option such as `token`, as it was given, in whose place
    /// `{password}` stands then.
    ///
    /// # Errors
    ///
    /// When the rest is no URL, when an `@` may belong to a password or to a path, and when there are
    /// two secrets. The errors do not hold the text.
    pub fn with_password(text: &str) -> Result<(Self, Option<Secret>), UrlError> {
        let (open, secret) = without_secret(text)?;
        Ok((open.parse()?, secret))
    }
}

/// Refuses an `@` behind the authority where a password may have been cut in two: `user:12/ss@host`.
fn check_at(rest: &str) -> Result<(), UrlError> {
    let (authority, path) = split_authority(rest);
    if path.contains('@') && authority.contains(':') {
        return Err(UrlError::Ambiguous);
    }
    Ok(())
}

fn split_authority(rest: &str) -> (&str, &str) {
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

/// A text without its secret.
fn without_secret(text: &str) -> Result<(String, Option<Secret>), UrlError> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Ok((text.to_owned(), None));
    };
    if scheme.contains(':') {
        return Ok((text.to_owned(), None));
    }
    check_at(rest)?;
    let (authority, path) = split_authority(rest);
    let mut open = format!("{scheme}://");
    let mut secret = None;
    match authority.rsplit_once('@') {
        Some((userinfo, hosts)) => {
            let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
            if !password.is_empty() && user.is_empty() && OF_USERS.contains(&scheme) {
                return Err(UrlError::NoUser);
            }
            if !password.is_empty() {
                secret = Some(Secret::new(decoded(password).ok_or(UrlError::Form)?));
            }
            if !user.is_empty() {
                open += &format!("{user}@");
            }
            open += hosts;
        }
        None => open += authority,
    }
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    open += path;
    for (number, option) in query.split('&').filter(|it| !it.is_empty()).enumerate() {
        open.push(if number == 0 { '?' } else { '&' });
        match option.split_once('=') {
            Some((name, value)) if is_secret(name, value) => {
                if secret.replace(Secret::new(value.to_owned())).is_some() {
                    return Err(UrlError::TwoSecrets);
                }
                open += &format!("{name}={PASSWORD_PLACE}");
            }
            _ => open += option,
        }
    }
    Ok((open, secret))
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{}:", self.scheme);
        if !WITHOUT_HOSTS.contains(&self.scheme.as_str()) {
            text += "//";
            if !self.user.is_empty() {
                text += &format!("{}@", encoded(&self.user));
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
        if !self.query.is_empty() {
            text += &format!("?{}", self.query);
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
    fn a_query_of_http_is_kept_as_it_was_given_and_a_fragment_is_not_sent() {
        for (text, kept) in [
            ("http://h/a?id=2&id=1", "http://h/a?id=2&id=1"),
            (
                "https://h/search?debug&z=1&a=",
                "https://h/search?debug&z=1&a=",
            ),
            ("http://h/a?b=1#part", "http://h/a?b=1"),
        ] {
            let url: Url = text.parse().expect("it is one");
            assert_eq!(url.to_string(), kept);
        }
        let url: Url = "http://h/a?id=2&id=1&debug".parse().expect("it is one");
        assert_eq!(
            (url.option("id"), url.option("debug")),
            (Some("1"), Some(""))
        );
        assert_eq!(url.option("other"), None);
        assert_eq!("redis://h?debug".parse::<Url>(), Err(UrlError::Form));
    }

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
    fn a_secret_is_taken_out_of_a_url_that_a_person_gives() {
        for (given, open, secret) in [
            (
                "redis://me:s@cret@h:1/0",
                "redis://me@h:1/0",
                Some("s@cret"),
            ),
            ("redis://:p@h", "redis://h", Some("p")),
            ("redis://me:@h", "redis://me@h", None),
            (
                "redis://a%40b:p%2Fs%3A%25@h",
                "redis://a%40b@h",
                Some("p/s:%"),
            ),
            ("http://h/a:b@c", "http://h/a:b@c", None),
            (
                "http://h/x?a=1&token=s%2F&b=2",
                "http://h/x?a=1&token={password}&b=2",
                Some("s%2F"),
            ),
            (
                "http://h?Api_Key=s",
                "http://h?Api_Key={password}",
                Some("s"),
            ),
            ("http://h/?key={key}", "http://h/?key={key}", None),
            (
                "http://h/?token={password}",
                "http://h/?token={password}",
                None,
            ),
        ] {
            let (url, found) = Url::with_password(given).expect("it is one");
            assert_eq!(
                (url.to_string().as_str(), found.as_ref().map(Secret::reveal)),
                (open, secret),
                "{given}"
            );
            assert_eq!(open.parse::<Url>(), Ok(url), "{given}");
        }
        assert!(
            "http://h/?token={password}"
                .parse::<Url>()
                .is_ok_and(|it| it.has_password())
        );
    }

    #[test]
    fn a_text_whose_password_cannot_be_told_from_a_path_is_refused() {
        for text in [
            "redis://user:12/ss@h",
            "redis://user:pa/ss@h",
            "redis://:12?s@h",
            "redis://u:1#s@h",
            "http://me:a@h/b@c",
        ] {
            assert_eq!(Url::with_password(text), Err(UrlError::Ambiguous), "{text}");
            assert_eq!(text.parse::<Url>(), Err(UrlError::Ambiguous), "{text}");
        }
        let two = "http://me:a@h/?token=b";
        assert_eq!(Url::with_password(two), Err(UrlError::TwoSecrets));
    }

    #[test]
    fn a_plan_holds_no_secret_in_its_query_or_in_the_command_of_a_program() {
        for text in [
            "http://h/?token=s",
            "http://h/?a=1&X-Amz-Signature=s",
            "program:curl redis://me:s@h",
            "program:curl http://h?token=s",
        ] {
            assert_eq!(text.parse::<Url>(), Err(UrlError::Password), "{text}");
        }
        assert!("program:python3 a.py x:y@z".parse::<Url>().is_ok());
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_comes_back_as_it_was(text in ".{0,60}") {
            if let Ok(url) = text.parse::<Url>() {
                prop_assert_eq!(url.to_string().parse::<Url>(), Ok(url));
            }
        }

        #[test]
        fn any_password_that_is_encoded_comes_out_and_stays_in_no_text(
            user in "[ -~]{0,8}", password in "[!-~]{9,20}", path in "(/[a-z0-9]{0,5})?",
        ) {
            let text = format!("redis://{}:{}@h:1{path}", encoded(&user), encoded(&password));
            let (url, secret) = Url::with_password(&text).expect("it is one");
            prop_assert_eq!(secret.as_ref().map(Secret::reveal), Some(password.as_str()));
            prop_assert_eq!(&url.user, &user);
            let shown = format!("{url} {url:?} {secret:?}");
            prop_assert!(user.contains(&password) || !shown.contains(&password), "{}", shown);
        }
    }
}
