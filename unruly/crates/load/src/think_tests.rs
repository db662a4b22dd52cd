//! Bursts of a closed loop, on virtual time: requests have the index of dispersion and the mean rate
//! that were asked for, with keys and with scenarios.

use std::collections::VecDeque;

use unruly_plan::{ClosedLoop, Drive, Load, Plan, Portion, Walks};
use unruly_trace::{DurationNs, MonoNs};

use crate::source::{ClosedSource, Phases, Sessions, Source};
use crate::users::Users;

const CLIENTS: usize = 500;
const SCENARIO: &str = "[[state]]\nname = \"a\"\npath = \"/a\"";

/// A closed loop of 500 requests a second.
fn drive(dispersion: f64, more: &str) -> Drive {
    let bursts = match dispersion > 1.0 {
        true => format!("dispersion = {dispersion:.1}\n"),
        false => String::new(),
    };
    let text = format!(
        "name = \"a\"\n[run]\nduration = \"1s\"\n[drive]\nclients = {CLIENTS}\n\
         arrivals = \"closed\"\nthink = \"1s\"\n{bursts}{more}"
    );
    match Plan::parse("plan", &text).expect("it is a plan").load {
        Load::Drive(drive) => drive,
        _ => panic!("it drives"),
    }
}

fn pace(drive: &Drive) -> ClosedLoop {
    let ends = unruly_plan::DurationNs(u64::MAX);
    drive.closed_loop(1, unruly_plan::DurationNs(0), ends, Portion::WHOLE)
}

/// The mean a second and the index of dispersion of what users ask for, whose replies take 1 ms.
fn counted(source: &mut dyn Source, window: DurationNs, windows: usize) -> (f64, f64) {
    let mut counts = vec![0.0_f64; windows];
    let mut replies: VecDeque<(MonoNs, usize)> = VecDeque::new();
    loop {
        let asks_ns = source.next_at_ns();
        let reply = replies.front().copied();
        if let Some((at_ns, session)) = reply.filter(|it| asks_ns.is_none_or(|asks| it.0 <= asks)) {
            replies.pop_front();
            source.ended(session, at_ns, true);
            continue;
        }
        let Some(due) = source.take() else { break };
        replies.push_back((due.intended_ns + DurationNs::millis(1), due.session));
        let place = usize::try_from((due.intended_ns - MonoNs(0)).0 / window.0);
        if let Some(count) = place.ok().and_then(|it| counts.get_mut(it)) {
            *count += 1.0;
        }
    }
    let n = windows as f64;
    let mean = counts.iter().sum::<f64>() / n;
    let squares = counts.iter().map(|count| (count - mean).powi(2));
    let variance = squares.sum::<f64>() / (n - 1.0);
    (mean / (window.0 as f64 / 1e9), variance / mean)
}

#[test]
fn users_who_share_a_clock_ask_in_the_bursts_that_were_asked_for() {
    let sessions = Sessions {
        sessions: CLIENTS,
        links: CLIENTS,
    };
    // A window is 20 times the time between changes, 1 / s = (I - 1) / 1,000 s, and sees all but a
    // twentieth of I - 1.
    for (dispersion, seconds, windows) in [
        (1.0, 1, 1_500),
        (100.0, 2, 1_500),
        (400.0, 8, 600),
        (1_000.0, 20, 600),
    ] {
        let window = DurationNs::seconds(seconds);
        let phases = Phases {
            start_ns: MonoNs(0),
            measure_ns: MonoNs(0),
            end_ns: MonoNs(0) + window * i64::try_from(windows).expect("it is small"),
        };
        let keys = drive(dispersion, "");
        let pages = drive(
            dispersion,
            &format!("url = \"http://h/\"\nscenario = '''{SCENARIO}'''\n"),
        );
        let scenario = pages
            .store
            .as_deref()
            .and_then(unruly_plan::Store::scenario);
        let walks = Walks::new(
            scenario.expect("it has one"),
            1,
            CLIENTS,
            Portion::WHOLE,
            unruly_plan::DurationNs(1_000_000_000),
        );
        let keyed = pace(&keys);
        let closed = ClosedSource::new(
            &keys.arrivals,
            keyed,
            1,
            sessions,
            0,
            phases,
            Portion::WHOLE,
        );
        let users = Users::closed(walks, pace(&pages), sessions, phases);
        let mut sources: [Box<dyn Source>; 2] = [Box::new(closed), Box::new(users)];
        for source in &mut sources {
            let (rate_hz, found) = counted(source, window, windows);
            let seen = 1.0 + (dispersion - 1.0) * 0.95;
            let error = (2.0 / (windows as f64 - 1.0)).sqrt();
            assert!(
                (found / seen - 1.0).abs() < 1.96 * error,
                "I {found} for {seen}, of {windows} windows"
            );
            assert!((rate_hz / 500.0 - 1.0).abs() < 0.03, "{rate_hz}/s");
        }
    }
}
