//! The workers of one client: a request does not wait for the reply to another.
//!
//! A library is asked and answers before it can be asked again. In an open loop requests come while others are
//! still open, so a client has as many workers as it has requests open, and in a closed loop one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use crate::Store;
use crate::lines::{Output, Request, answer};

/// Workers of one client. More requests than these wait for one of them, and their rows say so.
const WORKERS_MAX: usize = 256;

/// The threads that carry out the requests of one client.
pub(crate) struct WorkerPool {
    number: usize,
    sender: Sender<Request>,
    requests: Arc<Mutex<Receiver<Request>>>,
    /// Workers that have nothing to do and are not about to.
    idle: Arc<AtomicUsize>,
    workers: usize,
    output: Output,
}

impl WorkerPool {
    pub(crate) fn new(number: usize, output: &Output) -> Self {
        let (sender, requests) = channel();
        Self {
            number,
            sender,
            requests: Arc::new(Mutex::new(requests)),
            idle: Arc::new(AtomicUsize::new(0)),
            workers: 0,
            output: Arc::clone(output),
        }
    }

    /// Lets a worker carry out the request; starts one more when all are busy.
    pub(crate) fn carry_out(&mut self, request: Request, store: &dyn Store) -> Result<()> {
        let free = self
            .idle
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |idle| {
                idle.checked_sub(1)
            });
        if free.is_err() && self.workers < WORKERS_MAX {
            self.start(store)?;
        }
        // If the worker pool has ended, nobody waits for the answer.
        let _ = self.sender.send(request);
        Ok(())
    }

    fn start(&mut self, store: &dyn Store) -> Result<()> {
        let mut client = store.client(self.number)?;
        let requests = Arc::clone(&self.requests);
        let idle = Arc::clone(&self.idle);
        let output = Arc::clone(&self.output);
        std::thread::Builder::new()
            .name(format!("client-{}", self.number))
            .spawn(move || {
                loop {
                    let next = requests
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .recv();
                    let Ok(request) = next else { return };
                    if answer(client.as_mut(), &request, &output).is_err() {
                        return;
                    }
                    idle.fetch_add(1, Ordering::AcqRel);
                }
            })?;
        self.workers += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::*;
    use crate::{Client, Outcome};

    /// A store that answers `slow` when it has been asked for `fast`.
    struct Waits(Sender<()>, Arc<Mutex<Receiver<()>>>);

    impl Store for Waits {
        fn client(&self, _number: usize) -> Result<Box<dyn Client>> {
            Ok(Box::new(Self(self.0.clone(), Arc::clone(&self.1))))
        }
    }

    impl Client for Waits {
        fn write(&mut self, _key: &str, _value: &str) -> Outcome {
            Outcome::Done
        }

        fn read(&mut self, key: &str) -> Outcome {
            if key == "fast" {
                self.0.send(()).unwrap();
                return Outcome::Missing;
            }
            let asked = self.1.lock().unwrap();
            match asked.recv_timeout(Duration::from_secs(20)) {
                Ok(()) => Outcome::Done,
                Err(_) => Outcome::Missing,
            }
        }
    }

    #[test]
    fn a_request_does_not_wait_for_the_reply_to_another() {
        let (sender, asked) = channel();
        let store = Waits(sender, Arc::new(Mutex::new(asked)));
        let (lines, said) = sync_channel(10);
        let output: Output = Arc::new(Mutex::new(Said(lines)));
        let mut pool = WorkerPool::new(0, &output);
        let request = |number, key: &str| Request {
            number,
            key: key.to_owned(),
            value: None,
        };
        pool.carry_out(request(1, "slow"), &store).unwrap();
        pool.carry_out(request(2, "fast"), &store).unwrap();
        let words: Vec<String> = (0..2).map(|_| said.recv().unwrap()).collect();
        let of = |word: &str| words.iter().any(|line| line.starts_with(word));
        assert!(of("done 1 ") && of("missing 2 "), "{words:?}");
        // Both workers are idle now, so the pool starts no third one.
        while pool.idle.load(Ordering::Acquire) < 2 {
            std::thread::yield_now();
        }
        pool.carry_out(request(3, "fast"), &store).unwrap();
        assert!(said.recv().unwrap().starts_with("missing 3 "));
        assert_eq!(pool.workers, 2);
    }

    struct Said(std::sync::mpsc::SyncSender<String>);

    impl std::io::Write for Said {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let line = String::from_utf8_lossy(bytes).into_owned();
            self.0.send(line).map_err(std::io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
