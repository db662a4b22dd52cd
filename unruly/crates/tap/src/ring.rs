//! A ring of packets that the kernel fills (`AF_PACKET`, `TPACKET_V3`), without a system call for each.
//!
//! The kernel hands over whole blocks, at the latest 100 ms after the first packet of a block. If all
//! blocks are full, it drops packets and counts them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libc::{c_int, c_uint, c_void, sock_filter, socklen_t};
use unruly_time::WallNs;

/// The system header numbers of packet sockets, which the crate `libc` does not have.
const PACKET_RX_RING: c_int = 5;
const PACKET_STATISTICS: c_int = 6;
const PACKET_VERSION: c_int = 10;
const PACKET_IGNORE_OUTGOING: c_int = 23;
const TPACKET_V3: c_int = 2;
const STATUS_USER: u32 = 1;
const STATUS_KERNEL: u32 = 0;

const BLOCK_BYTES: usize = 64 << 10;
/// 16 MiB, some 80,000 packets. A block that is not full is handed over after its time too, so with few
/// packets the ring outlasts a reader that does not look for `BLOCKS` times that time, 25 s.
const BLOCKS: usize = 256;
/// Time in which blocks gather before they are read; at 100,000 packets a second 2 MiB.
const GATHER: Duration = Duration::from_millis(20);
/// Size that the kernel wants to know; packets of version 3 have their own lengths.
const FRAME_BYTES: usize = 2 << 10;

/// Offsets in the header of a block, and in that of a packet.
const BLOCK_STATUS: usize = 8;
const BLOCK_PACKETS: usize = 12;
const BLOCK_FIRST: usize = 16;
const PACKET_NEXT: usize = 0;
const PACKET_SECONDS: usize = 4;
const PACKET_NANOSECONDS: usize = 8;
const PACKET_KEPT: usize = 12;
const PACKET_WHOLE: usize = 16;
const PACKET_START: usize = 24;

#[repr(C)]
struct RingRequest {
    block_bytes: c_uint,
    blocks: c_uint,
    frame_bytes: c_uint,
    frames: c_uint,
    timeout_ms: c_uint,
    private_bytes: c_uint,
    features: c_uint,
}

#[repr(C)]
#[derive(Default)]
struct Statistics {
    packets: c_uint,
    drops: c_uint,
    freezes: c_uint,
}

/// A ring of the packets that a filter lets through.
#[derive(Debug)]
pub struct Ring {
    socket: OwnedFd,
    memory: NonNull<u8>,
    next: usize,
}

// SAFETY: the mapping belongs to the ring alone, and no other thread touches it.
unsafe impl Send for Ring {}

impl Ring {
    /// The interface of connections within a host.
    pub(crate) const LOOPBACK: &str = "lo";

    /// The kernel keeps packets for this long at most before it hands them over.
    pub(crate) const BLOCK_TIMEOUT: Duration = Duration::from_millis(100);

    /// Opens a ring on an interface, or on all of them.
    ///
    /// # Errors
    ///
    /// When this process may not watch packets (`CAP_NET_RAW`), or there is no such interface.
    pub fn open(interface: Option<&str>, ports: &[u16]) -> Result<Self> {
        let socket = socket()?;
        let program = crate::filter::program(ports, index(Self::LOOPBACK));
        // The filter and the ring come before the address, so that no packet precedes them.
        set(&socket, libc::SOL_PACKET, PACKET_VERSION, &TPACKET_V3).context("the ring")?;
        filter(&socket, &program).context("the filter of the ring")?;
        let request = RingRequest {
            block_bytes: c_uint::try_from(BLOCK_BYTES)?,
            blocks: c_uint::try_from(BLOCKS)?,
            frame_bytes: c_uint::try_from(FRAME_BYTES)?,
            frames: c_uint::try_from(BLOCK_BYTES / FRAME_BYTES * BLOCKS)?,
            timeout_ms: c_uint::try_from(Self::BLOCK_TIMEOUT.as_millis())?,
            private_bytes: 0,
            features: 0,
        };
        set(&socket, libc::SOL_PACKET, PACKET_RX_RING, &request)
            .context("the memory of the ring")?;
        let memory = map(&socket)?;
        let ring = Self {
            socket,
            memory,
            next: 0,
        };
        let number = match interface {
            None => 0,
            Some(name) => index(name).with_context(|| {
                format!("{name}: there is no such interface; hint: ip link lists them")
            })?,
        };
        if interface == Some(Self::LOOPBACK) {
            // The filter drops these copies too; an older kernel makes them first.
            let one: c_int = 1;
            let _ = set(&ring.socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &one);
        }
        bind(&ring.socket, number)?;
        Ok(ring)
    }

    /// Waits until there are packets, or the time is over.
    ///
    /// # Errors
    ///
    /// When the interface is gone.
    pub fn wait(&self, wait: Duration) -> Result<()> {
        if !self.is_ready() {
            let timeout = c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX);
            let mut poll = libc::pollfd {
                fd: self.socket.as_raw_fd(),
                events: libc::POLLIN | libc::POLLERR,
                revents: 0,
            };
            // SAFETY: one valid element.
            let ready = unsafe { libc::poll(&raw mut poll, 1, timeout) };
            let error = io::Error::last_os_error();
            if ready < 0 && error.kind() != io::ErrorKind::Interrupted {
                return Err(error).context("the ring of packets");
            }
            if poll.revents & libc::POLLERR != 0 {
                self.check()?;
            }
            if poll.revents & libc::POLLIN != 0 {
                // More blocks fill meanwhile: each wake-up may delay a request on a busy host.
                std::thread::sleep(GATHER);
            }
        }
        Ok(())
    }

    /// Calls `take` with the time, the bytes and the whole length of each packet that is there.
    /// Returns how many packets were dropped since the last call.
    ///
    /// # Errors
    ///
    /// When the kernel has lost count.
    pub fn read(&mut self, mut take: impl FnMut(WallNs, &[u8], usize)) -> Result<u64> {
        // At most one round, so that a flood of packets does not keep the caller.
        for _ in 0..BLOCKS {
            if !self.is_ready() {
                break;
            }
            read(self.block(), &mut take);
            self.status().store(STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % BLOCKS;
        }
        self.drops()
    }

    fn is_ready(&self) -> bool {
        self.status().load(Ordering::Acquire) & STATUS_USER != 0
    }

    fn status(&self) -> &AtomicU32 {
        let at = self.next * BLOCK_BYTES + BLOCK_STATUS;
        // SAFETY: within the mapping, aligned to 4, and kernel and program access it atomically.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(at).cast()) }
    }

    /// The bytes of the next block, which is ours until its status says that it is the kernel's.
    fn block(&self) -> &[u8] {
        // SAFETY: within the mapping; the kernel does not write to a block that it handed over.
        unsafe {
            std::slice::from_raw_parts(
                self.memory.as_ptr().add(self.next * BLOCK_BYTES),
                BLOCK_BYTES,
            )
        }
    }

    /// Packets that were dropped since the last call.
    fn drops(&self) -> Result<u64> {
        let mut found = Statistics::default();
        get(
            &self.socket,
            libc::SOL_PACKET,
            PACKET_STATISTICS,
            &mut found,
        )
        .context("the counts of the ring")?;
        Ok(u64::from(found.drops))
    }

    /// Returns the error of the interface, if it has one: it was taken down.
    fn check(&self) -> Result<()> {
        let mut found: c_int = 0;
        get(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut found)
            .context("the state of the interface")?;
        if found != 0 {
            let error = io::Error::from_raw_os_error(found);
            return Err(error).context("the interface was taken down");
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: what `map` mapped, once.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCK_BYTES * BLOCKS) };
    }
}

/// Calls `take` with each packet of a block. Lengths that lead out of the block end it.
fn read(block: &[u8], take: &mut impl FnMut(WallNs, &[u8], usize)) {
    let word = |at: usize| -> Option<u32> {
        let bytes = block.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let mut at = word(BLOCK_FIRST).unwrap_or(0) as usize;
    for _ in 0..word(BLOCK_PACKETS).unwrap_or(0) {
        let header = || {
            let start = block.get(at + PACKET_START..at + PACKET_START + 2)?;
            let start = at + usize::from(u16::from_ne_bytes(start.try_into().ok()?));
            let kept = word(at + PACKET_KEPT)? as usize;
            let packet = block.get(start..start.checked_add(kept)?)?;
            let seconds = i64::from(word(at + PACKET_SECONDS)?);
            let stamp_ns = seconds * 1_000_000_000 + i64::from(word(at + PACKET_NANOSECONDS)?);
            let whole = word(at + PACKET_WHOLE)? as usize;
            let next = word(at + PACKET_NEXT)? as usize;
            Some((WallNs(stamp_ns), packet, whole, next))
        };
        let Some((stamp_ns, packet, whole, next)) = header() else {
            return;
        };
        take(stamp_ns, packet, whole);
        if next == 0 {
            return;
        }
        at += next;
    }
}

fn socket() -> Result<OwnedFd> {
    // SAFETY: the call takes numbers only. Without a protocol no packet comes before `bind`.
    let made = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if made < 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EPERM) {
            bail!(
                "this process may not watch packets; hint: run it as root, or give the program the right: sudo setcap cap_net_raw+ep $(command -v unruly)"
            );
        }
        return Err(error).context("a socket for packets");
    }
    // SAFETY: just opened, and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

fn set<T>(socket: &OwnedFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let length = socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let value = std::ptr::from_ref(value).cast::<c_void>();
    // SAFETY: the pointer is of a live value of this length.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn get<T>(socket: &OwnedFd, level: c_int, name: c_int, value: &mut T) -> io::Result<()> {
    let mut length = socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let value = std::ptr::from_mut(value).cast::<c_void>();
    // SAFETY: both pointers are of live values, and the length is that of the first.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, value, &raw mut length) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn filter(socket: &OwnedFd, program: &[sock_filter]) -> io::Result<()> {
    let whole = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut(),
    };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &whole)
}

fn map(socket: &OwnedFd) -> Result<NonNull<u8>> {
    // SAFETY: a new mapping, where the kernel likes.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            BLOCK_BYTES * BLOCKS,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            socket.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error()).context("the memory of the ring");
    }
    NonNull::new(at.cast()).context("the memory of the ring is nowhere")
}

fn bind(socket: &OwnedFd, interface: u32) -> Result<()> {
    // SAFETY: all fields are numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET)?;
    address.sll_protocol = u16::try_from(libc::ETH_P_ALL)?.to_be();
    address.sll_ifindex = i32::try_from(interface)?;
    let length = socklen_t::try_from(size_of::<libc::sockaddr_ll>())?;
    // SAFETY: the pointer is of a live address of this length.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if done < 0 {
        return Err(io::Error::last_os_error()).context("the interface of the ring");
    }
    Ok(())
}

/// The number of an interface.
fn index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a text that ends with a zero.
    let found = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (found > 0).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(packets: &[(u32, &[u8])]) -> Vec<u8> {
        let mut block = vec![0; 48];
        block[BLOCK_PACKETS..BLOCK_PACKETS + 4]
            .copy_from_slice(&u32::try_from(packets.len()).unwrap().to_ne_bytes());
        block[BLOCK_FIRST..BLOCK_FIRST + 4].copy_from_slice(&48_u32.to_ne_bytes());
        for (place, (seconds, bytes)) in packets.iter().enumerate() {
            let length = u32::try_from(bytes.len()).unwrap();
            let next = if place + 1 == packets.len() {
                0
            } else {
                68 + length
            };
            let mut packet = vec![0; 68];
            for (at, value) in [(0, next), (4, *seconds), (8, 5), (12, length), (16, 1_500)] {
                packet[at..at + 4].copy_from_slice(&value.to_ne_bytes());
            }
            packet[PACKET_START..PACKET_START + 2].copy_from_slice(&68_u16.to_ne_bytes());
            block.extend(packet);
            block.extend(*bytes);
        }
        block
    }

    fn packets(block: &[u8]) -> Vec<(i64, Vec<u8>)> {
        let mut found = Vec::new();
        read(block, &mut |at: WallNs, bytes: &[u8], whole: usize| {
            assert_eq!(whole, 1_500);
            found.push((at.0, bytes.to_vec()));
        });
        found
    }

    #[test]
    fn every_packet_of_a_block_is_read_with_its_time() {
        let block = block(&[(1, b"one"), (2, b"two!")]);
        let wanted = [
            (1_000_000_005, b"one".to_vec()),
            (2_000_000_005, b"two!".to_vec()),
        ];
        assert_eq!(packets(&block), wanted);
    }

    #[test]
    fn a_length_that_leads_out_of_the_block_ends_it() {
        let whole = block(&[(1, b"one"), (2, b"two!")]);
        for length in 0..whole.len() {
            assert!(packets(&whole[..length]).len() < 2, "{length}");
        }
    }
}
