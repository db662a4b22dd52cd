//! The verb `targets`: what `unruly drive` can ask, with the options of each URL.

use anyhow::Result;
use unruly_load::{Scheme, schemes};
use unruly_plan::did_you_mean;
use unruly_runner::ECHO;

use crate::cli::say;

/// Where all flags of a target are explained.
const PAGE: &str = "unruly/docs/drivers.md";

/// Prints all targets, or one with its options.
///
/// # Errors
///
/// When there is no such target, or the output is closed.
pub(crate) fn targets(name: Option<&str>) -> Result<u8> {
    let Some(name) = name else {
        for it in schemes() {
            say(&format!("{:<12} {}", it.name, it.about))?;
        }
        say(&format!("{:<12} an echo server of unruly", ECHO))?;
        say(&format!(
            "{:<12} a store that the run starts: unruly services",
            "service"
        ))?;
        say(&format!(
            "{:<12} a middleware system that the run starts: unruly services",
            "system"
        ))?;
        return Ok(0);
    };
    if name == ECHO {
        say("echo: an echo server of unruly\n  echo://host:port")?;
        return Ok(0);
    }
    if name == "service" {
        say("service: a store that the run starts\n  service:NAME; unruly services lists them")?;
        return Ok(0);
    }
    if name == "system" {
        say(
            "system: a middleware system that the run starts, to call its echo\n  system:NAME; unruly services lists them",
        )?;
        return Ok(0);
    }
    let found = schemes().iter().find(|it| it.name == name);
    let Some(scheme) = found else {
        let known = schemes()
            .iter()
            .map(|it| it.name)
            .chain([ECHO, "service", "system"]);
        let hint = did_you_mean(name, known, "unruly targets lists them");
        anyhow::bail!("targets: there is no target {name:?}; hint: {hint}");
    };
    explain(scheme)?;
    Ok(0)
}

fn explain(scheme: &Scheme) -> Result<()> {
    say(&format!("{}: {}", scheme.name, scheme.about))?;
    say(&format!("  {}", scheme.form))?;
    if !scheme.options.is_empty() {
        say("options of the URL, after a ?:")?;
    }
    for (name, meaning) in scheme.options {
        say(&format!("  {name:<12} {meaning}"))?;
    }
    say(&format!("flags: unruly drive --help; more: {PAGE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_target_is_an_error_with_the_nearest_name() {
        let said = targets(Some("opneai")).unwrap_err().to_string();
        assert_eq!(
            said,
            "targets: there is no target \"opneai\"; hint: did you mean openai"
        );
    }
}
