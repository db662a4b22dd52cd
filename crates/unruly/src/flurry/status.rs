//! How the cluster is, as its controller sees it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use flurry::{Controllers, Security};
use serde::Deserialize;

use super::say;

/// The controller's view.
#[derive(Debug, Deserialize)]
pub(super) struct View {
    members: Vec<Member>,
    config: u32,
    changing: bool,
    disks_missing: Vec<u16>,
    #[serde(default)]
    waits_for: Vec<u16>,
    replicas: u8,
    waiting_servers: usize,
    wanted_servers: usize,
    sessions: usize,
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

    /// How many copies there are of a key: as many as wanted, or as servers that are left.
    fn copies(&self) -> String {
        let left = self.members.iter().filter(|it| it.state != "gone");
        let servers: BTreeSet<u16> = left.map(|it| it.server).collect();
        let wanted = usize::from(self.replicas);
        if servers.len() >= wanted {
            wanted.to_string()
        } else {
            format!("{} of {wanted}", servers.len())
        }
    }
}

pub(super) fn seen(controllers: &Controllers, security: &Security) -> Result<View> {
    view(controllers, Duration::from_secs(2), security)
}

fn view(controllers: &Controllers, timeout: Duration, security: &Security) -> Result<View> {
    let text = flurry::status(controllers, timeout, security)?;
    serde_json::from_str(&text).with_context(|| {
        format!("controllers {controllers}: their status cannot be read; wanted a JSON object; hint: are they of another version?")
    })
}

pub(super) fn status(
    controllers: &Controllers,
    timeout: Duration,
    security: &Security,
) -> Result<u8> {
    let mut view = view(controllers, timeout, security)?;
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
            .map_or_else(|| "never".to_owned(), |ago| format!("{ago} ms ago"));
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
    if !view.disks_missing.is_empty() {
        let servers: Vec<String> = view.disks_missing.iter().map(u16::to_string).collect();
        lines.push(format!(
            "waiting for the disks of servers {}: what was kept may be there alone; hint: start them, or with --disk-lost if they are gone for good",
            servers.join(", ")
        ));
    }
    if !view.waits_for.is_empty() {
        let servers: Vec<String> = view.waits_for.iter().map(u16::to_string).collect();
        lines.push(format!(
            "waiting for server {}: it is silent, and nobody else has all that it has; hint: it goes on where it was when its process does; start it anew only if its memory is gone",
            servers.join(" and ")
        ));
    }
    say(lines.join("\n"))?;
    Ok(0)
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
            waits_for: Vec::new(),
            replicas: 3,
            waiting_servers: 0,
            wanted_servers: 3,
            sessions: 0,
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
}
