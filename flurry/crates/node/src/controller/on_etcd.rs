//! A controller that keeps its state in etcd, which also says whether it leads.

use flurry_core::controller::{Controller, ControllerParams, Leader, Step};
use flurry_core::id::MonoNs;
use flurry_core::message::{Control, Message};

use super::told::{self, ChangeLog};
use super::{refused, send};
use crate::Error;
use crate::etcd::{Election, Role};
use crate::link::{Letter, Link, Peer};
use crate::metrics::Page;
use crate::node::Part;
use crate::security::Security;

#[derive(Debug)]
pub(super) struct OnEtcd {
    params: ControllerParams,
    /// `None` while it stands by.
    leader: Option<Leader>,
    election: Election,
    security: Security,
    log: ChangeLog,
    /// Who asked how the cluster is, while it stands by.
    asked: Vec<Peer>,
}

impl OnEtcd {
    pub(super) fn new(
        now: MonoNs,
        params: ControllerParams,
        election: Election,
        security: Security,
    ) -> Result<Self, Error> {
        let mut part = Self {
            params,
            leader: None,
            election,
            security,
            log: ChangeLog::default(),
            asked: Vec::new(),
        };
        part.follow_role(now)?;
        Ok(part)
    }

    /// Begins to decide when it is elected, and ceases when its term is over.
    fn follow_role(&mut self, now: MonoNs) -> Result<(), Error> {
        match self.election.role() {
            Role::Leader => {}
            Role::Standby => self.leader = None,
            Role::Elected(stored) => {
                let leader = Leader::new(now, self.params, stored.as_deref());
                self.leader = Some(leader.map_err(refused)?);
            }
        }
        Ok(())
    }

    /// Hears how the write under way has ended.
    fn take_written(&mut self, now: MonoNs) {
        match self.election.take_written() {
            Some(true) => {
                if let Some(leader) = &mut self.leader {
                    leader.stored(now);
                }
            }
            Some(false) => self.leader = None,
            None => {}
        }
    }

    /// The controller, if it leads now.
    fn leading(&mut self) -> Option<&mut Leader> {
        self.leader.as_mut().filter(|_| self.election.is_leader())
    }

    fn controller(&self) -> Option<&Controller> {
        self.leader.as_ref().map(Leader::controller)
    }

    /// The controller, as [`Self::leading`] has it, to look at.
    fn sure(&self) -> Option<&Controller> {
        self.controller().filter(|_| self.election.is_leader())
    }
}

impl Part for OnEtcd {
    fn message(&mut self, now: MonoNs, letter: Letter) {
        let Letter { from, message, .. } = letter;
        match self.leading() {
            Some(leader) => {
                let controller = leader.controller_mut();
                controller.handle_message(now, from.token(), message);
            }
            None if message == Message::Control(Control::StatusQuery) => self.asked.push(from),
            None => {}
        }
    }

    fn report(&self, page: &mut Page) {
        told::report(page, self.sure());
    }

    fn clock_jumped(&mut self, now: MonoNs) {
        if let Some(leader) = self.leading() {
            leader.controller_mut().clock_jumped(now);
        }
    }

    fn timeout(&mut self, now: MonoNs) {
        if let Some(leader) = self.leading() {
            leader.controller_mut().handle_timeout(now);
        }
    }

    fn due(&self) -> MonoNs {
        let controller = self.controller();
        controller.map_or(MonoNs(u64::MAX), Controller::poll_timeout)
    }

    /// Whatever woke it may have been the election, or the end of a write.
    fn serve(&mut self, now: MonoNs, _clients: bool, link: &mut Link) -> Result<usize, Error> {
        self.take_written(now);
        self.follow_role(now)?;
        self.carry_out(now, link)?;
        Ok(0)
    }

    fn carry_out(&mut self, _now: MonoNs, link: &mut Link) -> Result<(), Error> {
        for asked in self.asked.drain(..) {
            // It stands by, and has nothing to say.
            link.send(asked, &Message::Control(Control::Status(String::new())));
        }
        while let Some(step) = self.leading().and_then(Leader::poll_step) {
            match step {
                Step::Store(bytes) => self.election.write(bytes),
                Step::Send(to, message) => send(to, &message, &self.security, link),
            }
        }
        self.log.look(self.leader.as_ref().map(Leader::controller));
        Ok(())
    }
}
