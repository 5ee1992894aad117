//! `probe_sync completions SHELL` and `probe_sync man`: shell completions and the manual page.
//!
//! Both are generated from the description of the command line that parses it (`args`), so they
//! cannot differ from the program. Packages ship both.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use probe_sync_files::NewFolders;

use crate::output;

/// Flags of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Flags of `json-schemas`.
#[derive(Args, Debug)]
pub struct SchemasArgs {
    /// Write one file per schema, COMMAND.vN.json, to this directory
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Flags of `man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write the pages of all commands to this directory, one file each (probe_sync.1,
    /// probe_sync-align.1, ...)
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Prints the completions of a shell.
///
/// # Errors
/// Returns an error if standard output cannot be written.
pub fn completions(arguments: &CompletionsArgs, mut command: Command) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, NAME, &mut text);
    output::print(&String::from_utf8(text)?)
}

/// Prints the page of `probe_sync`, or writes those of all commands.
///
/// # Errors
/// Names the file that cannot be written.
pub fn man(arguments: &ManArgs, mut command: Command) -> anyhow::Result<()> {
    // Commands know their whole names only then.
    command.build();
    let Some(folder) = &arguments.output else {
        return output::print(&String::from_utf8(page(command, NAME)?)?);
    };
    NewFolders::create(folder).with_context(|| format!("cannot make {}", folder.display()))?.keep();
    let mut count = 0;
    write_pages(&command, NAME, folder, &mut count)?;
    output::print(&format!("wrote {count} pages to {}\n", folder.display()))
}

/// Prints the schemas of all documents, or writes them into a directory.
///
/// # Errors
/// Names the file that cannot be written.
pub fn schemas(arguments: &SchemasArgs) -> anyhow::Result<()> {
    let all = crate::documents::schemas();
    let Some(folder) = &arguments.output else {
        let all: serde_json::Map<String, serde_json::Value> =
            all.into_iter().map(|(name, number, schema)| (schema_name(name, number), schema.to_value())).collect();
        return output::print(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    };
    NewFolders::create(folder).with_context(|| format!("cannot make {}", folder.display()))?.keep();
    for (name, number, schema) in &all {
        let text = format!("{}\n", serde_json::to_string_pretty(schema)?);
        output::write_whole(&folder.join(schema_name(name, *number)), text.as_bytes())?;
    }
    output::print(&format!("wrote {} schemas to {}\n", all.len(), folder.display()))
}

fn schema_name(command: &str, number: u32) -> String {
    format!("{command}.v{number}.json")
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(command: &Command, name: &str, folder: &Path, count: &mut usize) -> anyhow::Result<()> {
    output::write_whole(&folder.join(format!("{name}.1")), &page(command.clone(), name)?)?;
    *count += 1;
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set()) {
        write_pages(inner, &format!("{name}-{}", inner.get_name()), folder, count)?;
    }
    Ok(())
}

fn page(command: Command, name: &str) -> anyhow::Result<Vec<u8>> {
    let guide = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    // Whose title names no subcommand: `man` shows it at the top of every page.
    let command = command.display_name(name.to_owned()).after_long_help("").after_help("");
    let title = format!(".TH {} 1 {DATE} \"probe_sync {}\"\n", name.to_uppercase(), env!("CARGO_PKG_VERSION"));
    let has_commands = command.get_subcommands().any(|inner| !inner.is_hide_set());
    let man = clap_mangen::Man::new(command);
    let mut text = Vec::from(PREFACE);
    text.extend_from_slice(title.as_bytes());
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    let mut text = plain(&String::from_utf8(text)?);
    sections(&guide, &mut text);
    Ok(text.into_bytes())
}

/// Adds the guide of a command as sections: a line in capitals begins one, and text after the
/// capitals on the same line belongs to it. Line breaks are kept.
fn sections(guide: &str, page: &mut String) {
    for block in guide.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let capitals = block.find(|c: char| !c.is_ascii_uppercase() && c != ' ').unwrap_or(block.len());
        // The last capital begins a sentence where no line ends behind it.
        let ends = block[capitals..].starts_with('\n') || capitals == block.len();
        let end = if ends { capitals } else { block[..capitals].rfind(' ').unwrap_or(0) };
        let (heading, text) = block.split_at(end);
        let heading = if heading.trim().is_empty() { "NOTES" } else { heading.trim() };
        *page += &format!(".SH \"{heading}\"\n.nf\n");
        for line in text.strip_prefix('\n').unwrap_or(text.trim_start()).lines() {
            let line = line.trim_start_matches("  ").replace('\\', "\\e").replace('-', "\\-");
            let mark = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
            *page += &format!("{mark}{}\n", line.trim_end());
        }
        *page += ".fi\n";
    }
}

/// Removes spaces at line ends, and breaks next to existing spaces: `mandoc -Tlint` reports them.
fn plain(page: &str) -> String {
    let lines: Vec<&str> = page.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let breaks = |at: usize| lines.get(at).is_some_and(|line| *line == ".br" || line.starts_with(".sp"));
    let doubled = |at: usize| lines[at] == ".br" && (breaks(at + 1) || at > 0 && lines[at - 1].starts_with(".sp"));
    let kept = (0..lines.len()).filter(|at| !doubled(*at));
    kept.flat_map(|at| [lines[at], "\n"]).collect()
}

/// Definition of the apostrophe that `clap_mangen` uses.
const PREFACE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";
/// When the pages of this version were last changed.
const DATE: &str = "2026-11-25";
const NAME: &str = "probe_sync";
