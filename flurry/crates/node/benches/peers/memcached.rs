//! memcached's text protocol in datagrams.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context as _, Result, ensure};

use crate::store::{Item, Store, TIMEOUT};

/// Request, sequence number, datagrams, nothing: two bytes each.
const FRAME_BYTES: usize = 8;

/// No reply of ours is longer.
const REPLY_BYTES: usize = 2_048;

/// A socket, and the number of its last request.
pub(crate) struct Connection {
    socket: UdpSocket,
    request: u16,
    output: Vec<u8>,
    input: [u8; REPLY_BYTES],
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Box<dyn Store>> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(Box::new(Self {
            socket,
            request: 0,
            output: Vec::new(),
            input: [0; REPLY_BYTES],
        }))
    }

    fn begin(&mut self) {
        self.request = self.request.wrapping_add(1);
        self.output.clear();
        self.output.extend_from_slice(&self.request.to_be_bytes());
        self.output.extend_from_slice(&[0, 0, 0, 1, 0, 0]);
    }

    /// Sends, and waits for the reply of this request; one that came too late for another is no reply.
    fn ask(&mut self) -> Result<&[u8]> {
        self.socket.send(&self.output)?;
        loop {
            let bytes = self.socket.recv(&mut self.input).context("memcached")?;
            if bytes >= FRAME_BYTES && self.input[..2] == self.request.to_be_bytes() {
                return Ok(&self.input[FRAME_BYTES..bytes]);
            }
        }
    }
}

impl Store for Connection {
    fn set(&mut self, item: &Item) -> Result<()> {
        self.begin();
        let length = item.value.len().to_string();
        for part in [b"set ", &item.key[..], b" 0 0 ", length.as_bytes(), b"\r\n"] {
            self.output.extend_from_slice(part);
        }
        self.output.extend_from_slice(&item.value);
        self.output.extend_from_slice(b"\r\n");
        let reply = self.ask()?;
        ensure!(
            reply == b"STORED\r\n",
            "memcached: {}; wanted STORED",
            reply.escape_ascii()
        );
        Ok(())
    }

    fn get(&mut self, item: &Item) -> Result<()> {
        self.begin();
        for part in [b"get ", &item.key[..], b"\r\n"] {
            self.output.extend_from_slice(part);
        }
        let reply = self.ask()?;
        let tail = reply
            .strip_suffix(b"\r\nEND\r\n")
            .is_some_and(|found| found.starts_with(b"VALUE ") && found.ends_with(&item.value));
        ensure!(
            tail,
            "memcached: {}; wanted what was written",
            reply.escape_ascii()
        );
        Ok(())
    }
}
