//! The whole command line as one clap command: help, completions and man pages are made from it.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::python_verbs;

/// The verbs in the order of `unruly --help`.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Measure", &["run", "drive", "watch", "check", "standing"]),
    (
        "Read a run",
        &["verdict", "report", "runs", "advise", "papers"],
    ),
    ("Judge", &["gate", "compare", "history", "audit"]),
    ("Bring in and out", &["import", "export", "collect"]),
    (
        "Host and program",
        &[
            "doctor",
            "self",
            "recover",
            "plans",
            "targets",
            "services",
            "hosts",
            "completions",
            "man",
            "notices",
            "help",
        ],
    ),
];

/// Returns the command line of `unruly`: the verbs of `T`, and those that Python carries out.
pub(crate) fn command<T: CommandFactory>() -> Command {
    let command = T::command().subcommands(python_verbs::commands());
    let template = template(&command);
    command.help_template(template)
}

/// Returns the help of the whole program, with the verbs in groups.
fn template(command: &Command) -> String {
    let mut built = command.clone();
    built.build();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in GROUPS {
        let _ = write!(text, "\n{heading}:\n");
        for name in names {
            let verb = built.find_subcommand(name);
            let about = verb.and_then(Command::get_about).map(ToString::to_string);
            let _ = writeln!(text, "  {name:<12} {}", about.unwrap_or_default());
        }
    }
    text + "\nOptions:\n{options}{after-help}"
}

/// Returns the command line that users see: without the verbs that the program starts for itself.
fn shown<T: CommandFactory>() -> Command {
    let whole = command::<T>();
    let verbs = whole.get_subcommands().filter(|it| !it.is_hide_set());
    let about = whole.get_about().cloned().unwrap_or_default();
    let end = whole.get_after_help().cloned().unwrap_or_default();
    Command::new(whole.get_name().to_owned())
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .after_help(end)
        .subcommands(verbs.cloned())
}

/// Returns the completion script of a shell.
pub(crate) fn completions<T: CommandFactory>(shell: Shell) -> Vec<u8> {
    let mut command = shown::<T>();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

/// Writes the man page of the program and of each verb.
///
/// # Errors
///
/// When the directory cannot be written.
pub(crate) fn man_pages<T: CommandFactory>(directory: &Path) -> Result<()> {
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(shown::<T>(), directory));
    written.with_context(|| {
        let place = directory.display();
        format!("{place}: man pages cannot be written here; hint: choose another directory")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Arguments;

    /// Each verb that users see, with its help at 80 columns.
    fn pages() -> Vec<(Command, String)> {
        let mut whole = shown::<Arguments>();
        whole.build();
        let verbs = whole.get_subcommands().filter(|it| it.get_name() != "help");
        let page = |it: &Command| it.clone().term_width(80).render_long_help().to_string();
        verbs.map(|it| (it.clone(), page(it))).collect()
    }

    #[test]
    fn the_command_line_has_no_contradiction() {
        command::<Arguments>().debug_assert();
    }

    #[test]
    fn every_verb_that_users_see_is_in_one_group() {
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|it| it.1).copied().collect();
        listed.retain(|name| *name != "help");
        listed.sort_unstable();
        let mut names: Vec<String> = pages()
            .iter()
            .map(|it| it.0.get_name().to_owned())
            .collect();
        names.sort_unstable();
        assert_eq!(names, listed);
    }

    #[test]
    fn help_shows_each_argument_with_its_text() {
        for (verb, page) in pages() {
            let name = verb.get_name();
            assert!(verb.get_about().is_some(), "{name} has no text");
            for argument in verb.get_arguments() {
                let text = argument.get_help().map(ToString::to_string);
                let text = text.unwrap_or_else(|| panic!("{name} {argument} has no text"));
                assert!(!text.ends_with('.'), "{name} {argument}: {text}");
                assert!(!argument.is_hide_set(), "{name} {argument} is hidden");
                assert!(page.contains(&argument.to_string()), "{name} {argument}");
            }
        }
    }

    #[test]
    fn help_has_exit_codes_and_an_example_and_fits_into_80_columns() {
        let top = command::<Arguments>()
            .term_width(80)
            .render_help()
            .to_string();
        let all = pages()
            .into_iter()
            .map(|it| (it.0.get_name().to_owned(), it.1));
        for (name, page) in all.chain([(String::new(), top)]) {
            assert!(page.contains("Exit codes: 0"), "{name}: {page}");
            assert!(page.contains(&format!("unruly {name}")), "{name}: {page}");
            assert!(page.contains("\nExamples:\n  "), "{name}: {page}");
            for line in page.lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
        }
    }

    #[test]
    fn completions_and_man_pages_have_every_verb_and_none_that_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        man_pages::<Arguments>(folder.path()).unwrap();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completions::<Arguments>(shell)).unwrap();
            for (verb, _) in pages() {
                assert!(script.contains(verb.get_name()), "{shell}: {verb}");
            }
            assert!(script.contains("burst-factor") && script.contains("junit"));
            assert!(!script.contains("held"), "{shell}");
        }
        for (verb, _) in pages() {
            let page = folder.path().join(format!("unruly-{verb}.1"));
            let text = std::fs::read_to_string(&page).unwrap_or_else(|it| panic!("{verb}: {it}"));
            assert!(text.contains("Examples:"), "{verb}");
        }
        assert!(!folder.path().join("unruly-agent.1").exists());
    }
}
