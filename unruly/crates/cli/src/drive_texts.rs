//! The flags of `unruly drive` for texts that the clients send: statements and messages.

use anyhow::Result;
use clap::{Args, ValueHint};

/// Headings of the help.
const SQL: &str = "SQL";
const MESSAGES: &str = "Messages";

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct TextArguments {
    /// Text of every request (tcp, tls and kafka only), such as "GET {random:1..1000}"; {data.COLUMN},
    /// {uuid} and {sequence} stand for a value of each request
    #[arg(long, value_name = "TEXT", help_heading = MESSAGES, allow_hyphen_values = true)]
    message: Option<String>,
    /// Statements that the clients send, such as "SELECT 1" (postgres and mysql); {data.COLUMN},
    /// {random:1..9}, {uuid} and {sequence} become parameters
    #[arg(long, value_name = "TEXT", help_heading = SQL, allow_hyphen_values = true)]
    sql: Option<String>,
    /// File with the statements, or - for standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = SQL, conflicts_with = "sql")]
    sql_file: Option<String>,
}

impl TextArguments {
    /// The values of the plan's keys.
    pub(crate) fn values(self) -> Result<[(&'static str, Option<String>); 2]> {
        Ok([
            ("drive.sql", self.script()?),
            ("drive.message", self.message),
        ])
    }

    /// The statements, where there are any.
    fn script(&self) -> Result<Option<String>> {
        let Some(file) = &self.sql_file else {
            return Ok(self.sql.clone());
        };
        let read = match file.as_str() {
            "-" => std::io::read_to_string(std::io::stdin()),
            file => std::fs::read_to_string(file),
        };
        read.map(Some).map_err(|error| {
            let hint = "name a file of statements, or - for standard input";
            anyhow::anyhow!("--sql-file: {file:?} cannot be read: {error}; hint: {hint}")
        })
    }
}
