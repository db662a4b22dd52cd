//! A service whose connections are watched.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use anyhow::{Context, Result, bail};

/// Services that one tap can watch: the kernel's filter holds their ports.
pub const SERVERS_MAX: usize = 32;

/// Bytes of a `COM_STMT_CLOSE` of MySQL, which has no reply.
const STATEMENT_CLOSE_BYTES: u32 = 9;

/// A watched service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The word that rows and pictures have for it.
    pub name: String,
    /// Its addresses; empty for every address.
    pub hosts: Vec<IpAddr>,
    /// Its port.
    pub port: u16,
    /// Length of a message that has no reply, if its protocol has such a message.
    pub silent_bytes: Option<u32>,
}

impl Server {
    /// Reads `tcp://HOST:PORT`, `mysql://HOST:PORT`, or `NAME=` and one of them. The host `*` stands
    /// for every address.
    ///
    /// # Errors
    ///
    /// When it is no such text, or the host has no address.
    pub fn parse(text: &str) -> Result<Self> {
        let (name, url) = match text.split_once('=') {
            Some((name, url)) => (Some(name), url),
            None => (None, text),
        };
        let wrong = || {
            format!(
                "{text}: is not the address of a service; hint: tcp://127.0.0.1:443, or web=tcp://127.0.0.1:443"
            )
        };
        let (scheme, place) = url.split_once("://").unwrap_or(("tcp", url));
        let place = place.trim_end_matches('/');
        let (host, port) = place.rsplit_once(':').with_context(wrong)?;
        let port: u16 = port.parse().with_context(wrong)?;
        if port == 0 || host.is_empty() || name.is_some_and(str::is_empty) {
            bail!("{}", wrong());
        }
        let silent_bytes = match scheme {
            "tcp" => None,
            "mysql" => Some(STATEMENT_CLOSE_BYTES),
            _ => bail!(
                "{text}: a tap knows no {scheme}://; hint: tcp://{place}, whatever the protocol is"
            ),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let hosts = match host {
            "*" => Vec::new(),
            host => {
                let found = (host, port).to_socket_addrs();
                let found = found.with_context(|| {
                    format!("{text}: {host} has no address; hint: check the name")
                })?;
                let found: Vec<IpAddr> = found.map(|it| it.ip()).collect();
                // As a list of sockets has it: every address.
                match found.iter().any(IpAddr::is_unspecified) {
                    true => Vec::new(),
                    false => found,
                }
            }
        };
        Ok(Self {
            name: name.unwrap_or(place).to_owned(),
            hosts,
            port,
            silent_bytes,
        })
    }

    /// Returns true if who listens at this address listens for the service.
    pub(crate) fn listens_at(&self, address: SocketAddr) -> bool {
        let here = || self.hosts.is_empty() || self.hosts.iter().any(|it| is_of_this_host(*it));
        let any = || address.ip().is_unspecified() && here();
        address.port() == self.port && (self.is_at(address) || any())
    }

    /// Returns true if this address is the service's.
    #[must_use]
    pub fn is_at(&self, address: SocketAddr) -> bool {
        let of_host = || {
            let ip = address.ip().to_canonical();
            self.hosts.iter().any(|host| host.to_canonical() == ip)
        };
        address.port() == self.port && (self.hosts.is_empty() || of_host())
    }
}

/// Returns true if an address is one of this host: only such a one can be bound.
fn is_of_this_host(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_name_and_stand_for_every_host() {
        let web = Server::parse("web=tcp://127.0.0.1:443").unwrap();
        assert_eq!((web.name.as_str(), web.port), ("web", 443));
        assert!(web.is_at("127.0.0.1:443".parse().unwrap()));
        assert!(web.is_at("[::ffff:127.0.0.1]:443".parse().unwrap()));
        assert!(!web.is_at("127.0.0.2:443".parse().unwrap()));
        for every in ["tcp://0.0.0.0:80", "tcp://[::]:80"] {
            let every = Server::parse(every).unwrap();
            assert!(every.is_at("192.0.2.1:80".parse().unwrap()));
        }
        let all = Server::parse("tcp://*:6379").unwrap();
        assert_eq!(all.name, "*:6379");
        assert!(all.is_at("10.1.2.3:6379".parse().unwrap()));
        assert!(!all.is_at("10.1.2.3:6380".parse().unwrap()));
        let six = Server::parse("tcp://[::1]:80/").unwrap();
        assert!(six.is_at("[::1]:80".parse().unwrap()));
        assert_eq!(Server::parse("127.0.0.1:80").unwrap().name, "127.0.0.1:80");
    }

    #[test]
    fn who_listens_everywhere_here_does_not_listen_for_another_host() {
        let everywhere = "0.0.0.0:80".parse().unwrap();
        let listens = |text: &str| Server::parse(text).unwrap().listens_at(everywhere);
        assert!(listens("tcp://127.0.0.1:80") && listens("tcp://*:80"));
        // An address for documentation.
        assert!(!listens("tcp://192.0.2.1:80") && !listens("tcp://127.0.0.1:81"));
    }

    #[test]
    fn a_text_that_is_no_address_is_refused_with_an_example() {
        let said = |text: &str| Server::parse(text).unwrap_err().to_string();
        for text in [
            "tcp://127.0.0.1",
            "tcp://:80",
            "tcp://127.0.0.1:0",
            "=tcp://127.0.0.1:1",
            "80",
        ] {
            assert_eq!(
                said(text),
                format!(
                    "{text}: is not the address of a service; hint: tcp://127.0.0.1:443, or web=tcp://127.0.0.1:443"
                )
            );
        }
        assert_eq!(
            said("redis://127.0.0.1:6379"),
            "redis://127.0.0.1:6379: a tap knows no redis://; hint: tcp://127.0.0.1:6379, whatever the protocol is"
        );
    }
}
