//! Tests the C interface as its users receive it: installed, linked and run.
//!
//! The archive is built separately, as in `cargo xtask install`, so that no feature of another
//! package (MPI above all) gets into it, and is installed into `target/xtask/c`. Programs of
//! `crates/capi/tests/c`, `examples/c` and the guide are compiled with all warnings as errors.
//!
//! | module | steps |
//! |---|---|
//! | `mod` | library, symbols, layouts, wrong uses, recordings, the guide's programs, CMake, valgrind |
//! | [`place`] | where things are, how programs are compiled and run |
//! | [`truth`] | what an example measured, against the `truth.json` of its run |
//! | [`under_mpi`] | one library under Open MPI and under MPICH |
//!
//! It does not measure times; `bench/clock.c` does, by hand.

mod place;
mod truth;
mod under_mpi;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::selection::BUILD;
use crate::install::{self, Profile, SONAME};
use crate::steps::{self, Count, Runner};
use place::{MPI_HEADER, Place, programs};

/// Builds, installs and tests the interface.
pub fn run(runner: &mut Runner, root: &Path) {
    if !STEPS.iter().chain(&under_mpi::STEPS).any(|name| runner.wants(name)) {
        return;
    }
    // Compilers and programs run in the installation's folder.
    let absolute = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let root = absolute.as_path();
    let place = Place { root, prefix: root.join(PREFIX) };
    let skip = |runner: &mut Runner, reason: &str| {
        STEPS[1..].iter().chain(&under_mpi::STEPS).for_each(|name| runner.skip(name, reason));
    };
    if ["gcc", "g++", "nm"].iter().any(|program| steps::answer(program, &["--version"]).is_none()) {
        return skip(runner, "gcc, g++ and binutils are not installed");
    }
    let mut build = install::build(root, Profile::Dev);
    if !runner.prerequisite(STEPS[0], Count::Step, BUILD, &mut build) {
        return skip(runner, "the library does not build");
    }
    if let Err(error) = install::put(root, Profile::Dev, &place.prefix) {
        runner.check(STEPS[1], || Err(error));
        return;
    }
    runner.check(STEPS[1], || symbols(&place));
    runner.check(STEPS[2], || layouts(&place));
    runner.check(STEPS[3], || {
        let program = place.c("wrong_use", &root.join("crates/capi/tests/c/wrong_use.c"), &GCC)?;
        place.run(&program, &["wrong_use"]).map(|_| ())
    });
    runner.check(STEPS[4], || {
        let program = place.c("two_processes", &root.join("examples/c/two_processes.c"), &GCC)?;
        let output = place.run(&program, &["two_processes"])?;
        truth::check(&output, &place.out("two_processes"), 1)
    });
    runner.check(STEPS[5], || {
        let program = place.c("clock_bench", &root.join("bench/clock.c"), &GCC)?;
        place.run_with(Command::new(program).arg("3").arg(place.out("clock_bench")), "clock_bench").map(|_| ())
    });
    runner.check(STEPS[6], || readme(&place));
    runner.check(STEPS[9], || recording(&place));
    cmake(runner, &place);
    valgrind(runner, &place);
    under_mpi::run(runner, &place);
}

/// Recordings by the C functions, under names that nobody has.
fn recording(place: &Place<'_>) -> Result<()> {
    let program = place.c("record", &place.root.join("crates/capi/tests/c/record.c"), &GCC)?;
    let folder = place.out("record");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    place.run(&program, &["record"]).map(|_| ())
}

/// The dynamic symbols with their version, and what the library needs: neither MPI nor anything
/// else beside the system's own.
fn symbols(place: &Place<'_>) -> Result<()> {
    let library = place.prefix.join("lib").join(SONAME).to_string_lossy().into_owned();
    let listed = steps::answer("nm", &["-D", "--defined-only", &library]).context("nm does not read the library")?;
    let mut names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    names.sort_unstable();
    same("symbols.txt", place.root, &(names.join("\n") + "\n"))?;
    let needed = steps::answer("readelf", &["-d", &library]).context("readelf does not read the library")?;
    for line in needed.lines().filter(|line| line.contains("(NEEDED)")) {
        let known = ["libc.so", "libm.so", "libgcc_s.so", "ld-linux"].iter().any(|name| line.contains(name));
        ensure!(known, "the library needs more than the system's own: {line}");
    }
    ensure!(needed.contains(&format!("soname: [{SONAME}]")), "the library does not call itself {SONAME}");
    Ok(())
}

/// Sizes, offsets and numbers, as C and as C++ see them.
fn layouts(place: &Place<'_>) -> Result<()> {
    let source = place.root.join("crates/capi/tests/c/layouts.c");
    for (name, compiler) in [("layouts_c", &GCC[..]), ("layouts_cc", &["g++", "-x", "c++", "-std=c++17"])] {
        let program = place.c(name, &source, compiler)?;
        same("layouts.txt", place.root, &place.run(&program, &[name])?)?;
    }
    Ok(())
}

/// Compares a list with the committed one.
fn same(name: &str, root: &Path, found: &str) -> Result<()> {
    let name = format!("crates/capi/tests/c/{name}");
    let expected = std::fs::read_to_string(root.join(&name)).with_context(|| format!("reading {name}"))?;
    let differs = |(expected, found): &(&str, &str)| expected != found;
    match expected.lines().zip(found.lines()).find(differs) {
        Some((expected, found)) => bail!("{name} has \"{expected}\", and the library \"{found}\""),
        None if expected != found => bail!("{name} and the library differ in length; the library has:\n{found}"),
        None => Ok(()),
    }
}

/// The guide's programs, word for word, as C and as C++; those that include MPI are
/// [`under_mpi`]'s.
fn readme(place: &Place<'_>) -> Result<()> {
    let programs = programs(place.root)?;
    ensure!(programs.iter().any(|text| !text.contains(MPI_HEADER)), "docs/guide/c.md has no C program without MPI");
    for (number, text) in programs.iter().enumerate().filter(|(_, text)| !text.contains(MPI_HEADER)) {
        let source = place.prefix.join(format!("readme{number}.c"));
        std::fs::write(&source, text)?;
        place.c("readme_cc", &source, &["g++", "-x", "c++", "-std=c++17"])?;
        let program = place.c("readme", &source, &GCC)?;
        let output = Command::new(&program).arg("/no/such/clock").output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && text.contains("/no/such/clock"), "it does not say what is missing: {text}");
        // A clock outlives its run.
        let page = place.prefix.join("clock_page");
        let bench = place.c("clock_bench", &place.root.join("bench/clock.c"), &GCC)?;
        let mut run = Command::new(bench);
        run.arg("1").arg(place.out("clock_page")).env("PROBE_SYNC_CLOCK_PAGE", &page);
        place.run_with(&mut run, "clock page")?;
        let text = place.run_with(Command::new(program).arg(page), "readme")?;
        ensure!(text.contains("ns, surely within"), "not what the guide shows: {text}");
    }
    Ok(())
}

/// The examples by `find_package`, linked dynamically and statically.
fn cmake(runner: &mut Runner, place: &Place<'_>) {
    let name = STEPS[7];
    if steps::answer("cmake", &["--version"]).is_none() {
        return runner.skip(name, "cmake is not installed");
    }
    runner.check(name, || {
        let build = place.prefix.join("cmake");
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(place.root.join("examples/c")).arg("-B").arg(&build).arg("--fresh");
        configure.arg(format!("-DCMAKE_PREFIX_PATH={}", place.prefix.display()));
        place.run_with(&mut configure, "cmake configure")?;
        place.run_with(Command::new("cmake").arg("--build").arg(&build), "cmake build")?;
        place.run(&build.join("two_processes_static"), &["static"]).map(|_| ())
    });
}

/// Wrong uses and a whole session: no read or write where there is nothing, and nothing lost.
fn valgrind(runner: &mut Runner, place: &Place<'_>) {
    let name = STEPS[8];
    if steps::answer("valgrind", &["--version"]).is_none() {
        return runner.skip(name, "valgrind is not installed");
    }
    runner.check(name, || {
        for program in ["wrong_use", "two_processes"] {
            let mut command = Command::new("valgrind");
            command.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
            command.arg("--show-leak-kinds=definite").arg(place.prefix.join("bin").join(program));
            place.run_with(command.arg(place.out(&format!("valgrind_{program}"))), &format!("valgrind {program}"))?;
        }
        Ok(())
    });
}

const STEPS: [&str; 10] = [
    "C interface, library",
    "C interface, symbols",
    "C interface, layouts",
    "C interface, wrong uses",
    "C interface, two processes",
    "C interface, bench",
    "C interface, README",
    "C interface, CMake",
    "C interface, valgrind",
    "C interface, recordings",
];

const PREFIX: &str = "target/xtask/c";

const GCC: [&str; 2] = ["gcc", "-std=c11"];
