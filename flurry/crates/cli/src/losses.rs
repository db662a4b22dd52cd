//! `flurry losses`: keys whose last writes are lost, or may be.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use flurry::{GatewayLogin, Loss};
use unruly_plan::DurationNs;
use unruly_program::password_of;

use super::{EXIT_NOT, say, say_error};

/// Period of `--follow`.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Losses {
    /// Address of the gateway
    #[arg(long, value_name = "HOST:PORT", default_value = super::gateway::DEFAULT_LISTEN)]
    gateway: String,
    /// User of the gateway; needs the right to run admin commands
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// File with the password of the user
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// Certificate authorities in PEM, for a gateway that uses TLS
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Go on, and print each loss as soon as the gateway knows of it
    #[arg(long)]
    follow: bool,
    /// Time to wait for an answer
    #[arg(long, default_value = "2s")]
    timeout: DurationNs,
}

impl Losses {
    /// Prints the keys, and returns 1 if there are any.
    pub(super) fn run(&self) -> Result<u8> {
        let timeout = Duration::from_nanos(self.timeout.0);
        let gateway = self.login()?;
        let mut known = flurry::losses(&gateway, timeout)?;
        print(&known)?;
        if !self.follow {
            say(summary(&known))?;
            return Ok(if known.is_empty() { 0 } else { EXIT_NOT });
        }
        let mut answers = true;
        loop {
            std::thread::sleep(AGAIN);
            match flurry::losses(&gateway, timeout) {
                Ok(now) => {
                    print(later(&known, &now))?;
                    known = now;
                    answers = true;
                }
                Err(error) if answers => {
                    say_error(&format!("flurry: {error}; it is asked again"));
                    answers = false;
                }
                Err(_) => {}
            }
        }
    }

    fn login(&self) -> Result<GatewayLogin> {
        let found = flurry::resolve(&self.gateway, Duration::from_nanos(self.timeout.0))?;
        let host = self.gateway.rsplit_once(':').map_or("", |it| it.0);
        let user = match (&self.user, &self.password_file) {
            (Some(user), Some(path)) => {
                ensure!(
                    !user.is_empty(),
                    "--user: it is empty; hint: name a user of the users file"
                );
                Some((user.clone(), password_of(path)?.reveal().to_owned()))
            }
            _ => None,
        };
        Ok(GatewayLogin {
            address: found,
            host: host.to_owned(),
            user,
            authorities: self.cacert.clone(),
        })
    }
}

/// What a list has that an earlier one had not. A list forgets its oldest entries when it is full, and
/// another gateway begins with an empty one.
fn later<'a>(known: &[Loss], now: &'a [Loss]) -> &'a [Loss] {
    let forgotten = (0..=known.len()).find(|it| now.starts_with(&known[*it..]));
    let common = known.len() - forgotten.unwrap_or(known.len());
    &now[common..]
}

fn print(losses: &[Loss]) -> Result<()> {
    for loss in losses {
        let kind = if loss.is_certain { "loss " } else { "doubt" };
        say(format!("{kind}  {}", loss.key.escape_ascii()))?;
    }
    Ok(())
}

fn summary(losses: &[Loss]) -> String {
    let certain = losses.iter().filter(|it| it.is_certain).count();
    let doubtful = losses.len() - certain;
    if losses.is_empty() {
        return "no losses since the gateway took its slots".to_owned();
    }
    format!(
        "acknowledged writes to {certain} keys are lost, and the last writes to {doubtful} keys may be; hint: flurry/docs/promises.md says which level loses nothing"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(keys: &str) -> Vec<Loss> {
        let loss = |key: char| Loss {
            is_certain: key.is_uppercase(),
            key: vec![u8::try_from(key).unwrap()],
        };
        keys.chars().map(loss).collect()
    }

    #[test]
    fn only_later_losses_are_printed_also_of_a_full_list_and_of_the_next_gateway() {
        for (known, now, wanted) in [
            ("", "", ""),
            ("ab", "abC", "C"),
            ("abc", "bcd", "d"),
            ("aa", "aaa", "a"),
            ("ab", "x", "x"),
            ("ab", "", ""),
        ] {
            let (known, now) = (losses(known), losses(now));
            assert_eq!(later(&known, &now), losses(wanted), "{known:?} {now:?}");
        }
    }

    #[test]
    fn the_last_line_counts_both_kinds() {
        let text = summary(&losses("abC"));
        assert!(
            text.starts_with(
                "acknowledged writes to 1 keys are lost, and the last writes to 2 keys"
            )
        );
        assert!(summary(&[]).starts_with("no losses"));
    }
}
