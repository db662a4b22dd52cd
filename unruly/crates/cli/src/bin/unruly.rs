//! The front door: see `unruly --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    unruly::cli::main()
}
