//! Stories of the protocol as text files, which the real parts must follow line by line.
//!
//! `transcripts/*.txt` are the stories; `transcripts/README.md` says how to read and change them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::story::Story;
use crate::story::script::{Block, Mode, diff, parse, render};

/// Stories below this number mean that the test looked in the wrong place.
const STORIES_MIN: usize = 8;

fn mode() -> Result<Mode, String> {
    let variable = |name| std::env::var(name).ok();
    let (update, ci) = (variable("UPDATE_TRANSCRIPTS"), variable("CI"));
    Mode::of(update.as_deref(), ci.as_deref())
}

/// Returns the files of the stories in the order of their names.
fn files() -> Result<Vec<PathBuf>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|it| it.to_string())?;
    let paths = entries.into_iter().map(|it| it.path());
    let mut files: Vec<PathBuf> = paths
        .filter(|it| it.extension().is_some_and(|it| it == "txt"))
        .collect();
    files.sort();
    Ok(files)
}

/// Carries out the commands. Returns the blocks with the output of the code.
fn played(blocks: &[Block]) -> Result<Vec<Block>, String> {
    let mut story = Story::new()?;
    let mut played = Vec::new();
    for block in blocks {
        let output = story.run(&block.command);
        let output = output.map_err(|it| format!("{}: `{}`: {it}", block.line, block.command))?;
        played.push(Block {
            output,
            ..block.clone()
        });
    }
    Ok(played)
}

/// Returns the text that a story has by the code, and its differences from the file.
fn replayed(text: &str) -> Result<(String, String), String> {
    let (blocks, after) = parse(text)?;
    let played = played(&blocks)?;
    let mut differences = String::new();
    for (file, code) in blocks.iter().zip(&played) {
        if file.output != code.output {
            let lines = diff(&file.output, &code.output);
            differences += &format!("{}: {}\n{lines}", file.line, file.command);
        }
    }
    Ok((render(&played, &after), differences))
}

#[test]
fn the_parts_follow_every_transcript() -> Result<(), String> {
    let mode = mode()?;
    let files = files()?;
    assert!(files.len() >= STORIES_MIN, "{} stories", files.len());
    let mut report = String::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&file).map_err(|it| it.to_string())?;
        let (code, differences) = replayed(&text).map_err(|it| format!("{name}:{it}"))?;
        if mode == Mode::Update && code != text {
            fs::write(&file, code).map_err(|it| it.to_string())?;
        } else if !differences.is_empty() {
            report += &format!("\n{name}\n{differences}");
        } else if code != text {
            report += &format!("\n{name}: lines are not laid out as `make transcripts` does\n");
        }
    }
    let hint = "hint: if the change is intended, run `make transcripts` and read its diff";
    assert!(
        report.is_empty(),
        "lines of the file (-), of the code (+)\n{report}\n{hint}"
    );
    Ok(())
}

#[test]
fn a_transcript_is_the_same_each_time() -> Result<(), String> {
    for file in files()? {
        let text = fs::read_to_string(&file).map_err(|it| it.to_string())?;
        assert_eq!(replayed(&text)?, replayed(&text)?, "{}", file.display());
    }
    Ok(())
}

#[test]
fn nothing_is_rewritten_under_ci() {
    assert_eq!(Mode::of(None, None), Ok(Mode::Compare));
    assert_eq!(Mode::of(None, Some("true")), Ok(Mode::Compare));
    assert_eq!(Mode::of(Some("1"), Some("")), Ok(Mode::Update));
    let refused = Mode::of(Some("1"), Some("true"));
    assert!(refused.is_err_and(|it| it.contains("hint: update on your own machine")));
}

#[test]
fn a_difference_shows_the_line_of_the_command_and_both_versions() -> Result<(), String> {
    let text = "# A controller alone.\nshow config\n----\nConfig number=1\n";
    let (code, differences) = replayed(text)?;
    assert_eq!(
        differences,
        "2: show config\n  - Config number=1\n  + no Config\n"
    );
    assert_eq!(
        code,
        "# A controller alone.\nshow config\n----\nno Config\n"
    );
    assert_eq!(
        replayed(&code)?,
        (code.clone(), String::new()),
        "updating once is enough"
    );
    Ok(())
}

#[test]
fn a_diff_keeps_the_lines_that_both_have() {
    let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let found = diff(&lines("a b c d"), &lines("a x c d e"));
    assert_eq!(found, "    a\n  - b\n  + x\n    c\n    d\n  + e\n");
}

#[test]
fn a_mistake_in_a_transcript_names_its_line() {
    let mistakes = [
        ("\nget k\n", "2: `----` is missing below `get k`"),
        ("get k\n----\n", "1: `get k`: no such owner runs"),
        ("gte k\n----\n", "1: `gte k`: there is no command `gte`"),
        (
            "tick 5\n----\n",
            "1: `tick 5`: `5` is no time; such as 50ms or 2s",
        ),
        (
            "tick 5ms twice\n----\n",
            "1: `tick 5ms twice`: `twice` means nothing here",
        ),
        (
            "drop server1->router1\n----\n",
            "no message is under way there",
        ),
        (
            "hold server\n----\n",
            "`server` is no part; such as server2 or portal1",
        ),
    ];
    for (text, wanted) in mistakes {
        let error = replayed(text).err().unwrap_or_default();
        assert!(error.ends_with(wanted), "{error}");
    }
}
