//! Tests of the exploration: it comes to its end, and it can fail.

#![allow(clippy::unwrap_used, reason = "in a test a failure is the finding")]

use flurry_core::bugs::Bug;
use flurry_sim::model::{BUGS, PLANS, Plan, Sight, Wish, explore};

const SMALL: Plan = Plan {
    name: "small",
    first: &[Wish::Add(1)],
    second: &[Wish::Get],
    crash: None,
    comes_back: false,
    cut: None,
    waits: 0,
    sights: &[Sight::TakeoverInFlight, Sight::FenceTold],
};

#[test]
fn a_small_world_holds_everything_and_is_the_same_each_time() {
    let one = explore(SMALL, None, 2).unwrap();
    let other = explore(SMALL, None, 1).unwrap();
    assert!(one.states > 500, "{one:?}");
    assert_eq!(
        (one.states, one.transitions),
        (other.states, other.transitions)
    );
}

#[test]
fn a_situation_that_is_never_met_is_a_finding() {
    let wanted = Plan {
        sights: &[Sight::ReturnedAnswers],
        ..SMALL
    };
    let found = explore(wanted, None, 2).unwrap_err();
    assert_eq!(found.property, Sight::ReturnedAnswers.name());
    assert!(found.path.is_empty());
}

#[test]
fn a_planted_bug_is_found_and_the_path_shows_how() {
    let found = explore(SMALL, Some(Bug::RetryExecutesAgain), 1).unwrap_err();
    assert!(found.property.starts_with("I1"), "{found:?}");
    let asked = found.path.iter().position(|line| line.contains("Add(1)"));
    let twice = found.path.iter().filter(|line| line.contains("Update 1.2"));
    assert_eq!(asked, Some(0), "{found:?}");
    assert!(twice.count() >= 2, "{found:?}");
}

#[test]
fn a_lost_fence_is_found_by_an_executed_operation_and_not_by_a_result() {
    let found = explore(SMALL, Some(Bug::NoFence), 1).unwrap_err();
    assert!(found.property.starts_with("I10"), "{found:?}");
}

#[test]
fn every_bug_has_a_world_of_the_list() {
    for (bug, world) in BUGS {
        let known = PLANS.iter().any(|plan| plan.name == *world);
        assert!(known, "{} is shown by {world}", bug.name());
    }
}
