//! Scenario files: every one parses and is in the docs' table; mistakes are named.

use std::path::{Path, PathBuf};

use probe_sync_sim::{FaultKind, Scenario, Simulation};
use probe_sync_time::{Duration, NodeId, StampSource};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Name and text of every scenario file.
fn files() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(root().join("bench/scenarios")).expect("the folder of scenarios");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let read = |path: PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read_to_string(&path).expect("a readable file"))
    };
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).map(read).collect()
}

#[test]
fn every_file_is_a_scenario_that_runs_and_is_in_the_table() {
    let docs = std::fs::read_to_string(root().join("docs/scenarios.md")).expect("docs/scenarios.md");
    let files = files();
    assert!(files.len() >= 20, "{} files", files.len());
    for (name, text) in &files {
        let scenario = Scenario::from_toml(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let row = format!("| `{name}` | {} |", scenario.description);
        assert!(docs.contains(&row), "docs/scenarios.md lacks the row\n{row}");
        let windows = scenario.duration_s / scenario.window_s;
        assert!(windows >= 4.0 && windows.fract() == 0.0, "{name}: {windows} windows");
        let begins = scenario.faults.iter().map(|fault| fault.start_s);
        assert!(begins.clone().all(|start_s| start_s < scenario.duration_s), "{name}: a fault after the end");
        // A tenth of a second shows that the endpoints accept it; large ones take too long for
        // more.
        let outcome = Simulation::new(scenario, 1).expect("checked above").run(Duration::from_ms(100));
        assert!(outcome.exchanges.values().map(Vec::len).sum::<usize>() > 20, "{name}");
    }
    let rows = docs.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, files.len(), "the table names files that do not exist");
}

#[test]
fn a_scenario_survives_being_written_and_read() {
    for (name, text) in files() {
        let scenario = Scenario::from_toml(&text).expect("checked in another test");
        let written = toml::to_string(&scenario).expect("a table");
        assert_eq!(Scenario::from_toml(&written), Ok(scenario), "{name}:\n{written}");
    }
}

#[test]
fn same_file_and_seed_same_bytes_however_the_run_is_driven() {
    for name in ["virtual_machines", "reboot", "falseticker_per_peer"] {
        let text = files().into_iter().find(|(file, _)| file == name).expect("the file exists").1;
        let mut scenario = Scenario::from_toml(&text).expect("checked in another test");
        scenario.pairs_per_second = Some(100.0);
        // All faults begin within the half second that is run.
        scenario.faults.iter_mut().for_each(|fault| (fault.start_s, fault.end_s) = (0.2, Some(0.3)));
        let run = |seed, cuts: i64| {
            let simulation = Simulation::new(scenario.clone(), seed).expect("checked in another test");
            let mut running = simulation.start(Duration::from_ms(500));
            for cut in 1..=cuts {
                running.advance_to(Simulation::START + Duration::from_ms(500 * cut / cuts));
            }
            running.finish()
        };
        let first = run(1, 1);
        assert_eq!(first, run(1, 1), "{name}");
        assert_eq!(first, run(1, 7), "{name}: advanced in seven steps");
        assert_ne!(first, run(2, 1), "{name}");
    }
}

#[test]
fn the_ends_of_all_ranges_run() {
    let text = "nodes = 3\ngap_us = 1e15\nspacing_us = 9e14\nexchange_timeout_us = 1e15\nwakeup_ns_mean = 1e15\n\
                [clocks]\noffset_ns_max = 1_000_000_000_000_000_000\nskew_ppm_max = 1e4\nwander_ppm = 100.0\n\
                [clocks.thermal]\nevery_s = 1e-9\nsd_ppm = 100.0\ntau_s = 0.0\n\
                [clocks.slews]\nevery_s = 0.1\nppm_max = 1e4\nfor_s = 1e9\n\
                [network]\ndelay_ns = 1_000_000_000_000_000\ndelay_spread_ns = 1_000_000_000_000_000\n\
                asymmetry_sd_ns = 1e15\nload = 0.99\nload_change_s = 1e-9\nburst_ns_mean = 1e15\nqueueing_ns_mean = 1e15\n\
                duplication = 1.0\nstraggling = 1.0\nstraggling_ns = 1_000_000_000_000_000\nforeign = 1.0\n\
                [stamps]\nnoise_ns_max = 1_000_000_000_000_000\nnoise_sd_ns = 1e15\nlate_ns_mean = 1e15\nspike = 1.0\n\
                spike_ns_mean = 1e15\ntick_ns = 1_000_000_000_000_000\nreport_ns = 1_000_000_000_000_000\n\
                [[faults]]\nstart_s = 1e9\nwhat.late_join = { node = 2 }\n\
                [[faults]]\nwhat.falseticker = { node = 1, constant_ns = 1e15, ramp_ns_per_s = 1e15, per_peer = true }\n\
                [[faults]]\nwhat.asymmetry = { src = 0, dst = 1, extra_ns = -1_000_000_000_000_000 }";
    let mut scenario = Scenario::from_toml(text).expect("the ends belong to the ranges");
    for gap in [Duration::from_us(1_000_000_000_000_000), Duration::from_ms(10)] {
        scenario.gap = gap;
        scenario.spacing = Duration::from_ns(gap.as_ns() / 2);
        let simulation = Simulation::new(scenario.clone(), 1).expect("checked");
        let mut running = simulation.start(Duration::from_ms(200));
        running.advance_to(Simulation::START + Duration::from_ms(200));
        assert_eq!(running.cut().len(), 2, "the third has not joined");
        let outcome = running.finish();
        assert!(outcome.end >= Simulation::START + Duration::from_ms(200));
    }
}

#[test]
fn nothing_but_a_key_is_needed() {
    assert_eq!(Scenario::from_toml(""), Ok(Scenario::default()));
    let text = "nodes = 3\ngap_us = 1500.5\n[network]\nload = 0.3\n[stamps]\nsource = \"hardware\"\n\
                [[faults]]\nend_s = 3.5\nwhat.loss = { probability = 0.5, to = 2 }";
    let scenario = Scenario::from_toml(text).expect("a sound scenario");
    assert_eq!(scenario.gap, Duration::from_ns(1_500_500));
    assert_eq!((scenario.nodes, scenario.network.load), (3, 0.3));
    assert_eq!(scenario.stamps.source, StampSource::Hardware);
    assert_eq!(scenario.faults[0].span().end_ns, 3_500_000_000);
    let expected = FaultKind::Loss { probability: 0.5, from: None, to: Some(NodeId(2)), both_ways: false };
    assert_eq!(scenario.faults[0].what, expected);
}

#[test]
fn a_rate_becomes_a_gap_by_the_number_of_out_edges() {
    let scenario = Scenario { pairs_per_second: Some(20.0), ..Scenario::default() };
    assert_eq!(scenario.gap_of(3), Duration::from_ns(16_666_667));
    assert_eq!(scenario.gap_of(0), Duration::from_ms(50), "a listener has a gap that it does not use");
    assert_eq!(Scenario::default().gap_of(3), Scenario::default().gap);
}

/// The error names everything in `parts`.
fn check(text: &str, parts: &[&str]) {
    let error = Scenario::from_toml(text).expect_err(text).to_string();
    assert!(parts.iter().all(|part| error.contains(part)), "{text:?}: {error}");
}

#[test]
fn mistakes_in_the_text_name_key_and_line() {
    check("nodes = 3\nneighbours = 2\n", &["line 2", "neighbours", "expected one of"]);
    check("[network]\nloud = 0.5", &["line 2", "loud"]);
    check("nodes = \"many\"", &["line 1", "nodes", "string"]);
    check("nodes = -1", &["line 1", "nodes"]);
    check("nodes = ", &["line 1"]);
    check("[stamps]\n\nsource = \"gps\"", &["line 3", "gps", "hardware"]);
    check("[[faults]]\nwhat.explosion = {}", &["line 2", "explosion", "step"]);
    check("[[faults]]\nstart_s = 1", &["line 1", "what"]);
    check("[[faults]]\nwhat.step = { node = 1, step_ns = 5, loud = true }", &["line 2", "loud"]);
    check("[[faults]]\nwhat.step = { node = 1 }", &["line 2", "step_ns"]);
}

#[test]
fn values_out_of_range_name_the_field() {
    check("nodes = 0", &["nodes = 0", "from 1"]);
    check("gap_us = 0", &["gap_us"]);
    check("gap_us = nan", &["gap_us"]);
    check("pairs_per_second = 0.0", &["pairs_per_second"]);
    check("pairs_per_second = inf", &["pairs_per_second"]);
    check("duration_s = -1.0", &["duration_s"]);
    check("[network]\nloss = 1.5", &["network.loss = 1.5", "from 0 to 1"]);
    check("[network]\nload = 0.9\nload_spread = 0.2", &["network.load + network.load_spread"]);
    check("[network]\ndelay_ns = -5", &["network.delay_ns = -5"]);
    check("[clocks.slews]\nevery_s = 0.01", &["clocks.slews.every_s", "from 0.1"]);
    check("[clocks.wave]\nperiod_s = 0.0", &["clocks.wave.period_s"]);
    check("[clocks.wave]\namplitude_ns_max = 1e9\nperiod_s = 1.0", &["slope", "clocks.wave"]);
    check("[stamps]\ntick_ns = 0", &["stamps.tick_ns"]);
    check("[[faults]]\nstart_s = 5\nend_s = 4\nwhat.partition = { nodes = [1] }", &["faults[0].end_s = 4", "from 5"]);
    check("[[faults]]\nwhat.late_join = { node = 16 }", &["faults[0].what.late_join.node = 16", "to 15"]);
    check("[[faults]]\nwhat.asymmetry = { src = 2, dst = 2, extra_ns = 1 }", &["faults[0]", "same"]);
    check("[[replays]]\nnode = 1\npoints = [[1.0, 0.0], [1.0, 5.0]]", &["replays[0]", "grow"]);
    check("[[replays]]\nnode = 1\npoints = []\n[[replays]]\nnode = 1\npoints = []", &["replays[1]", "already"]);
}

#[test]
fn the_simulator_checks_scenarios_made_by_code_as_well() {
    let scenario = Scenario { neighbors: 1_000_001, ..Scenario::default() };
    assert!(Simulation::new(scenario, 1).is_err());
    let scenario = Scenario { spacing: Duration::from_ms(2_000), ..Scenario::default() };
    let error = Simulation::new(scenario, 1).expect_err("spacing above the exchange timeout").to_string();
    assert!(error.contains("spacing"), "{error}");
}
