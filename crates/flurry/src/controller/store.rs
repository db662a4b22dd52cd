//! What keeps a controller's state, and says whether it leads.

use std::time::Duration;

use super::StateAt;
use crate::Error;
use crate::directory::Directory;
use crate::etcd::{Election, Role};
use crate::link::Wake;
use crate::security::Security;

/// How long the names of etcd's nodes may take to be found.
const PATIENCE: Duration = Duration::from_secs(5);

/// In a directory: the state, and who writes it.
const STATE: &str = "controller.state";
const LOCK: &str = "controller.lock";
const ALONE: &str = "to be the only controller of this directory: two would give out epochs twice";

#[derive(Debug)]
enum Keeper {
    /// Nothing outlives the process.
    Memory,
    Directory(Directory),
    Etcd(Box<Election>),
}

#[derive(Debug)]
pub(super) struct Store {
    keeper: Keeper,
    /// Its term has begun; of a directory there is one, which never ends.
    begun: bool,
}

impl Store {
    pub(super) fn open(
        at: &StateAt,
        address: String,
        wake: Wake,
        security: &Security,
    ) -> Result<Self, Error> {
        let keeper = match at {
            StateAt::Memory => Keeper::Memory,
            StateAt::Directory(path) => Keeper::Directory(Directory::open(path, LOCK, ALONE)?),
            StateAt::Etcd(etcd) => {
                etcd.allow(security, PATIENCE)?;
                Keeper::Etcd(Box::new(Election::start(etcd, address, wake)?))
            }
        };
        Ok(Self {
            keeper,
            begun: false,
        })
    }

    /// What the controller is now.
    pub(super) fn role(&mut self) -> Result<Role, Error> {
        let stored = match &mut self.keeper {
            Keeper::Etcd(election) => return Ok(election.role()),
            _ if self.begun => return Ok(Role::Leader),
            Keeper::Memory => None,
            Keeper::Directory(directory) => directory.read(STATE)?,
        };
        self.begun = true;
        Ok(Role::Elected(stored))
    }

    /// Whether it leads, without a doubt.
    pub(super) fn is_leader(&self) -> bool {
        match &self.keeper {
            Keeper::Etcd(election) => election.is_leader(),
            Keeper::Memory | Keeper::Directory(_) => self.begun,
        }
    }

    /// Stored when this returns `true`; with `false` others may lead now.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        match &mut self.keeper {
            Keeper::Memory => Ok(true),
            Keeper::Directory(directory) => directory.write(STATE, bytes).map(|()| true),
            Keeper::Etcd(election) => Ok(election.write(bytes)),
        }
    }
}
