//! Just enough of HTTP for a collector to read one page.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Metrics;
use crate::Error;

/// Bytes of a request at most.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Whoever takes longer to ask, or to read, is let go: the next one waits.
const PATIENCE: Duration = Duration::from_secs(1);

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
                for client in listener.incoming() {
                    if stopped.load(Ordering::Acquire) {
                        return;
                    }
                    if let Ok(client) = client {
                        // One that goes away is no error.
                        let _ = answer(client, &metrics);
                    }
                }
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

fn answer(mut client: TcpStream, metrics: &Metrics) -> std::io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let asked = request(&mut client)?;
    let line = asked
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (status, body) = match (words.next(), words.next()) {
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

/// Everything up to the empty line; what is longer, or takes longer, is cut.
fn request(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let began = Instant::now();
    let mut request = Vec::new();
    let mut part = [0; 1_024];
    while request.len() < REQUEST_BYTES_MAX && began.elapsed() < PATIENCE {
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
            b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
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
}
