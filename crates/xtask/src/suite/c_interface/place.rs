//! The place where the C interface is installed, and the functions that compile and run programs
//! against it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::steps;

/// Where things are.
pub struct Place<'a> {
    /// The workspace.
    pub root: &'a Path,
    /// The installation.
    pub prefix: PathBuf,
}

impl Place<'_> {
    /// Compiles a program against the installed library; its path.
    pub fn c(&self, name: &str, source: &Path, compiler: &[&str]) -> Result<PathBuf> {
        self.c_of(name, &[source], compiler)
    }

    /// As [`Self::c`], of several sources.
    pub fn c_of(&self, name: &str, sources: &[&Path], compiler: &[&str]) -> Result<PathBuf> {
        let program = self.prefix.join("bin").join(name);
        let mut command = Command::new(compiler[0]);
        command.args(&compiler[1..]).args(WARNINGS).arg("-I").arg(self.prefix.join("include")).args(sources);
        let lib = self.prefix.join("lib");
        command.arg("-o").arg(&program).arg("-L").arg(&lib).arg("-lprobe_sync");
        command.arg(format!("-Wl,-rpath,{}", lib.display()));
        self.run_with(&mut command, &format!("compile {name}"))?;
        Ok(program)
    }

    /// Runs a program with the directory for its run as its argument; what it printed.
    pub fn run(&self, program: &Path, arguments: &[&str]) -> Result<String> {
        let name = arguments.first().copied().unwrap_or("run");
        self.run_with(Command::new(program).arg(self.out(name)), name)
    }

    /// Runs a command in the installation's folder; what it printed.
    pub fn run_with(&self, command: &mut Command, name: &str) -> Result<String> {
        let log = self.prefix.join(format!("{}.log", name.replace(' ', "_")));
        let status = steps::logged(command.current_dir(&self.prefix), &log, LIMIT)?;
        let output = std::fs::read_to_string(&log)?;
        ensure!(status.success(), "{} ended with {status}\n{}", steps::shown(command), steps::tail(&output));
        Ok(output)
    }

    /// Where a program's run goes.
    pub fn out(&self, name: &str) -> PathBuf {
        self.prefix.join("runs").join(name)
    }
}

/// The C programs of docs/guide/c.md.
pub fn programs(root: &Path) -> Result<Vec<String>> {
    let guide = std::fs::read_to_string(root.join(GUIDE)).with_context(|| format!("reading {GUIDE}"))?;
    let blocks = guide.split("\n```c\n").skip(1).filter_map(|rest| rest.split_once("\n```").map(|(block, _)| block));
    Ok(blocks.map(|block| format!("{block}\n")).collect())
}

const GUIDE: &str = "docs/guide/c.md";
const WARNINGS: [&str; 5] = ["-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"];

/// By which a program says that it needs MPI.
pub const MPI_HEADER: &str = "probe_sync_mpi.h";

const LIMIT: Duration = Duration::from_secs(120);
