//! The flags of `unruly drive` for an HTTP server: each is a key of `[drive]`.

use anyhow::Result;
use clap::{Args, ValueHint};
use unruly_plan::{Scenario, Secret, header_without_secret};

use crate::har;

/// Heading of the help.
const HTTP: &str = "HTTP";

/// A key of the plan, and the value that a flag gives it.
type Value = (&'static str, Option<String>);

/// The flags.
#[derive(Debug, Default, Args)]
pub(crate) struct HttpArguments {
    /// Connections that may be open at once, each with one request (default: as many as clients)
    #[arg(long, value_name = "COUNT", help_heading = HTTP)]
    connections: Option<String>,
    /// Status codes that count as success, such as "2xx, 404" [default: 2xx, 3xx]
    #[arg(long, value_name = "CODES", help_heading = HTTP)]
    expect: Option<String>,
    /// Method of every request (http only), such as POST [default: GET for a read, PUT for a
    /// write; POST with a body]
    #[arg(short = 'X', long, help_heading = HTTP)]
    method: Option<String>,
    /// Header of every request, such as "Accept: text/html"; may be repeated. {password} stands for
    /// the secret, and {uuid}, {sequence} or {random:1..9} for a value of each request
    #[arg(short = 'H', long, alias = "header", value_name = "LINE", help_heading = HTTP)]
    headers: Vec<String>,
    /// File with the body of every request, or - for standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HTTP)]
    body: Option<String>,
    /// Text that a language model is asked (openai only); {words:100} stands for random words
    #[arg(long, value_name = "TEXT", help_heading = HTTP)]
    prompt: Option<String>,
    /// File that describes the service (grpc only; default: the server is asked)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HTTP)]
    proto: Option<String>,
    /// Let each client keep the cookies that the server sets
    #[arg(long, help_heading = HTTP)]
    cookies: bool,
    /// Send a traceparent header with every request (W3C Trace Context)
    #[arg(long, help_heading = HTTP)]
    trace: bool,
    /// Where the report's links to the slowest traces lead, such as
    /// http://localhost:16686/trace/{trace_id}
    #[arg(long, value_name = "URL", help_heading = HTTP)]
    trace_url: Option<String>,
    /// Receive at this address the spans that the services export (OTLP over HTTP), such as
    /// 127.0.0.1:4318, and send traceparent headers
    #[arg(long, value_name = "ADDRESS", help_heading = HTTP)]
    spans: Option<String>,
    /// CSV file with a value for each request: {data.COLUMN} stands for it in the URL, in a header,
    /// in the body or in a message, and each request takes the next row
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HTTP)]
    data: Option<String>,
    /// File that says what users do, request after request (unruly help check), or a HAR file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HTTP)]
    scenario: Option<String>,
    /// How the password is sent: user (with that of the URL), basic or bearer (as a token)
    #[arg(long, help_heading = HTTP)]
    auth: Option<String>,
    /// Send several requests over a connection, one after the other: true or false
    #[arg(long, value_name = "BOOL", help_heading = HTTP)]
    keep_alive: Option<String>,
    /// Speak HTTP/2: each connection carries many requests at once
    #[arg(long, help_heading = HTTP)]
    http2: bool,
    /// PEM file of the authorities to trust (with TLS only; default: those of the system)
    #[arg(long, alias = "cacert", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HTTP)]
    ca_cert: Option<String>,
    /// PEM file of the client's own certificate (with TLS only)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HTTP)]
    client_cert: Option<String>,
    /// PEM file of the key of the client's certificate
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HTTP)]
    client_key: Option<String>,
    /// Accept any certificate (with TLS only); the report says so
    #[arg(short = 'k', long, help_heading = HTTP)]
    insecure: bool,
}

impl HttpArguments {
    /// The values of the plan's keys, and the one secret of all that was typed: that of the URL, or of
    /// a header.
    pub(crate) fn values(self, typed: Option<Secret>) -> Result<(Vec<Value>, Option<Secret>)> {
        let (headers, password) = headers(&self.headers, typed)?;
        let values = vec![
            ("drive.connections", self.connections),
            ("drive.expect", self.expect),
            ("drive.method", self.method),
            ("drive.headers", headers),
            ("drive.body", self.body.as_deref().map(body).transpose()?),
            ("drive.prompt", self.prompt),
            ("drive.proto", self.proto),
            ("drive.cookies", self.cookies.then(|| "true".to_owned())),
            ("drive.trace", self.trace.then(|| "true".to_owned())),
            ("drive.trace_url", self.trace_url),
            ("drive.spans", self.spans),
            ("drive.data", self.data),
            (
                "drive.scenario",
                self.scenario.as_deref().map(scenario).transpose()?,
            ),
            ("drive.auth", self.auth),
            ("drive.keep_alive", self.keep_alive),
            ("drive.http2", self.http2.then(|| "true".to_owned())),
            ("drive.ca_cert", self.ca_cert),
            ("drive.client_cert", self.client_cert),
            ("drive.client_key", self.client_key),
            ("drive.insecure", self.insecure.then(|| "true".to_owned())),
        ];
        Ok((values, password))
    }
}

/// The header lines without the secret of one, and the one secret of all that was typed.
fn headers(lines: &[String], typed: Option<Secret>) -> Result<(Option<String>, Option<Secret>)> {
    let mut password = typed;
    let mut open = Vec::with_capacity(lines.len());
    for line in lines {
        let Some((line, secret)) = header_without_secret(line) else {
            open.push(line.clone());
            continue;
        };
        anyhow::ensure!(
            password.as_ref().is_none_or(|it| *it == secret),
            "--headers: {line:?} holds a second secret; hint: give one of them"
        );
        password = Some(secret);
        open.push(line);
    }
    Ok(((!open.is_empty()).then(|| open.join("\n")), password))
}

/// The text of a scenario file; a HAR file becomes one.
pub(crate) fn scenario(file: &str) -> Result<String> {
    if let Some(text) = Scenario::shipped(file)
        && !std::path::Path::new(file).exists()
    {
        return Ok(text.to_owned());
    }
    let text = std::fs::read_to_string(file).map_err(|error| {
        let hint = "name a scenario (unruly/docs/scenarios.md) or a HAR file";
        anyhow::anyhow!("--scenario: {file:?} cannot be read: {error}; hint: {hint}")
    })?;
    if text
        .trim_start_matches('\u{feff}')
        .trim_start()
        .starts_with('{')
    {
        return har::scenario(file, &text);
    }
    Ok(text)
}

/// The body of a file, or of standard input.
fn body(file: &str) -> Result<String> {
    let read = match file {
        "-" => std::io::read_to_string(std::io::stdin()),
        file => std::fs::read_to_string(file),
    };
    read.map_err(|error| {
        let hint = "name a file of text, or - for standard input";
        anyhow::anyhow!("--body: {file:?} cannot be read: {error}; hint: {hint}")
    })
}
