//! The cookies of the clients: what a server sets, the client sends back with its next requests (RFC
//! 6265). Each client has its own, over whatever connection it asks.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cookie::Cookie;
use cookie::time::{Duration, OffsetDateTime};

/// Cookies of one client, at most, and bytes of each.
const COOKIES_MAX: usize = 50;
const BYTES_MAX: usize = 4_096;

/// The cookies of one client, by their names and the paths that they are for.
type Jar = BTreeMap<(String, String), String>;

/// The cookies of all clients of a process towards one host.
#[derive(Debug)]
pub(super) struct Jars {
    /// The connections speak TLS.
    is_secure: bool,
    jars: Mutex<HashMap<usize, Jar>>,
}

/// The path of requests, up to its first place or its query.
pub(super) fn fixed_path(path: &str) -> &str {
    let fixed = path.split(['{', '?']).next().unwrap_or_default();
    if fixed.is_empty() { "/" } else { fixed }
}

impl Jars {
    /// No cookies yet.
    pub(super) fn new(is_secure: bool) -> Self {
        Self {
            is_secure,
            jars: Mutex::default(),
        }
    }

    fn jars(&self) -> MutexGuard<'_, HashMap<usize, Jar>> {
        self.jars.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the value of a `Set-Cookie` header of a reply to a request of this path. One that is
    /// malformed, or that a browser would not send back over such a connection, is left out.
    pub(super) fn set(&self, client: usize, path: &str, header: &[u8]) {
        let text = std::str::from_utf8(header).ok();
        let Some(cookie) = text.and_then(|text| Cookie::parse(text).ok()) else {
            return;
        };
        let hidden = cookie.secure() == Some(true) && !self.is_secure;
        if hidden || header.len() > BYTES_MAX {
            return;
        }
        let own = cookie.path().filter(|it| it.starts_with('/'));
        let own = own.unwrap_or_else(|| folder_of(path)).to_owned();
        let (name, value) = (cookie.name().to_owned(), cookie.value().to_owned());
        let mut jars = self.jars();
        let jar = jars.entry(client).or_default();
        let named = (name, own);
        if is_over(&cookie) {
            jar.remove(&named);
        } else if jar.len() < COOKIES_MAX || jar.contains_key(&named) {
            jar.insert(named, value);
        }
    }

    /// The value of a client's `Cookie` header with a request of this path; `None` where it has none.
    pub(super) fn header(&self, client: usize, path: &str) -> Option<String> {
        let jars = self.jars();
        let jar = jars.get(&client)?.iter();
        let mut sent: Vec<_> = jar.filter(|((_, own), _)| is_below(path, own)).collect();
        // Longer paths first (RFC 6265, 5.4).
        sent.sort_by_key(|((_, own), _)| std::cmp::Reverse(own.len()));
        let pairs: Vec<_> = sent
            .iter()
            .map(|((name, _), value)| format!("{name}={value}"))
            .collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }

    /// Another client takes the place of this one, without its cookies.
    pub(super) fn forget(&self, client: usize) {
        self.jars().remove(&client);
    }
}

/// True if a path is below another one (RFC 6265, 5.1.4).
fn is_below(path: &str, above: &str) -> bool {
    match path.strip_prefix(above) {
        Some(rest) => above.ends_with('/') || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// The path of a cookie that names none: that of the request up to its last slash.
fn folder_of(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(end) => &path[..end],
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
        let jars = Jars::new(false);
        let path = fixed_path("/shop/{data.id}?a=b");
        assert_eq!(path, "/shop/");
        jars.set(1, path, b"sid=one; Path=/; HttpOnly");
        jars.set(1, path, b"lang=en; Path=/shop");
        jars.set(2, path, b"sid=two");
        assert_eq!(jars.header(1, path).as_deref(), Some("lang=en; sid=one"));
        assert_eq!(jars.header(2, path).as_deref(), Some("sid=two"));
        assert_eq!(jars.header(3, path), None);
        jars.set(1, path, b"sid=three; Path=/");
        assert_eq!(jars.header(1, path).as_deref(), Some("lang=en; sid=three"));
        jars.forget(1);
        assert_eq!(jars.header(1, path), None);
    }

    #[test]
    fn a_cookie_goes_to_the_paths_that_it_is_for() {
        let jars = Jars::new(false);
        jars.set(0, "/shop/login", b"a=1");
        jars.set(0, "/shop/login", b"b=1; Path=/");
        jars.set(0, "/shop/login", b"c=1; Path=/admin");
        jars.set(0, "/shop/login", b"b=2; Path=/admin");
        for (path, wanted) in [
            ("/shop/cart", "a=1; b=1"),
            ("/", "b=1"),
            ("/shopping", "b=1"),
            ("/admin/users", "b=2; c=1; b=1"),
        ] {
            assert_eq!(jars.header(0, path).as_deref(), Some(wanted), "{path}");
        }
    }

    #[test]
    fn a_cookie_that_is_over_or_of_another_place_is_not_sent() {
        let jars = Jars::new(false);
        jars.set(0, "/shop", b"a=1");
        jars.set(0, "/shop", b"a=1; Max-Age=0");
        jars.set(0, "/shop", b"b=1");
        jars.set(0, "/shop", b"b=; Expires=Thu, 01 Jan 1970 00:00:00 GMT");
        jars.set(0, "/shop", b"c=1; Path=/shopping");
        jars.set(0, "/shop", b"d=1; Path=/shop/cart");
        jars.set(0, "/shop", b"e=1; Secure");
        jars.set(0, "/shop", b"\xff=1");
        jars.set(0, "/shop", b"no cookie at all");
        assert_eq!(jars.header(0, "/shop"), None);
        let secure = Jars::new(true);
        secure.set(0, "/", b"e=1; Secure; Max-Age=60");
        assert_eq!(secure.header(0, "/").as_deref(), Some("e=1"));
    }

    #[test]
    fn a_server_does_not_fill_the_memory() {
        let jars = Jars::new(false);
        for number in 0..1_000 {
            jars.set(0, "/", format!("c{number}=1").as_bytes());
        }
        jars.set(0, "/", format!("c0={}", "x".repeat(BYTES_MAX)).as_bytes());
        let header = jars.header(0, "/").expect("there are some");
        assert_eq!(header.split("; ").count(), COOKIES_MAX);
        assert!(header.contains("c0=1"));
    }
}
