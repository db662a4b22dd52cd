//! Redis: a write and the wait for its replicas, pipelined in one message on one connection; for none
//! there is no wait, and the peer may be whatever speaks the protocol.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, Result, bail, ensure};

use crate::store::{Item, Store, TIMEOUT};

/// No reply of ours is longer.
const REPLY_BYTES: usize = 512;

/// A connection whose writes wait for a number of replicas.
pub(crate) struct Connection {
    stream: TcpStream,
    replicas: u8,
    output: Vec<u8>,
    input: [u8; REPLY_BYTES],
}

impl Connection {
    pub(crate) fn open(address: SocketAddr, replicas: u8) -> Result<Box<dyn Store>> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Box::new(Self {
            stream,
            replicas,
            output: Vec::new(),
            input: [0; REPLY_BYTES],
        }))
    }

    fn command(&mut self, words: &[&[u8]]) {
        self.output
            .extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.output
                .extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.output.extend_from_slice(word);
            self.output.extend_from_slice(b"\r\n");
        }
    }
}

impl Store for Connection {
    fn set(&mut self, item: &Item) -> Result<()> {
        self.output.clear();
        self.command(&[b"SET", &item.key, &item.value]);
        if self.replicas > 0 {
            let (replicas, timeout_ms) =
                (self.replicas.to_string(), TIMEOUT.as_millis().to_string());
            self.command(&[b"WAIT", replicas.as_bytes(), timeout_ms.as_bytes()]);
        }
        let lines = 1 + usize::from(self.replicas > 0);
        self.stream.write_all(&self.output)?;
        let mut got = 0;
        // Two lines: of the write, and how many replicas have it.
        while self.input[..got].iter().filter(|it| **it == b'\n').count() < lines {
            let more = self.stream.read(&mut self.input[got..]).context("redis")?;
            ensure!(more > 0, "redis: the connection has ended");
            got += more;
        }
        let reply = self.input[..got].escape_ascii().to_string();
        let rest = reply.strip_prefix("+OK\\r\\n");
        let held = rest.map(|rest| {
            let count = rest
                .strip_prefix(':')
                .and_then(|it| it.strip_suffix("\\r\\n"));
            count
                .and_then(|count| count.parse::<u8>().ok())
                .unwrap_or(0)
        });
        ensure!(
            held.is_some_and(|held| held >= self.replicas),
            "redis: {reply}; wanted the write on {} replicas",
            self.replicas
        );
        Ok(())
    }

    fn get(&mut self, _item: &Item) -> Result<()> {
        bail!("redis: reads are not compared; wanted `set`")
    }
}
