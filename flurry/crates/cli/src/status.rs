//! How the cluster is, as its controller sees it.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::members::Operator;
use super::say;

/// Silence after which a server would have been removed if that were possible, in milliseconds.
const SILENT_LONG_MS: u64 = 3_000;

/// Returns the commands that declare these servers permanently lost.
fn remove_each(servers: &[u16]) -> String {
    let commands = servers.iter().map(|it| format!("flurry remove {it}"));
    commands.collect::<Vec<String>>().join(" and ")
}

fn listed(servers: &[&u16]) -> String {
    let servers = servers.iter().map(ToString::to_string);
    servers.collect::<Vec<String>>().join(" and ")
}

/// Returns the word for a server that this controller has not heard.
fn unheard(state: &str) -> String {
    if state == "gone" { "never" } else { "not yet" }.to_owned()
}

/// The controller's view.
#[derive(Debug, Deserialize)]
pub(super) struct View {
    members: Vec<Member>,
    config: u32,
    changing: bool,
    disks_missing: Vec<u16>,
    /// Servers whose disks are back and end too early, each with by how many milliseconds.
    #[serde(default)]
    disks_behind: Vec<(u16, u64)>,
    #[serde(default)]
    waits_for: Vec<u16>,
    #[serde(default)]
    drained: Vec<u16>,
    replicas: u8,
    waiting_servers: usize,
    wanted_servers: usize,
    sessions: usize,
    #[serde(default)]
    controllers: usize,
    /// Addresses of controllers of the group that were not heard lately.
    #[serde(default)]
    controllers_silent: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Member {
    server: u16,
    state: String,
    address: String,
    heard_ms_ago: Option<u64>,
}

impl View {
    pub(super) fn is_whole(&self) -> bool {
        let up = self.members.iter().filter(|it| it.state == "up").count();
        self.config > 0 && !self.changing && up >= self.wanted_servers
    }

    /// Whether a server holds anything, or will.
    pub(super) fn has(&self, server: u16) -> bool {
        let mut there = self.members.iter().filter(|it| it.state != "gone");
        there.any(|it| it.server == server)
    }

    pub(super) fn is_changing(&self) -> bool {
        self.changing
    }

    /// How many servers are missing to the wanted number of copies.
    pub(super) fn servers_wanted(&self) -> usize {
        usize::from(self.replicas).saturating_sub(self.left().len())
    }

    /// Servers that are counted.
    fn left(&self) -> BTreeSet<u16> {
        let left = self.members.iter().filter(|it| it.state != "gone");
        left.map(|it| it.server).collect()
    }

    /// Returns the servers that are silent for long and not counted out, because silent servers may
    /// still serve owners without the others.
    fn silent_for_long(&self) -> Vec<u16> {
        let for_long = |it: &&Member| it.heard_ms_ago.is_none_or(|ago| ago > SILENT_LONG_MS);
        let silent = self.members.iter().filter(|it| it.state == "silent");
        let servers: BTreeSet<u16> = silent.filter(for_long).map(|it| it.server).collect();
        let others = servers.into_iter();
        others.filter(|it| !self.waits_for.contains(it)).collect()
    }

    /// How many copies there are of a key: as many as wanted, or as servers that are left.
    fn copies(&self) -> String {
        let servers = self.left();
        let wanted = usize::from(self.replicas);
        if servers.len() >= wanted {
            wanted.to_string()
        } else {
            format!("{} of {wanted}", servers.len())
        }
    }
}

/// Asks the controllers for their view.
pub(super) fn seen(operator: &Operator) -> Result<View> {
    read(operator, &asked(operator)?)
}

fn asked(operator: &Operator) -> Result<String> {
    let Operator {
        controllers,
        security,
        timeout,
    } = operator;
    Ok(flurry::status(controllers, *timeout, security)?)
}

fn read(operator: &Operator, text: &str) -> Result<View> {
    let controllers = &operator.controllers;
    serde_json::from_str(text).with_context(|| {
        format!("controllers {controllers}: their status cannot be read; wanted a JSON object; hint: are they of another version?")
    })
}

/// Prints the controller's view: a table, or its JSON object as it is.
pub(super) fn status(operator: &Operator, json: bool) -> Result<u8> {
    let text = asked(operator)?;
    if json {
        say(text)?;
        return Ok(0);
    }
    let mut view = read(operator, &text)?;
    let mut lines = vec![format!(
        "{:<8}{:<9}{:<23}heard",
        "server", "state", "address"
    )];
    // A member of the old and of the new set comes twice while they change.
    view.members.sort_by_key(|it| it.server);
    view.members
        .dedup_by(|a, b| (a.server, &a.address, &a.state) == (b.server, &b.address, &b.state));
    for member in &view.members {
        let heard = member
            .heard_ms_ago
            .map_or_else(|| unheard(&member.state), |ago| format!("{ago} ms ago"));
        lines.push(format!(
            "{:<8}{:<9}{:<23}{heard}",
            member.server, member.state, member.address
        ));
    }
    if view.config == 0 {
        lines.push(format!(
            "waiting for servers: {} of {} have come",
            view.waiting_servers, view.wanted_servers
        ));
    } else {
        let changing = if view.changing { ", changing" } else { "" };
        lines.push(format!(
            "configuration {}{changing}, {} copies of each key, {} sessions",
            view.config,
            view.copies(),
            view.sessions
        ));
    }
    lines.extend(hints(&view));
    say(lines.join("\n"))?;
    Ok(0)
}

/// What the cluster waits for, and what an operator can do about it.
fn hints(view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    for (server, ms) in &view.disks_behind {
        lines.push(format!(
            "the disk of server {server} is back, but its records end {} s before those of the newest disk: it stopped earlier, or a clock was wrong; hint: keep every disk and compare the servers' clocks; flurry/docs/disk.md says how to go on",
            ms / 1_000
        ));
    }
    let is_behind = |server: &u16| view.disks_behind.iter().any(|(it, _)| it == server);
    let mut away = view.disks_missing.clone();
    away.retain(|server| !is_behind(server));
    if !away.is_empty() {
        let servers: Vec<String> = away.iter().map(u16::to_string).collect();
        lines.push(format!(
            "waiting for the disks of servers {}: they may hold the only copies; hint: start them; if they are gone for good, {}",
            servers.join(", "),
            remove_each(&away)
        ));
    }
    if !view.waits_for.is_empty() {
        let servers: Vec<String> = view.waits_for.iter().map(u16::to_string).collect();
        lines.push(format!(
            "waiting for server {}: it is silent, and nobody else has all that it has; hint: it goes on where it was when its process does; if its memory is gone for good, {}",
            servers.join(" and "),
            remove_each(&view.waits_for)
        ));
    }
    let silent = view.silent_for_long();
    if !silent.is_empty() {
        let servers: Vec<String> = silent.iter().map(u16::to_string).collect();
        lines.push(format!(
            "waiting for server {}: silent servers may still serve each other, or an earlier gateway, where the controller cannot see it; hint: start them, also those that are gone; if they are gone for good, {}",
            servers.join(" and "),
            remove_each(&silent)
        ));
    }
    let holds = |server: &&u16| view.members.iter().any(|it| it.server == **server);
    let (leaving, drained): (Vec<&u16>, Vec<&u16>) = view.drained.iter().partition(holds);
    if !leaving.is_empty() {
        lines.push(format!(
            "draining: server {}; hint: do not end it before it is drained, since the others still copy from it",
            listed(&leaving)
        ));
    }
    if !drained.is_empty() {
        lines.push(format!(
            "drained: server {}; hint: flurry drain {} --cancel lets it take part again",
            listed(&drained),
            drained[0]
        ));
    }
    if !view.controllers_silent.is_empty() {
        let silent = view.controllers_silent.join(" and ");
        lines.push(format!(
            "controller {silent} is silent: a majority of the {} must run; hint: start it with its directory",
            view.controllers
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(members: &[(u16, &str)]) -> View {
        let member = |(server, state): &(u16, &str)| Member {
            server: *server,
            state: (*state).to_owned(),
            address: String::new(),
            heard_ms_ago: None,
        };
        View {
            members: members.iter().map(member).collect(),
            config: 1,
            changing: false,
            disks_missing: Vec::new(),
            disks_behind: Vec::new(),
            waits_for: Vec::new(),
            drained: Vec::new(),
            replicas: 3,
            waiting_servers: 0,
            wanted_servers: 3,
            sessions: 0,
            controllers: 1,
            controllers_silent: Vec::new(),
        }
    }

    #[test]
    fn with_fewer_servers_than_wanted_there_are_fewer_copies() {
        let four = [(1, "up"), (2, "up"), (3, "silent"), (4, "joining")];
        assert_eq!(view(&four).copies(), "3");
        assert_eq!(
            view(&[(1, "gone"), (2, "up"), (3, "up")]).copies(),
            "2 of 3"
        );
        // One that came back is in the old set and in the new one.
        assert_eq!(
            view(&[(1, "gone"), (1, "joining"), (2, "up")]).copies(),
            "2 of 3"
        );
    }

    #[test]
    fn a_server_that_is_being_drained_is_not_called_drained() {
        let mut leaving = view(&[(1, "up"), (2, "up"), (3, "up"), (4, "draining")]);
        leaving.drained = vec![4];
        let [hint] = hints(&leaving).try_into().unwrap();
        assert!(
            hint.starts_with("draining: server 4; hint: do not end it"),
            "{hint}"
        );
        leaving.members.retain(|it| it.server != 4);
        let [hint] = hints(&leaving).try_into().unwrap();
        assert!(
            hint.starts_with("drained: server 4; hint: flurry drain 4 --cancel"),
            "{hint}"
        );
    }

    #[test]
    fn a_disk_that_ends_early_is_not_called_gone() {
        let mut late = view(&[(1, "joining"), (2, "joining"), (3, "joining")]);
        late.disks_missing = vec![2, 3];
        late.disks_behind = vec![(2, 120_000)];
        let [cause, away] = hints(&late).try_into().unwrap();
        assert!(cause.contains("server 2 is back, but its records end 120 s before"));
        assert!(!cause.contains("flurry remove") && cause.contains("clock"));
        assert!(away.contains("the disks of servers 3:") && away.ends_with("flurry remove 3"));
    }
}
