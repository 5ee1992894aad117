//! `probe_sync doctor`: what this machine offers for measuring, and what to fix.
//!
//! The facts about timestamps, clocks and permissions come from `sys::doctor`; what MPI offers is
//! looked at here, because only the command knows whether it was built with MPI. Exit status 1 when
//! something prevents a measurement.

use std::process::Command;

use probe_sync_sys::doctor::{Fact, Level, examine};

use crate::args::DoctorArgs;
use crate::output::Usage;

/// Prints the findings.
///
/// # Errors
/// Returns an error if something prevents a measurement, after everything was printed.
pub fn run(arguments: &DoctorArgs) -> anyhow::Result<()> {
    if arguments.run.asks_for_a_run() {
        return Err(anyhow::anyhow!("flags of run require --peers").context(Usage));
    }
    let mut facts = examine();
    facts.push(mpi());
    facts.push(build());
    match arguments.run.json {
        true => crate::output::json(&crate::documents::Doctor::new(&facts))?,
        false => crate::output::tell(&readable(&facts))?,
    }
    let failures = facts.iter().filter(|fact| fact.level == Level::Fail).count();
    if failures > 0 {
        anyhow::bail!("{failures} of the findings above prevent a measurement");
    }
    Ok(())
}

fn readable(facts: &[Fact]) -> String {
    let width = facts.iter().map(|fact| fact.topic.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for fact in facts {
        let level = match fact.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        text.push_str(&format!("{level}  {:width$}  {}\n", fact.topic, fact.finding));
        if let Some(advice) = &fact.advice {
            text.push_str(&format!("      {:width$}  → {advice}\n", ""));
        }
    }
    text
}

/// Describes the build, which determines the available features.
fn build() -> Fact {
    let parts = [
        (cfg!(feature = "mpi"), "MPI"),
        (cfg!(feature = "hwloc"), "hwloc"),
        (cfg!(feature = "rocpd"), "databases of rocprofv3, rocmProfileData and Nsight Systems"),
        (cfg!(feature = "otf2"), "OTF2"),
        (cfg!(feature = "otlp"), "OpenTelemetry"),
    ];
    let parts: Vec<&str> = parts.iter().filter_map(|(there, name)| there.then_some(*name)).collect();
    let kind = if cfg!(debug_assertions) { "a development build" } else { "a release build" };
    let parts = if parts.is_empty() { "no optional features".to_owned() } else { parts.join(", ") };
    let (version, machine) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    Fact::ok("build", format!("probe_sync {version} for {machine}, {kind}, with {parts}"))
}

fn mpi() -> Fact {
    let version = Command::new("mpirun").arg("--version").output().ok().filter(|output| output.status.success());
    let version = version
        .and_then(|output| String::from_utf8_lossy(&output.stdout).lines().next().map(|line| line.trim().to_owned()));
    match (version, cfg!(feature = "mpi")) {
        (Some(version), true) => Fact::ok("MPI", format!("{version}; this binary is built with MPI")),
        (Some(version), false) => Fact::warn(
            "MPI",
            format!("{version}, but this binary is built without MPI"),
            "rebuild it with `cargo build --release -p probe-sync-cli --features mpi`",
        ),
        (None, true) => Fact::warn(
            "MPI",
            "this binary is built with MPI, but there is no working mpirun in PATH",
            "install Open MPI's programs (Debian: openmpi-bin), or use --local or torchrun-style variables",
        ),
        (None, false) => Fact::warn(
            "MPI",
            "no mpirun in PATH, and this binary is built without MPI",
            "use --local or torchrun-style variables, or run `cargo xtask setup` and rebuild with --features mpi",
        ),
    }
}
