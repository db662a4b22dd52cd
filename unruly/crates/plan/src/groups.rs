//! Decides which agents form a group and when a probe ticks, without any coordination.
//!
//! Every agent computes the same answer from the seed and its own count of epochs. No leader,
//! message or shared file can therefore stall the measured system.

use crate::random::{Purpose, Random, mix, scale};
use crate::units::DurationNs;

/// The groups of an epoch: the agents shuffled by (`seed`, `epoch`) and cut by `sizes` in turn.
///
/// The sizes are taken round and round; one that no longer fits is passed over for the next
/// which does, and when none fits the agents left over sit this epoch out. Members are sorted.
///
/// ```
/// let groups = unruly_plan::groups(1, 0, 7, &[3, 4]);
/// assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [3, 4]);
/// ```
#[must_use]
pub fn groups(seed: u64, epoch: u64, agents: u16, sizes: &[u16]) -> Vec<Vec<u16>> {
    let mut shuffled: Vec<u16> = (0..agents).collect();
    Random::new(Purpose::Groups, seed, epoch).shuffle(&mut shuffled);
    let mut rest = shuffled.as_slice();
    let mut groups = Vec::new();
    let mut turn = 0;
    while let Some(chosen) = next_fitting(sizes, turn, rest.len()) {
        let (members, others) = rest.split_at(usize::from(sizes[chosen]));
        let mut members = members.to_vec();
        members.sort_unstable();
        groups.push(members);
        rest = others;
        turn = chosen + 1;
    }
    groups
}

/// The group of `agent` in an epoch; none when it sits the epoch out.
#[must_use]
pub fn group_of(seed: u64, epoch: u64, agents: u16, sizes: &[u16], agent: u16) -> Option<Vec<u16>> {
    let all = groups(seed, epoch, agents, sizes);
    all.into_iter().find(|members| members.contains(&agent))
}

/// How far into its period a tick falls: a phase of the agent's own, in `[0, 0.9 period)`, and a
/// jitter of the tick, in `[0, 0.1 period)`, both uniform.
///
/// A tick is due at `start + tick * period + phase_ns`. The phase spreads the agents over the
/// period; the jitter keeps a tick from locking to whatever else is periodic on the host.
#[must_use]
pub fn phase_ns(seed: u64, agent: u16, tick: u64, period: DurationNs) -> u64 {
    let jitter_width_ns = period.0 / 10;
    let phase_width_ns = period.0 - jitter_width_ns - u64::from(!period.0.is_multiple_of(10));
    let phase = mix(Purpose::Phase.seed(seed), u64::from(agent));
    let jitter = mix(mix(Purpose::Jitter.seed(seed), u64::from(agent)), tick);
    scale(phase, phase_width_ns) + scale(jitter, jitter_width_ns)
}

/// Index of the first size from `turn` on, going round, which is at most `left` (and not 0).
fn next_fitting(sizes: &[u16], turn: usize, left: usize) -> Option<usize> {
    let round = (0..sizes.len()).map(|step| (turn + step) % sizes.len());
    round
        .into_iter()
        .find(|&at| sizes[at] > 0 && usize::from(sizes[at]) <= left)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_taken_in_turn_and_the_rest_sit_out() {
        let lengths =
            |agents| -> Vec<usize> { groups(1, 0, agents, &[3, 4]).iter().map(Vec::len).collect() };
        assert_eq!(lengths(7), [3, 4]);
        assert_eq!(lengths(14), [3, 4, 3, 4]);
        assert_eq!(lengths(6), [3, 3], "4 no longer fits and is passed over");
        assert_eq!(lengths(5), [3], "two agents sit out");
        assert_eq!(lengths(2), [0; 0]);
    }

    #[test]
    fn after_a_size_that_is_passed_over_the_turn_goes_on_behind_the_one_that_fitted() {
        let made = groups(1, 0, 12, &[4, 9, 2, 3]);
        let lengths: Vec<usize> = made.iter().map(Vec::len).collect();
        assert_eq!(lengths, [4, 2, 3, 2]);
    }

    #[test]
    fn another_epoch_shuffles_anew() {
        let of = |epoch| groups(1, epoch, 7, &[3, 4]);
        assert!((1..10).any(|epoch| of(epoch) != of(0)));
    }

    #[test]
    fn every_agent_meets_every_other() {
        let mut met = BTreeSet::new();
        for epoch in 0..200 {
            met.extend(group_of(9, epoch, 7, &[3, 4], 0).unwrap());
        }
        assert_eq!(met, (0..7).collect());
    }

    #[test]
    fn phases_spread_the_agents_over_the_period() {
        let period = DurationNs(1_000_000);
        let phases: Vec<u64> = (0..1000)
            .map(|agent| phase_ns(5, agent, 0, period))
            .collect();
        let mean_ns = phases.iter().sum::<u64>() / 1000;
        // 0.45 + 0.05 periods, its standard error 0.26/sqrt(1000) = 0.8 %.
        assert!((475_000..525_000).contains(&mean_ns), "mean {mean_ns}");
    }

    proptest! {
        #[test]
        fn groups_are_disjoint_sized_from_the_list_and_replay(
            seed: u64, epoch: u64, agents in 0_u16..60, sizes in prop::collection::vec(0_u16..9, 0..5)
        ) {
            let made = groups(seed, epoch, agents, &sizes);
            prop_assert_eq!(&made, &groups(seed, epoch, agents, &sizes));
            let members: Vec<u16> = made.iter().flatten().copied().collect();
            let distinct: BTreeSet<u16> = members.iter().copied().collect();
            prop_assert_eq!(distinct.len(), members.len());
            prop_assert!(members.iter().all(|&member| member < agents));
            for group in &made {
                prop_assert!(sizes.iter().any(|&size| usize::from(size) == group.len()));
                prop_assert!(group.is_sorted());
            }
            let left = usize::from(agents) - members.len();
            prop_assert!(sizes.iter().all(|&size| size == 0 || usize::from(size) > left));
        }

        #[test]
        fn group_of_is_the_group_which_holds_the_agent(
            seed: u64, epoch: u64, agents in 1_u16..30, agent in 0_u16..30
        ) {
            let made = groups(seed, epoch, agents, &[3, 4]);
            let own = group_of(seed, epoch, agents, &[3, 4], agent);
            prop_assert_eq!(own.as_ref(), made.iter().find(|group| group.contains(&agent)));
        }

        #[test]
        fn a_tick_stays_within_its_period_and_jitters_by_a_tenth(
            seed: u64, agent: u16, tick: u64, other: u64, period_ns in 1_u64..u64::MAX
        ) {
            let period = DurationNs(period_ns);
            let (one, two) = (phase_ns(seed, agent, tick, period), phase_ns(seed, agent, other, period));
            prop_assert!(one < period_ns);
            prop_assert!(one.abs_diff(two) <= period_ns / 10);
        }
    }
}
