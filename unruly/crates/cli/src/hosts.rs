//! The hosts that `--from` and `unruly collect` name.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::{Result, bail, ensure};
use clap::Args;
use unruly_plan::{HOST_PROGRAM, MAX_REACHED_HOSTS, Plan, PlanError, ReachedHost};

/// Options of ssh: it asks nobody for a password, accepts no unknown host, whatever its configuration
/// says, and gives a host up that does not answer.
const SSH: [&str; 7] = [
    "ssh",
    "-o",
    "BatchMode=yes",
    "-o",
    "StrictHostKeyChecking=yes",
    "-o",
    "ConnectTimeout=10",
];

/// The flags that name the hosts of a load.
#[derive(Debug, Default, Args)]
pub(crate) struct HostArguments {
    /// Hosts that carry the load instead of this one: ssh:HOST, ssh:HOST=ADDRESS, kubectl:POD or
    /// "command:WORDS", with commas between
    #[arg(long, value_name = "HOSTS")]
    from: Vec<String>,
    /// Program unruly on these hosts (default: unruly)
    #[arg(long, value_name = "PATH", requires = "from")]
    from_program: Option<String>,
    /// Copy this program to these hosts first, unless they have it
    #[arg(long, requires = "from")]
    from_install: bool,
    /// IPv4 address of this host at which other hosts reach the service that the run starts
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Ipv4Addr>,
}

impl HostArguments {
    /// Returns the hosts, in the order of their words.
    ///
    /// # Errors
    ///
    /// When a word names no way to a host, or there are too many.
    pub(crate) fn hosts(&self) -> Result<Vec<ReachedHost>> {
        let program = self.from_program.as_deref();
        hosts_of("--from", &self.from, program, self.from_install)
    }

    /// Returns true if the command line names hosts.
    pub(crate) const fn are_given(&self) -> bool {
        !self.from.is_empty()
    }

    /// Returns the value of a plan's `run.listen`, if one is given.
    pub(crate) fn listen(&self) -> Option<String> {
        self.listen.map(|it| it.to_string())
    }
}

/// Returns the plan with the hosts of these flags for its load.
///
/// # Errors
///
/// When that is no plan.
pub(crate) fn placed(mut plan: Plan, flags: &HostArguments) -> Result<Plan> {
    plan.run.listen = flags.listen.or(plan.run.listen);
    let hosts = flags.hosts()?;
    if hosts.is_empty() {
        return Ok(plan);
    }
    plan.reached = hosts;
    // Whether the whole is a plan still depends on them.
    match Plan::parse("plan", &plan.to_toml()) {
        Ok(_) => Ok(plan),
        Err(error) => Err(complaint(&error)),
    }
}

/// Returns the complaint about a plan with the hosts of the command line, in its words.
pub(crate) fn complaint(error: &PlanError) -> anyhow::Error {
    let (flag, wrong) = match error.wrong.strip_prefix("the plan has [[host]] and ") {
        _ if error.key == "run.listen" => ("--listen", error.wrong.clone()),
        Some(rest) if rest.starts_with("sets ") => ("--from", format!("the plan {rest}")),
        Some(rest) => ("--from", format!("it is given with {rest}")),
        None => ("--from", error.wrong.replace("[[host]], ", "")),
    };
    let hint = match error.hint.as_str() {
        hint if hint.starts_with("in [run], listen") => "--listen 192.0.2.10",
        hint if hint.starts_with("address =") => "--from ssh:HOST=192.0.2.11",
        "remove [[host]]" => "leave --from out",
        hint => hint,
    };
    anyhow::anyhow!("{flag}: {wrong}; {}; hint: {hint}", error.wanted)
}

/// Returns the hosts of the words of an argument.
///
/// # Errors
///
/// As [`HostArguments::hosts`].
pub(crate) fn hosts_of(
    argument: &str,
    words: &[String],
    program: Option<&str>,
    install: bool,
) -> Result<Vec<ReachedHost>> {
    ensure!(
        !install || program.is_none(),
        "--from-install: the run chooses where it installs; hint: leave --from-program out"
    );
    let mut hosts: Vec<ReachedHost> = Vec::new();
    let mut names = BTreeSet::new();
    for word in words.iter().flat_map(|it| parts(it)) {
        let (place, address) = addressed(word);
        ensure!(
            address != Some(""),
            "{argument}: {word:?} has no address after its =; hint: {place}=192.0.2.11"
        );
        let Some((name, reach)) = way(place) else {
            return no_way(argument, word);
        };
        let count = hosts.len() + 1;
        let name = name.unwrap_or_else(|| format!("host-{count}"));
        // Two connections to one host are two generators on it.
        let name = if names.contains(&name) {
            format!("{name}-{count}")
        } else {
            name
        };
        names.insert(name.clone());
        hosts.push(ReachedHost {
            name,
            reach,
            address: address.map(str::to_owned),
            program: program.unwrap_or(HOST_PROGRAM).to_owned(),
            install,
        });
    }
    ensure!(
        hosts.len() <= MAX_REACHED_HOSTS,
        "{argument}: {} hosts are too many; wanted at most {MAX_REACHED_HOSTS}; hint: name fewer",
        hosts.len()
    );
    Ok(hosts)
}

/// Returns the word without the address that stands after it: `ssh:node-1=192.0.2.11`. A command may
/// have such words of its own.
fn addressed(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((before, address)) if !word.starts_with("command:") => (before, Some(address)),
        _ => (word, None),
    }
}

/// Returns the words between commas. A command may have commas of its own, so it is the last.
fn parts(word: &str) -> Vec<&str> {
    let (before, command) = match word.find("command:") {
        Some(at) => (&word[..at], Some(&word[at..])),
        None => (word, None),
    };
    let before = before.strip_suffix(',').unwrap_or(before);
    let is_alone = before.is_empty() && command.is_some();
    let before = before.split(',').filter(|_| !is_alone);
    before.chain(command).map(str::trim).collect()
}

/// Returns the name of a host, if its word has one, and the command that reaches it; nothing for a word that
/// names no way.
fn way(word: &str) -> Option<(Option<String>, Vec<String>)> {
    let owned = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
    let (kind, place) = word.split_once(':').unwrap_or((word, ""));
    // A place that begins with a dash would be an option.
    let is_place = !place.is_empty() && !place.starts_with('-') && !place.contains(' ');
    match kind {
        "ssh" if is_place => {
            let (place, port) = match place.rsplit_once(':') {
                // More colons are those of an address of IPv6, which has no port here.
                Some((place, port)) if port.parse::<u16>().is_ok() && !place.contains(':') => {
                    (place, Some(port))
                }
                Some(_) => return None,
                None => (place, None),
            };
            let mut reach = owned(&SSH);
            reach.extend(port.iter().flat_map(|port| owned(&["-p", port])));
            reach.push(place.to_owned());
            let host = place.rsplit_once('@').map_or(place, |it| it.1);
            Some((Some(fit(host)), reach))
        }
        "kubectl" if is_place => Some((
            Some(fit(place)),
            owned(&["kubectl", "exec", "-i", place, "--"]),
        )),
        "command" => {
            let words: Vec<String> = place.split_whitespace().map(str::to_owned).collect();
            if words.is_empty() {
                return None;
            }
            Some((None, words))
        }
        _ => None,
    }
}

fn no_way(argument: &str, word: &str) -> Result<Vec<ReachedHost>> {
    let flag = if argument.starts_with('-') {
        format!("{argument} ")
    } else {
        String::new()
    };
    bail!(
        "{argument}: {word:?} names no way to a host; wanted ssh:HOST, kubectl:POD or command:WORDS; hint: {flag}ssh:node-1,ssh:node-2"
    )
}

/// Returns a name that a plan may have.
fn fit(host: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = host
        .chars()
        .take(60)
        .map(|c| if fits(c) { c } else { '-' })
        .collect();
    if name == unruly_plan::LOCAL_HOST {
        format!("{name}-host")
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &[&str]) -> Vec<(String, String)> {
        let words: Vec<String> = words.iter().map(|&it| it.to_owned()).collect();
        let hosts = hosts_of("--from", &words, None, false).unwrap();
        hosts
            .into_iter()
            .map(|it| (it.name, it.reach.join(" ")))
            .collect()
    }

    #[test]
    fn each_word_is_a_host_with_a_name_of_its_own() {
        let ssh = SSH.join(" ");
        let wanted = [
            ("node-1", format!("{ssh} node-1")),
            ("node-2", format!("{ssh} -p 2222 me@node-2")),
            ("unruly-0", "kubectl exec -i unruly-0 --".to_owned()),
            ("node-1-4", format!("{ssh} node-1")),
            ("host-5", "nsenter --net=/run/netns/a,b --".to_owned()),
        ];
        let words = [
            "ssh:node-1,ssh:me@node-2:2222",
            "kubectl:unruly-0",
            "ssh:node-1,command:nsenter --net=/run/netns/a,b --",
        ];
        let wanted: Vec<(String, String)> = wanted.map(|(a, b)| (a.to_owned(), b)).to_vec();
        assert_eq!(told(&words), wanted);
    }

    #[test]
    fn a_host_may_have_the_address_at_which_others_reach_it() {
        let words = ["ssh:node-1=192.0.2.11,kubectl:a", "command:env A=1"];
        let hosts = hosts_of("--from", &words.map(str::to_owned), None, false).unwrap();
        let addresses: Vec<Option<&str>> = hosts.iter().map(|it| it.address.as_deref()).collect();
        assert_eq!(addresses, [Some("192.0.2.11"), None, None]);
        assert_eq!(hosts[0].name, "node-1");
        assert_eq!(hosts[2].reach, ["env", "A=1"]);
    }

    #[test]
    fn a_word_that_names_no_way_is_refused_with_the_ways() {
        for word in [
            "node-1",
            "ssh:",
            "ssh:-oProxyCommand=x",
            "ssh:a:b",
            "ssh:fe80::1",
            "command:",
            "",
            "local:",
        ] {
            let said = hosts_of("--from", &[word.to_owned()], None, false)
                .unwrap_err()
                .to_string();
            let told = format!("--from: {word:?} names no way to a host; wanted ssh:HOST");
            assert!(said.starts_with(&told), "{said}");
        }
    }
}
