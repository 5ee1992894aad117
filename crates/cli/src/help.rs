//! What `probe_sync -h` shows: commands in groups, and of the settings of a run those that people
//! use.

use clap::Arg;
use probe_sync::config::KEYS;

/// The settings of a run in the help of `probe_sync`; `run --help` shows all.
const SHOWN: [&str; 6] = ["out", "duration", "target_error", "reference", "interface", "metrics_listen"];

/// Commands by purpose.
const GROUPS: [(&str, &[(&str, &str)]); 4] = [
    (
        "Measure",
        &[
            ("run", "Measure the clocks of a job's nodes (the default command)"),
            ("demo", "Show the whole workflow on this machine in about ten seconds"),
            ("doctor", "Check what this machine supports, or with --peers a whole job"),
            ("status", "Show the state of a run"),
            ("report", "Write a run as one HTML page"),
            ("clock", "Print the current reference time"),
        ],
    ),
    (
        "Traces",
        &[
            ("check", "Count collectives that end before all ranks have entered"),
            ("stragglers", "Report which ranks were late, and at what cost"),
            ("hang", "Report which ranks caused a hang, from Flight Recorder dumps"),
            ("align", "Rewrite traces onto the reference clock"),
            ("merge", "Merge the traces of all ranks into one file"),
            ("convert", "Convert traces, with rocpd convert's flags; also CSV and OTF2"),
            ("query", "Run one SQL query over all rocprofv3 databases"),
            ("record", "Control and read recordings of the event recorder"),
        ],
    ),
    (
        "Operate",
        &[
            ("ctl", "Pause, resume, stop or mark phases of a run"),
            ("solve", "Recompute offsets from what a run recorded"),
            ("compose", "Put runs of several regions on one timeline"),
            ("export", "Write a run as one protobuf message"),
            ("config", "Print all settings with their defaults"),
            ("completions", "Print shell completions"),
            ("man", "Print or write manual pages"),
        ],
    ),
    ("Plan", &[("sim", "Simulate a run to predict its accuracy and cost")]),
];

/// The help of `probe_sync`, with clap's placeholders.
pub fn template() -> String {
    let mut text = String::from("{about}\n\nUsage: probe_sync [COMMAND] [OPTIONS]\n");
    for (group, commands) in GROUPS {
        text += &format!("\n{group}:\n");
        for (name, what) in commands.iter().filter(|(name, _)| cfg!(feature = "rocpd") || *name != "query") {
            text += &format!("  {name:<12}{what}\n");
        }
    }
    text + "\nOptions (see probe_sync COMMAND --help for those of a command):\n{options}{after-help}"
}

/// Hides a rarely used setting.
pub fn hide_rare(arg: Arg) -> Arg {
    let id = arg.get_id().as_str();
    let is_rare = KEYS.iter().any(|key| key.name == id) && !SHOWN.contains(&id);
    let is_hidden = arg.is_hide_set() || is_rare;
    arg.hide(is_hidden)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Cli::command();
        let mut known: Vec<&str> =
            command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, commands)| commands.iter().map(|(name, _)| *name)).collect();
        grouped.retain(|name| cfg!(feature = "rocpd") || *name != "query");
        known.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(known, grouped);
    }

    #[test]
    fn the_short_help_fits_a_screen_and_names_settings_that_exist() {
        let help = Cli::command().render_help().to_string();
        assert!(help.lines().count() <= 60, "{} lines:\n{help}", help.lines().count());
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        for name in SHOWN {
            let key = KEYS.iter().find(|key| key.name == name).expect(name);
            assert!(help.contains(&format!("--{}", key.flag)), "no --{}:\n{help}", key.flag);
        }
    }
}
