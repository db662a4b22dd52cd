//! What keeps a controller's state, and says whether it may decide.

use std::time::Duration;

use super::StateAt;
use super::file::Directory;
use crate::Error;
use crate::etcd::{Seat, Standing};
use crate::link::Wake;
use crate::security::Security;

/// How long the names of etcd's nodes may take to be found.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
enum Keeper {
    /// Nothing outlives the process.
    Memory,
    Directory(Directory),
    Etcd(Box<Seat>),
}

#[derive(Debug)]
pub(super) struct Store {
    keeper: Keeper,
    /// Its turn has begun; of a directory there is one turn, which never ends.
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
            StateAt::Directory(path) => Keeper::Directory(Directory::open(path)?),
            StateAt::Etcd(etcd) => {
                etcd.allow(security, PATIENCE)?;
                Keeper::Etcd(Box::new(Seat::wait_for(etcd, address, wake)?))
            }
        };
        Ok(Self {
            keeper,
            begun: false,
        })
    }

    /// How it stands with the controller now.
    pub(super) fn standing(&mut self) -> Result<Standing, Error> {
        let stored = match &mut self.keeper {
            Keeper::Etcd(seat) => return Ok(seat.standing()),
            _ if self.begun => return Ok(Standing::Decides),
            Keeper::Memory => None,
            Keeper::Directory(directory) => directory.read()?,
        };
        self.begun = true;
        Ok(Standing::Begins(stored))
    }

    /// Whether it may decide, without a doubt.
    pub(super) fn is_sure(&self) -> bool {
        match &self.keeper {
            Keeper::Etcd(seat) => seat.is_sure(),
            Keeper::Memory | Keeper::Directory(_) => self.begun,
        }
    }

    /// Stored when this returns `true`; with `false` others may decide now.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        match &mut self.keeper {
            Keeper::Memory => Ok(true),
            Keeper::Directory(directory) => directory.write(bytes).map(|()| true),
            Keeper::Etcd(seat) => Ok(seat.write(bytes)),
        }
    }
}
