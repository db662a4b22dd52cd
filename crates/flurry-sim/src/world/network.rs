//! What becomes of a message on its way.

use flurry_core::message::Message;

use super::{NodeId, What, World};

impl World {
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
