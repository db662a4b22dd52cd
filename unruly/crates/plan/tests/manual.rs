//! The manual and the example plans are held to the parser.

use std::fs;
use std::path::{Path, PathBuf};

use unruly_plan::{Load, Plan, groups, known_keys};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn manual() -> String {
    fs::read_to_string(root().join("unruly/docs/plan-format.md"))
        .expect("the manual is in the tree")
}

fn plan(name: &str) -> Plan {
    let text = fs::read_to_string(root().join("unruly/plans").join(name))
        .expect("the plan is in the tree");
    Plan::parse(name, &text).expect("the plan is good")
}

#[test]
fn the_manual_has_a_row_for_every_key() {
    let manual = manual();
    for key in known_keys() {
        assert!(
            manual.contains(&format!("| `{key}` |")),
            "unruly/docs/plan-format.md lacks {key}"
        );
    }
}

#[test]
fn the_manual_has_no_row_for_a_key_there_is_not() {
    let known = known_keys();
    for line in manual().lines().filter_map(|line| line.strip_prefix("| `")) {
        let key = line.split('`').next().unwrap();
        assert!(
            known.iter().any(|name| name == key),
            "unruly/docs/plan-format.md has {key}"
        );
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
    assert!(
        manual().contains(&error),
        "unruly/docs/plan-format.md lacks: {error}"
    );
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
