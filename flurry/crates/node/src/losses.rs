//! Asks a gateway which writes are lost, or may be, as any Redis client would.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::Error;
use crate::pem::certificates;

/// Losses in a gateway's list at most, with room for those of a later version.
const LOSSES_MAX: usize = 1 << 20;

/// The longest line of a reply, and the longest key with room to spare.
const LINE_BYTES_MAX: u64 = 4_096;
const KEY_BYTES_MAX: usize = 4_096;

/// A key of which a write is lost, or may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// True if an acknowledged write is on no server any more; false if the last writes may be lost.
    pub is_certain: bool,
    /// The key.
    pub key: Vec<u8>,
}

/// How a gateway is reached.
#[derive(Debug, Clone)]
pub struct GatewayLogin {
    /// Its address.
    pub address: SocketAddr,
    /// Its host as the certificate has it.
    pub host: String,
    /// A user and the password, if the gateway has users.
    pub user: Option<(String, String)>,
    /// Certificates of authorities, if the gateway uses TLS.
    pub authorities: Option<PathBuf>,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Returns the keys that a gateway has in its list (`FLURRY LOSSES`), oldest first.
///
/// # Errors
///
/// [`Error::Refused`] for a gateway that does not answer within `timeout` or refuses, and
/// [`Error::Io`] for a file that cannot be read.
pub fn losses(gateway: &GatewayLogin, timeout: Duration) -> Result<Vec<Loss>, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Refused {
        reason: format!(
            "gateway {}: {error}; wanted a gateway that answers there; hint: `flurry gateway` starts one, and --gateway names another; --cacert is for one that uses TLS",
            gateway.address
        ),
    };
    let socket = TcpStream::connect_timeout(&gateway.address, timeout);
    let socket = socket.map_err(|error| failed(&error))?;
    for set in [
        socket.set_read_timeout(Some(timeout)),
        socket.set_write_timeout(Some(timeout)),
    ] {
        set.map_err(|error| failed(&error))?;
    }
    let stream: Box<dyn Stream> = match &gateway.authorities {
        None => Box::new(socket),
        Some(path) => Box::new(StreamOwned::new(secured(&gateway.host, path)?, socket)),
    };
    let mut reader = BufReader::new(stream);
    if let Some((user, password)) = &gateway.user {
        ask(&mut reader, &["AUTH", user, password]).map_err(|error| failed(&error))?;
        match line(&mut reader).map_err(|error| failed(&error))? {
            ok if ok == "+OK" => {}
            refusal => return Err(refused(&refusal)),
        }
    }
    ask(&mut reader, &["FLURRY", "LOSSES"]).map_err(|error| failed(&error))?;
    let first = line(&mut reader).map_err(|error| failed(&error))?;
    if first.starts_with('-') {
        return Err(refused(&first));
    }
    list(&mut reader, &first).map_err(|error| failed(&error))
}

fn refused(line: &str) -> Error {
    let said = line.trim_start_matches('-');
    let hint = if said.starts_with("LOADING") {
        "it stands by; ask the gateway that serves"
    } else if said.starts_with("ERR unknown command") {
        "is it a Flurry gateway? --gateway names another"
    } else {
        "--user and --password-file name a user that may run admin commands"
    };
    Error::Refused {
        reason: format!("gateway: it refuses with {said:?}; hint: {hint}"),
    }
}

fn secured(host: &str, path: &Path) -> Result<ClientConnection, Error> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::io(path.display(), "certificates of authorities", &error)
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| failed(&error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
    ClientConnection::new(Arc::new(config), name).map_err(|error| failed(&error))
}

fn ask(stream: &mut BufReader<Box<dyn Stream>>, words: &[&str]) -> std::io::Result<()> {
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream.get_mut().write_all(command.as_bytes())?;
    stream.get_mut().flush()
}

fn line(reader: &mut impl std::io::BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    reader.take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(whole) => Ok(whole.to_owned()),
        None => Err(unexpected(&line)),
    }
}

fn unexpected(said: &str) -> std::io::Error {
    let start: String = said.chars().take(80).collect();
    std::io::Error::other(format!("it says {start:?}, which is no list of losses"))
}

fn count(line: &str, kind: char, most: usize) -> std::io::Result<usize> {
    let number = line.strip_prefix(kind).and_then(|it| it.parse().ok());
    number
        .filter(|count| *count <= most)
        .ok_or_else(|| unexpected(line))
}

fn text(reader: &mut impl std::io::BufRead) -> std::io::Result<Vec<u8>> {
    let first = line(reader)?;
    if let Some(short) = first.strip_prefix('+') {
        return Ok(short.as_bytes().to_vec());
    }
    let mut bytes = vec![0; count(&first, '$', KEY_BYTES_MAX)? + 2];
    reader.read_exact(&mut bytes)?;
    bytes.truncate(bytes.len() - 2);
    Ok(bytes)
}

/// Reads the list behind its first line: pairs of a kind and a key.
fn list(reader: &mut impl std::io::BufRead, first: &str) -> std::io::Result<Vec<Loss>> {
    let pairs = count(first, '*', LOSSES_MAX)?;
    let mut all = Vec::new();
    for _ in 0..pairs {
        let pair = line(reader)?;
        if count(&pair, '*', 2)? != 2 {
            return Err(unexpected(&pair));
        }
        let kind = text(reader)?;
        let is_certain = match kind.as_slice() {
            b"loss" => true,
            b"doubt" => false,
            _ => return Err(unexpected(&String::from_utf8_lossy(&kind))),
        };
        all.push(Loss {
            is_certain,
            key: text(reader)?,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(said: &[u8]) -> std::io::Result<Vec<Loss>> {
        let mut reader = said;
        let first = line(&mut reader)?;
        list(&mut reader, &first)
    }

    #[test]
    fn a_list_is_read_whatever_bytes_its_keys_have() {
        let said = b"*2\r\n*2\r\n$5\r\ndoubt\r\n$3\r\na\r\n\r\n*2\r\n+loss\r\n$0\r\n\r\n";
        let found = read(said).unwrap();
        let pairs: Vec<_> = found
            .iter()
            .map(|it| (it.is_certain, it.key.as_slice()))
            .collect();
        assert_eq!(pairs, [(false, &b"a\r\n"[..]), (true, &b""[..])]);
        assert_eq!(read(b"*0\r\n").unwrap(), []);
    }

    #[test]
    fn the_hint_fits_what_the_gateway_says() {
        for (said, hint) in [
            (
                "-LOADING the gateway does not own its slots yet",
                "stands by",
            ),
            ("-ERR unknown command 'FLURRY'", "is it a Flurry gateway?"),
            ("-NOPERM this user has no permissions", "--user"),
            ("-NOAUTH Authentication required.", "--user"),
        ] {
            let text = refused(said).to_string();
            assert!(text.contains(hint), "{text}");
        }
    }

    #[test]
    fn what_is_no_list_is_an_error_and_takes_no_memory() {
        for said in [
            &b""[..],
            b"*1\r\n",
            b"*1\r\n*2\r\n$5\r\ndoubt\r\n$99999999999\r\n",
            b"*99999999999\r\n",
            b"*1\r\n*3\r\n+loss\r\n+k\r\n+x\r\n",
            b"*1\r\n*2\r\n+other\r\n+k\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            &[b'x'; 10_000],
        ] {
            assert!(read(said).is_err(), "{:?}", said.escape_ascii());
        }
    }
}
