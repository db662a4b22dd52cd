//! The command line: parsed in one way, with help that ends in exit codes and examples.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};

use clap::{ArgMatches, Command};

/// The exit code of an error.
pub const EXIT_ERROR: u8 = 2;

/// Returns the end of a verb's help: its exit codes and its examples, each with its purpose.
pub fn ending<T: AsRef<str>>(exit: &str, examples: &[(T, T)]) -> String {
    let mut text = format!("Exit codes: {exit}\n\nExamples:");
    for (command, purpose) in examples {
        let _ = write!(text, "\n  {}\n      {}", command.as_ref(), purpose.as_ref());
    }
    text
}

/// Parses the command line of the process.
///
/// # Errors
///
/// For help, the version and mistakes it prints the text and returns the exit code: 2 also when
/// nobody could read the text, as on a full disk.
pub fn parse(command: Command) -> Result<ArgMatches, u8> {
    let program = command.get_name().to_owned();
    command.try_get_matches().map_err(|error| {
        let printed = error.print().and_then(|()| std::io::stdout().flush());
        match printed {
            Err(failed) if failed.kind() != ErrorKind::BrokenPipe => {
                let mut terminal = std::io::stderr().lock();
                let _ = writeln!(terminal, "{program}: help: cannot be written ({failed})");
                EXIT_ERROR
            }
            _ => u8::try_from(error.exit_code()).unwrap_or(EXIT_ERROR),
        }
    })
}
