//! Interventions from outside: by an operator, by a machine that sleeps, by a disk that breaks.

use flurry_core::message::Message;

use super::{Machine, NodeId, World};

impl World {
    /// Lets a suspended machine go on. Its clock stood still, and the wall clock shows it.
    pub(super) fn wake_up(&mut self, place: NodeId) {
        let node = &mut self.nodes[place];
        let slept = std::mem::take(&mut node.suspended);
        if slept == 0 {
            return;
        }
        // Clocks are far from zero, so this is exact.
        node.clock_offset = node.clock_offset.saturating_sub(slept);
        let local = node.local(self.now);
        match &mut node.machine {
            Machine::Down => {}
            Machine::Server(server) => server.clock_jumped(local),
            Machine::Router(router) => router.clock_jumped(local),
            Machine::Portal(_, router) => {
                if let Some(router) = router {
                    router.clock_jumped(local);
                }
            }
            Machine::Controller(controller) => controller.clock_jumped(local),
        }
    }

    /// Sends a message of the operator, who repeats it until it shows: it may find no controller.
    pub(crate) fn tell_controller(&mut self, message: &Message) {
        for place in self.controllers().to_vec() {
            if self.nodes[place].paused_until > self.now {
                continue;
            }
            let local = self.local(place);
            if let Machine::Controller(controller) = &mut self.nodes[place].machine {
                controller.handle_message(local, place as u64, message.clone());
                let _ = self.after(place);
            }
        }
    }

    /// Breaks a disk.
    pub(crate) fn lose_disk(&mut self, place: NodeId) {
        self.disk_lost = true;
        self.disks.entry(place).or_default().lose();
    }

    /// Lets an operator declare that a disk does not have the records that the cluster waits for.
    pub(crate) fn give_up_disk(&mut self, place: NodeId) {
        self.disks.entry(place).or_default().give_up();
    }
}
