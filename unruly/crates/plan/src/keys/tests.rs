//! Every key of the table is read, bounded, written and suggested as its entry says.

use proptest::prelude::*;
use toml_edit::{DocumentMut, Item, Value};

use super::key::Described;
use super::{SectionKeys, drive_keys, sections};
use crate::error::PlanError;
use crate::model::Plan;

/// Keys that an HTTP server by TLS has, and a store has not.
const OF_HTTPS: [&str; 16] = [
    "auth",
    "body",
    "ca_cert",
    "client_cert",
    "client_key",
    "connections",
    "cookies",
    "data",
    "expect",
    "headers",
    "http2",
    "insecure",
    "keep_alive",
    "method",
    "scenario",
    "trace",
];

const HOST: &str = "[[host]]\nname = \"a\"\nreach = [\"ssh\", \"a\"]\n";

/// A plan in which a key has a meaning.
fn plan_for(section: &SectionKeys, key: &dyn Described) -> DocumentMut {
    let load = match section.title {
        "mesh" => "[mesh]\nagents = 7\ngroups = [3, 4]\n",
        "stream" => "[stream]\nprotocol = \"tcp\"\n",
        "host" => "[drive]\nurl = \"redis://h\"\n",
        "store" if key.name() == "prompt" => "[drive]\nurl = \"openai://h/v1\"\n",
        "store" if key.name() == "proto" => "[drive]\nurl = \"grpc://h/a.B/C\"\n",
        "store" if key.name() == "sql" => "[drive]\nurl = \"postgres://u@h/d\"\n",
        "store" if OF_HTTPS.contains(&key.name()) => "[drive]\nurl = \"https://h/one\"\n",
        "store" => "[drive]\nurl = \"redis://h\"\n",
        _ => "[drive]\n",
    };
    let other = match section.title {
        "compete" => "[compete]\nkind = \"cpu\"\n",
        "jvm" => "[jvm]\n",
        "quota" => "[quota]\n\"echo-0\" = 1\n",
        "host" => HOST,
        "fault" => {
            "[[fault]]\nkind = \"stop\"\nprocess = \"echo-0\"\nat = \"1s\"\nduration = \"1s\"\n"
        }
        _ => "",
    };
    // Only hosts with a network of their own have a link.
    let hosts = if other == HOST {
        "processes"
    } else {
        "namespaces"
    };
    let text = format!("name = \"a\"\n[run]\nduration = \"60s\"\nhosts = {hosts:?}\n{load}{other}");
    let mut plan: DocumentMut = text.parse().expect("TOML");
    let needed: &[(&str, &str, &str)] = match (section.title, key.notes().only) {
        ("drive", Some(words)) if words.contains(&"constant") => &[],
        ("drive", Some(["mmpp", "closed"])) => {
            &[("drive", "arrivals", "mmpp"), ("drive", "dispersion", "9")]
        }
        ("drive", Some(["onoff"])) => &[("drive", "arrivals", "onoff")],
        ("drive", Some(["replay"])) => &[("drive", "arrivals", "replay")],
        ("drive", Some(["closed"])) => &[("drive", "arrivals", "closed")],
        ("fault", Some(["busy"])) => &[("fault", "kind", "busy")],
        ("fault", Some(["quota"])) => &[("fault", "kind", "quota"), ("fault", "cores", "0.5")],
        ("fault", Some(["network"])) => &[
            ("fault", "kind", "network"),
            ("fault", "loss", "0.1"),
            ("fault", "delay", "5ms"),
            ("run", "hosts", "processes"),
        ],
        _ => &[],
    };
    for (table, key, value) in needed {
        let value = value
            .parse::<f64>()
            .map_or_else(|_| Value::from(*value), Value::from);
        set(&mut plan, table, key, Some(value));
    }
    let rated = !["times", "think"].contains(&key.name());
    if section.title != "store" && load.starts_with("[drive]") && rated {
        set(&mut plan, "drive", "rate", Some(Value::from("100/s")));
    }
    plan
}

/// Writes a value, or removes it.
fn set(plan: &mut DocumentMut, table: &str, key: &str, value: Option<Value>) {
    let section = match table {
        "" => plan.as_table_mut() as &mut dyn toml_edit::TableLike,
        table @ ("fault" | "host") => plan[table]
            .as_array_of_tables_mut()
            .and_then(|tables| tables.get_mut(0))
            .expect("a table of this name"),
        table => plan
            .entry(table)
            .or_insert_with(toml_edit::table)
            .as_table_like_mut()
            .expect("a table"),
    };
    match value {
        Some(value) => section.insert(key, Item::Value(value)),
        None => section.remove(key),
    };
}

fn parse(plan: &DocumentMut) -> Result<Plan, PlanError> {
    Plan::parse("plan", &plan.to_string())
}

/// Each key with its section.
fn keys() -> Vec<(SectionKeys, &'static dyn Described)> {
    let sections = 0..sections().len();
    let keys = sections.flat_map(|at| {
        let keys = sections_at(at).keys;
        keys.into_iter().map(move |key| (sections_at(at), key))
    });
    keys.collect()
}

fn sections_at(at: usize) -> SectionKeys {
    sections().into_iter().nth(at).expect("a section")
}

#[test]
fn a_default_that_is_written_out_is_the_default() {
    let mut found = 0;
    for (section, key) in keys() {
        let Some(default) = key.kind().default() else {
            continue;
        };
        let path = section.path(key);
        let mut plan = plan_for(&section, key);
        set(&mut plan, section.name, key.name(), None);
        let absent = parse(&plan).unwrap_or_else(|error| panic!("{path}: {error}"));
        let value: Value = default.parse().expect("a value of TOML");
        set(&mut plan, section.name, key.name(), Some(value));
        let written = parse(&plan).unwrap_or_else(|error| panic!("{path} = {default}: {error}"));
        assert_eq!(absent, written, "{path} = {default}");
        let text = absent.to_toml();
        // The times of a written plan are scaled already.
        let line = format!("\n{} = {default}\n", key.name());
        assert_eq!(text.contains(&line), path != "run.scale", "{path}: {text}");
        assert_eq!(parse(&text.parse().expect("TOML")), Ok(absent), "{path}");
        found += 1;
    }
    assert!(found > 40, "{found} keys have a default");
}

#[test]
fn a_value_out_of_bounds_is_refused_with_its_key_its_value_and_the_bound() {
    let mut found = 0;
    for (section, key) in keys() {
        for (value, bound) in key.kind().beyond() {
            let path = section.path(key);
            let mut plan = plan_for(&section, key);
            set(
                &mut plan,
                section.name,
                key.name(),
                Some(value.parse().expect("TOML")),
            );
            let error = parse(&plan).expect_err(&format!("{path} = {value}"));
            assert_eq!(error.key, path, "{path} = {value}: {error}");
            assert_eq!(error.wanted, bound, "{path} = {value}");
            assert_eq!(error.wrong, format!("{} is {value}", key.name()));
            assert!(
                error.hint.starts_with(&format!("{} = ", key.name())),
                "{error}"
            );
            found += 1;
        }
    }
    assert!(found > 90, "{found} values are out of bounds");
}

#[test]
fn a_key_that_other_values_do_not_have_is_refused_with_them() {
    let mut found = 0;
    for (section, key) in keys() {
        let Some(words) = key.notes().only else {
            continue;
        };
        let mut plan = plan_for(&section, key);
        let (decides, other) = match section.title {
            "fault" => ("kind", "stop"),
            _ => {
                let others = ["closed", "constant", "onoff"];
                let other = others.into_iter().find(|it| !words.contains(it));
                ("arrivals", other.expect("no key is for all of them"))
            }
        };
        for (_, sibling) in keys().iter().filter(|(it, _)| it.title == section.title) {
            if sibling.notes().only.is_some() {
                set(&mut plan, section.name, sibling.name(), None);
            }
        }
        set(&mut plan, section.name, decides, Some(Value::from(other)));
        set(&mut plan, section.name, key.name(), Some(Value::from(1)));
        let path = section.path(key);
        let error = parse(&plan).expect_err(&path);
        assert_eq!(
            (error.key.as_str(), error.hint),
            (&*path, format!("remove {}", key.name()))
        );
        assert!(
            error.wanted.starts_with("must be left out: "),
            "{}",
            error.wanted
        );
        assert!(!error.wanted.ends_with(": "), "{path} has no reason");
        found += 1;
    }
    assert!(found >= 15, "{found} keys depend on another");
}

/// A name with one letter too few, too many, of another kind, or in the wrong place.
fn typo(name: &str, at: usize, letter: char, kind: u8) -> String {
    let mut letters: Vec<char> = name.chars().collect();
    let at = at % letters.len();
    match kind {
        0 if letters.len() > 1 => {
            letters.remove(at);
        }
        1 => letters.insert(at, letter),
        2 if at > 0 => letters.swap(at - 1, at),
        _ => letters[at] = letter,
    }
    letters.into_iter().collect()
}

proptest! {
    #[test]
    fn a_key_with_one_typo_is_suggested(
        which: prop::sample::Index, at in 0_usize..20, letter in "[a-z_]", kind in 0_u8..4
    ) {
        let keys = keys();
        let (section, key) = which.get(&keys);
        // The other keys of a quota are processes.
        prop_assume!(section.title != "quota");
        let letter = letter.chars().next().expect("a letter");
        let written = typo(key.name(), at, letter, kind);
        let known = match section.name {
            "drive" => drive_keys(),
            _ => section.keys.iter().map(|key| key.name()).collect(),
        };
        let distance = |name: &str| strsim::damerau_levenshtein(&written, name);
        let is_alone = known.iter().all(|name| *name == key.name() || distance(name) > 1);
        prop_assume!(distance(key.name()) == 1 && is_alone);
        let mut plan = plan_for(section, *key);
        set(&mut plan, section.name, key.name(), None);
        set(&mut plan, section.name, &written, Some(Value::from(1)));
        let error = parse(&plan).expect_err(&written);
        prop_assert_eq!(error.hint, format!("did you mean {}", key.name()));
        prop_assert_eq!(error.wanted, format!("known: {}", known.join(", ")));
    }
}
