//! Configuration, with each key defined once, together with its meaning, its default and which
//! ranks must agree on it.
//!
//! A value comes from, in this order, a flag, the environment (`PROBE_SYNC_<KEY>`), a TOML or JSON
//! file, the default. All four pass through [`Config::set`], so that one text means the same
//! everywhere and an error names where the value came from. Unknown keys are errors; an unknown
//! variable is a warning, because other programs make such names as well (`environment`). Ranks
//! compare [`Config::shared_entries`] before they start.
//!
//! `table` lists the keys; `values` reads and writes single values; what concerns several keys at
//! once is checked here. `xla` knows the settings of the XLA distributed profiler, and `sources`
//! puts all settings in order of precedence.
//!
//! It does not parse command lines (crate `cli`) or check that an address exists (crate `sys`).

mod environment;
mod example;
mod skew_model;
mod sources;
mod table;
mod values;
mod xla;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration as StdDuration;

use probe_sync_estimate::edge_fit::FitOptions;
use probe_sync_estimate::pacing::{Budget, PacingOptions};
use probe_sync_time::{Duration, NodeId};

pub use self::environment::{VARIABLES, is_service_link};
pub use self::example::example;
pub use self::skew_model::SkewModel;
pub use self::table::{Config, KEYS, Key, Section};
pub(crate) use self::values::region_name;
pub use self::values::{ClockCounter, InjectedStep, ReferenceChoice, RoundMode, TracerClockChoice, bytes, duration};
use crate::Error;

impl Config {
    /// Loads the defaults, overridden by `file` (TOML, or JSON if its name ends in that or it
    /// begins with a brace), then by the environment, then by `flags` (key and text). Settings of
    /// the XLA distributed profiler are also read: its variables and the keys of its file
    /// (`XLA_DIST_PROF_CONFIG`, if no `file` is given). Settings of probe_sync take precedence over
    /// them, and one line of the log states how each was interpreted.
    ///
    /// ```
    /// use probe_sync::Config;
    /// use probe_sync_time::Duration;
    ///
    /// let environment = [("PROBE_SYNC_WINDOW".into(), "3s".into()), ("HOME".into(), "/".into())];
    /// let flags = [("cadence".to_owned(), "400us".to_owned())];
    /// let config = Config::load(None, environment.into_iter(), &flags)?;
    /// assert_eq!((config.window(), config.cadence()), (Duration::from_ms(3_000), Duration::from_us(400)));
    ///
    /// let flags = [("window".to_owned(), "3".to_owned())];
    /// let error = Config::load(None, std::iter::empty(), &flags).expect_err("no unit");
    /// assert!(error.to_string().starts_with("--window: window: \"3\""));
    /// # Ok::<(), probe_sync::Error>(())
    /// ```
    ///
    /// # Errors
    /// Names the source, the key and what is wrong with the value.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (OsString, OsString)>,
        flags: &[(String, String)],
    ) -> Result<Self, Error> {
        let mut config = sources::gathered(file, environment, flags)?;
        if let Some(duration) = config.duration {
            // A run shorter than a window is one window.
            if duration < config.window() {
                config.window = Some(duration);
            }
        }
        config.keep_to_budget();
        config.check()?;
        Ok(config)
    }

    /// Lengthens the cadence to what the budget allows, from the first window on.
    fn keep_to_budget(&mut self) {
        let least = self.pacing().map(|pacing| Duration::from_ns(pacing.budget.cadence_min_ns()));
        if let Some(least) = least.filter(|least| self.cadence() < *least) {
            self.cadence = Some(least);
        }
    }

    /// Applies this budget if nothing else determines the cost of probing (no budget, no cadence,
    /// no fixed pace), and adjusts the cadence to the budget in force.
    pub(crate) fn keep_to_budget_or(&mut self, cpu_share: f64) {
        if !self.fixed && self.cadence.is_none() && self.budget_bps.is_none() {
            self.budget_cpu.get_or_insert(cpu_share);
        }
        self.keep_to_budget();
    }

    /// Sets one key from its text. `origin` names the source of the text in errors.
    ///
    /// # Errors
    /// [`Error::Configuration`] for an unknown key or an unusable value.
    pub fn set(&mut self, key: &str, text: &str, origin: &str) -> Result<(), Error> {
        let wrong = |reason: String| Error::Configuration { origin: origin.into(), key: key.into(), reason };
        let (names, text) = match xla::key(key, text).transpose().map_err(wrong)? {
            Some(xla::Meaning::Done(_)) => return Ok(()),
            Some(xla::Meaning::Set(names, text)) => (names, text),
            None => (vec![key], text.to_owned()),
        };
        names.into_iter().try_for_each(|name| {
            let known = Key::named(name).ok_or_else(|| wrong(unknown(name)))?;
            (known.read)(self, &text).map_err(wrong)
        })
    }

    /// Returns the gap between exchanges started by one host: constant, or initial if it is
    /// adapted.
    pub fn cadence(&self) -> Duration {
        self.cadence.unwrap_or(CADENCE)
    }

    /// Returns the length of windows: of all, or of the first if it is adapted.
    pub fn window(&self) -> Duration {
        self.window.unwrap_or(if self.is_fixed() { WINDOW } else { WINDOW_LIMITS[0] })
    }

    /// Returns true if the pace is fixed; naming a cadence but no target also fixes it.
    fn is_fixed(&self) -> bool {
        let aimed = self.adaptive || self.target_error.is_some();
        let budgeted = self.budget_bps.is_some() || self.budget_cpu.is_some();
        self.fixed || (self.cadence.is_some() && !aimed && !budgeted)
    }

    /// Returns the target and the budget of adaptive probing; `None` if the pace is fixed.
    pub fn pacing(&self) -> Option<PacingOptions> {
        if self.is_fixed() {
            return None;
        }
        let configured = Budget::cpu_share_of(self.cadence().as_ns());
        // Whoever asks for a fast cadence asks for its cost.
        let cpu_share = self.budget_cpu.or(self.budget_bps.is_none().then(|| configured.max(BUDGET_CPU)));
        Some(PacingOptions {
            target_ns: self.target_error.unwrap_or(TARGET_ERROR).as_ns_f64(),
            cadence_ns: self.cadence().as_ns(),
            budget: Budget { bits_per_second: self.budget_bps, cpu_share },
            window: self.window.is_none().then(|| WINDOW_LIMITS.map(Duration::as_ns)),
        })
    }

    /// Returns the options for fitting edges.
    pub(crate) fn fit_options(&self) -> FitOptions {
        let max_loss_ratio = self.max_loss_ratio.unwrap_or(f64::INFINITY);
        FitOptions { method: self.fit, min_pairs: self.min_pairs, max_loss_ratio, ..FitOptions::default() }
    }

    /// Returns the keys on which all ranks must agree, with their values as text.
    pub fn shared_entries(&self) -> Vec<(String, String)> {
        KEYS.iter().filter(|key| !key.local).map(|key| (key.name.to_owned(), (key.write)(self))).collect()
    }

    /// Returns all keys with their values as text, as `run.json` records them.
    pub fn entries(&self) -> Vec<(String, String)> {
        KEYS.iter().map(|key| (key.name.to_owned(), (key.write)(self))).collect()
    }

    /// Returns the value of a key as text.
    #[cfg(test)]
    fn text(&self, name: &str) -> Option<String> {
        Key::named(name).map(|key| (key.write)(self))
    }

    /// Returns the time after which a group over TCP begins with the ranks that have joined.
    pub fn begin_after(&self) -> Option<StdDuration> {
        self.start_timeout.map(Duration::to_std)
    }

    /// Returns true if the ranks are divided into regions, each a run of its own
    /// ([`crate::Regions`]).
    pub fn has_regions(&self) -> bool {
        self.region_setting().is_some()
    }

    /// Returns the setting that puts this rank into a region, with its value as text.
    pub(crate) fn region_setting(&self) -> Option<String> {
        let file = self.region_file.as_ref().map(|file| format!("--region-file {}", file.display()));
        self.region.as_ref().map(|name| format!("--region {name}")).or(file)
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |key: &str, reason: String| Error::Configuration {
            origin: "configuration".into(),
            key: key.into(),
            reason,
        };
        // A budget that is far too small has lengthened the cadence beyond its limit; say so of the
        // budget.
        if self.pacing().is_some_and(|pacing| pacing.budget.cadence_min_ns() > table::CADENCE_MAX.as_ns()) {
            let reason = "allows fewer than one exchange per minute; raise it";
            return Err(wrong("budget_bps or budget_cpu", reason.into()));
        }
        for key in KEYS {
            (key.check)(self).map_err(|reason| wrong(key.name, reason))?;
        }
        let refused =
            self.packets_refused().or_else(|| self.virtual_clocks_refused()).or_else(|| self.regions_refused());
        refused.map_or(Ok(()), |(key, reason)| Err(wrong(key, reason.into())))
    }

    /// Returns a key about the amount of packets that conflicts with another, and the reason.
    fn packets_refused(&self) -> Option<(&'static str, &'static str)> {
        let pacing = self.pacing();
        let fastest = pacing.as_ref().map_or(self.cadence().as_ns(), |pacing| pacing.budget.cadence_min_ns());
        let refusals = [
            (
                self.neighbors.is_some() && self.out_neighbors.is_some(),
                "neighbors",
                "draws a graph of that degree, but out_neighbors already defines one; omit one of them",
            ),
            (
                self.window().as_ns() / self.cadence().as_ns() > MAX_EXCHANGES_PER_WINDOW,
                "window",
                "means more than a million exchanges; choose a shorter window or a longer cadence",
            ),
            (
                pacing.is_none() && (self.budget_bps.is_some() || self.budget_cpu.is_some()),
                "budget_bps or budget_cpu",
                "limits adaptive probing; omit --fixed, or set only --cadence",
            ),
            (
                self.fixed && (self.adaptive || self.target_error.is_some()),
                "fixed",
                "fixes the cadence, but --adaptive and --target-error adapt it; omit one of them",
            ),
            (
                self.window().as_ns() / fastest > MAX_EXCHANGES_PER_WINDOW,
                "budget",
                "allows more than a million exchanges per window; choose a shorter window or a smaller budget",
            ),
            (
                self.spacing.as_ns() * 2 > self.exchange_timeout.as_ns(),
                "spacing",
                "is more than half of exchange_timeout; no exchange could finish",
            ),
        ];
        refusals.into_iter().find(|(applies, ..)| *applies).map(|(_, key, reason)| (key, reason))
    }

    /// Returns a key that conflicts with regions, each of which is a run of its own with nodes
    /// numbered from 0, and the reason.
    fn regions_refused(&self) -> Option<(&'static str, &'static str)> {
        self.region_setting()?;
        let named = self.out_neighbors.is_some() || self.in_neighbors.is_some();
        let numbers = "names nodes of one run, but every region numbers its own nodes; omit it";
        let steps = self.skew_model == SkewModel::Steps;
        let refusals = [
            (
                self.region.is_some() && self.region_file.is_some(),
                "region",
                "and region_file are both given; omit one of them",
            ),
            (
                self.port == u16::MAX,
                "port",
                "leaves no port for the run between the masters, which uses the next one; choose a lower one",
            ),
            (self.master != 0, "master", "leads one run, but every region has its own, led by its first rank; omit it"),
            (self.rounds != RoundMode::Master, "rounds", "must be master if there are regions"),
            (
                self.start_timeout.is_some(),
                "start_timeout",
                "starts without some ranks, but regions need all of them; omit it",
            ),
            (
                self.reference != ReferenceChoice::Node(NodeId(0)),
                "reference",
                "is rank 0's node if there are regions; omit it",
            ),
            (named, "out_neighbors or in_neighbors", numbers),
            (self.inject_step.is_some(), "inject_step", numbers),
            (
                steps,
                "skew_model",
                "steps would also step the masters' clocks, and regions cannot be composed across a step; choose \
                another model",
            ),
        ];
        refusals.into_iter().find(|(applies, ..)| *applies).map(|(_, key, reason)| (key, reason))
    }

    /// Returns a key about virtual clocks that conflicts with another, and the reason.
    fn virtual_clocks_refused(&self) -> Option<(&'static str, &'static str)> {
        let windows = self.duration.map_or(i64::MAX, |duration| duration.as_ns() / self.window().as_ns());
        let refusals = [
            (
                self.inject_step.is_some_and(|step| step.node == NodeId(0)),
                "inject_step",
                "names node 0, whose clock is never virtual; choose another node",
            ),
            (
                self.inject_step.is_some() && self.inject_skew.is_none(),
                "inject_step",
                "needs --inject-skew: only a virtual clock can be stepped",
            ),
            (
                windows < self.skew_model.fewest_windows(),
                "skew_model",
                "steps stay one window away from both ends; set --duration to three windows or more",
            ),
            (
                self.skew_model != SkewModel::Constant && self.inject_skew.is_none(),
                "skew_model",
                "needs --inject-skew: only a virtual clock can swing or step",
            ),
        ];
        refusals.into_iter().find(|(applies, ..)| *applies).map(|(_, key, reason)| (key, reason))
    }
}

/// Returns the error for an unknown key, with the closest known key, or all keys if none is close.
fn unknown(name: &str) -> String {
    let nearest = KEYS.iter().map(|key| (environment::distance(name, key.name), key.name)).min();
    match nearest.filter(|(edits, _)| *edits <= EDITS_MAX.min(name.len() / 2)) {
        Some((_, key)) => format!("unknown key; did you mean {key}?"),
        None => format!("unknown key; known: {}", KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")),
    }
}

/// Largest number of differing characters for which a known key is suggested.
const EDITS_MAX: usize = 3;

/// Default target.
const TARGET_ERROR: Duration = Duration::from_us(1);
/// Default cadence: of the first seconds, or with `fixed` of the whole run.
const CADENCE: Duration = Duration::from_us(800);
/// Default window for a fixed pace.
const WINDOW: Duration = Duration::from_ms(4_000);
/// Default first and longest windows.
const WINDOW_LIMITS: [Duration; 2] = [Duration::from_ms(1_000), Duration::from_ms(16_000)];
/// Default budget; the default cadence uses 0.06.
const BUDGET_CPU: f64 = 0.1;
/// Limit of the probe thread's memory for exchanges.
const MAX_EXCHANGES_PER_WINDOW: i64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)], expected: Result<(&str, &str), &str>) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("probe_sync.toml");
        std::fs::write(&path, file).expect("a writable directory");
        let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let environment = own(environment).into_iter().map(|(name, value)| (name.into(), value.into()));
        let loaded = Config::load(Some(&path), environment, &own(flags));
        match (loaded, expected) {
            (Ok(config), Ok((key, value))) => assert_eq!(config.text(key).expect("a key"), value),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error} lacks {part}"),
            (Ok(config), Err(part)) => panic!("{config:?} accepted, expected an error with {part}"),
            (Err(error), Ok(_)) => panic!("{error}"),
        }
    }

    #[test]
    fn precedence_is_flag_environment_file_default() {
        let environment = [("PROBE_SYNC_WINDOW", "3s"), ("HOME", "/"), ("PROBE_SYNC_LOG", "debug")];
        check("", &[], &[], Ok(("window", "auto")));
        check("window = '2s'", &[], &[], Ok(("window", "2s")));
        check("window = '2s'", &environment, &[], Ok(("window", "3s")));
        check("window = '2s'", &environment, &[("window", "1s")], Ok(("window", "1s")));
        check("probe_cadence_us = 400", &[], &[], Ok(("cadence", "400us")));
        check("", &[("PROBE_SYNC_CADENCE", "400us")], &[], Ok(("cadence", "400us")));
        check("windw = '2s'", &[], &[], Err("did you mean window?"));
        check("zzz = 1", &[], &[], Err("known: duration, window"));
        check("out_neighbors = [2, 1]", &[], &[], Ok(("out_neighbors", "2,1")));
        check("out_neighbors = 'none'", &[], &[], Ok(("out_neighbors", "none")));
        check("out_neighbors = '2'", &[], &[("out_neighbors", "auto")], Ok(("out_neighbors", "auto")));
        check("keep_probes = true", &[], &[], Ok(("keep_probes", "true")));
        check("", &[], &[("duration", "500ms")], Ok(("window", "500ms")));
        check("", &[], &[], Ok(("tracer_clock", "auto")));
        check("tracer_clock = 'boottime'", &[], &[], Ok(("tracer_clock", "boottime")));
        check("tracer_clock = 'tsc'", &[], &[("tracer_clock", "none")], Ok(("tracer_clock", "none")));
        let period = [("PROBE_SYNC_SNAPSHOT_PAIR_PERIOD_MS", "250")];
        assert!(KEYS.iter().any(|key| key.name == "snapshot_pair_period_ms" && key.local), "each node has its own");
        check("snapshot_pair_period_ms = 2000", &period, &[], Ok(("snapshot_pair_period_ms", "250")));
        check("reference = 2", &[], &[("reference", "auto")], Ok(("reference", "auto")));
        check("inject_skew = 7", &[], &[("inject_step", "3@5s:-200us")], Ok(("inject_step", "3@5s:-200us")));
    }

    /// Every setting of the XLA profiler, as a variable or as a key of its file.
    #[test]
    fn settings_of_the_xla_profiler_become_ours() {
        for (variable, key, text, expected) in [
            ("XLA_PROBE_CADENCE_US", "probe_cadence_us", "2000", ("cadence", "2ms")),
            ("XLA_PROBE_WINDOW_S", "probe_window_s", "4", ("window", "4s")),
            ("XLA_PACKET_SPACING_US", "packet_spacing_us", "50", ("spacing", "50us")),
            ("XLA_SNAPSHOT_PERIOD_MS", "snapshot_period_ms", "100", ("snapshot_pair_period_ms", "100")),
            ("XLA_ROCM_SNAPSHOT_PERIOD_MS", "", "25", ("snapshot_pair_period_ms", "25")),
            ("XLA_DIST_PROF_OUTPUT_DIR", "output_dir", "/tmp/xla_dist_prof", ("out", "/tmp/xla_dist_prof")),
            ("XLA_ENABLE_DISTRIBUTED_PROFILING", "enabled", "true", ("out", "probe_sync_out")),
            ("XLA_ENABLE_PROBE_EXPORT", "enable_probe_export", "1", ("out", "probe_sync_out")),
            ("XLA_ENABLE_CLOCK_SNAPSHOTS", "enable_clock_snapshots", "False", ("tracer_clock", "none")),
            ("XLA_ENABLE_CLOCK_SNAPSHOTS", "enable_clock_snapshots", "1", ("tracer_clock", "auto")),
            ("XLA_GRAPH_POLICY", "graph_policy", "random_graph", ("neighbors", "auto")),
            ("", "enable_master_sync", "true", ("reference", "0")),
            ("", "master_node_id", "3", ("reference", "3")),
            ("", "master_node_id", "3", ("master", "3")),
            ("", "enable_master_sync", "false", ("rounds", "local")),
            ("", "master_control_port", "36000", ("port", "0")),
            ("", "gloo_timeout_ms", "30000", ("round_timeout", "30s")),
            ("", "enable_socket_timestamping", "true", ("timestamps", "auto")),
            ("", "has_probe_senders", "true", ("out_neighbors", "auto")),
            ("", "neighbors", "[1, 4]", ("out_neighbors", "1,4")),
            ("", "in_neighbors", "[2]", ("in_neighbors", "2")),
        ] {
            if !variable.is_empty() {
                check("", &[(variable, text)], &[], Ok(expected));
            }
            if !key.is_empty() {
                let bare = text.parse::<u64>().is_ok() || text == "true" || text.starts_with('[');
                let value = if bare { text.to_owned() } else { format!("{text:?}") };
                check(&format!("{{\"{key}\": {value}}}"), &[], &[], Ok(expected));
            }
        }
    }

    #[test]
    fn ours_win_over_settings_of_the_xla_profiler() {
        let theirs = ("XLA_PROBE_WINDOW_S", "4");
        check("probe_window_s = 5", &[theirs], &[], Ok(("window", "4s")));
        check("window = '3s'", &[theirs], &[], Ok(("window", "3s")));
        check("", &[("PROBE_SYNC_WINDOW", "2s"), theirs], &[], Ok(("window", "2s")));
        check("", &[theirs], &[("window", "1s")], Ok(("window", "1s")));
        check(
            "",
            &[("XLA_FLAGS", "--xla_dump_to=x"), ("XLA_PYTHON_CLIENT_PREALLOCATE", "0")],
            &[],
            Ok(("window", "auto")),
        );
    }

    #[test]
    fn settings_of_the_xla_profiler_that_mean_nothing_here_name_ours() {
        for (key, value, expected) in [
            ("enabled", "false", "turns measurement off"),
            ("probe_window_s", "2.5", "new key is window"),
            ("probe_cadence_us", "\"fast\"", "new key is cadence"),
            ("packet_spacing_us", "-1", "new key is spacing"),
            ("snapshot_period_ms", "\"4s\"", "new key is snapshot_pair_period_ms"),
            ("enable_probe_export", "false", "key out"),
            ("graph_policy", "\"complete\"", "out_neighbors"),
            ("enable_master_sync", "2", "not one of 1, 0"),
            ("master_node_id", "-1", "new keys are master"),
            ("master_sync_port", "70000", "remove it"),
            ("enable_socket_timestamping", "false", "new key is timestamps"),
            ("timestamp_sync_timeout", "\"5s\"", "new key is round_timeout"),
            ("has_probe_senders", "false", "new key is out_neighbors"),
            ("probe_participants", "[0, 1]", "new key is out_neighbors"),
            ("edge_ports", "{\"0->1\": [1, 2]}", "new key is port"),
            ("node_id", "1", "RANK and WORLD_SIZE"),
            ("node_addresses", "[\"10.0.0.1:5000\"]", "interface, bind and port"),
            ("neighbors", "[\"a\"]", "not a node number"),
        ] {
            check(&format!("{{\"{key}\": {value}}}"), &[], &[], Err(expected));
        }
        check("", &[("XLA_PROBE_CADANCE_US", "1000")], &[], Err("XLA_PROBE_CADANCE_US: unknown variable"));
        let zero = "environment variable XLA_PROBE_CADENCE_US: cadence: \"0us\" is not greater than zero";
        check("", &[("XLA_PROBE_CADENCE_US", "0")], &[], Err(zero));
        check("", &[("XLA_DIST_PROF_OUTPUT", "x")], &[], Err("known: XLA_DIST_PROF_CONFIG"));
        check("", &[("XLA_ENABLE_DISTRIBUTED_PROFILING", "0")], &[], Err("turns measurement off"));
        check("", &[("XLA_ENABLE_DISTRIBUTED_PROFILING", "on")], &[], Err("not one of 1, 0, true, false"));
        check("neighbors = 3", &[], &[("out_neighbors", "1")], Err("omit one of them"));
    }

    #[test]
    fn the_pace_is_adapted_unless_a_cadence_is_named_alone() {
        let cadence = ("cadence", "400us");
        for (flags, fixed) in [
            (&[][..], false),
            (&[("fixed", "true")], true),
            (&[cadence], true),
            (&[cadence, ("target_error", "200ns")], false),
            (&[cadence, ("adaptive", "true")], false),
            (&[cadence, ("budget_cpu", "5%")], false),
            (&[("window", "2s")], false),
        ] {
            let said = |is| if is { "true" } else { "false" };
            check("", &[], flags, Ok(("fixed", said(fixed))));
            check("", &[], flags, Ok(("adaptive", said(!fixed))));
        }
        let windows = |flags: &[(&str, &str)]| {
            let flags: Vec<_> = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let config = Config::load(None, std::iter::empty(), &flags).expect("sound");
            (config.window(), config.cadence(), config.pacing().and_then(|pacing| pacing.window))
        };
        let (ms, us) = (Duration::from_ms, Duration::from_us);
        assert_eq!(windows(&[]), (ms(1_000), us(800), Some([1_000_000_000, 16_000_000_000])));
        assert_eq!(windows(&[("fixed", "true")]), (ms(4_000), us(800), None));
        assert_eq!(windows(&[cadence]), (ms(4_000), us(400), None));
        assert_eq!(windows(&[("window", "2s")]), (ms(2_000), us(800), None), "a window that is named stays");
        check("", &[], &[("fixed", "true"), ("target_error", "1us")], Err("omit one of them"));
    }

    #[test]
    fn a_budget_holds_from_the_first_window_on() {
        let target = ("target_error", "200ns");
        check("", &[], &[target], Ok(("cadence", "auto")));
        // 6 packets of 108 bytes are 5184 bits.
        check("", &[], &[target, ("budget_bps", "1.296M")], Ok(("cadence", "4ms")));
        // 6 packets of 8 µs are 48 µs.
        check("", &[], &[("budget_cpu", "1%")], Ok(("cadence", "4ms 800us")));
        check("", &[], &[target, ("cadence", "100us")], Ok(("cadence", "100us")));
        // A session's own budget, unless something says what probing may cost.
        let of_session = |flags: &[(&str, &str)]| {
            let mut config = Config::default();
            flags.iter().for_each(|(key, value)| config.set(key, value, "test").expect("a key"));
            config.keep_to_budget_or(0.01);
            (config.cadence(), config.budget_cpu)
        };
        assert_eq!(of_session(&[]), (Duration::from_us(4_800), Some(0.01)));
        assert_eq!(of_session(&[("budget_cpu", "2%")]), (Duration::from_us(2_400), Some(0.02)));
        assert_eq!(of_session(&[("fixed", "true")]), (Duration::from_us(800), None));
        assert_eq!(of_session(&[("cadence", "100us")]), (Duration::from_us(100), None));
        assert_eq!(of_session(&[("budget_bps", "1.296M")]), (Duration::from_ms(4), None));
    }

    #[test]
    fn variables_of_other_programs_end_no_run() {
        let others = [
            ("PROBE_SYNC_SERVICE_HOST", "10.96.0.7"),
            ("PROBE_SYNC_PORT", "tcp://10.96.0.7:9100"),
            ("PROBE_SYNC_PORT_9100_TCP_PORT", "9100"),
            ("PROBE_SYNC_ROOT", "/opt/spack"),
            ("PROBE_SYNC_NEIGHBOURS", "3"),
            ("PROBE_SYNC_WINDOW", "3s"),
        ];
        check("", &others, &[], Ok(("window", "3s")));
    }

    #[test]
    fn errors_name_place_key_and_remedy() {
        check("windw = '2s'", &[], &[], Err("unknown key"));
        check("window = '2s'", &[], &[("window", "2")], Err("--window"));
        check("", &[("PROBE_SYNC_NEIGHBORS", "x")], &[], Err("PROBE_SYNC_NEIGHBORS"));
        check("", &[], &[("cadence", "-1s")], Err("--cadence"));
        check("window = [1]", &[], &[], Err("key window"));
        check("window = ", &[], &[], Err("probe_sync.toml"));
        check("", &[], &[("window", "1ms")], Err("100ms"));
        check("", &[], &[("window", "250years")], Err("must be between"));
        check("", &[], &[("window", "30min"), ("cadence", "20us")], Err("million exchanges"));
        check("", &[], &[("bind", "0.0.0.0")], Err("peers can send to"));
        check("", &[], &[("inject_skew", "1"), ("inject_step", "0@5s:1ms")], Err("never virtual"));
        check("", &[], &[("tracer_clock", "sundial")], Err("cupti, auto, none"));
        check("snapshot_pair_period_ms = 0", &[], &[], Err("3600000"));
        check("", &[], &[("snapshot_pair_period_ms", "4s")], Err("--snapshot-pair-period-ms"));
        check("", &[], &[("reference", "nobody")], Err("nor auto"));
        check("", &[], &[("fit", "magic")], Err("hull, svm, min-rtt"));
        check("", &[], &[("inject_step", "3@5s:1ms")], Err("--inject-skew"));
        check("", &[], &[("fixed", "true"), ("budget_bps", "1M")], Err("omit --fixed"));
        check("", &[], &[("target_error", "1us"), ("budget_cpu", "-1")], Err("greater than zero"));
        check("", &[], &[("target_error", "1us"), ("budget_bps", "50")], Err("per minute"));
        check("", &[], &[("target_error", "1us"), ("budget_cpu", "900%"), ("window", "1min")], Err("a smaller budget"));
        check("", &[], &[("skew_model", "sinusoid")], Err("--inject-skew"));
        let region = ("region", "a");
        for (other, reason) in [
            (("region_file", "r.txt"), "omit one of them"),
            (("master", "1"), "led by its first rank"),
            (("rounds", "timed"), "must be master"),
            (("reference", "1"), "rank 0's node"),
            (("out_neighbors", "1"), "numbers its own"),
        ] {
            check("", &[("PROBE_SYNC_REGION", "a")], &[other], Err(reason));
        }
        check("", &[], &[region, ("inject_skew", "1"), ("inject_step", "1@5s:1ms")], Err("inject_step"));
        check("", &[], &[("region", "a/b")], Err("a/b"));
        check("region = 'a'", &[("PROBE_SYNC_REGION", "b")], &[], Ok(("region", "b")));
        check("", &[], &[("inject_skew", "1"), ("skew_model", "wild")], Err("constant, sinusoid, steps"));
        check(
            "duration = '8s'",
            &[],
            &[("fixed", "true"), ("inject_skew", "1"), ("skew_model", "steps")],
            Err("three windows"),
        );
    }
}
