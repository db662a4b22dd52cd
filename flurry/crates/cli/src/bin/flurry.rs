//! The front door of the store: see `flurry --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    flurry_cli::main()
}
