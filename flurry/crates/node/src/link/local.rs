//! Queues between the parts of one process: nothing is encoded, copied or handed to the kernel.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use flurry_core::message::Message;

use super::Wake;

/// Messages that wait for one part at most; more are lost, as on a network.
const MESSAGES_MAX: usize = 65_536;

/// Everybody in this process who has an address.
static PLACES: Mutex<BTreeMap<SocketAddrV4, Weak<Mailbox>>> = Mutex::new(BTreeMap::new());

/// A part's queue.
#[derive(Debug)]
pub(super) struct Mailbox {
    address: SocketAddrV4,
    queue: Mutex<VecDeque<(SocketAddrV4, Message)>>,
    wake: Wake,
}

/// Locks a queue or map even after a panic elsewhere, since its content is consistent at every
/// instant.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    /// The queue of the part that listens at `address`, known to all from now on.
    pub(super) fn open(address: SocketAddrV4, wake: Wake) -> Arc<Self> {
        let mailbox = Arc::new(Self {
            address,
            queue: Mutex::default(),
            wake,
        });
        locked(&PLACES).insert(address, Arc::downgrade(&mailbox));
        mailbox
    }

    /// Hands a message over; says whether somebody is there who had room for it.
    pub(super) fn send(to: SocketAddrV4, from: SocketAddrV4, message: Message) -> bool {
        let Some(there) = locked(&PLACES).get(&to).and_then(Weak::upgrade) else {
            return false;
        };
        let mut queue = locked(&there.queue);
        if queue.len() >= MESSAGES_MAX {
            return false;
        }
        queue.push_back((from, message));
        let first = queue.len() == 1;
        drop(queue);
        if first {
            there.wake.call();
        }
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        locked(&self.queue).is_empty()
    }

    pub(super) fn take(&self) -> Option<(SocketAddrV4, Message)> {
        locked(&self.queue).pop_front()
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let mut places = locked(&PLACES);
        // Another part may have got the address since.
        if places
            .get(&self.address)
            .is_some_and(|it| it.strong_count() == 0)
        {
            places.remove(&self.address);
        }
    }
}
