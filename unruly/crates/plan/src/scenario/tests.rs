use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::portion::Portion;

const SHOP: &str = r#"
[[state]]
name = "login"
path = "/login"
body = '{"user": "{data.user}"}'
headers = "Content-Type: application/json"
capture = { token = "json:tokens[0].value", csrf = "header:X-Csrf" }
then = "browse"

[[state]]
name = "browse"
path = "/items/{random:1..9}?q=a"
headers = "Authorization: Bearer {captured.token}"
contains = "price"
think = "2s"
then = { item = 0.5, end = 0.5 }

[[state]]
name = "item"
path = "/item"
expect = "200, 404"
capture = { id = 'regex:id="(\d+)"' }
then = "back"
"#;

fn read(text: &str) -> Scenario {
    text.parse().expect("it is a scenario")
}

fn names(scenario: &Scenario, count: usize) -> Vec<String> {
    let mut walks = Walks::new(scenario, 3, 1, Portion::WHOLE, DurationNs(0));
    let steps = (0..count).map(|_| walks.next(0));
    steps
        .map(|it| {
            let begins = if it.begins { "*" } else { "" };
            format!("{begins}{}", scenario.states()[it.state].name)
        })
        .collect()
}

#[test]
fn a_state_is_a_request_with_all_that_it_says() {
    let scenario = read(SHOP);
    let [login, browse, item] = scenario.states() else {
        panic!("there are three");
    };
    assert_eq!(
        (login.method.as_str(), browse.method.as_str()),
        ("POST", "GET")
    );
    assert_eq!(
        login.headers.iter().next(),
        Some(("Content-Type", "application/json"))
    );
    let captured = login.captures.iter().map(|it| it.origin.to_string());
    assert_eq!(
        captured.collect::<Vec<_>>(),
        ["json:tokens.0.value", "header:X-Csrf"]
    );
    assert_eq!(browse.think, Some(DurationNs(2_000_000_000)));
    assert_eq!(browse.contains.as_deref(), Some("price"));
    assert!(
        item.expect
            .as_ref()
            .is_some_and(|it| it.has(404) && !it.has(302))
    );
    assert_eq!(scenario.captured(), ["token", "csrf", "id"]);
    assert_eq!(read(&scenario.to_string()), scenario);
}

#[test]
fn states_that_say_nothing_come_in_their_order_and_then_another_user_begins() {
    let text = ["a", "b", "c"].map(|it| format!("[[state]]\nname = \"{it}\"\npath = \"/\"\n"));
    let found = names(&read(&text.concat()), 7);
    assert_eq!(found, ["*a", "b", "c", "*a", "b", "c", "*a"]);
}

#[test]
fn back_leads_to_the_state_before_and_a_failure_to_a_new_user() {
    let scenario = read(SHOP);
    let found = names(&scenario, 1_000);
    for pair in found.windows(2) {
        match pair[0].trim_start_matches('*') {
            "login" | "item" => assert_eq!(pair[1], "browse"),
            _ => assert!(["item", "*login"].contains(&pair[1].as_str()), "{pair:?}"),
        }
    }
    let mut walks = Walks::new(&scenario, 3, 2, Portion::WHOLE, DurationNs(0));
    walks.next(1);
    walks.next(1);
    walks.failed(1);
    assert_eq!(
        walks.next(1),
        Step {
            state: 0,
            begins: true
        }
    );
}

#[test]
fn states_come_as_often_as_their_shares_say() {
    let text = "[[state]]\nname = \"a\"\npath = \"/\"\nweight = 3\n[[state]]\nname = \"b\"\npath = \"/\"\nweight = 1";
    let mut counts = BTreeMap::new();
    let scenario = read(text);
    for name in names(&scenario, 40_000) {
        *counts.entry(name).or_insert(0) += 1;
    }
    assert_eq!(counts.keys().filter(|it| it.starts_with('*')).count(), 1);
    // Five standard deviations of 40,000 draws: 430.
    assert!((29_570..=30_430).contains(&counts["a"]), "{counts:?}");
}

#[test]
fn a_user_thinks_as_long_as_the_state_says_or_else_as_usual() {
    let scenario = read(SHOP);
    let mut walks = Walks::new(&scenario, 3, 1, Portion::WHOLE, DurationNs(1_000));
    let (mut usual, mut own) = (Vec::new(), Vec::new());
    for _ in 0..30_000 {
        let step = walks.next(0);
        let thought = walks.think_ns(0) as f64;
        if step.state == 1 {
            &mut own
        } else {
            &mut usual
        }
        .push(thought);
    }
    for (found, mean) in [(usual, 1e3), (own, 2e9)] {
        let sum: f64 = found.iter().sum();
        // The standard error of 10,000 exponential times is 1 %.
        assert!((sum / found.len() as f64 / mean - 1.0).abs() < 0.05);
    }
}

#[test]
fn what_is_no_scenario_has_an_error_with_its_line() {
    let after = |lines: &str| format!("[[state]]\nname = \"a\"\npath = \"/\"\n{lines}");
    for (text, said) in [
        (String::new(), "[[state]] is missing in the scenario"),
        ("[[state]]\npath = \"/\"".to_owned(), "name is missing"),
        (
            "[[state]]\nname = \"end\"\npath = \"/\"".to_owned(),
            "and not back or end",
        ),
        (
            "[[state]]\nname = \"a\"\npath = \"items\"".to_owned(),
            "must be a path that begins with /",
        ),
        (
            "[[state]]\nname = \"a\"\npath = \"{captured.link}\"".to_owned(),
            "path = \"/{captured.link}\"; leave the leading / out of the captured value",
        ),
        (
            "[[state]]\nname = \"a\"\npath = \"/{key}\"".to_owned(),
            "a scenario has no keys",
        ),
        (
            after("thne = \"end\""),
            "the scenario:4: unknown key \"thne\"",
        ),
        (
            after("then = { a = 0.5, end = 0.4 }"),
            "the scenario:4: the shares of then are 0.9 together; must be 1",
        ),
        (after("then = \"b\""), "b is no state"),
        (after("then = { b = 1.0 }"), "b is no state"),
        (
            after("[[state]]\nname = \"a\"\npath = \"/\""),
            "must be another for each state",
        ),
        (
            after("weight = 1\nthen = \"end\""),
            "must be left out: with weights",
        ),
        (
            after("weight = 1\n[[state]]\nname = \"b\"\npath = \"/\""),
            "must be in each state, or in none",
        ),
        (
            after("capture = { token = \"access_token\" }"),
            "must say where the value stands",
        ),
        (
            after("capture = { token = \"json:a..b\" }"),
            "must say where the value stands",
        ),
        (
            after("headers = \"X: {captured.token}\""),
            "{captured.token} is captured by no state",
        ),
        (
            after("method = \"get\""),
            "must be a method of HTTP in capital letters",
        ),
        (after("expect = \"20\""), "expect is \"20\""),
        (after("think = \"long\""), "think is \"long\""),
        (after("headers = \"secret\""), "headers are wrong"),
        (after("contains = \"\""), "must have a letter"),
    ] {
        let error = text.parse::<Scenario>().expect_err(&text).to_string();
        assert!(error.contains(said), "{text}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn a_secret_in_an_address_is_refused_and_not_shown() {
    let state = "[[state]]\nname = \"a\"\n";
    for (text, said) in [
        (
            format!("url = \"https://me:s3cr3t@shop.example\"\n{state}path = \"/\"\n"),
            "url is wrong",
        ),
        (
            format!("url = \"https://shop.example?token=s3cr3t\"\n{state}path = \"/\"\n"),
            "url is wrong",
        ),
        (
            format!("{state}path = \"/i?a=1&api_key=s3cr3t\"\n"),
            "write {password} in its place",
        ),
        (
            format!("{state}path = \"i ?api_key=s3cr3t #x\"\n"),
            "write {password} in its place",
        ),
    ] {
        let error = text.parse::<Scenario>().expect_err(&text).to_string();
        assert!(error.contains(said), "{text}: {error}");
        assert!(!error.contains("s3cr3t"), "{error}");
    }
    let placed = format!(
        "{state}path = \"/i?api_key={{password}}&token={{captured.t}}\"\ncapture = {{ t = \"json:t\" }}\n"
    );
    assert!(placed.parse::<Scenario>().is_ok());
}

proptest! {
    #[test]
    fn whatever_is_typed_is_a_scenario_or_an_error(text in "(\\[\\[state\\]\\]\n|name = \"[ab]\"\n|path = \"/\"\n|weight = [0-9]\n|then = \\{ [ab] = [01]\\.5, end = 0\\.5 \\}\n|capture = \\{ [ab] = \"(json|regex):[a.\\[]*\" \\}\n){0,12}") {
        if let Ok(scenario) = text.parse::<Scenario>() {
            let mut walks = Walks::new(&scenario, 1, 1, Portion::WHOLE, DurationNs(0));
            for _ in 0..100 {
                let step = walks.next(0);
                prop_assert!(step.state < scenario.states().len());
            }
        }
    }
}
