//! Every command line of this program that the README and the pages of `docs` show must be one that
//! it accepts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::args::Cli;

/// A fenced block: its first line, its info string, its text.
struct Block {
    place: String,
    info: String,
    text: String,
}

fn blocks(path: &Path) -> Vec<Block> {
    let page = std::fs::read_to_string(path).expect("a page");
    let (mut blocks, mut open): (Vec<Block>, bool) = (Vec::new(), false);
    for (number, line) in page.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open) {
            (Some(info), false) => {
                let place = format!("{}:{}", path.display(), number + 1);
                blocks.push(Block { place, info: info.trim().to_owned(), text: String::new() });
                open = true;
            }
            (Some(_), true) => open = false,
            (None, true) => blocks.last_mut().expect("it was opened").text += &format!("{line}\n"),
            (None, false) => {}
        }
    }
    assert!(!open, "{}: a block does not end", path.display());
    blocks
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    for folder in ["docs", "docs/guide", "docs/reference"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("a folder");
        let paths = entries.map(|entry| entry.expect("readable").path());
        pages.extend(paths.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    }
    pages.sort();
    pages
}

/// The words of each command of a script, as far as the pages use shell grammar: quotes, comments,
/// continued lines and command separators.
fn commands(script: &str) -> Vec<Vec<String>> {
    let script = script.replace("\\\n", " ");
    let (mut commands, mut words, mut word): (Vec<Vec<String>>, Vec<String>, Option<String>) = Default::default();
    let mut quote = None;
    let mut letters = script.chars().peekable();
    while let Some(c) = letters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => while letters.next_if(|c| *c != '\n').is_some() {},
            (None, '\n' | ';' | '&' | '|' | '>' | '<') => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
                // What a redirection names is no command.
                if c == '>' {
                    commands.push(vec!["redirected to".to_owned()]);
                }
            }
            (None, ' ') => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

#[test]
fn words_are_taken_apart_as_the_shell_does() {
    let found = commands("RANK=1 probe_sync run  --out 'a b' & # beside\nkill %1; probe_sync \\\n  status>x\n");
    let expected: [&[&str]; 5] = [
        &["RANK=1", "probe_sync", "run", "--out", "a b"],
        &["kill", "%1"],
        &["probe_sync", "status"],
        &["redirected to"],
        &["x"],
    ];
    assert_eq!(found, expected);
}

#[test]
fn every_command_line_of_the_documents_is_accepted() {
    let (mut count, mut wrong) = (0, Vec::new());
    for page in pages() {
        for Block { place, info, text } in blocks(&page) {
            let is_shell = info.split(' ').next() == Some("sh");
            for words in commands(&text) {
                let Some(at) = words.iter().position(|word| word == "probe_sync") else { continue };
                // In text that is no shell script the name is a word like others.
                let starts = is_shell || at == 0 && info.is_empty() && words.len() > 1;
                if !starts || words.get(..at).is_some_and(|before| before.iter().any(|word| word == "build")) {
                    continue;
                }
                assert!(is_shell, "{place}: a block with commands is marked as `sh`");
                count += 1;
                // A shell's pattern and a value that a reader puts in are words like others here.
                let read = Cli::read(&words[at..].iter().map(OsString::from).collect::<Vec<_>>());
                if let Err(error) = read
                    && error.use_stderr()
                {
                    wrong.push(format!("{place}: {}\n{error}", words[at..].join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 60, "only {count} command lines were found");
}

/// `docs/reference/command_line.md`: the `--help` of every command.
#[test]
fn the_reference_of_the_command_line_is_fresh() {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut text = String::from(REFERENCE);
    describe(&mut command, "probe_sync", &mut text);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/command_line.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &text).expect("a file that can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == text,
        "docs/reference/command_line.md is not what --help says: {WRITE}=1 cargo test -p probe-sync-cli pages writes it"
    );
}

/// Adds a section for the command, then those of its subcommands.
fn describe(command: &mut clap::Command, name: &str, text: &mut String) {
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    *text += &format!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n").trim());
    for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set()) {
        let name = format!("{name} {}", inner.get_name());
        describe(inner, &name, text);
    }
}

const REFERENCE: &str = "\
# The command line

The output of `probe_sync COMMAND --help` for every command. This page is generated from the program, and a test keeps it current. Builds without some features lack their commands and flags.
";
const WRITE: &str = "PAGES_WRITE";
