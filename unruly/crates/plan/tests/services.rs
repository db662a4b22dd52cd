//! The parameters that a plan chooses for the service of its drive.

#![expect(clippy::unwrap_used, reason = "a test ends where a helper fails")]

use proptest::prelude::*;
use unruly_plan::{Plan, PlanError, ServiceFile, Setting};

const SERVICE: &str = r#"
about = "a pool"
url = "redis://{{ processes.pool.host }}:{{ processes.pool.port }}"
parameters.pool = { default = 2, least = 1, most = 64, help = "connections" }
parameters.collector = { default = "g1", words = ["g1", "z"], help = "collector" }
[[process]]
name = "pool"
command = ["server", "{{ pool }}", "{{ collector }}"]
"#;

/// A plan of eight lines, and then these.
fn text(lines: &str) -> String {
    let head =
        "name = \"a\"\n[run]\nduration = \"60s\"\n[drive]\nstore = \"pool\"\nrate = \"1/s\"\n";
    format!("{head}\n\n{lines}")
}

fn plan(lines: &str) -> Plan {
    Plan::parse("plan.toml", &text(lines)).unwrap()
}

fn refused(text: &str, wanted: &str) {
    let error = Plan::parse("plan.toml", text).expect_err(wanted);
    assert_eq!(error.to_string(), wanted);
}

/// What the service says of the parameters in each cell.
fn chosen(plan: &Plan) -> Vec<Result<String, PlanError>> {
    let file = ServiceFile::parse("pool", SERVICE).unwrap();
    let cells = plan.cells().unwrap();
    let words = cells.iter().map(|cell| {
        let service = file.with(&cell.plan.service)?;
        let places = service.places(|_| 1, "folder", "log");
        let words = service.processes[0].command.iter();
        let words = words.map(|word| places.render(Some("pool"), word));
        Ok(words.collect::<Result<Vec<_>, _>>()?.join(" "))
    });
    words.collect()
}

#[test]
fn a_plan_chooses_a_parameter_and_its_matrix_varies_another() {
    let plan = plan("[service]\npool = 24\n[matrix]\n\"service.collector\" = [\"g1\", \"z\"]");
    let cells = plan.cells().unwrap();
    assert_eq!(cells[1].name, "collector=z");
    assert_eq!(cells[1].factors["service.collector"], "z");
    let words = ["server 24 g1", "server 24 z"];
    assert_eq!(chosen(&plan), words.map(|it| Ok(it.to_owned())));
    assert!(plan.to_toml().contains("\n[service]\n\"pool\" = 24\n"));
    assert_eq!(Plan::parse("again", &plan.to_toml()), Ok(plan));
}

#[test]
fn a_factor_replaces_the_value_of_the_plan() {
    let plan = plan("[service]\npool = 24\n[matrix]\n\"service.pool\" = [2, 8]");
    let words = ["server 2 g1", "server 8 g1"];
    assert_eq!(chosen(&plan), words.map(|it| Ok(it.to_owned())));
}

#[test]
fn a_value_that_the_service_lacks_is_told_with_the_line_of_the_plan() {
    for (lines, wanted) in [
        (
            "[service]\npol = 24",
            "plan.toml:10: service pool has no parameter \"pol\"; known: pool, collector; hint: did you mean pool",
        ),
        (
            "[service]\n\npool = 65",
            "plan.toml:11: pool is 65; must be at most 64; hint: pool = 2",
        ),
        (
            "[matrix]\n\"service.collector\" = [\"cms\"]",
            "plan.toml:10: collector is \"cms\"; must be one of g1, z; hint: collector = \"g1\"",
        ),
        (
            "[service]\npool = 3\n[matrix]\n\"service.pool\" = [0]",
            "plan.toml:12: pool is 0; must be at least 1; hint: pool = 2",
        ),
    ] {
        let found = chosen(&plan(lines)).remove(0).expect_err(wanted);
        assert_eq!(found.to_string(), wanted);
    }
}

#[test]
fn a_command_line_sets_a_parameter_and_is_named_where_it_is_wrong() {
    let lines = text("[matrix]\n\"service.pool\" = [2, 8]");
    let plan = Plan::parse_with("plan.toml", &lines, &[("service.pool", "16")]).unwrap();
    assert_eq!(chosen(&plan), [Ok("server 16 g1".to_owned())]);
    let plan = Plan::parse_with("plan.toml", &lines, &[("service.pool", "many")]).unwrap();
    let found = chosen(&plan).remove(0).expect_err("no number");
    assert_eq!(
        found.to_string(),
        "--set: pool is \"many\"; must be a whole number; hint: pool = 2"
    );
}

#[test]
fn parameters_need_a_service_and_a_simple_value() {
    for (lines, wanted) in [
        (
            "[service]\npool = [2, 24]",
            "plan.toml:10: pool is an array [2, 24]; must be a number or a string; hint: pool = 2",
        ),
        (
            "[service]\npool = true",
            "plan.toml:10: pool is a boolean true; must be a number or a string; hint: pool = 2",
        ),
    ] {
        refused(&text(lines), wanted);
    }
    for (lines, wanted) in [
        (
            "[service]\npool = 2",
            "plan.toml:9: [service] chooses parameters, and the run starts no service; must have a drive.store, or be left out; hint: store = \"redis\"",
        ),
        (
            "[matrix]\n\"service.pool\" = [2]",
            "plan.toml:10: service.pool is varied, and the run starts no service; must be left out without a drive.store; hint: store = \"redis\"",
        ),
    ] {
        refused(&text(lines).replace("store = \"pool\"\n", "\n"), wanted);
    }
}

#[test]
fn a_matrix_of_stores_may_vary_their_parameters() {
    let plan = plan("[matrix]\n\"drive.store\" = [\"pool\", \"redis\"]\n\"service.pool\" = [2]");
    let cells = plan.cells().unwrap();
    assert_eq!(cells[1].name, "store=redis pool=2");
    assert_eq!(cells[1].plan.service["pool"].place.0, "plan.toml:11");
}

proptest! {
    #[test]
    fn a_plan_that_is_written_out_has_the_same_parameters(
        name in "[a-z_]{1,9}", value in "\\PC{0,12}|[0-9.e-]{1,9}|true|nan|inf"
    ) {
        let mut plan = plan("");
        plan.service.insert(name, Setting::from(value));
        prop_assert_eq!(Plan::parse("again", &plan.to_toml()), Ok(plan));
    }
}
