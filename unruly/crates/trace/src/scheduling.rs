//! The class of the kernel's scheduler that a thread runs in.

use std::io;

use nix::libc;

/// Puts a thread into a class of the scheduler, such as `SCHED_FIFO`, with a priority there. Thread
/// 0 is the caller. Threads that it starts later are in the class too.
///
/// # Errors
///
/// When the host does not allow it.
pub fn set_scheduler(
    thread: libc::pid_t,
    class: libc::c_int,
    priority: libc::c_int,
) -> io::Result<()> {
    // SAFETY: all zero bits are a valid value of this struct of integers; libc for musl has more
    // fields than libc for glibc, so that it cannot be written out.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // The system call itself: musl's function always says that it is not supported.
    // SAFETY: the pointer is valid for the length of the call, which keeps nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            thread,
            class,
            &raw const parameters,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the class of the calling thread.
///
/// # Errors
///
/// When the kernel does not say.
pub fn scheduler() -> io::Result<libc::c_int> {
    // SAFETY: the call takes a number only, and 0 is this thread.
    let class = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    libc::c_int::try_from(class)
        .ok()
        .filter(|class| *class >= 0)
        .ok_or_else(io::Error::last_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_its_own_is_in_the_class_that_was_asked_for() {
        let before = scheduler().unwrap();
        let tried = std::thread::spawn(|| {
            set_scheduler(0, libc::SCHED_BATCH, 0).unwrap();
            scheduler().unwrap()
        });
        assert_eq!(tried.join().unwrap(), libc::SCHED_BATCH);
        assert_eq!(scheduler().unwrap(), before);
    }

    #[test]
    fn a_priority_that_the_class_does_not_have_is_an_error() {
        let error = set_scheduler(0, libc::SCHED_BATCH, 7).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
