//! The file of a transcript: commands, and below each of them its output.
//!
//! The format is that of etcd's `testdata`. The crate `datadriven` reads it too, but it rewrites
//! files under CI as well, stops at the first difference, and prints no differing lines.

use std::fmt::Write as _;

const RULE: &str = "----";

/// A command with its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// The place of the command in the file, counted from 1.
    pub(crate) line: usize,
    /// The comments and empty lines above it.
    pub(crate) before: Vec<String>,
    pub(crate) command: String,
    pub(crate) output: Vec<String>,
}

/// What the environment asks a test to do with the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Compare,
    Update,
}

impl Mode {
    /// Returns the mode for the values of `UPDATE_TRANSCRIPTS` and `CI`.
    ///
    /// # Errors
    ///
    /// Under CI nothing is rewritten: a failure would rewrite its own evidence, and pass.
    pub(crate) fn of(update: Option<&str>, ci: Option<&str>) -> Result<Self, String> {
        let is_set = |it: Option<&str>| it.is_some_and(|it| !it.is_empty());
        match (is_set(update), is_set(ci)) {
            (false, _) => Ok(Self::Compare),
            (true, false) => Ok(Self::Update),
            (true, true) => Err(
                "transcripts: UPDATE_TRANSCRIPTS and CI are both set; hint: update on your own \
                 machine, read the diff and commit it"
                    .to_owned(),
            ),
        }
    }
}

/// Returns the blocks of a file, and the comments after the last one.
pub(crate) fn parse(text: &str) -> Result<(Vec<Block>, Vec<String>), String> {
    let (mut blocks, mut before) = (Vec::new(), Vec::new());
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            before.push(line.to_owned());
            continue;
        }
        if !matches!(lines.next(), Some((_, RULE))) {
            return Err(format!("{}: `{RULE}` is missing below `{line}`", index + 1));
        }
        let output = lines.by_ref().map(|it| it.1.to_owned());
        blocks.push(Block {
            line: index + 1,
            before: std::mem::take(&mut before),
            command: line.to_owned(),
            output: output.take_while(|it| !it.is_empty()).collect(),
        });
    }
    Ok((blocks, before))
}

/// Returns the text of a file with these blocks.
pub(crate) fn render(blocks: &[Block], after: &[String]) -> String {
    let mut text = String::new();
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let head = [&block.command, RULE];
        let head = head.into_iter().map(str::to_owned);
        for line in block
            .before
            .iter()
            .cloned()
            .chain(head)
            .chain(block.output.clone())
        {
            text.push_str(&line);
            text.push('\n');
        }
    }
    if !after.is_empty() {
        text.push('\n');
        text.push_str(&after.join("\n"));
        text.push('\n');
    }
    text
}

/// Returns the lines of two outputs: those of both, those of the file alone (`-`), and those of the
/// code alone (`+`).
pub(crate) fn diff(file: &[String], code: &[String]) -> String {
    // Length of the longest common part of the lines from each place on.
    let mut common = vec![vec![0_usize; code.len() + 1]; file.len() + 1];
    for row in (0..file.len()).rev() {
        for column in (0..code.len()).rev() {
            common[row][column] = if file[row] == code[column] {
                common[row + 1][column + 1] + 1
            } else {
                common[row + 1][column].max(common[row][column + 1])
            };
        }
    }
    let (mut row, mut column, mut text) = (0, 0, String::new());
    while row < file.len() || column < code.len() {
        let both = row < file.len() && column < code.len() && file[row] == code[column];
        let old = row < file.len()
            && (column == code.len() || common[row + 1][column] >= common[row][column + 1]);
        let (sign, line) = match (both, old) {
            (true, _) => (' ', &file[row]),
            (false, true) => ('-', &file[row]),
            (false, false) => ('+', &code[column]),
        };
        row += usize::from(both || old);
        column += usize::from(both || !old);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {sign} {line}");
    }
    text
}
