//! Services with their templates, parameters and order.

use std::collections::BTreeMap;

use super::*;
use crate::model::{Place, Setting};

const TWO: &str = r#"
about = "two servers"
url = "redis://{{ processes.one.host }}:{{ processes.one.port }},{{ processes.two.host }}:{{ processes.two.client }}?id={{ id }}"
programs = ["server"]
[[process]]
name = "one"
command = ["server", "--port", "{{ port }}", "--dir", "{{ folder }}"]
[[process]]
name = "two"
host = "127.0.0.2"
ports = ["client", "peer"]
command = ["server", "{{ client }}", "{{ peer }}", "{{ processes.one.port }}"]
files = { "a.json" = "{ \"peer\": {{ peer }} }" }
[[step]]
command = ["id", "{{ processes.two.peer }}"]
save = "id"
"#;

/// Nodes whose number, heap and collector a plan may choose.
const MANY: &str = r#"
about = "nodes"
url = "redis://{% for it in processes.node %}{{ it.front }}:{{ it.port }}{{ '' if loop.last else ',' }}{% endfor %}"

[parameters]
nodes = { default = 3, least = 0, most = 200, help = "nodes" }
heap = { default = "512MiB", least = "256MiB", most = "4GiB", help = "heap of each node" }
collector = { default = "g1", words = ["g1", "z"], help = "garbage collector" }
pause = { default = "10ms", least = "1ms", most = "1s", help = "longest pause" }
share = { default = 0.5, least = 0.1, most = 1, help = "share of the heap" }

[files]
"node.conf" = """
{% for it in processes %}
peer {{ it.name }} {{ it.host }}:{{ it.port }}
{% endfor %}
own {{ name }} {{ number }} of {{ nodes }}
share {{ share }}
"""

[[process]]
name = "node"
count = "{{ nodes }}"
tier = "storage"
host = "127.0.0.{{ number }}"
command = ["node", "-Xmx{{ heap }}", "-XX:{{ collector }}", "{{ pause // 1000000 }}"]
"#;

fn settings(values: &[(&str, &str)]) -> BTreeMap<String, Setting> {
    let settings = values.iter().map(|(name, value)| {
        let setting = Setting {
            value: (*value).to_owned(),
            place: Place("plan.toml:9".to_owned()),
        };
        ((*name).to_owned(), setting)
    });
    settings.collect()
}

fn with(text: &str, values: &[(&str, &str)]) -> Result<Service, PlanError> {
    ServiceFile::parse("many.toml", text)?.with(&settings(values))
}

/// Places with the ports 101, 102 and so on.
fn places(service: &Service) -> ServicePlaces {
    let mut next = 100;
    let port = |_: &str| {
        next += 1;
        next
    };
    service.places(port, "/run", "/logs/c0r0-")
}

fn rendered(places: &ServicePlaces, own: &str, templates: &[Template]) -> Vec<String> {
    let words = templates.iter().map(|it| places.render(Some(own), it));
    words
        .collect::<Result<_, _>>()
        .expect("every name has a value")
}

#[test]
fn templates_have_places_and_what_was_saved() {
    let service = with(TWO, &[]).expect("a service");
    let mut places = places(&service);
    assert!(
        places.render(None, &service.url).is_err(),
        "no step has run"
    );
    places.save(&service.steps[0], "7".to_owned());
    assert_eq!(
        places.render(None, &service.url).as_deref(),
        Ok("redis://127.0.0.1:101,127.0.0.2:102?id=7")
    );
    let two = &service.processes[1];
    assert_eq!(
        rendered(&places, "two", &two.command),
        ["server", "102", "103", "101"]
    );
    assert_eq!(
        places.render(Some("two"), &two.files["a.json"]).as_deref(),
        Ok("{ \"peer\": 103 }")
    );
    let one = rendered(&places, "one", &service.processes[0].command);
    assert_eq!(one[4], "/run/one");
}

#[test]
fn a_parameter_reaches_the_count_the_files_and_the_commands() {
    let chosen = [
        ("nodes", "2"),
        ("heap", "1GiB"),
        ("collector", "z"),
        ("pause", "5ms"),
    ];
    let service = with(MANY, &chosen).expect("a service");
    let names: Vec<&str> = service
        .processes
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(names, ["node-1", "node-2"]);
    assert_eq!(service.processes[1].tier.as_deref(), Some("storage"));
    let places = places(&service);
    let node = &service.processes[1];
    assert_eq!(
        rendered(&places, "node-2", &node.command),
        ["node", "-Xmx1073741824", "-XX:z", "5"]
    );
    assert_eq!(
        places
            .render(Some("node-2"), &node.files["node.conf"])
            .as_deref(),
        Ok("peer node-1 127.0.0.1:101\npeer node-2 127.0.0.2:102\nown node-2 2 of 2\nshare 0.5\n")
    );
    assert_eq!(
        places.render(None, &service.url).as_deref(),
        Ok("redis://127.0.0.1:101,127.0.0.2:102")
    );
}

#[test]
fn a_parameter_that_a_plan_leaves_out_has_its_default() {
    let service = with(MANY, &[]).expect("a service");
    assert_eq!(service.processes.len(), 3);
    assert_eq!(service.parameters["heap"].to_string(), "512MiB");
    let file = ServiceFile::parse("many.toml", MANY).expect("a service");
    let allowed: Vec<String> = file.parameters.iter().map(Parameter::allowed).collect();
    assert_eq!(
        allowed,
        [
            "0 to 200",
            "256MiB to 4GiB",
            "g1, z",
            "1ms to 1s",
            "0.1 to 1"
        ]
    );
}

#[test]
fn a_value_that_the_service_may_not_have_is_refused_at_its_line_of_the_plan() {
    for (name, value, said) in [
        (
            "nods",
            "2",
            "service many.toml has no parameter \"nods\"; known: nodes, heap, collector, pause, share; hint: did you mean nodes",
        ),
        (
            "nodes",
            "201",
            "nodes is 201; must be at most 200; hint: nodes = 3",
        ),
        (
            "nodes",
            "many",
            "nodes is \"many\"; must be a whole number; hint: nodes = 3",
        ),
        (
            "nodes",
            "1.5",
            "nodes is 1.5; must be a whole number; hint: nodes = 3",
        ),
        (
            "heap",
            "1MiB",
            "heap is \"1MiB\"; must be at least 256MiB; hint: heap = \"512MiB\"",
        ),
        (
            "heap",
            "512",
            "heap is 512; must be a size with its unit; hint: heap = \"512MiB\"",
        ),
        (
            "collector",
            "cms",
            "collector is \"cms\"; must be one of g1, z; hint: collector = \"g1\"",
        ),
        (
            "pause",
            "2s",
            "pause is \"2s\"; must be at most 1s; hint: pause = \"10ms\"",
        ),
        (
            "share",
            "NaN",
            "share is \"NaN\"; must be a number; hint: share = 0.5",
        ),
    ] {
        let error = with(MANY, &[(name, value)]).expect_err(said);
        assert_eq!(error.to_string(), format!("plan.toml:9: {said}"));
        assert_eq!(error.key, format!("service.{name}"));
    }
    let error = with(TWO, &[("nodes", "2")]).expect_err("no parameters");
    assert_eq!(
        error.to_string(),
        "plan.toml:9: service many.toml has no parameter \"nodes\"; must be left out: it has no parameters; hint: unruly services show many.toml"
    );
}

#[test]
fn a_count_of_none_and_one_above_a_hundred_are_refused() {
    for (nodes, said) in [
        (
            "0",
            "many.toml:23: count is 0, from \"{{ nodes }}\"; must be from 1 to 100; hint: count = 3",
        ),
        (
            "101",
            "many.toml:23: count is 101, from \"{{ nodes }}\"; must be from 1 to 100; hint: count = 3",
        ),
    ] {
        let error = with(MANY, &[("nodes", nodes)]).expect_err(said);
        assert_eq!(error.to_string(), said);
    }
    let twice = format!("{MANY}[[process]]\nname = \"other\"\ncommand = [\"x\"]\n");
    let error = with(&twice, &[("nodes", "100")]).expect_err("101 processes");
    assert_eq!(
        error.to_string(),
        "many.toml:21: there are 101 processes; must be at most 100; hint: lower a count"
    );
}

/// Asserts that `text`, with `from` replaced by `to`, is refused with these words.
fn refused(text: &str, cases: &[(&str, &str, &str)]) {
    for (from, to, said) in cases {
        assert!(text.contains(from), "{from}");
        let error = ServiceFile::parse("a.toml", &text.replacen(from, to, 1)).expect_err(said);
        assert_eq!(error.to_string(), *said);
    }
}

#[test]
fn a_name_that_stands_for_nothing_is_refused_before_anything_is_started() {
    refused(
        TWO,
        &[
            (
                "{{ processes.one.port }}\"]",
                "{{ processes.three.port }}\"]",
                "a.toml:12: \"processes.three.port\" stands for nothing; must be a word of the manual; hint: see unruly/docs/services.md",
            ),
            (
                "{{ processes.two.peer }}\"",
                "{{ later }}\"",
                "a.toml:15: \"later\" stands for nothing; known here: processes, bin, jars, jvm, unpacked, spans, id; hint: see unruly/docs/services.md",
            ),
            (
                "{{ folder }}",
                "{{ foldr }}",
                "a.toml:7: \"foldr\" stands for nothing; known here: processes, bin, jars, jvm, unpacked, spans, id, name, number, host, front, folder, log, port; hint: did you mean folder",
            ),
            (
                "{{ peer }} }",
                "{{ peer }",
                "a.toml:13: no template: unexpected `}`, expected end of variable block; must be one of Jinja; hint: see unruly/docs/services.md",
            ),
            (
                "\"{{ client }}\"",
                "\"{{ client // 0 }}\"",
                "a.toml:12: \"client // 0\" cannot be computed: unable to calculate 1 // 0; must be an expression of Jinja; hint: see unruly/docs/services.md",
            ),
        ],
    );
}

#[test]
fn a_fault_of_a_file_is_told_with_its_line() {
    refused(
        TWO,
        &[
            (
                "name = \"two\"",
                "name = \"one\"",
                "a.toml:8: there are two processes \"one\"; must be one of each name; hint: redis-1, redis-2",
            ),
            (
                "host = \"127.0.0.2\"",
                "host = \"everywhere\"",
                "a.toml:10: host is \"everywhere\"; must be an IP address; hint: host = \"127.0.0.1\"",
            ),
            (
                "save = \"id\"",
                "sav = \"id\"",
                "a.toml:16: unknown key \"sav\" in [[step]]; known: name, after, command, expect, save, before, timeout; hint: did you mean save",
            ),
            (
                "save = \"id\"",
                "save = \"my-id\"",
                "a.toml:16: the name is \"my-id\"; must be lower-case letters, digits and _, since templates use it; hint: my_id",
            ),
            (
                "ports = [\"client\"",
                "ports = [\"host\"",
                "a.toml:11: the name is \"host\"; must be another: this word has a meaning in every template; hint: host_of_mine",
            ),
            (
                "[[process]]",
                "[go]\nmodule = \"example.org/it\"\nmain = \"package main\"\n[[process]]",
                "a.toml:6: module is \"example.org/it\"; must name its version; hint: module = \"example.org/it@v1.2.3\"",
            ),
            (
                "programs = [\"server\"]",
                "programs = [\"server\", \"other\"]\n[go]\nmodule = \"a@v1\"\nmain = \"package main\"",
                "a.toml:4: programs does not hold one name; must be the name of the program that Go builds; hint: programs = [\"etcd-3.7\"]",
            ),
        ],
    );
}

#[test]
fn an_older_file_is_refused_with_the_new_spelling() {
    refused(
        TWO,
        &[
            (
                "{{ folder }}",
                "{folder}",
                "a.toml:7: {folder} is the form of older files; must be an expression in two braces; hint: write {{ folder }}",
            ),
            (
                "{{ processes.one.port }}\"]",
                "{one.port}\"]",
                "a.toml:12: {one.port} is the form of older files; must be an expression in two braces; hint: write {{ processes.one.port }}",
            ),
        ],
    );
}

#[test]
fn a_parameter_that_is_no_use_or_no_parameter_is_refused() {
    refused(
        MANY,
        &[
            (
                "-XX:{{ collector }}",
                "-XX:g1",
                "a.toml:8: no file and no command uses the parameter \"collector\"; must be used: otherwise a plan would vary nothing; hint: write {{ collector }} where it belongs, or remove it",
            ),
            (
                "heap = { default = \"512MiB\"",
                "heap = { default = \"64MiB\"",
                "a.toml:7: default is \"64MiB\"; must be at least 256MiB; hint: write a default that the parameter may have",
            ),
            (
                "words = [\"g1\", \"z\"], ",
                "",
                "a.toml:8: least is missing in [parameters]; must be of the kind of the default, or the parameter needs words; hint: least = 1",
            ),
            (
                "least = \"1ms\"",
                "least = \"1MB\"",
                "a.toml:9: least is \"1MB\"; must be of the kind of the default, or the parameter needs words; hint: least = 1",
            ),
            (
                "most = 1, help",
                "most = 0.05, help",
                "a.toml:10: most is 0.05; must be at least 0.1; hint: most = 0.1",
            ),
            (
                "help = \"nodes\"",
                "hlp = \"nodes\"",
                "a.toml:6: unknown key \"hlp\" in [parameters]; known: default, least, most, at_most, words, help; hint: did you mean help",
            ),
            (
                "share = {",
                "port = {",
                "a.toml:10: \"port\" is a parameter, and a port or what a step saves; must be one of them: a template could mean either; hint: give one of them another name",
            ),
            (
                "share = {",
                "host = {",
                "a.toml:10: the name is \"host\"; must be another: this word has a meaning in every template; hint: host_of_mine",
            ),
        ],
    );
}

/// A service of an application and its database, whose tables a step makes.
const ORDERED: &str = r#"
about = "an application"
url = "redis://{{ processes.app.host }}:{{ processes.app.port }}"
[[process]]
name = "app"
after = ["tables"]
command = ["app", "{{ version_of_tables }}"]
[[process]]
name = "database"
count = 2
after = ["{% if number > 1 %}database-{{ number - 1 }}{% endif %}"]
command = ["database"]
[[step]]
name = "tables"
after = ["database"]
command = ["make-tables"]
save = "version_of_tables"
[[step]]
command = ["check"]
"#;

#[test]
fn a_process_starts_after_what_it_names_and_a_step_runs_after_everything_else() {
    let service = with(ORDERED, &[]).expect("a service");
    let (app, first, second) = (0, 1, 2);
    assert_eq!(
        service.stages,
        [
            Stage::Processes(vec![first]),
            Stage::Processes(vec![second]),
            Stage::Step(0),
            Stage::Processes(vec![app]),
            Stage::Step(1),
        ]
    );
    let all = with(TWO, &[]).expect("a service");
    assert_eq!(all.stages, [Stage::Processes(vec![0, 1]), Stage::Step(0)]);
}

#[test]
fn a_cycle_of_after_is_named() {
    refused(
        ORDERED,
        &[
            (
                "after = [\"database\"]",
                "after = [\"app\"]",
                "a.toml:6: after makes a cycle: app waits for tables waits for app; must leave something that can start first; hint: remove one of the names",
            ),
            (
                "after = [\"database\"]\n",
                "",
                "a.toml:6: after makes a cycle: app waits for tables waits for app; must leave something that can start first; hint: a step without after waits for every process: give it one",
            ),
            (
                "after = [\"tables\"]",
                "after = [\"app\"]",
                "a.toml:6: after makes a cycle: app waits for app; must leave something that can start first; hint: remove one of the names",
            ),
            (
                "after = [\"tables\"]",
                "after = [\"table\"]",
                "a.toml:6: after names \"table\", and nothing is called so; known: app, database-1, database-2, tables; hint: did you mean tables",
            ),
            (
                "name = \"tables\"\nafter",
                "name = \"database\"\nafter",
                "a.toml:15: \"database\" is a step, and another step or a process; must be one of each name: after names them; hint: give the step another name",
            ),
            (
                "after = [\"tables\"]\n",
                "",
                "a.toml:6: \"version_of_tables\" stands for nothing; must be a word of the manual; hint: see unruly/docs/services.md",
            ),
        ],
    );
}

#[test]
fn a_process_has_a_front_where_the_url_or_its_own_files_name_it() {
    let service = with(MANY, &[("nodes", "2")]).expect("a service");
    assert!(service.has_front("node-1") && service.has_front("node-2"));
    let service = with(TWO, &[]).expect("a service");
    assert!(!service.has_front("one"));
    let own = TWO.replacen("\"{{ folder }}\"", "\"{{ front }}\"", 1);
    assert!(with(&own, &[]).expect("a service").has_front("one"));
}

#[test]
fn processes_may_share_the_ports_of_the_first() {
    let text = MANY.replacen("tier = ", "ports_of = \"node-1\"\ntier = ", 1);
    let places = places(&with(&text, &[]).expect("a service"));
    let ports: Vec<u16> = places.processes.iter().map(|it| it.ports["port"]).collect();
    assert_eq!(ports, [101, 101, 101]);
}

/// A group of which one process leads.
fn led(leads: &str) -> Result<Service, PlanError> {
    let text = MANY.replacen("tier = ", &format!("leads = {leads}\ntier = "), 1);
    with(&text, &[])
}

#[test]
fn a_role_stands_for_any_process_of_its_group() {
    let service = led(r#"{ port = "port", path = "/metrics", says = "is_leader 1" }"#).unwrap();
    assert_eq!(service.roles(), ["node-leader", "node-follower"]);
    assert_eq!(service.role("node-leader"), Some(("node", Role::Leader)));
    assert_eq!(
        service.role("node-follower"),
        Some(("node", Role::Follower))
    );
    assert_eq!(service.role("other-leader"), None);
    let all = ["node-1", "node-2", "node-3"];
    assert_eq!(service.candidates("node-leader"), all);
    assert_eq!(service.candidates("node-2"), ["node-2"]);
    assert_eq!(with(MANY, &[]).unwrap().role("node-leader"), None);
}

#[test]
fn a_leader_must_be_one_of_several_and_asked_on_a_port_of_its_own() {
    for (leads, wanted) in [
        (
            r#"{ port = "other", path = "/", says = "1" }"#,
            "must be one of its ports: port",
        ),
        (
            r#"{ port = "port", path = "metrics", says = "1" }"#,
            "must be a path of a URL",
        ),
        (
            r#"{ port = "port", path = "/ HTTP", says = "1" }"#,
            "must be a path of a URL",
        ),
        (r#"{ port = "port", path = "/" }"#, "must be a string"),
    ] {
        let error = led(leads).unwrap_err();
        assert_eq!(error.wanted, wanted, "{leads}");
    }
    let leads = "leads = { port = \"port\", path = \"/\", says = \"1\" }";
    let alone = TWO.replacen("name = \"one\"", &format!("name = \"one\"\n{leads}"), 1);
    let error = ServiceFile::parse("two.toml", &alone).unwrap_err();
    assert_eq!(
        error.wanted,
        "must be left out: a process alone leads nobody"
    );
}
