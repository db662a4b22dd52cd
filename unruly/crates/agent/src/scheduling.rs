//! The class of the kernel's scheduler that a process runs in.

use anyhow::{Result, bail};
use unruly_trace::set_scheduler;

/// Puts this process into the real-time class. Threads and processes made later are in it too, and
/// no earlier ones.
///
/// # Errors
///
/// When the host does not allow it.
pub(crate) fn realtime() -> Result<()> {
    let Err(error) = set_scheduler(0, libc::SCHED_FIFO, 1) else {
        return Ok(());
    };
    bail!(
        "this host does not let a process into the real-time class ({error}); wanted root and a quota for it; hint: scheduling = \"normal\""
    )
}

#[cfg(test)]
mod tests {
    use unruly_trace::scheduler;

    use super::*;

    #[test]
    fn a_thread_is_in_the_real_time_class_or_the_host_says_why_not() {
        // A thread of its own: the other tests stay as they are.
        let tried = std::thread::spawn(|| (realtime(), scheduler().expect("a class")));
        match tried.join().expect("no panic") {
            (Ok(()), class) => assert_eq!(class, libc::SCHED_FIFO),
            (Err(error), class) => {
                assert_eq!(class, libc::SCHED_OTHER);
                let said = error.to_string();
                assert!(
                    said.contains("does not let a process into the real-time class ("),
                    "{said}"
                );
                assert!(said.ends_with("hint: scheduling = \"normal\""), "{said}");
            }
        }
    }
}
