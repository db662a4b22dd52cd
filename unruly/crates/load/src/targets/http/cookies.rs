//! The cookies of the clients: what a server sets, the client sends back with its next requests (RFC
//! 6265). Each client has its own, over whatever connection it asks.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cookie::Cookie;
use cookie::time::{Duration, OffsetDateTime};

/// Cookies of one client, at most, and bytes of each.
const COOKIES_MAX: usize = 50;
const BYTES_MAX: usize = 4_096;

/// The cookies of one client, by their names.
type Jar = BTreeMap<String, String>;

/// The cookies of all clients of a process towards one host.
pub(super) struct Jars {
    /// The path of the requests, up to its first place.
    path: String,
    /// The connections speak TLS.
    is_secure: bool,
    jars: Mutex<HashMap<usize, Jar>>,
}

impl Jars {
    /// No cookies yet, for requests of this path.
    pub(super) fn new(path: &str, is_secure: bool) -> Self {
        let fixed = path.split(['{', '?']).next().unwrap_or_default();
        Self {
            path: if fixed.is_empty() { "/" } else { fixed }.to_owned(),
            is_secure,
            jars: Mutex::default(),
        }
    }

    fn jars(&self) -> MutexGuard<'_, HashMap<usize, Jar>> {
        self.jars.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the value of a `Set-Cookie` header. One that is malformed, or that a browser would not
    /// send back with such a request, is left out.
    pub(super) fn set(&self, client: usize, header: &[u8]) {
        let text = std::str::from_utf8(header).ok();
        let Some(cookie) = text.and_then(|text| Cookie::parse(text).ok()) else {
            return;
        };
        let foreign = cookie.path().is_some_and(|path| !self.is_below(path));
        let hidden = cookie.secure() == Some(true) && !self.is_secure;
        if foreign || hidden || header.len() > BYTES_MAX {
            return;
        }
        let (name, value) = (cookie.name().to_owned(), cookie.value().to_owned());
        let mut jars = self.jars();
        let jar = jars.entry(client).or_default();
        if is_over(&cookie) {
            jar.remove(&name);
        } else if jar.len() < COOKIES_MAX || jar.contains_key(&name) {
            jar.insert(name, value);
        }
    }

    /// True if the requests are below this path (RFC 6265, 5.1.4).
    fn is_below(&self, path: &str) -> bool {
        match self.path.strip_prefix(path) {
            Some(rest) => path.ends_with('/') || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }

    /// The value of a client's `Cookie` header; `None` where it has none.
    pub(super) fn header(&self, client: usize) -> Option<String> {
        let jars = self.jars();
        let jar = jars.get(&client).filter(|jar| !jar.is_empty())?;
        let pairs = jar.iter().map(|(name, value)| format!("{name}={value}"));
        Some(pairs.collect::<Vec<_>>().join("; "))
    }
}

/// True if the server wants it removed.
fn is_over(cookie: &Cookie<'_>) -> bool {
    match cookie.max_age() {
        Some(age) => age <= Duration::ZERO,
        None => cookie
            .expires_datetime()
            .is_some_and(|at| at <= OffsetDateTime::now_utc()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_sends_back_what_it_was_given() {
        let jars = Jars::new("/shop/{data.id}?a=b", false);
        jars.set(1, b"sid=one; Path=/; HttpOnly");
        jars.set(1, b"lang=en; Path=/shop");
        jars.set(2, b"sid=two");
        assert_eq!(jars.header(1).as_deref(), Some("lang=en; sid=one"));
        assert_eq!(jars.header(2).as_deref(), Some("sid=two"));
        assert_eq!(jars.header(3), None);
        jars.set(1, b"sid=three");
        assert_eq!(jars.header(1).as_deref(), Some("lang=en; sid=three"));
    }

    #[test]
    fn a_cookie_that_is_over_or_of_another_place_is_not_sent() {
        let jars = Jars::new("/shop", false);
        jars.set(0, b"a=1");
        jars.set(0, b"a=1; Max-Age=0");
        jars.set(0, b"b=1");
        jars.set(0, b"b=; Expires=Thu, 01 Jan 1970 00:00:00 GMT");
        jars.set(0, b"c=1; Path=/shopping");
        jars.set(0, b"d=1; Path=/shop/cart");
        jars.set(0, b"e=1; Secure");
        jars.set(0, b"\xff=1");
        jars.set(0, b"no cookie at all");
        assert_eq!(jars.header(0), None);
        let secure = Jars::new("/", true);
        secure.set(0, b"e=1; Secure; Max-Age=60");
        assert_eq!(secure.header(0).as_deref(), Some("e=1"));
    }

    #[test]
    fn a_server_does_not_fill_the_memory() {
        let jars = Jars::new("/", false);
        for number in 0..1_000 {
            jars.set(0, format!("c{number}=1").as_bytes());
        }
        jars.set(0, format!("c0={}", "x".repeat(BYTES_MAX)).as_bytes());
        let header = jars.header(0).expect("there are some");
        assert_eq!(header.split("; ").count(), COOKIES_MAX);
        assert!(header.contains("c0=1"));
    }
}
