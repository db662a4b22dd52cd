//! What always holds of a member of a group between two inputs; for the simulation.

use super::Consensus;

impl Consensus {
    /// Checks everything; it takes time for each member.
    ///
    /// # Panics
    ///
    /// When its disk, its promises and its part in the group do not agree.
    pub fn verify(&self) {
        let (record, durable) = (&self.record, &self.durable);
        assert!(
            durable.promised <= record.promised && durable.stamp <= record.stamp,
            "a state is in memory before it is on disk"
        );
        assert!(
            record.stamp.ballot <= record.promised,
            "a state is taken under a ballot that was promised"
        );
        assert!(
            record.promised.round() <= self.round,
            "its next ballot is higher than any that it promised"
        );
        assert_eq!(
            self.writing.is_some(),
            record != durable,
            "a state that is not on disk is being written"
        );
        if let Some(writing) = &self.writing {
            assert!(
                durable.stamp <= writing.stamp && writing.stamp <= record.stamp,
                "states reach the disk in their order"
            );
            assert!(
                durable.promised <= writing.promised && writing.promised <= record.promised,
                "so do promises"
            );
        }
        let members = &self.params.members;
        let me = self.params.me;
        let is_other = |it: &super::MemberId| *it != me && members.contains(it);
        assert!(
            self.heard_from.keys().all(is_other),
            "only other members are heard"
        );
        assert!(
            self.inquiry.iter().flatten().all(is_other),
            "only other members are asked"
        );
        if let Some(leadership) = &self.leadership {
            assert!(
                leadership.ballot == record.promised && leadership.ballot.member() == me,
                "it leads by its own promise"
            );
            assert!(
                self.candidacy.is_none() && self.obeyed.is_none(),
                "a leader neither stands nor obeys"
            );
            assert!(
                !leadership.begun || record.stamp.ballot == leadership.ballot,
                "it has written the state of the leader before as its own"
            );
        }
        if let Some((ballot, _)) = self.obeyed {
            assert!(
                ballot <= record.promised,
                "it obeys a leader that it has promised to obey"
            );
        }
        if let Some(candidacy) = &self.candidacy {
            candidacy.verify(me, record.promised, members);
        }
    }
}
