//! Tests one library under both Open MPI and MPICH, whose communicators and binary interfaces
//! differ.
//!
//! Debian's packages are installed side by side, as `mpicc.openmpi` and `mpicc.mpich`; elsewhere
//! there is one `mpicc`, of either implementation. It does not install an MPI.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::place::{MPI_HEADER, Place, programs};
use super::truth;
use crate::install;
use crate::setup::MPI_ENVIRONMENT;
use crate::steps::{self, Runner};

/// Runs the examples that need MPI with every MPI that is here.
pub fn run(runner: &mut Runner, place: &Place<'_>) {
    let programs = STEPS.iter().zip([Mpi::check as fn(&Mpi, &Place<'_>) -> Result<()>, Mpi::launchers].repeat(2));
    for ((name, check), suffix) in programs.zip(SUFFIXES.iter().flat_map(|suffix| [suffix; 2])) {
        if !runner.wants(name) {
            continue;
        }
        match Mpi::found(suffix) {
            Some(mpi) => {
                runner.check(name, || check(&mpi, place));
            }
            None => runner.skip(name, &format!("mpicc.{suffix} and mpirun.{suffix} are not installed")),
        }
    }
}

/// Programs of one MPI.
struct Mpi {
    /// Behind names of programs and runs.
    name: &'static str,
    compile: String,
    compile_cc: String,
    launch: String,
}

impl Mpi {
    fn found(name: &'static str) -> Option<Self> {
        let [compile, compile_cc, launch] = ["mpicc", "mpicxx", "mpirun"].map(|program| format!("{program}.{name}"));
        let there = steps::answer(&compile, &["-show"]).is_some() && steps::answer(&launch, &["--version"]).is_some();
        if there {
            return Some(Self { name, compile, compile_cc, launch });
        }
        // One without a suffix counts as what it says it is.
        let version = steps::answer("mpirun", &["--version"])?;
        let is_openmpi = version.contains("Open MPI") || version.contains("OpenRTE");
        let [compile, compile_cc, launch] = ["mpicc", "mpicxx", "mpirun"].map(str::to_owned);
        let same = is_openmpi == (name == SUFFIXES[0]) && steps::answer(&compile, &["-show"]).is_some();
        same.then_some(Self { name, compile, compile_cc, launch })
    }

    /// The example against its truth, then the guide's program, which is compiled as C++ too.
    fn check(&self, place: &Place<'_>) -> Result<()> {
        let compiler = [&self.compile, "-std=c11"];
        let source = place.root.join("examples/c/mpi_session.c");
        let program = place.c(&format!("mpi_session_{}", self.name), &source, &compiler)?;
        let run = format!("mpi_session_{}", self.name);
        let output = place.run_with(self.mpirun("4").arg(program).arg(place.out(&run)), &run)?;
        ensure!(output.contains("4 ranks at thread level 0: ok"), "not four ranks of MPI_THREAD_SINGLE:\n{output}");
        truth::check(&output, &place.out(&run), 3)?;

        let programs = programs(place.root)?;
        let text = programs
            .iter()
            .find(|text| text.contains(MPI_HEADER))
            .context("docs/guide/c.md has no program with MPI")?;
        let source = place.prefix.join("readme_mpi.c");
        std::fs::write(&source, text)?;
        // The C++ bindings of old MPI headers are not ours to warn of.
        let cc = [&self.compile_cc, "-x", "c++", "-std=c++17", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"];
        place.c(&format!("readme_mpi_cc_{}", self.name), &source, &cc)?;
        let program = place.c(&format!("readme_mpi_{}", self.name), &source, &compiler)?;
        let name = format!("readme_mpi_{}", self.name);
        let output = place.run_with(self.mpirun("2").arg(program).env("PROBE_SYNC_OUT", place.out(&name)), &name)?;
        ensure!(output.matches("ns ahead of node 0").count() == 2, "not what the guide shows:\n{output}");
        self.late(place)
    }

    /// A program unaware of this project, with the layer of the profiling interface in front of it:
    /// the late rank is named, and no other.
    fn late(&self, place: &Place<'_>) -> Result<()> {
        let layer = place.c_of(
            &format!("libprobe_sync_pmpi_{}.so", self.name),
            &[&place.prefix.join(install::PMPI_SOURCE)],
            &[&self.compile, "-std=c11", "-shared", "-fPIC"],
        )?;
        let name = format!("late_job_{}", self.name);
        let (job, out) = (place.prefix.join("bin").join(&name), place.out(&name));
        let mut compile = Command::new(&self.compile);
        compile.arg("-std=c11").arg(place.root.join("crates/capi/tests/c/late_job.c")).arg("-o").arg(&job);
        place.run_with(&mut compile, &format!("compile {name}"))?;
        let mut run = self.mpirun("4");
        run.arg("env").arg(format!("LD_PRELOAD={}", layer.display())).arg(&job).arg("12");
        run.env("PROBE_SYNC_OUT", &out).env("PROBE_SYNC_WINDOW", "500ms");
        // Clocks that are wrong by more than the rank is late.
        run.env("PROBE_SYNC_INJECT_SKEW", "7").env("PROBE_SYNC_SKEW_OFFSET", "50ms");
        let output = place.run_with(&mut run, &name)?;
        ensure!(output.contains("sum 4"), "the job did not compute what it does alone:\n{output}");
        let told = out.join("late.jsonl");
        let told = std::fs::read_to_string(&told).with_context(|| format!("reading {}", told.display()))?;
        let lines = told.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
        let late: Vec<&Value> = lines.iter().map(|line| &line["late"]).filter(|late| !late.is_null()).collect();
        let only = |late: &&&Value| late["rank"] == 2 && late["group"] == "allreduce (world)";
        ensure!(!late.is_empty() && late.iter().all(|late| only(&late)), "not rank 2, and only that:\n{told}");
        Ok(())
    }

    /// Sessions whose rounds go over this MPI: at every thread level against the truth, beside
    /// launchers that do not behave, and by CMake.
    fn launchers(&self, place: &Place<'_>) -> Result<()> {
        let compiler = [&self.compile, "-std=c11"];
        let with_mpi = place.prefix.join(install::MPI_SOURCE);
        let compiled = |name: &str, source: &str| {
            let sources = [place.root.join(source), with_mpi.clone()];
            place.c_of(&format!("{name}_{}", self.name), &sources.each_ref().map(PathBuf::as_path), &compiler)
        };
        let program = compiled("mpi_launcher", "examples/c/mpi_launcher.c")?;
        for (number, level) in ["single", "funneled", "serialized", "multiple"].iter().enumerate() {
            let name = format!("mpi_launcher_{}_{level}", self.name);
            let output = place.run_with(self.mpirun("8").arg(&program).arg(level).arg(place.out(&name)), &name)?;
            let steps = if *level == "multiple" { "no steps" } else { "longest step of at most" };
            let said = output.contains(&format!("8 ranks at thread level {number}:")) && output.contains(steps);
            ensure!(said, "not eight ranks at level {level} with {steps}:\n{output}");
            output.lines().filter(|line| line.contains("ranks at")).for_each(|line| println!("   {line}"));
            truth::check(&output, &place.out(&name), 7)?;
        }
        let program = compiled("mpi_launchers", "crates/capi/tests/c/mpi_launchers.c")?;
        for case in ["wrong_uses", "silent", "lets_go", "finalises", "finalises_steps"] {
            let name = format!("mpi_launchers_{}_{case}", self.name);
            let output = place.run_with(self.mpirun("4").arg(&program).arg(case).arg(place.out(&name)), &name)?;
            ensure!(output.contains(": ok"), "{case} did not come to its end:\n{output}");
        }
        if steps::answer("cmake", &["--version"]).is_none() {
            return Ok(());
        }
        let build = place.prefix.join(format!("cmake_{}", self.name));
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(place.root.join("examples/c")).arg("-B").arg(&build).arg("--fresh");
        configure.arg(format!("-DCMAKE_PREFIX_PATH={}", place.prefix.display()));
        configure.arg(format!("-DMPI_C_COMPILER={}", self.compile));
        place.run_with(&mut configure, &format!("cmake configure {}", self.name))?;
        place.run_with(Command::new("cmake").arg("--build").arg(&build), &format!("cmake build {}", self.name))?;
        let name = format!("mpi_launcher_cmake_{}", self.name);
        let mut run = self.mpirun("2");
        run.arg(build.join("mpi_launcher")).arg("funneled").arg(place.out(&name));
        let output = place.run_with(&mut run, &name)?;
        ensure!(output.contains("2 ranks at thread level 1:"), "not two ranks of CMake's program:\n{output}");
        Ok(())
    }

    fn mpirun(&self, ranks: &str) -> Command {
        let mut command = Command::new(&self.launch);
        if self.name == SUFFIXES[0] {
            command.args(["--timeout", SECONDS]);
        }
        command.args(["-n", ranks]).envs(MPI_ENVIRONMENT).env("MPIEXEC_TIMEOUT", SECONDS);
        command
    }
}

/// Two for each of [`SUFFIXES`].
pub const STEPS: [&str; 4] = [
    "C interface, Open MPI",
    "C interface, launcher's Open MPI",
    "C interface, MPICH",
    "C interface, launcher's MPICH",
];

const SUFFIXES: [&str; 2] = ["openmpi", "mpich"];

/// After which a launcher ends its job.
const SECONDS: &str = "60";
