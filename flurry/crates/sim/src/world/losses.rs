//! Counts the servers that were lost before others had copied their records.

use flurry_core::config::Config;
use flurry_core::id::{ConfigNumber, Incarnation, ServerId};

/// Copies of a key that may be missing, according to the configurations.
#[derive(Debug, Default)]
pub struct Losses {
    now: usize,
    /// The largest value so far.
    pub most: usize,
    /// True if a server was lost while the members changed.
    amid_change: bool,
    was_changing: bool,
    /// The configuration in which a server was last lost.
    pub last: ConfigNumber,
}

impl Losses {
    /// Compares a configuration with the members of the one before.
    pub(crate) fn note(&mut self, config: &Config, before: &[(ServerId, Incarnation)]) {
        self.last = self.last.max(config.last_loss);
        let lives = config.lives();
        let changing = config.next.is_some();
        if changing {
            let lost = before.iter().filter(|it| !lives.contains(it)).count();
            self.amid_change |= lost > 0 && self.was_changing;
            self.now += lost;
            self.most = self.most.max(self.now);
        } else if self.was_changing {
            // All members have copied everything, unless one was lost meanwhile.
            if !self.amid_change {
                let missing = usize::from(config.replicas).saturating_sub(lives.len());
                self.now = self.now.min(missing);
            }
            self.amid_change = false;
        }
        self.was_changing = changing;
    }
}
