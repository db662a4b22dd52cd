//! The processes of a group of which one leads: who may be meant by `etcd-leader`.

use super::file::GROUP_ONLY;
use super::{MANUAL, Service, required};
use crate::error::PlanError;
use crate::section::Section;

const LEADS: &[&str] = &["port", "path", "says"];
const LEADER: &str = "-leader";
const FOLLOWER: &str = "-follower";

/// How a process of a group reports that it leads the others: its answer to a `GET` by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leads {
    /// The name of the port that answers.
    pub port: String,
    /// The path.
    pub path: String,
    /// The leader's answer contains this, and no other's does.
    pub says: String,
}

/// A place in a group that its processes take in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The process that leads.
    Leader,
    /// A process that does not.
    Follower,
}

/// Reads the table `leads` of a process.
pub(super) fn leads(
    section: &Section<'_>,
    ports: &[String],
    is_group: bool,
) -> Result<Option<Leads>, PlanError> {
    let Some(table) = section.child("leads", "leads")? else {
        return Ok(None);
    };
    table.check_keys(LEADS)?;
    if !is_group {
        let wrong = "leads is there without count".to_owned();
        return Err(section.complain("leads", wrong, GROUP_ONLY, "count = 3"));
    }
    let port = required(&table, "port")?;
    if !ports.contains(&port) {
        let wrong = format!("port is {port:?}");
        let wanted = format!("must be one of its ports: {}", ports.join(", "));
        return Err(table.complain("port", wrong, wanted, format!("port = {:?}", ports[0])));
    }
    let path = required(&table, "path")?;
    if !path.starts_with('/') || path.contains(char::is_whitespace) {
        let wrong = format!("path is {path:?}");
        return Err(table.complain("path", wrong, "must be a path of a URL", MANUAL));
    }
    let says = required(&table, "says")?;
    Ok(Some(Leads { port, path, says }))
}

impl Service {
    /// Returns the names of roles that a fault may use besides those of processes.
    #[must_use]
    pub fn roles(&self) -> Vec<String> {
        let leading = self.processes.iter().filter(|it| it.leads.is_some());
        let groups = leading.filter(|it| it.number == 1);
        let groups = groups.filter_map(|it| it.group.as_deref());
        let both = groups.flat_map(|group| [LEADER, FOLLOWER].map(|role| format!("{group}{role}")));
        both.collect()
    }

    /// Returns the group and the role for which a name stands, if it is that of a role.
    #[must_use]
    pub fn role<'a>(&self, name: &'a str) -> Option<(&'a str, Role)> {
        let leader = name.strip_suffix(LEADER).map(|it| (it, Role::Leader));
        let role = leader.or_else(|| Some((name.strip_suffix(FOLLOWER)?, Role::Follower)));
        role.filter(|(group, _)| {
            let mut members = self.processes.iter();
            members.any(|it| it.leads.is_some() && it.group.as_deref() == Some(group))
        })
    }

    /// Returns the names of the processes for which a name may stand: itself, or every process of
    /// the group of a role.
    #[must_use]
    pub fn candidates(&self, name: &str) -> Vec<String> {
        let Some((group, _)) = self.role(name) else {
            return vec![name.to_owned()];
        };
        let members = self.processes.iter();
        let members = members.filter(|it| it.group.as_deref() == Some(group));
        members.map(|it| it.name.clone()).collect()
    }
}
