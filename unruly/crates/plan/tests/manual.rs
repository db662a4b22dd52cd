//! The manual and the example plans are held to the parser.

use std::fs;
use std::path::{Path, PathBuf};

use unruly_plan::{KeyWords, Load, Plan, groups, key_words, known_keys};

const MANUAL: &str = "unruly/docs/plan-format.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn manual() -> String {
    fs::read_to_string(root().join(MANUAL)).expect("the manual is in the tree")
}

fn plan(name: &str) -> Plan {
    let text = fs::read_to_string(root().join("unruly/plans").join(name))
        .expect("the plan is in the tree");
    Plan::parse(name, &text).expect("the plan is good")
}

/// The rows of one table of the manual.
fn table(keys: &[KeyWords]) -> String {
    let head = "| key | type | default | bounds | meaning |\n|---|---|---|---|---|\n".to_owned();
    let rows = keys.iter().map(|key| {
        let cells = [&key.value, &key.default, &key.bounds, &key.meaning];
        let cells = cells.map(|cell| format!(" {cell}").trim_end().to_owned());
        format!("| `{}` |{} |\n", key.path, cells.join(" |"))
    });
    head + &rows.collect::<String>()
}

/// The page with its tables as the crate describes its keys.
fn with_tables(mut page: String) -> String {
    let keys = key_words();
    for keys in keys.chunk_by(|one, next| one.table == next.table) {
        let mark = format!("<!-- keys of {} -->\n", keys[0].table);
        let (before, rest) = page.split_once(&mark).expect("the page has the mark");
        let (_, after) = rest.split_once("<!-- end -->").expect("the table ends");
        page = format!("{before}{mark}\n{}\n<!-- end -->{after}", table(keys));
    }
    page
}

#[test]
fn the_tables_of_the_manual_are_those_of_the_keys() {
    let generated = with_tables(manual());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(root().join(MANUAL), &generated).expect("the page can be written");
    }
    assert!(
        manual() == generated,
        "{MANUAL} differs from the keys; hint: UPDATE=1 cargo test -p unruly-plan --test manual"
    );
}

#[test]
fn the_manual_has_no_row_for_a_key_there_is_not() {
    let known = known_keys();
    for line in manual().lines().filter_map(|line| line.strip_prefix("| `")) {
        let key = line.split('`').next().unwrap();
        assert!(known.iter().any(|name| name == key), "{MANUAL} has {key}");
    }
}

#[test]
fn the_examples_of_the_manual_parse() {
    let manual = manual();
    let examples: Vec<&str> = manual
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(!examples.is_empty());
    for example in examples {
        Plan::parse("example", example).unwrap();
    }
}

#[test]
fn the_error_of_the_manual_is_what_the_parser_says() {
    let text = "name = \"a\"\n[run]\nduration = \"60s\"\n\n[drive]\nrate = \"0/s\"\n";
    let error = Plan::parse("plan.toml", text).unwrap_err().to_string();
    assert!(manual().contains(&error), "{MANUAL} lacks: {error}");
}

#[test]
fn every_plan_in_the_tree_parses_and_is_called_what_its_file_is() {
    let mut names: Vec<String> = fs::read_dir(root().join("unruly/plans"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    names.sort();
    assert!(names.len() >= 3, "{names:?}");
    for name in names {
        assert_eq!(format!("{}.toml", plan(&name).name), name);
    }
}

#[test]
fn the_demo_makes_enough_rows_and_not_too_many_syncs() {
    let plan = plan("demo.toml");
    let Load::Mesh(mesh) = &plan.load else {
        panic!("the demo is a mesh")
    };
    let sizes = groups(plan.seed, 0, mesh.agents, &mesh.groups);
    let round_rows: usize = sizes.iter().map(|group| group.len() * group.len()).sum();
    let rounds = plan.run.duration.0 / mesh.period.0;
    let rows = round_rows as u64 * rounds / mesh.workloads.len() as u64;
    assert!(rows >= 3_000, "{rows} rows of each workload");
    let syncs = mesh
        .workloads
        .iter()
        .filter(|workload| workload.flags() & 2 != 0)
        .count() as u64;
    let syncs_hz = syncs * rows * 1_000_000_000 / plan.run.duration.0;
    assert!(syncs_hz <= 260, "{syncs_hz} fdatasync/s");
}
