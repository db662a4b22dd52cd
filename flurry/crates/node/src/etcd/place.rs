//! Where etcd is, and what belongs to a cluster there.

use std::path::PathBuf;
use std::time::Duration;

use crate::Error;
use crate::address::resolve;
use crate::security::Security;

/// More nodes than this no etcd should have.
const NODES_MAX: usize = 9;

/// No name of a cluster is longer.
const NAME_BYTES_MAX: usize = 64;

const PORT: u16 = 2379;

/// The nodes of an etcd, and the name of a cluster whose state they keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etcd {
    nodes: Vec<String>,
    name: String,
    tls: Option<EtcdTls>,
}

/// How the client checks etcd's certificate, and the certificate that it presents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdTls {
    /// The authorities that may have signed its certificate, in PEM.
    pub authorities: PathBuf,
    /// A certificate and its key, in PEM, where etcd wants to see one.
    pub own: Option<(PathBuf, PathBuf)>,
}

fn refused(text: &str, problem: &str, hint: &'static str) -> Error {
    Error::Address {
        text: text.to_owned(),
        problem: problem.to_owned(),
        wanted: "etcd://HOST:PORT,HOST:PORT,.../NAME",
        hint,
    }
}

impl Etcd {
    /// Reads `etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/shop`. A port that is left out is 2379, a
    /// name that is left out `flurry`; `etcds` instead of `etcd` wants `tls`, which is how.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] for anything else, or for `etcds` without `tls`.
    pub fn parse(text: &str, tls: Option<EtcdTls>) -> Result<Self, Error> {
        let no_scheme = || refused(text, "it begins otherwise", "etcd://127.0.0.1:2379");
        let (secure, rest) = match text.split_once("://") {
            Some(("etcd", rest)) => (false, rest),
            Some(("etcds", rest)) => (true, rest),
            _ => return Err(no_scheme()),
        };
        match (secure, &tls) {
            (true, None) => {
                let hint = "--etcd-ca FILE";
                return Err(refused(text, "nobody says who may have signed", hint));
            }
            (false, Some(_)) => {
                let hint = "etcds://HOST:PORT, or no --etcd-ca";
                return Err(refused(text, "it is without TLS", hint));
            }
            _ => {}
        }
        let (nodes, name) = rest.split_once('/').unwrap_or((rest, "flurry"));
        let nodes: Vec<String> = nodes.split(',').map(with_port).collect();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            let hint = "letters, digits, and -_. of ASCII, 64 at most";
            return Err(refused(
                text,
                "its name is empty, too long, or of other characters",
                hint,
            ));
        }
        let is_host = |byte: u8| is_plain(byte) || byte == b':';
        if nodes.len() > NODES_MAX
            || nodes
                .iter()
                .any(|it| it.starts_with(':') || !it.bytes().all(is_host))
        {
            let hint = "one to nine nodes, with commas between";
            return Err(refused(text, "its nodes are none", hint));
        }
        Ok(Self {
            nodes,
            name: name.to_owned(),
            tls,
        })
    }

    /// Whether its nodes may be talked to: on this machine, by TLS, or wherever `--insecure` allows.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] for a node beyond this machine that would be talked to in the open, or one that
    /// is not found within `timeout`.
    pub(crate) fn allow(&self, security: &Security, timeout: Duration) -> Result<(), Error> {
        if self.tls.is_some() || security.insecure {
            return Ok(());
        }
        for node in &self.nodes {
            if !resolve(node, timeout)?.ip().is_loopback() {
                return Err(Error::Address {
                    text: node.clone(),
                    problem: "it is not of the loopback network, and who takes part would be said in the open".to_owned(),
                    wanted: "etcd by TLS",
                    hint: "etcds://... with --etcd-ca FILE, or --insecure where only friends are",
                });
            }
        }
        Ok(())
    }

    /// Where the calls of each node begin.
    pub(crate) fn urls(&self) -> Vec<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let all = self.nodes.iter();
        all.map(|node| format!("{scheme}://{node}/v3/")).collect()
    }

    pub(crate) fn tls(&self) -> Option<&EtcdTls> {
        self.tls.as_ref()
    }

    /// Returns the key in etcd for this name.
    pub(crate) fn key(&self, what: &str) -> String {
        format!("/flurry/{}/{what}", self.name)
    }
}

impl std::fmt::Display for Etcd {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        write!(
            formatter,
            "{scheme}://{}/{}",
            self.nodes.join(","),
            self.name
        )
    }
}

fn with_port(node: &str) -> String {
    if node.contains(':') {
        node.to_owned()
    } else {
        format!("{node}:{PORT}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls() -> EtcdTls {
        EtcdTls {
            authorities: "ca.pem".into(),
            own: None,
        }
    }

    #[test]
    fn nodes_and_name_are_read_and_what_is_left_out_is_usual() {
        for (text, wanted) in [
            ("etcd://127.0.0.1", "etcd://127.0.0.1:2379/flurry"),
            ("etcd://a:1,b,c:3/shop", "etcd://a:1,b:2379,c:3/shop"),
        ] {
            assert_eq!(Etcd::parse(text, None).unwrap().to_string(), wanted);
        }
        let secure = Etcd::parse("etcds://a/shop", Some(tls())).unwrap();
        assert_eq!(secure.urls(), ["https://a:2379/v3/"]);
        assert_eq!(secure.key("state"), "/flurry/shop/state");
    }

    #[test]
    fn anything_else_is_refused_with_what_is_wrong() {
        for text in [
            "127.0.0.1:2379",
            "http://127.0.0.1:2379",
            "etcd://",
            "etcd:///shop",
            "etcd://a,,b",
            "etcd://a/",
            "etcd://a/two/names",
            "etcd://a?b/x",
            "etcds://a",
        ] {
            let refused = Etcd::parse(text, None).unwrap_err().to_string();
            assert!(refused.starts_with(text), "{refused}");
            assert!(refused.contains("; wanted etcd://"), "{refused}");
        }
        assert!(Etcd::parse("etcd://a", Some(tls())).is_err());
        for text in ["etcd://user:s3c/r3t@h", "etcd://:r3t@h/x y", "http://r3t@h"] {
            let refused = Etcd::parse(text, None).unwrap_err().to_string();
            assert!(!refused.contains("r3t"), "{refused}");
            assert!(refused.starts_with("(not shown"), "{refused}");
        }
    }

    #[test]
    fn beyond_this_machine_it_is_talked_to_by_tls_alone() {
        let soon = Duration::from_secs(5);
        let open = Security::default();
        let far = Etcd::parse("etcd://127.0.0.1,10.0.0.1", None).unwrap();
        let refused = far.allow(&open, soon).unwrap_err().to_string();
        assert!(refused.contains("10.0.0.1"), "{refused}");
        let near = Etcd::parse("etcd://127.0.0.1,127.0.0.2", None).unwrap();
        assert!(near.allow(&open, soon).is_ok());
        let secure = Etcd::parse("etcds://10.0.0.1", Some(tls())).unwrap();
        assert!(secure.allow(&open, soon).is_ok());
        let bold = Security {
            insecure: true,
            ..open
        };
        assert!(far.allow(&bold, soon).is_ok());
    }
}
