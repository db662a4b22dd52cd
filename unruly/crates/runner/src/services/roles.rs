//! Finds the process of a group that leads at this moment, or one that does not.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use unruly_plan::{Leads, Role};

use super::running::Services;

/// Timeout of one answer. A process that is stopped gives none.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(300);
/// Time for a group to choose a leader, before a fault gives up.
const CHOICE_TIMEOUT: Duration = Duration::from_secs(2);
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

impl Services {
    /// Returns the names of roles that a fault may use.
    pub(crate) fn roles(&self) -> Vec<String> {
        self.service.roles()
    }

    /// Returns the processes for which a name may stand.
    pub(crate) fn candidates(&self, name: &str) -> Vec<String> {
        self.service.candidates(name)
    }

    /// Returns the process that has a role now; `None` if the name is not that of a role.
    ///
    /// # Errors
    ///
    /// When no process of the group says for two seconds that it leads, or every other is down.
    pub(crate) fn in_role(&self, name: &str) -> Result<Option<String>> {
        let Some((_, role)) = self.service.role(name) else {
            return Ok(None);
        };
        let members = self.service.candidates(name);
        let until = Instant::now() + CHOICE_TIMEOUT;
        loop {
            let leader = members.iter().find(|it| self.leads(it));
            let found = match (leader, role) {
                (None, _) => None,
                (Some(leader), Role::Leader) => Some(leader),
                (Some(leader), Role::Follower) => {
                    let others = members.iter().rev().filter(|it| *it != leader);
                    others.clone().find(|it| self.is_up(it))
                }
            };
            if let Some(found) = found {
                return Ok(Some(found.clone()));
            }
            if Instant::now() > until {
                bail!(
                    "{name}: none of {} has this role after {} s; hint: see their logs",
                    members.join(", "),
                    CHOICE_TIMEOUT.as_secs()
                );
            }
            std::thread::sleep(LOOK_PERIOD);
        }
    }

    fn is_up(&self, name: &str) -> bool {
        let mut children = self.children.iter();
        children.any(|it| it.name == name && it.process.exit().is_none())
    }

    fn leads(&self, name: &str) -> bool {
        let mut processes = self.service.processes.iter();
        let process = processes.find(|it| it.name == name);
        let leads = process.and_then(|it| it.leads.as_ref());
        let place = self.places.place(name);
        leads.zip(place).is_some_and(|(leads, place)| {
            let host: Option<IpAddr> = place.host.parse().ok();
            let address = host.zip(place.ports.get(&leads.port));
            address.is_some_and(|(host, port)| says(SocketAddr::new(host, *port), leads))
        })
    }
}

/// Returns whether a process answers that it leads.
fn says(address: SocketAddr, leads: &Leads) -> bool {
    ask(address, &leads.path).is_ok_and(|said| said.contains(&leads.says))
}

/// Returns the answer to a `GET`. HTTP/1.0 has no chunks, which could cut a word in two.
fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut said = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn leads() -> Leads {
        Leads {
            port: "client".to_owned(),
            path: "/metrics".to_owned(),
            says: "is_leader 1".to_owned(),
        }
    }

    /// Answers one request, and returns whether the answer was taken for that of a leader.
    fn heard(answer: &'static [u8]) -> bool {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.extend(byte);
            }
            assert!(asked.starts_with(b"GET /metrics HTTP/1.0\r\nHost: "));
            stream.write_all(answer).unwrap();
        });
        let found = says(address, &leads());
        server.join().unwrap();
        found
    }

    #[test]
    fn the_leader_is_the_process_whose_answer_says_so() {
        assert!(heard(b"HTTP/1.0 200 OK\r\n\r\nraft 3\nis_leader 1\n"));
        assert!(!heard(b"HTTP/1.0 200 OK\r\n\r\nraft 3\nis_leader 0\n"));
    }

    #[test]
    fn a_process_that_does_not_answer_leads_nobody() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(!says(address, &leads()), "it accepts and says nothing");
        drop(listener);
        assert!(!says(address, &leads()), "it is gone");
    }
}
