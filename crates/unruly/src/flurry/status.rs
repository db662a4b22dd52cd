//! How the cluster is, as its controller sees it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::say;

/// The controller's view.
#[derive(Debug, Deserialize)]
pub(super) struct View {
    members: Vec<Member>,
    config: u32,
    changing: bool,
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
}

pub(super) fn seen(controller: SocketAddr) -> Result<View> {
    view(controller, Duration::from_secs(2))
}

fn view(controller: SocketAddr, timeout: Duration) -> Result<View> {
    let text = flurry::status(controller, timeout)?;
    serde_json::from_str(&text).with_context(|| {
        format!("controller {controller}: its status cannot be read; wanted a JSON object; hint: is it of another version?")
    })
}

pub(super) fn status(controller: SocketAddr, timeout: Duration) -> Result<u8> {
    let mut view = view(controller, timeout)?;
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
            view.config, view.replicas, view.sessions
        ));
    }
    say(lines.join("\n"))?;
    Ok(0)
}
