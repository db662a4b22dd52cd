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

/// A file whose copies are at most its nodes, with this table for the copies.
fn copies(table: &str) -> Result<ServiceFile, PlanError> {
    let text = format!(
        "about = \"a\"\nurl = \"{{{{ nodes }}}} {{{{ copies }}}}\"\n\
         parameters.nodes = {{ default = 3, least = 1, most = 9, help = \"nodes\" }}\n\
         parameters.copies = {{ {table}, help = \"copies\" }}\n\
         [[process]]\nname = \"a\"\ncommand = [\"a\"]\n"
    );
    ServiceFile::parse("store", &text)
}

#[test]
fn a_parameter_is_not_above_the_one_that_bounds_it() {
    let file = copies("default = 3, least = 1, most = 9, at_most = \"nodes\"").unwrap();
    let of_plan = |lines| file.with(&plan(lines).service);
    for (lines, wanted) in [
        ("[service]\nnodes = 2", 2),
        ("[service]\nnodes = 5", 3),
        ("[service]\nnodes = 5\ncopies = 5", 5),
    ] {
        let service = of_plan(lines).unwrap();
        assert_eq!(
            service.parameters["copies"].to_string(),
            wanted.to_string(),
            "{lines}"
        );
    }
    let told = of_plan("[service]\nnodes = 2\ncopies = 3").unwrap_err();
    let wanted =
        "plan.toml:11: copies is 3 and nodes is 2; must be at most nodes; hint: copies = 2";
    assert_eq!(told.to_string(), wanted);
}

#[test]
fn a_bound_that_is_no_parameter_of_the_kind_is_an_error_of_the_file() {
    for (table, wanted) in [
        (
            "default = 3, least = 1, most = 9, at_most = \"node\"",
            "store:4: at_most is \"node\"; must be another parameter; hint: did you mean nodes",
        ),
        (
            "default = \"1GB\", least = \"1GB\", most = \"2GB\", at_most = \"nodes\"",
            "store:4: at_most is \"nodes\"; must be a parameter of the same kind, without at_most; hint: remove at_most",
        ),
        (
            "default = 4, least = 1, most = 9, at_most = \"nodes\"",
            "store:4: copies is 4 and nodes is 3 by default; must be at most that; hint: default = 3",
        ),
    ] {
        assert_eq!(copies(table).expect_err(wanted).to_string(), wanted);
    }
}

#[test]
fn a_template_that_does_not_end_is_refused_with_its_line() {
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    let text = SERVICE.replace("url = \"", &format!("url = \"{endless}"));
    let told = ServiceFile::parse("pool", &text).unwrap_err().to_string();
    let wanted = "pool:3: it takes more than 1000000 steps; must be a template that ends; hint: use fewer or shorter loops";
    assert_eq!(told, wanted);
}
