//! Connections: each with a connection of its own behind the relay, and two threads for each direction.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use super::LOOK_PERIOD;
use super::way::Way;

/// More connections than this are closed at once.
const CONNECTIONS_MAX: usize = 10_000;

/// Parts of a stream that are late at once; then reading waits, as a full link would make it.
const LATE_MAX: usize = 4_096;

/// What is read at once.
const READ_BYTES: usize = 64 << 10;

/// Time limit for connecting to the process behind the relay.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A part of a stream, and when it goes on.
type Late = (Instant, Vec<u8>);

/// Takes connections until the way is closed.
pub(super) fn accept(listener: &TcpListener, to: SocketAddr, way: &Arc<Way>) {
    let open = Arc::new(AtomicUsize::new(0));
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !way.is_closed() {
        match listener.accept() {
            Ok((client, _)) if open.load(Ordering::Relaxed) < CONNECTIONS_MAX => {
                open.fetch_add(1, Ordering::Relaxed);
                let (way, open) = (Arc::clone(way), Arc::clone(&open));
                std::thread::spawn(move || {
                    relay(&client, to, &way);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Ok(_) => {}
            Err(_) => wait_for_one(listener),
        }
    }
    while open.load(Ordering::Relaxed) > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn wait_for_one(listener: &TcpListener) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd as _;
    let mut watched = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(LOOK_PERIOD).unwrap_or(PollTimeout::ZERO);
    // The caller tries to accept in any case, so the result does not matter.
    let _ = poll(&mut watched, timeout);
}

/// Both directions of one connection, until either end closes it.
fn relay(client: &TcpStream, to: SocketAddr, way: &Way) {
    let Ok(server) = TcpStream::connect_timeout(&to, CONNECT_TIMEOUT) else {
        // Nobody is there: the client is refused as well as can be, by a closed connection.
        return;
    };
    let prepared = [client, &server].iter().all(|stream| {
        stream.set_nonblocking(false).is_ok()
            && stream.set_nodelay(true).is_ok()
            && stream.set_read_timeout(Some(LOOK_PERIOD)).is_ok()
            && stream.set_write_timeout(Some(LOOK_PERIOD)).is_ok()
    });
    if !prepared {
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| direction(client, &server, way));
        direction(&server, client, way);
    });
}

/// What comes from one end goes to the other, in order and not before its time.
fn direction(from: &TcpStream, to: &TcpStream, way: &Way) {
    let late = AtomicUsize::new(0);
    let late = &late;
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(LATE_MAX);
        scope.spawn(move || send_late(to, &receiver, late, way));
        read(from, to, &sender, late, way);
    });
    // Passes on the end of this direction. Data in the other direction still arrives.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

fn read(
    from: &TcpStream,
    to: &TcpStream,
    sender: &SyncSender<Late>,
    late: &AtomicUsize,
    way: &Way,
) {
    let mut from = from;
    let mut bytes = vec![0; READ_BYTES];
    let mut last = Instant::now();
    while !way.is_closed() {
        let count = match from.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if is_timeout(error.kind()) => continue,
            Err(_) => return,
        };
        let now = Instant::now();
        let due = way.of_stream(now, count);
        // What is behind something late must wait as well.
        if due.is_none() && late.load(Ordering::Acquire) == 0 {
            if !write(to, &bytes[..count], way) {
                return;
            }
            continue;
        }
        last = due.unwrap_or(now).max(last);
        late.fetch_add(1, Ordering::AcqRel);
        let mut part = (last, bytes[..count].to_vec());
        while let Err(error) = sender.try_send(part) {
            match error {
                TrySendError::Full(back) if !way.is_closed() => part = back,
                _ => return,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn send_late(to: &TcpStream, receiver: &Receiver<Late>, late: &AtomicUsize, way: &Way) {
    for (due, bytes) in receiver {
        while !way.is_closed() && Instant::now() < due {
            let wait = due.saturating_duration_since(Instant::now());
            std::thread::sleep(wait.min(LOOK_PERIOD));
        }
        let sent = write(to, &bytes, way);
        late.fetch_sub(1, Ordering::AcqRel);
        if !sent || way.is_closed() {
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// Writes all of it, however long its reader takes, unless the way is closed. Returns whether it could.
fn write(mut to: &TcpStream, bytes: &[u8], way: &Way) -> bool {
    let mut left = bytes;
    while !left.is_empty() {
        match to.write(left) {
            Ok(0) => return false,
            Ok(count) => left = &left[count..],
            Err(error) if is_timeout(error.kind()) && !way.is_closed() => {}
            Err(_) => return false,
        }
    }
    true
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
