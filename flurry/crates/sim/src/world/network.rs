//! Delays, loses, repeats and damages messages on their way.

use flurry_core::message::Message;

use super::{Cut, NodeId, What, World};

impl World {
    /// Cuts the places of one mask from those of another.
    pub fn cut(&mut self, from: u64, to: u64, until: u64) {
        self.cuts.retain(|cut| cut.until > self.now);
        self.cuts.push(Cut { from, to, until });
        let controllers = self.controllers().iter();
        let controller = controllers.fold(0, |mask, place| mask | 1u64 << (place % 64));
        for place in 0..self.nodes.len() {
            let one = 1u64 << (place % 64);
            let apart = from & one != 0 && to & controller != 0;
            if apart || from & controller != 0 && to & one != 0 {
                let node = &mut self.nodes[place];
                node.troubled_until = node.troubled_until.max(until);
            }
        }
    }

    /// Ends all faults.
    pub fn heal(&mut self) {
        self.healed = true;
        self.cuts.clear();
        for node in &mut self.nodes {
            node.paused_until = self.now;
        }
    }

    /// Puts a message on the network.
    pub(super) fn transmit(&mut self, from: NodeId, to: NodeId, message: Message) {
        let (one, other) = (1u64 << (from % 64), 1u64 << (to % 64));
        let now = self.now;
        let cut = self
            .cuts
            .iter()
            .any(|cut| cut.until > now && cut.from & one != 0 && cut.to & other != 0);
        let lost = !self.healed && self.dice.chance(self.scenario.loss);
        if cut || lost {
            return;
        }
        if !self.healed && self.scenario.damage > 0 && self.dice.chance(self.scenario.damage) {
            if let Some(damaged) = self.damage(&message) {
                let delay = self.delay();
                self.push(now + delay, to, What::Deliver(from, Box::new(damaged)));
            }
            return;
        }
        if !self.healed && self.dice.chance(self.scenario.duplicates) {
            let delay = self.delay() * self.dice.between(1, 50);
            self.push(
                now + delay,
                to,
                What::Deliver(from, Box::new(message.clone())),
            );
        }
        let delay = self.delay();
        self.push(now + delay, to, What::Deliver(from, Box::new(message)));
    }

    fn delay(&mut self) -> u64 {
        let spread = self.scenario.delay_spread;
        let plain = self.scenario.delay_min + self.dice.below(spread + 1);
        if !self.healed && self.dice.chance(self.scenario.slow) {
            plain * 100
        } else {
            plain
        }
    }
}
