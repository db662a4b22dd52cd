//! Who may be talked to, and how nobody else can read or say anything.
//!
//! Without a key everything stays on this machine. With the cluster's key each datagram and each frame
//! is sealed: encrypted, bound to where it goes, and good once.

use std::net::{SocketAddr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::{Error, random};

/// What all parts of a cluster share, and nobody else knows.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; 32]);

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ClusterKey")
    }
}

impl ClusterKey {
    /// A new one, of the kernel's randomness.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] without randomness.
    pub fn random() -> Result<Self, Error> {
        random::bytes().map(Self)
    }

    /// Reads one: 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a file that others may read, or that holds no key; [`Error::Io`] for one
    /// that cannot be read.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let place = path.display();
        let failed =
            |error: std::io::Error| Error::io(place.to_string(), "a cluster's key", &error);
        let refused = |reason: String| Error::Refused { reason };
        let mode = std::fs::metadata(path)
            .map_err(failed)?
            .permissions()
            .mode();
        if mode & 0o077 != 0 {
            return Err(refused(format!(
                "{place}: others may read it (mode {:o}); wanted a key that only its owner can read; hint: chmod 600 {place}",
                mode & 0o777
            )));
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        // Not the text: it may be nearly a key.
        Self::of_text(text.trim()).ok_or_else(|| {
            refused(format!(
                "{place}: it is no key; wanted 64 hexadecimal digits; hint: flurry key makes one"
            ))
        })
    }

    fn of_text(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut key = [0; 32];
        for (byte, at) in key.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        Some(Self(key))
    }

    /// As a file has it.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// How a part talks to the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Security {
    /// What every message is sealed with.
    pub key: Option<ClusterKey>,
    /// Allows connections to other machines without a key. Everybody who can reach a part may then
    /// do everything.
    pub insecure: bool,
}

impl Security {
    /// Sealed with this key.
    #[must_use]
    pub fn with_key(key: ClusterKey) -> Self {
        Self {
            key: Some(key),
            insecure: false,
        }
    }

    /// The address, if it may be used: one of the IPv4 loopback network, or with a key any of IPv4 that
    /// is somebody's own.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] for any other, with the reason.
    pub fn allow(&self, address: SocketAddr) -> Result<SocketAddrV4, Error> {
        let refused = |problem: &str, wanted, hint| Error::Address {
            text: address.to_string(),
            problem: problem.to_owned(),
            wanted,
            hint,
        };
        match address {
            SocketAddr::V4(four) if four.ip().is_loopback() => Ok(four),
            SocketAddr::V4(four) if four.ip().is_unspecified() => Err(refused(
                "it is no address of its own, and the others could not reach a part there",
                "an address of this machine with a port",
                "name the one that the others reach it by",
            )),
            SocketAddr::V4(four) if self.key.is_some() || self.insecure => Ok(four),
            SocketAddr::V4(_) => Err(refused(
                "it is not of the loopback network, and others could reach it: without a key nothing is encrypted and nobody has to say who they are",
                "127.0.0.1 with a port, or a cluster's key",
                "--key-file FILE (see flurry/docs/security.md), or --insecure where only friends are",
            )),
            SocketAddr::V6(_) => Err(refused(
                "it is of IPv6",
                "an address of IPv4 with a port",
                "127.0.0.1:7700",
            )),
        }
    }

    /// An address out of a configuration, which strangers may have had a hand in.
    pub(crate) fn listed(&self, text: &str) -> Option<SocketAddrV4> {
        self.allow(text.parse().ok()?).ok()
    }
}

/// Refuses a file with secrets that others than its owner and its group can read, or than its owner can write.
/// `what` says what it is.
///
/// # Errors
///
/// [`Error::Refused`] for such a file. If the file cannot be examined, the caller that reads it
/// reports the error.
pub fn check_secret(path: &Path, what: &str) -> Result<(), Error> {
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(());
    };
    let (mode, place) = (found.permissions().mode() & 0o777, path.display());
    if found.is_file() && mode & 0o027 != 0 {
        return Err(Error::Refused {
            reason: format!(
                "{place}: others may read or change it (mode {mode:o}); wanted {what} that only its owner and its group can read; hint: chmod 640 {place}"
            ),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_key_only_loopback_addresses_are_taken_and_the_reason_is_said() {
        let open = Security::default();
        for text in ["0.0.0.0:7700", "10.0.0.1:7700", "[::1]:7700"] {
            assert!(open.allow(text.parse().unwrap()).is_err(), "{text}");
            assert_eq!(open.listed(text), None);
        }
        let refused = open.allow("10.0.0.1:7700".parse().unwrap()).unwrap_err();
        assert!(
            refused.to_string().contains("nothing is encrypted"),
            "{refused}"
        );
        assert!(open.allow("127.9.0.1:7700".parse().unwrap()).is_ok());
    }

    #[test]
    fn with_a_key_or_on_request_others_are_reached_too() {
        let keyed = Security::with_key(ClusterKey::random().unwrap());
        let bold = Security {
            insecure: true,
            ..Security::default()
        };
        for security in [keyed, bold] {
            assert!(security.listed("10.0.0.1:7700").is_some());
            assert_eq!(security.listed("0.0.0.0:7700"), None);
        }
    }

    #[test]
    fn a_key_is_read_as_it_was_written_and_only_if_nobody_else_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        let key = ClusterKey::random().unwrap();
        std::fs::write(&path, format!("{}\n", key.to_text())).unwrap();
        let set = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(0o644);
        let refused = ClusterKey::read(&path).unwrap_err().to_string();
        assert!(
            refused.contains("others may read it (mode 644)"),
            "{refused}"
        );
        set(0o600);
        assert_eq!(ClusterKey::read(&path).unwrap(), key);
        std::fs::write(&path, &key.to_text()[1..]).unwrap();
        let refused = ClusterKey::read(&path).unwrap_err().to_string();
        assert!(refused.contains("64 hexadecimal digits"), "{refused}");
        assert!(!format!("{key:?}").contains(&key.to_text()[..8]));
    }

    #[test]
    fn a_secret_that_others_can_read_or_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        std::fs::write(&path, "secret").unwrap();
        for (mode, fine) in [(0o600, true), (0o640, true), (0o644, false), (0o660, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_secret(&path, "a key").is_ok(), fine, "{mode:o}");
        }
        assert!(check_secret(&folder.path().join("none"), "a key").is_ok());
    }
}
