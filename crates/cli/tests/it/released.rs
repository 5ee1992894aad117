//! Commands, options and settings of earlier builds: each is still accepted.
//!
//! `tests/released_commands.py` makes the list from a reference page.

use std::collections::BTreeSet;

use crate::support::{output, probe_sync, text};

/// Whether the command line is parsed up to `--help`; a value that an option lacks is no lost
/// option.
fn refusal(words: &[&str]) -> Option<String> {
    let answered = output(probe_sync(&[words, &["--help"]].concat()));
    let said = String::from_utf8_lossy(&answered.stderr).into_owned();
    ["unexpected argument", "unrecognized subcommand"].iter().any(|lost| said.contains(lost)).then_some(said)
}

#[test]
#[ignore = "long: a process for each option"]
fn no_command_or_option_of_earlier_builds_is_lost() {
    let lost: Vec<String> = include_str!("released_commands.txt")
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split(' ').filter(|word| *word != "-").collect();
            refusal(&words).map(|said| format!("{line}: {said}"))
        })
        .collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

/// Settings are the measuring options with underscores, in a file as on the command line.
#[test]
fn no_setting_of_earlier_builds_is_lost() {
    let options: BTreeSet<&str> =
        include_str!("released_commands.txt").lines().filter_map(|line| line.strip_prefix("run --")).collect();
    let settings: Vec<String> =
        options.difference(&NO_SETTINGS.into()).map(|option| option.replace('-', "_")).collect();
    assert!(settings.len() > 40, "only {} settings", settings.len());
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("settings.toml");
    for setting in settings {
        // The last of all keys has no such value, so nothing is measured; keys are looked at in
        // their order.
        let asked = if setting == "window" { String::new() } else { format!("{setting} = \"?\"\n") };
        std::fs::write(&file, asked + "window = \"?\"\n").expect("writable");
        let answered = output(probe_sync(&["run", "--local", "2", "--config", text(&file)]));
        let said = String::from_utf8_lossy(&answered.stderr);
        assert!(!answered.status.success() && !said.contains("unknown key"), "{setting}: {said}");
    }
}

/// Options of the run that are no settings.
const NO_SETTINGS: [&str; 8] = ["config", "help", "json", "local", "log-format", "quiet", "verbose", "wide"];
