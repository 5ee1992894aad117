//! Background processes, and a load on the machine; both end when their owner is dropped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::steps;

/// Programs that run at the same time, each with a log of its own.
#[derive(Debug, Default)]
pub struct Processes(Vec<Process>);

#[derive(Debug)]
struct Process {
    name: String,
    log: PathBuf,
    child: Child,
    ended: bool,
}

impl Processes {
    /// Starts one more.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&mut self, name: &str, command: &mut Command, folder: &Path) -> Result<()> {
        let log = folder.join(format!("{name}.log"));
        let child = steps::started(command, &log)?;
        self.0.push(Process { name: name.to_owned(), log, child, ended: false });
        Ok(())
    }

    /// Waits until `there` gives something.
    ///
    /// # Errors
    /// A process failed, or `limit` passed; the error holds what was waited for, and the end of the
    /// log.
    pub fn wait_for<T>(&mut self, what: &str, limit: Duration, there: impl Fn() -> Option<T>) -> Result<T> {
        let end = Instant::now() + limit;
        loop {
            if let Some(found) = there() {
                return Ok(found);
            }
            self.look()?;
            if Instant::now() > end {
                bail!("no {what} within {} s; logs: {}", limit.as_secs(), self.logs());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until all have ended well.
    ///
    /// # Errors
    /// One failed, or did not end within `limit`.
    pub fn finish(&mut self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        while !self.look()? {
            if Instant::now() > end {
                let late: Vec<&str> = self.0.iter().filter(|one| !one.ended).map(|one| one.name.as_str()).collect();
                bail!("{} still running after {} s; logs: {}", late.join(", "), limit.as_secs(), self.logs());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Whether all have ended; an error where one failed.
    fn look(&mut self) -> Result<bool> {
        for one in self.0.iter_mut().filter(|one| !one.ended) {
            if let Some(status) = one.child.try_wait().with_context(|| format!("waiting for {}", one.name))? {
                one.ended = true;
                if !status.success() {
                    let output = std::fs::read_to_string(&one.log).unwrap_or_default();
                    bail!("{} ended with {status}:\n{}", one.name, steps::tail(&output));
                }
            }
        }
        Ok(self.0.iter().all(|one| one.ended))
    }

    fn logs(&self) -> String {
        self.0.iter().map(|one| one.log.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for one in self.0.iter_mut().filter(|one| !one.ended) {
            if let Err(error) = steps::end(&mut one.child) {
                println!("{}: {error:#}", one.name);
            }
        }
    }
}

/// As many threads that do nothing useful as there are cores.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts it.
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = || {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
        };
        let threads = (0..cores).map(|_| spin()).collect();
        Self { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It cannot panic: it only looks at a flag.
            let _ended = thread.join();
        }
    }
}

const POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("probe_sync-flow-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        folder
    }

    #[test]
    fn a_failed_process_is_named_with_its_output_and_the_others_end() {
        let folder = folder("failed");
        let mut processes = Processes::default();
        processes.start("sleeper", &mut shell("sleep 600"), &folder).expect("sh is everywhere");
        processes.start("failing", &mut shell("echo because; exit 3"), &folder).expect("sh is everywhere");
        let sleeper = processes.0[0].child.id();
        let error = processes.finish(Duration::from_secs(30)).expect_err("one fails").to_string();
        assert!(error.contains("failing ended with exit status: 3") && error.contains("because"), "{error}");
        drop(processes);
        assert!(!Path::new(&format!("/proc/{sleeper}")).exists(), "ended and waited for");
        std::fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn waiting_is_bounded_and_says_for_what() {
        let folder = folder("waiting");
        let mut processes = Processes::default();
        processes.start("sleeper", &mut shell("sleep 600"), &folder).expect("sh is everywhere");
        let error = processes.wait_for("file", Duration::ZERO, || None::<()>).expect_err("nothing comes").to_string();
        assert!(error.starts_with("no file within 0 s"), "{error}");
        assert_eq!(processes.wait_for("number", Duration::ZERO, || Some(7)).expect("there"), 7);
        assert!(processes.finish(Duration::ZERO).expect_err("it sleeps").to_string().starts_with("sleeper still"));
        drop(processes);
        std::fs::remove_dir_all(folder).expect("ours");
    }
}
