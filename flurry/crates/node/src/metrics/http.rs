//! Just enough of HTTP for a collector to read one page.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Metrics;
use crate::Error;

/// Bytes of a request at most.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Whoever takes longer to ask, or to read, is let go.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Clients at a time; for one more the oldest is let go. A collector is served within milliseconds, so only
/// those are old that ask nothing.
const CLIENTS_MAX: usize = 32;

/// Serves the metrics of a process; dropping it stops it.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    pub(super) fn start(metrics: Metrics, address: SocketAddr) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::io(address, "to listen there", &error);
        if !address.ip().is_loopback() {
            return Err(Error::Address {
                text: address.to_string(),
                problem: "others could reach it, and nobody has to say who he is".to_owned(),
                wanted: "an address of this machine alone",
                hint: "127.0.0.1:9471, and a collector on the same machine",
            });
        }
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("flurry-metrics".to_owned())
            .spawn(move || {
                let mut visitors = VecDeque::new();
                for client in listener.incoming() {
                    if stopped.load(Ordering::Acquire) {
                        break;
                    }
                    if let Ok(visitor) = client.and_then(|it| Visitor::receive(it, &metrics)) {
                        visitors.push_back(visitor);
                    }
                    visitors.retain(|it: &Visitor| !it.thread.is_finished());
                    if visitors.len() > CLIENTS_MAX {
                        visitors.pop_front().into_iter().for_each(Visitor::let_go);
                    }
                }
                visitors.into_iter().for_each(Visitor::let_go);
            })
            .map_err(|error| Error::io("flurry-metrics", "a thread", &error))?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A visit wakes it.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A client, and the thread that answers it.
struct Visitor {
    socket: TcpStream,
    thread: JoinHandle<()>,
}

impl Visitor {
    fn receive(client: TcpStream, metrics: &Metrics) -> std::io::Result<Self> {
        let socket = client.try_clone()?;
        let metrics = metrics.clone();
        let thread = std::thread::Builder::new()
            .name("flurry-metrics".to_owned())
            .spawn(move || {
                // One that goes away is no error.
                let _ = answer(&client, &metrics);
                // The other handle keeps it open else, and the client waits for its end.
                let _ = client.shutdown(Shutdown::Both);
            })?;
        Ok(Self { socket, thread })
    }

    fn let_go(self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.thread.join();
    }
}

fn answer(mut client: &TcpStream, metrics: &Metrics) -> std::io::Result<()> {
    client.set_read_timeout(Some(TIMEOUT))?;
    client.set_write_timeout(Some(TIMEOUT))?;
    let asked = request(client)?;
    let line = asked
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (status, body) = match (words.next(), words.next()) {
        // A page in somebody's browser may not read this one through a name of its own.
        _ if !is_of_this_machine(&asked) => ("403 Forbidden", "ask by 127.0.0.1\n".to_owned()),
        (Some(b"GET"), Some(b"/metrics")) => ("200 OK", metrics.text()),
        (Some(b"GET"), _) => ("404 Not Found", "the page is /metrics\n".to_owned()),
        _ => (
            "405 Method Not Allowed",
            "only GET is answered\n".to_owned(),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// Whether a request names this machine, or none.
fn is_of_this_machine(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let lines = text.split("\r\n").skip(1);
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    fields.all(|(name, value)| match name.to_ascii_lowercase().as_str() {
        "host" => is_loopback(value.trim()),
        "origin" => false,
        _ => true,
    })
}

fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|it| it.is_ascii_digit()) {
            name
        } else {
            host
        }
    });
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// Reads a request up to the empty line. A longer or slower request is cut off.
fn request(mut client: &TcpStream) -> std::io::Result<Vec<u8>> {
    let began = Instant::now();
    let mut request = Vec::new();
    let mut part = [0; 1_024];
    while request.len() < REQUEST_BYTES_MAX && began.elapsed() < TIMEOUT {
        let count = client.read(&mut part)?;
        request.extend_from_slice(&part[..count]);
        if count == 0 || request.windows(4).any(|end| end == b"\r\n\r\n") {
            break;
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Page;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(request).unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        said
    }

    #[test]
    fn the_page_is_told_and_nothing_else_is() {
        let metrics = Metrics::default();
        let mut page = Page::of("p");
        page.gauge(("up", "Whether."), &[], 1.0);
        metrics.board().put(page);
        let server = metrics.serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let told = ask(
            server.address(),
            b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9471\r\n\r\n",
        );
        assert!(told.starts_with("HTTP/1.1 200 OK\r\n"), "{told}");
        assert!(told.ends_with("up{part=\"p\"} 1\n"), "{told}");
        let other = ask(server.address(), b"GET / HTTP/1.1\r\n\r\n");
        assert!(other.starts_with("HTTP/1.1 404"), "{other}");
        let posted = ask(server.address(), b"POST /metrics HTTP/1.1\r\n\r\n");
        assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");
        let long = [b"GET /".as_slice(), &[b'a'; 2 * REQUEST_BYTES_MAX]].concat();
        let mut socket = TcpStream::connect(server.address()).unwrap();
        // It may be gone before all of it is sent.
        let _ = socket.write_all(&long);
        let again = ask(server.address(), b"GET /metrics HTTP/1.1\r\n\r\n");
        assert_eq!(again, told);
        assert!(metrics.serve("10.1.2.3:0".parse().unwrap()).is_err());
    }

    #[test]
    fn clients_that_ask_nothing_keep_nobody_waiting() {
        let metrics = Metrics::default();
        let server = metrics.serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let connect = |_| TcpStream::connect(server.address()).unwrap();
        let idle: Vec<TcpStream> = (0..2 * CLIENTS_MAX).map(connect).collect();
        let told = ask(server.address(), b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(told.starts_with("HTTP/1.1 200 OK"), "{told}");
        // The oldest was let go for those that came after it, long before its time was over.
        let mut oldest = &idle[0];
        assert_eq!(oldest.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_foreign_name_or_origin_is_refused() {
        for (fields, status) in [
            ("Host: localhost:9471\r\n", "200"),
            ("host: [::1]\r\n", "200"),
            ("Host: evil.example:9471\r\n", "403"),
            ("Host: 127.0.0.1.evil.example\r\n", "403"),
            ("Host: localhost\r\nOrigin: http://evil.example\r\n", "403"),
        ] {
            let metrics = Metrics::default();
            let server = metrics.serve("127.0.0.1:0".parse().unwrap()).unwrap();
            let request = format!("GET /metrics HTTP/1.1\r\n{fields}\r\n");
            let told = ask(server.address(), request.as_bytes());
            assert!(
                told.starts_with(&format!("HTTP/1.1 {status} ")),
                "{fields}: {told}"
            );
        }
    }
}
