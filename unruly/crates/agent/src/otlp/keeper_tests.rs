//! Which spans are kept, and which are not.

use std::collections::HashSet;

use unruly_plan::mix;

use super::super::message::{Attribute, Resource, ResourceSpans, ScopeSpans, Status, Text};
use super::*;

const KEY: u64 = 0xfeed;

fn keeper() -> Keeper {
    Keeper::new(HashMap::from([(KEY, 3)]))
}

fn wire(request: u64, id: u64, length_ns: u64) -> WireSpan {
    let trace = u128::from(KEY) << 64 | u128::from(mix(KEY, request));
    WireSpan {
        trace_id: trace.to_be_bytes().to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        parent_span_id: Vec::new(),
        name: "handle".to_owned(),
        kind: 2,
        start_time_unix_nano: 1_000_000,
        end_time_unix_nano: 1_000_000 + length_ns,
        status: None,
    }
}

fn export(spans: Vec<WireSpan>) -> Export {
    let name = Attribute {
        key: "service.name".to_owned(),
        value: Some(Text {
            string_value: Some("shop".to_owned()),
        }),
    };
    Export {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: vec![name],
            }),
            scope_spans: vec![ScopeSpans { spans }],
        }],
    }
}

fn at(seconds: i64) -> MonoNs {
    MonoNs(0) + DurationNs::seconds(seconds)
}

#[test]
fn a_trace_is_kept_whole_when_its_spans_have_settled() {
    let mut keeper = keeper();
    keeper.take(&export(vec![wire(7, 1, 50)]), at(0));
    keeper.take(&export(vec![wire(7, 2, 20)]), at(4));
    assert_eq!(keeper.settled(at(7), false), []);
    let found = keeper.settled(at(10), false);
    assert_eq!(found.len(), 1);
    let ((client, request), spans) = &found[0];
    assert_eq!((*client, *request, spans.len()), (3, 7, 2));
    assert_eq!(keeper.service(spans[0].service), "shop");
    assert_eq!(keeper.name(spans[0].name), "handle");
}

#[test]
fn a_span_that_comes_late_joins_its_trace() {
    let mut keeper = keeper();
    keeper.take(&export(vec![wire(7, 1, 50)]), at(0));
    assert_eq!(keeper.settled(at(6), false).len(), 1);
    keeper.take(&export(vec![wire(7, 2, 20)]), at(60));
    let found = keeper.settled(at(60), false);
    assert_eq!((found[0].0, found[0].1[0].id), ((3, 7), 2));
    assert_eq!(keeper.counts.kept, 2);
}

#[test]
fn spans_of_others_and_damaged_ones_are_counted_and_not_kept() {
    let mut keeper = keeper();
    let mut foreign = wire(1, 1, 1);
    foreign.trace_id[0] ^= 1;
    let mut backwards = wire(1, 2, 1);
    backwards.end_time_unix_nano = 3;
    let mut timeless = wire(1, 3, 1);
    timeless.start_time_unix_nano = 0;
    let mut short = wire(1, 4, 1);
    short.span_id.pop();
    let mut nameless = wire(1, 5, 1);
    nameless.trace_id.clear();
    let spans = vec![foreign, backwards, timeless, short, nameless];
    keeper.take(&export(spans), at(0));
    assert_eq!(keeper.settled(at(9), true), []);
    let wanted = Counts {
        received: 5,
        foreign: 1,
        damaged: 4,
        ..Counts::default()
    };
    assert_eq!(keeper.counts, wanted);
}

/// Gives a keeper `n` traces with one span each; returns the requests of those it kept.
fn given(keeper: &mut Keeper, n: u64, length: impl Fn(u64) -> u64) -> HashSet<u64> {
    let mut kept = HashSet::new();
    for first in (0..n).step_by(1000) {
        let spans = (first..first + 1000).map(|it| wire(it, it + 1, length(it)));
        keeper.take(&export(spans.collect()), at(0));
        kept.extend(keeper.settled(at(9), true).iter().map(|it| it.0.1));
    }
    kept
}

#[test]
fn of_many_traces_the_slowest_stay_and_of_the_others_those_that_chance_chooses() {
    let mut keeper = keeper();
    let n = 900_000;
    // one in 200 lasts 50 times as long as the longest of the others
    let is_slow = |it: &u64| it % 200 == 7;
    let length = |it| {
        if is_slow(&it) {
            5_000_000
        } else {
            90_000 + it % 10_000
        }
    };
    let kept = given(&mut keeper, n, length);
    assert!((0..n).filter(is_slow).all(|it| kept.contains(&it)));
    assert_eq!(keeper.level(), 3);
    let by_chance = (0..n).filter(|it| mix(KEY, *it) & 7 == 0);
    assert!(by_chance.clone().all(|it| kept.contains(&it)));
    assert_eq!(keeper.counts.received, n);
    assert_eq!(keeper.counts.kept, kept.len() as u64);
    // four times a hundred thousand by chance, the rest of the fourth, and the slow ones
    assert!(kept.len() < 520_000, "{}", kept.len());
}

#[test]
fn traces_that_are_all_alike_are_kept_by_chance_alone() {
    let mut keeper = keeper();
    let n = 500_000;
    let kept = given(&mut keeper, n, |it| 100_000_000 + it % 1000);
    let by_chance = |it: &&u64| mix(KEY, **it) & 1 == 0;
    let late = kept.iter().filter(|it| **it > 300_000);
    assert_eq!(late.clone().filter(by_chance).count(), late.count());
    assert_eq!(keeper.level(), 2);
}

#[test]
fn a_late_span_of_a_trace_that_was_left_out_is_left_out_too() {
    let mut keeper = keeper();
    given(&mut keeper, 300_000, |it| 90_000 + it % 10_000);
    let left_out = (250_000..300_000).find(|it| mix(KEY, *it) & 1 == 1);
    let left_out = left_out.expect("one of two is");
    let kept = keeper.counts.kept;
    keeper.take(&export(vec![wire(left_out, 77, 9_000_000_000)]), at(20));
    assert_eq!(keeper.settled(at(40), true), []);
    assert_eq!((keeper.counts.late, keeper.counts.kept), (1, kept));
}

#[test]
fn late_spans_count_against_the_quota_of_their_trace() {
    let mut keeper = keeper();
    given(&mut keeper, 150_000, |it| 90_000 + it % 10_000);
    assert_eq!(keeper.level(), 0);
    let spans = (0..60_000).map(|it| wire(it, 1_000_000 + it, 5));
    keeper.take(&export(spans.collect()), at(20));
    assert_eq!(keeper.level(), 1);
    assert_eq!(keeper.settled(at(40), true).len(), 60_000);
}

#[test]
fn a_few_traces_with_many_spans_do_not_make_all_slow_ones_be_kept() {
    let mut keeper = keeper();
    let mut kept = 0;
    for request in 0..1_500 {
        let spans = (0..2_000).map(|it| wire(request, request * 2_000 + it + 1, request));
        keeper.take(&export(spans.collect()), at(0));
        kept += keeper.settled(at(9), true).len();
    }
    // three million spans: four halvings by chance, and the quota of slow ones
    assert!(kept < 600, "{kept}");
}

#[test]
fn a_span_of_a_request_that_cannot_be_is_foreign() {
    let mut keeper = keeper();
    keeper.take(
        &export(vec![wire(1 << 63, 1, 5), wire((1 << 63) - 1, 2, 5)]),
        at(0),
    );
    assert_eq!(keeper.counts.foreign, 1);
    assert_eq!(keeper.settled(at(9), true).len(), 1);
}

#[test]
fn a_name_cannot_steer_a_terminal() {
    let mut keeper = keeper();
    let mut span = wire(1, 1, 5);
    span.name = "GET\n\u{1b}[31m/".to_owned();
    keeper.take(&export(vec![span]), at(0));
    let found = keeper.settled(at(9), true);
    assert_eq!(keeper.name(found[0].1[0].name), "GET\u{fffd}\u{fffd}[31m/");
}

#[test]
fn more_spans_than_may_wait_are_judged_early_and_counted() {
    let mut keeper = keeper();
    let n = WAITING_MOST as u64 + 5_000;
    for first in (0..n).step_by(5_000) {
        let spans = (first..first + 5_000).map(|it| wire(it, it + 1, 10));
        keeper.take(&export(spans.collect()), at(0));
        keeper.settled(at(1), false);
        assert!(keeper.held <= WAITING_MOST);
    }
    assert_eq!(keeper.counts.early, 5_000);
}

#[test]
fn too_many_names_become_one() {
    let mut keeper = keeper();
    let mut spans = Vec::new();
    for number in 0..3_000 {
        let mut span = wire(number, number + 1, 10);
        span.name = format!("GET /item/{number} {}", "é".repeat(300));
        span.status = Some(Status { code: 2 });
        spans.push(span);
    }
    keeper.take(&export(spans), at(0));
    let found = keeper.settled(at(9), true);
    let names: HashSet<&str> = found.iter().map(|it| keeper.name(it.1[0].name)).collect();
    assert_eq!(names.len(), NAMES_MOST + 1);
    assert!(names.contains(OTHER));
    assert!(names.iter().all(|it| it.len() <= NAME_BYTES));
    assert!(found.iter().all(|it| it.1[0].failed));
}

#[test]
fn a_bin_holds_its_least_value_and_the_bins_are_in_order() {
    for value in [1_u64, 2, 3, 31, 32, 33, 1_000, 123_456_789, u64::MAX] {
        let place = bin(value);
        assert!(least(place) <= value);
        assert!(place + 1 >= 64 << BITS || value < least(place + 1).max(least(place) + 1));
        assert_eq!(bin(least(place).max(1)), place);
    }
}
