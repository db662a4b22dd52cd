//! The verbs that Python carries out, as clap commands.
//!
//! Their options are declared once, in a table that Python reads too: help is complete on a host
//! without Python, and a wrong option is refused before Python starts.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgGroup, Command, ValueHint};
use toml_edit::{DocumentMut, Table};

use unruly_program::ending;

const TABLE: &str = include_str!("../../../python/unruly/verbs/options.toml");

/// The table of arguments that several verbs have.
const SHARED: &str = "shared";

/// Returns the command of each verb.
///
/// # Panics
///
/// When the table is not as its first lines describe it; a test reads all of it.
pub(crate) fn commands() -> Vec<Command> {
    let document: DocumentMut = TABLE.parse().expect("the table is TOML");
    let table = document.as_table();
    let shared = table[SHARED].as_table().expect("a table");
    let verbs = table.iter().filter(|(name, _)| *name != SHARED);
    verbs
        .map(|(name, verb)| command(name, verb.as_table().expect("a table"), shared))
        .collect()
}

fn command(name: &str, verb: &Table, shared: &Table) -> Command {
    let own = verb.get("argument").and_then(|it| it.as_array_of_tables());
    let own = own
        .into_iter()
        .flatten()
        .map(|it| argument(&text(it, "name"), it));
    let names = verb["shared"].as_array().expect("an array").iter();
    let common = names.map(|name| {
        let name = name.as_str().expect("a string");
        argument(name, shared[name].as_table().expect("a table"))
    });
    let arguments: Vec<(Arg, Option<String>)> = own.chain(common).collect();
    let mut groups: Vec<&String> = arguments.iter().filter_map(|it| it.1.as_ref()).collect();
    groups.dedup();
    let groups = groups
        .into_iter()
        .map(|it| ArgGroup::new(it.clone()).required(true));
    Command::new(name.to_owned())
        .about(text(verb, "about"))
        .after_help(ending(&text(verb, "exit"), &examples(verb)))
        .args_override_self(true)
        .groups(groups.collect::<Vec<_>>())
        .args(arguments.iter().map(|it| it.0.clone()))
}

/// Returns an argument, and the group of which exactly one must be given.
fn argument(name: &str, table: &Table) -> (Arg, Option<String>) {
    let group = table.get("group").map(|_| text(table, "group"));
    let mut arg = Arg::new(name.to_owned()).help(text(table, "help"));
    if !is(table, "place") {
        arg = arg.long(name.replace('_', "-"));
    }
    if let Some(short) = table.get("short").and_then(|it| it.as_str()) {
        arg = arg.short(short.chars().next());
    }
    if let Some(group) = &group {
        arg = arg.group(group.clone());
    }
    if !table.contains_key("value") {
        return (arg.action(ArgAction::SetTrue), group);
    }
    arg = arg
        .value_name(text(table, "value"))
        .required(is(table, "required"));
    if let Some(default) = table.get("default") {
        arg = arg.default_value(default.as_value().map(plain).unwrap_or_default());
    }
    (kinds(many(arg, table), table), group)
}

/// Says how often an argument comes; a positional one comes at least once.
fn many(arg: Arg, table: &Table) -> Arg {
    match table.get("many").and_then(|it| it.as_str()) {
        Some("some") => arg.num_args(1..).required(is(table, "place")),
        Some("any") => arg.num_args(0..),
        Some("repeat") => arg.action(ArgAction::Append),
        _ if is(table, "place") => arg.required(true),
        _ => arg,
    }
}

/// Says which values an argument takes.
fn kinds(arg: Arg, table: &Table) -> Arg {
    if let Some(choices) = table.get("choices").and_then(|it| it.as_array()) {
        let words: Vec<String> = choices.iter().map(plain).collect();
        return arg.value_parser(PossibleValuesParser::new(words));
    }
    match table.get("kind").and_then(|it| it.as_str()) {
        Some("file") => arg.value_hint(ValueHint::FilePath),
        Some("directory") => arg.value_hint(ValueHint::DirPath),
        Some("integer") => arg
            .allow_negative_numbers(true)
            .value_parser(clap::value_parser!(i64)),
        Some("number") => arg
            .allow_negative_numbers(true)
            .value_parser(clap::value_parser!(f64)),
        _ => arg,
    }
}

fn examples(verb: &Table) -> Vec<(String, String)> {
    let pairs = verb["examples"].as_array().expect("an array").iter();
    let pair = |it: &toml_edit::Value| {
        let it = it.as_array().expect("a command and its purpose");
        let word = |at| it.get(at).map(plain).unwrap_or_default();
        (word(0), word(1))
    };
    pairs.map(pair).collect()
}

fn text(table: &Table, key: &str) -> String {
    let found = table.get(key).and_then(|it| it.as_str());
    found
        .unwrap_or_else(|| panic!("{key} is a string"))
        .to_owned()
}

/// Returns a value without the quotes and spaces of TOML.
fn plain(value: &toml_edit::Value) -> String {
    let text = value.as_str().map(str::to_owned);
    text.unwrap_or_else(|| value.to_string().trim().to_owned())
}

fn is(table: &Table, key: &str) -> bool {
    table.get(key).and_then(|it| it.as_bool()).unwrap_or(false)
}
