//! Settings of the XLA distributed profiler: its environment variables and the keys of its JSON
//! file, read as our own.
//!
//! [`super::Config::load`] and [`super::Config::set`] use it for names that are not our keys. A
//! setting with the same meaning becomes one of our keys, and a setting for our default behaviour
//! is accepted; anything else is an error that names the key to use. [`Report`] summarises all of
//! it in one line.

use super::values::number;

/// Interpretation of a setting of the XLA profiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Keys of probe_sync, and their text.
    Set(Vec<&'static str>, String),
    /// Behaviour that needs no setting, in words.
    Done(&'static str),
}

/// One setting of the XLA profiler.
struct Setting {
    /// The environment variable; empty if there is none.
    variable: &'static str,
    /// The key in the XLA profiler's file.
    key: &'static str,
    meaning: fn(&str) -> Result<Meaning, String>,
}

/// Interprets a key of the XLA profiler; `None` if it is not one.
pub(super) fn key(name: &str, text: &str) -> Option<Result<Meaning, String>> {
    // Ours of that name is a number.
    if name == "neighbors" && text.trim_start().starts_with('[') {
        return Some(Ok(Meaning::Set(vec!["out_neighbors"], text.to_owned())));
    }
    SETTINGS.iter().find(|setting| setting.key == name).map(|setting| (setting.meaning)(text))
}

/// Interprets a variable of the XLA profiler; `None` if it is not one. An unknown variable with one
/// of its prefixes is an error, as for probe_sync's own.
pub(super) fn variable(name: &str, text: &str) -> Option<Result<Meaning, String>> {
    let found = SETTINGS.iter().find(|setting| !setting.variable.is_empty() && setting.variable == name);
    let unknown = || {
        let known: Vec<&str> =
            SETTINGS.iter().map(|setting| setting.variable).filter(|name| !name.is_empty()).collect();
        Err(format!("unknown variable; known: {CONFIG}, {}", known.join(", ")))
    };
    let ours_to_know = PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && name != CONFIG;
    found.map(|setting| (setting.meaning)(text)).or_else(|| ours_to_know.then(unknown))
}

/// Variable that names the XLA profiler's file.
pub(super) const CONFIG: &str = "XLA_DIST_PROF_CONFIG";

/// Prefixes that no other program's variables have.
const PREFIXES: [&str; 2] = ["XLA_PROBE_", "XLA_DIST_PROF_"];

const SETTINGS: &[Setting] = &[
    Setting { variable: "XLA_ENABLE_DISTRIBUTED_PROFILING", key: "enabled", meaning: enabled },
    Setting { variable: "XLA_PROBE_CADENCE_US", key: "probe_cadence_us", meaning: |text| timed("cadence", text, "us") },
    Setting { variable: "XLA_PROBE_WINDOW_S", key: "probe_window_s", meaning: |text| timed("window", text, "s") },
    Setting {
        variable: "XLA_PACKET_SPACING_US",
        key: "packet_spacing_us",
        meaning: |text| timed("spacing", text, "us"),
    },
    Setting { variable: "XLA_SNAPSHOT_PERIOD_MS", key: "snapshot_period_ms", meaning: period },
    Setting { variable: "XLA_ROCM_SNAPSHOT_PERIOD_MS", key: "", meaning: period },
    Setting {
        variable: "XLA_DIST_PROF_OUTPUT_DIR",
        key: "output_dir",
        meaning: |text| Ok(Meaning::Set(vec!["out"], text.to_owned())),
    },
    Setting { variable: "XLA_ENABLE_PROBE_EXPORT", key: "enable_probe_export", meaning: export },
    Setting { variable: "XLA_ENABLE_CLOCK_SNAPSHOTS", key: "enable_clock_snapshots", meaning: snapshots },
    Setting { variable: "XLA_GRAPH_POLICY", key: "graph_policy", meaning: policy },
    Setting { variable: "", key: "enable_master_sync", meaning: master_sync },
    Setting { variable: "", key: "master_node_id", meaning: master },
    Setting { variable: "", key: "master_control_port", meaning: port },
    Setting { variable: "", key: "master_sync_port", meaning: port },
    Setting { variable: "", key: "gloo_timeout_ms", meaning: |text| timed("round_timeout", text, "ms") },
    Setting { variable: "", key: "enable_socket_timestamping", meaning: stamping },
    Setting {
        variable: "",
        key: "timestamp_sync_timeout",
        meaning: |_| Err("the new key is round_timeout, as in \"10s\"".into()),
    },
    Setting { variable: "", key: "has_probe_senders", meaning: senders },
    Setting { variable: "", key: "probe_participants", meaning: |_| Err(PARTICIPANTS.into()) },
    Setting {
        variable: "",
        key: "edge_ports",
        meaning: |_| Err("a node has one UDP port for all its edges; the new key is port".into()),
    },
    Setting { variable: "", key: "node_id", meaning: |_| Err(PLACE.into()) },
    Setting { variable: "", key: "num_nodes", meaning: |_| Err(PLACE.into()) },
    Setting { variable: "", key: "node_addresses", meaning: |_| Err(ADDRESSES.into()) },
];

/// Parses a whole number of `unit`.
fn timed(key: &'static str, text: &str, unit: &str) -> Result<Meaning, String> {
    let count: u64 = number(text).map_err(|_| {
        format!(
            "\"{text}\" is not a whole number of {unit}; the new key is {key}, whose values have a unit, as in 4{unit}"
        )
    })?;
    Ok(Meaning::Set(vec![key], format!("{count}{unit}")))
}

fn period(text: &str) -> Result<Meaning, String> {
    let count: u64 = number(text).map_err(|_| {
        format!("\"{text}\" is not a whole number of milliseconds; the new key is snapshot_pair_period_ms")
    })?;
    Ok(Meaning::Set(vec!["snapshot_pair_period_ms"], count.to_string()))
}

/// Parses a boolean of the XLA profiler: 0, 1, true, false in any case.
fn switch(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(format!("\"{text}\" is not one of 1, 0, true, false")),
    }
}

fn on(text: &str, done: &'static str, off: &str) -> Result<Meaning, String> {
    if switch(text)? { Ok(Meaning::Done(done)) } else { Err(off.to_owned()) }
}

fn enabled(text: &str) -> Result<Meaning, String> {
    on(
        text,
        "starting probe_sync always measures",
        "turns measurement off, but probe_sync was started to measure; remove it or do not start probe_sync",
    )
}

fn export(text: &str) -> Result<Meaning, String> {
    on(text, "windows/ is always written", "windows/ is always written, in the directory of the key out; remove it")
}

fn snapshots(text: &str) -> Result<Meaning, String> {
    let none = || Meaning::Set(vec!["tracer_clock"], "none".to_owned());
    Ok(if switch(text)? { Meaning::Done("snapshot pairs are taken unless tracer_clock is none") } else { none() })
}

fn policy(text: &str) -> Result<Meaning, String> {
    match text.trim() {
        "random_graph" => Ok(Meaning::Done("the graph is a ring with random chords")),
        other => Err(format!(
            "\"{other}\": the graph is a ring with random chords; neighbors sets its degree, seed draws it, and out_neighbors replaces it"
        )),
    }
}

fn master_sync(text: &str) -> Result<Meaning, String> {
    Ok(if switch(text)? {
        Meaning::Done("rank 0 ends the rounds")
    } else {
        Meaning::Set(vec!["rounds"], "local".to_owned())
    })
}

fn master(text: &str) -> Result<Meaning, String> {
    let node: u32 = number(text)
        .map_err(|problem| format!("{problem}; the new keys are master (a rank) and reference (a node)"))?;
    Ok(Meaning::Set(vec!["master", "reference"], node.to_string()))
}

fn port(text: &str) -> Result<Meaning, String> {
    let _: u16 = number(text).map_err(|problem| format!("{problem}; remove it"))?;
    Ok(Meaning::Done("ranks talk over MPI or at MASTER_PORT"))
}

fn stamping(text: &str) -> Result<Meaning, String> {
    on(
        text,
        "timestamps come from the kernel or better, if available",
        "the new key is timestamps: \"user\" selects the program's own, which are less accurate; remove it to use the best available",
    )
}

fn senders(text: &str) -> Result<Meaning, String> {
    on(text, "every node that has an out-neighbour probes", PARTICIPANTS)
}

const PARTICIPANTS: &str = "the graph decides who probes: a node probes its out-neighbours, and a node without any only answers; the \
    new key is out_neighbors";
const PLACE: &str = "ranks come from the launcher: mpirun, or RANK and WORLD_SIZE; remove it";
const ADDRESSES: &str = "nodes tell each other their addresses; the new keys are interface, bind and port, for this node's own \
    address; remove it";

/// How the XLA profiler's settings were interpreted, for one log line.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<String>);

impl Report {
    /// Records a setting that was translated or needs no translation.
    pub(super) fn read(&mut self, theirs: &str, ours: &str) {
        self.0.push(format!("{theirs} read as {ours}"));
    }

    /// Records a setting that a different one of probe_sync overrides.
    pub(super) fn beaten(&mut self, theirs: &str, ours: &str) {
        self.0.push(format!("{theirs} is ignored because {ours} is given"));
    }

    /// Records a setting that needs no translation.
    pub(super) fn done(&mut self, theirs: &str, why: &str) {
        self.0.push(format!("{theirs} accepted ({why})"));
    }

    /// Returns the line; `None` if there were no such settings.
    pub(super) fn line(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| format!("settings of the XLA distributed profiler: {}", self.0.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_every_setting() {
        let page = include_str!("../../../../docs/xla.md");
        for Setting { variable, key, .. } in SETTINGS {
            for name in [variable, key].into_iter().filter(|name| !name.is_empty()) {
                assert!(page.contains(&format!("`{name}`")), "docs/xla.md lacks {name}");
            }
        }
        PREFIXES.iter().chain([&CONFIG]).for_each(|name| assert!(page.contains(name), "docs/xla.md lacks {name}"));
    }
}
