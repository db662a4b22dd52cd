//! The hosts that `--from` and `unruly collect` name.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use unruly_plan::{HOST_PROGRAM, MAX_REACHED_HOSTS, ReachedHost};

/// Options of ssh: it asks nobody for a password, and gives a host up that does not answer.
const SSH: [&str; 5] = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"];

/// Returns the hosts of the words `ssh:HOST`, `kubectl:POD` and `command:WORDS`, of which several
/// may stand between commas.
///
/// # Errors
///
/// When a word names no way to a host, or there are too many.
pub(crate) fn hosts(
    words: &[String],
    program: Option<&str>,
    install: bool,
) -> Result<Vec<ReachedHost>> {
    hosts_of("--from", words, program, install)
}

/// Returns the hosts of the words of an argument.
///
/// # Errors
///
/// As [`hosts`].
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
        let Some((name, reach)) = way(word) else {
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
            address: None,
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
        let hosts = hosts(&words, None, false).unwrap();
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
            let said = hosts(&[word.to_owned()], None, false)
                .unwrap_err()
                .to_string();
            let told = format!("--from: {word:?} names no way to a host; wanted ssh:HOST");
            assert!(said.starts_with(&told), "{said}");
        }
    }
}
