//! Whole measurements with injected skew, each compared with its truth.
//!
//! The binaries run as a user would run them. Afterwards `probe-sync-testbed verify` reads only the
//! run's files (offsets.jsonl and truth.json) and recomputes every true error, so a run that judges
//! itself wrongly is detected.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::ends;
use super::launchers::{self, mpirun};
use super::mpich;
use super::selection::{BUILD, everything};
use super::ulfm;
use crate::demo::fresh_directory;
use crate::faults;
use crate::scale;
use crate::setup::Tools;
use crate::steps::{Count, Runner};

/// The suite of the collectives at two sizes, and one run judged against the truth.
pub fn quick(runner: &mut Runner, root: &Path, tools: Tools) {
    let wanted = runner.wants(MPI_SUITE) || runner.wants(QUICK.name);
    if wanted && programs(runner, root, tools) {
        mpi_suite(runner, root, tools, ["2", "4"]);
        measure(runner, root, tools, &QUICK);
    }
}

/// The suite at the other sizes, and jobs whose ranks end, hang or are killed.
pub fn survivors(runner: &mut Runner, root: &Path, tools: Tools) {
    let mut names =
        [MPI_SUITE].into_iter().chain(ends::names()).chain(launchers::names()).chain(mpich::NAMES).chain(ulfm::names());
    if !names.any(|name| runner.wants(name)) || !programs(runner, root, tools) {
        return;
    }
    mpi_suite(runner, root, tools, ["1", "3", "8"]);
    ends::run(runner, root, tools);
    launchers::run(runner, root, tools);
    mpich::run(runner, root, tools);
    ulfm::run(runner, root, tools);
}

/// Whole runs whose figures are judged, and hosts in namespaces.
pub fn judged(runner: &mut Runner, root: &Path, tools: Tools) {
    if !names().any(|name| runner.wants(name)) || !programs(runner, root, tools) {
        return;
    }
    for scenario in &SCENARIOS {
        measure(runner, root, tools, scenario);
    }
    namespaces(runner, root);
    scale::hosts(runner, root);
    faults::cell(runner, root);
}

/// Builds the programs; returns false if that fails.
fn programs(runner: &mut Runner, root: &Path, tools: Tools) -> bool {
    // With `--tests` the dependencies have the same features as in the tests before, and are not
    // compiled once more.
    let mut build = everything(root, tools, &["build", "--bins", "--tests"]);
    let built = runner.prerequisite("build programs", Count::Step, BUILD, &mut build);
    if !built {
        runner.skip("whole runs", "the programs do not build");
    }
    built
}

/// What `--only` can ask for here.
fn names() -> impl Iterator<Item = &'static str> {
    let of_namespaces = NAMESPACES.iter().map(|(name, _)| *name);
    [MPI_SUITE, QUICK.name]
        .into_iter()
        .chain(ends::names())
        .chain(launchers::names())
        .chain(mpich::NAMES)
        .chain(ulfm::names())
        .chain(SCENARIOS.iter().map(|scenario| scenario.name))
        .chain(of_namespaces)
        .chain([scale::NAME, faults::NAME])
}

/// The shared suite of all collectives, over MPI.
fn mpi_suite<const N: usize>(runner: &mut Runner, root: &Path, tools: Tools, sizes: [&str; N]) {
    if !tools.mpi() {
        runner.skip(MPI_SUITE, &format!("missing {}", tools.missing()));
        return;
    }
    for ranks in sizes {
        let mut command = mpirun(ranks, "120");
        command.arg(root.join("target/debug/probe-sync-mpi-tests")).arg("suite").current_dir(root);
        runner.command(&format!("{MPI_SUITE}, {ranks} ranks"), Count::Tests, LIMIT, &mut command);
    }
}

/// One measurement and what its figures must satisfy.
struct Scenario {
    name: &'static str,
    launch: Launch,
    /// The rank that leads.
    master: &'static str,
    /// What the virtual clocks do, as `--skew-model` takes it.
    model: &'static str,
    duration: &'static str,
    /// Worst |error| over nodes and rounds from the second round on, ns.
    worst_ns: &'static str,
    /// Median |error|, ns.
    median_ns: &'static str,
}

enum Launch {
    Mpirun(&'static str),
    Local(&'static str),
}

/// The run of the quick tier. Its clocks swing, so that offsets which do not follow them fail.
const QUICK: Scenario = Scenario {
    name: "run of 4 ranks over MPI, swinging clocks",
    launch: Launch::Mpirun("4"),
    master: "0",
    model: "sinusoid",
    duration: "8s",
    worst_ns: "500",
    median_ns: "100",
};

/// The limits are those of the project's first promise; 64 ranks share two cores here, so theirs is
/// wider.
const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "run of 8 ranks over MPI",
        launch: Launch::Mpirun("8"),
        master: "0",
        model: "constant",
        duration: "12s",
        worst_ns: "500",
        median_ns: "50",
    },
    Scenario {
        name: "run of 64 ranks over MPI",
        launch: Launch::Mpirun("64"),
        master: "0",
        model: "constant",
        duration: "20s",
        worst_ns: "2000",
        median_ns: "500",
    },
    Scenario {
        name: "run of 8 ranks over TCP",
        launch: Launch::Local("8"),
        master: "0",
        model: "constant",
        duration: "12s",
        worst_ns: "500",
        median_ns: "50",
    },
    Scenario {
        name: "run of 8 ranks over TCP, swinging clocks",
        launch: Launch::Local("8"),
        master: "0",
        model: "sinusoid",
        duration: "12s",
        worst_ns: "500",
        median_ns: "100",
    },
    Scenario {
        name: "run of 8 ranks over TCP, stepping clocks",
        launch: Launch::Local("8"),
        master: "0",
        model: "steps",
        duration: "12s",
        worst_ns: "500",
        median_ns: "100",
    },
    Scenario {
        name: "run of 4 ranks over MPI that rank 2 leads",
        launch: Launch::Mpirun("4"),
        master: "2",
        model: "constant",
        duration: "12s",
        worst_ns: "500",
        median_ns: "50",
    },
    Scenario {
        name: "run of 4 ranks over TCP that rank 2 leads",
        launch: Launch::Local("4"),
        master: "2",
        model: "constant",
        duration: "12s",
        worst_ns: "500",
        median_ns: "50",
    },
];

fn measure(runner: &mut Runner, root: &Path, tools: Tools, scenario: &Scenario) {
    if !runner.wants(scenario.name) {
        return;
    }
    let out = match fresh_directory(&root.join("target/xtask/runs")) {
        Ok(out) => out,
        Err(error) => {
            runner.check(scenario.name, || Err(error));
            return;
        }
    };
    let binary = root.join("target/debug/probe_sync");
    let (mut command, ranks) = match scenario.launch {
        Launch::Mpirun(_) if !tools.mpi() => {
            return runner.skip(scenario.name, &format!("missing {}", tools.missing()));
        }
        Launch::Mpirun(ranks) => {
            let mut command = mpirun(ranks, "120");
            command.arg(&binary).arg("run");
            (command, ranks)
        }
        Launch::Local(ranks) => {
            let mut command = Command::new(&binary);
            command.args(["run", "--local", ranks]);
            (command, ranks)
        }
    };
    command.args(["--fixed", "--window", "2s", "--inject-skew", "7", "--skew-model", scenario.model]);
    command.args(["--master", scenario.master, "--duration", scenario.duration, "--out"]).arg(&out);
    if !runner.command(scenario.name, Count::Step, LIMIT, command.current_dir(root)) {
        return;
    }
    let mut verify = Command::new(root.join("target/debug/probe-sync-testbed"));
    verify.args(["verify", "--nodes", ranks, "--worst-ns", scenario.worst_ns, "--median-ns", scenario.median_ns]);
    runner.command(
        &format!("truth of the {}", scenario.name),
        Count::Figures,
        LIMIT,
        verify.arg(&out).current_dir(root),
    );
}

/// Four hosts in network namespaces; the program says by its exit code when this machine does not
/// permit them. A path may be slower one way by at most as much as the second run's limit assumes;
/// no estimator can see that.
fn namespaces(runner: &mut Runner, root: &Path) {
    for (name, conditions) in NAMESPACES {
        if !runner.wants(name) {
            continue;
        }
        let out = match fresh_directory(&root.join("target/xtask/runs")) {
            Ok(out) => out,
            Err(error) => {
                runner.check(name, || Err(error));
                return;
            }
        };
        let mut command = Command::new(root.join("target/debug/probe-sync-testbed"));
        command.arg("netns").args(conditions).arg("--program").arg(root.join("target/debug/probe_sync"));
        command.arg("--out").arg(out);
        runner.command(name, Count::Figures, LIMIT, command.current_dir(root));
    }
}

const MPI_SUITE: &str = "mpi suite";

/// Runs between namespaces, with what their paths do.
const NAMESPACES: [(&str, &[&str]); 3] = [
    ("namespaces, symmetric paths", &["--asymmetry", "0us", "--worst-us", "200"]),
    ("namespaces, asymmetric paths", &["--asymmetry", "100us", "--worst-us", "200"]),
    ("namespaces, loss one way", &["--one-way-loss", "2:1:30", "--worst-us", "200"]),
];

const LIMIT: Duration = Duration::from_secs(180);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_whole_run_keeps_its_name() {
        let expected = [
            "mpi suite",
            "run of 4 ranks over MPI, swinging clocks",
            "run of 8 ranks over MPI",
            "run of 64 ranks over MPI",
            "run of 8 ranks over TCP",
            "run of 8 ranks over TCP, swinging clocks",
            "run of 8 ranks over TCP, stepping clocks",
            "run of 4 ranks over MPI that rank 2 leads",
            "run of 4 ranks over TCP that rank 2 leads",
            "namespaces, symmetric paths",
            "namespaces, asymmetric paths",
            "namespaces, loss one way",
            "hosts, 8, over MPI and TCP, one killed and one stopped",
            "fault matrix, a rank of a tree cut off and back",
        ];
        let elsewhere: Vec<_> =
            ends::names().chain(launchers::names()).chain(mpich::NAMES).chain(ulfm::names()).collect();
        let names: Vec<_> = names().filter(|name| !elsewhere.contains(name)).collect();
        assert_eq!(names, expected);
    }
}
