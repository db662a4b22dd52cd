//! How a part is ended in order.

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Closes a part at the first SIGTERM or Ctrl-C, and ends the process at once at the second.
pub(super) fn close_on_signals(close: impl Fn() + Send + 'static) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let wait = move || {
        let mut is_closing = false;
        for signal in signals.forever() {
            if is_closing {
                let _ = emulate_default_handler(signal);
            }
            is_closing = true;
            close();
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)?;
    Ok(())
}
