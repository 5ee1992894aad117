//! Detects the programs that steer the system clock, and disturbances of that clock.
//!
//! `doctor` uses `Discipline` and `steering_programs`; [`ClockWatch`] runs alongside the probes and
//! marks windows in which the clock was stepped or slewed. Reference: `adjtimex(2)`; `modes = 0`
//! only reads and needs no privileges.
//!
//! It never changes the clock; nothing in this project does.

use std::fs;
use std::path::Path;

use crate::Error;
pub use crate::clock_watch::{ClockEvent, ClockWatch};
use crate::host::read_line;

/// What the kernel knows about the steering of `CLOCK_REALTIME`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Discipline {
    /// A program (chrony, ntpd, phc2sys, systemd-timesyncd) keeps the clock synchronised, and tells
    /// the kernel so.
    pub synchronized: bool,
    /// The kernel's phase-locked loop is on.
    pub kernel_loop: bool,
    /// A leap second is being inserted, deleted or waited for.
    pub leap_second_near: bool,
    /// Correction of the clock's rate, ppm.
    pub frequency_ppm: f64,
    /// Phase still to be slewed away, ns.
    pub pending_offset_ns: i64,
    /// Error estimated by the steering program, µs.
    pub estimated_error_us: i64,
    /// Its upper bound; grows by 500 ppm while it is not updated, µs.
    pub maximum_error_us: i64,
    /// TAI − UTC, s; 0 if the kernel was not told.
    pub tai_offset_s: i64,
}

impl Discipline {
    /// Queries the kernel.
    ///
    /// # Errors
    /// Returns an error if a sandbox forbids the query.
    pub(crate) fn read() -> Result<Self, Error> {
        // SAFETY: `timex` is plain data for which all zeroes is a valid value; `modes = 0` asks
        // only.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: `timex` is the structure that the call reads and writes, and lives through it.
        let state = unsafe { libc::clock_adjtime(libc::CLOCK_REALTIME, &raw mut timex) };
        if state < 0 {
            return Err(Error::last_os("read the state of the system clock"));
        }
        Ok(Self::from_timex(state, &timex))
    }

    fn from_timex(state: libc::c_int, timex: &libc::timex) -> Self {
        let status = |flag: libc::c_int| timex.status & flag != 0;
        let offset = timex.offset;
        Self {
            synchronized: state != libc::TIME_ERROR && !status(libc::STA_UNSYNC),
            kernel_loop: status(libc::STA_PLL),
            leap_second_near: matches!(state, libc::TIME_INS | libc::TIME_DEL | libc::TIME_OOP | libc::TIME_WAIT),
            // Parts per million with 16 fractional bits.
            frequency_ppm: timex.freq as f64 / 65_536.0,
            pending_offset_ns: if status(libc::STA_NANO) { offset } else { offset.saturating_mul(1_000) },
            estimated_error_us: timex.esterror,
            maximum_error_us: timex.maxerror,
            tai_offset_s: timex.tai.into(),
        }
    }
}

/// A running program that steers clocks.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Steering {
    /// Its common name.
    pub(crate) name: &'static str,
    /// The clock it steers.
    pub(crate) clock: SteeredClock,
}

/// The clock that a program steers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SteeredClock {
    /// The system clock.
    System,
    /// The clock of an interface that takes timestamps, otherwise the system clock.
    Interface,
}

/// The programs of this host that steer clocks, by the names of its processes. Other process
/// namespaces are invisible: from within a container, the host's.
pub(crate) fn steering_programs() -> Vec<Steering> {
    steering_programs_in(Path::new("/proc"))
}

fn steering_programs_in(proc: &Path) -> Vec<Steering> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten().take(MAX_PROCESSES);
    let is_process = |name: &str| name.bytes().all(|letter| letter.is_ascii_digit());
    let processes = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_process));
    let known = |name: String| PROGRAMS.iter().find(|(process, _)| *process == name).map(|(_, program)| *program);
    let mut programs: Vec<Steering> =
        processes.filter_map(|entry| read_line(entry.path().join("comm"))).filter_map(known).collect();
    programs.sort_unstable();
    programs.dedup();
    programs
}

/// The finding about them: which steers what, and whether two steer the same clock.
pub(crate) fn steering_finding(programs: &[Steering]) -> (String, Option<&'static str>) {
    let named = |clock: SteeredClock| {
        let names: Vec<&str> =
            programs.iter().filter(|program| program.clock == clock).map(|program| program.name).collect();
        names.join(", ")
    };
    let (system, interface) = (named(SteeredClock::System), named(SteeredClock::Interface));
    let several = programs.iter().filter(|program| program.clock == SteeredClock::System).count() > 1;
    let advice = several.then_some(
        "two programs that steer the same clock interfere and make its offsets wander: stop one, or use timemaster",
    );
    let finding = match (system.as_str(), interface.as_str()) {
        ("", "") => "no time daemon found (those of the host are not visible from a container)".into(),
        (system, "") => format!("{system} steers the system clock"),
        ("", interface) => {
            format!(
                "{interface} steers an interface's clock, or the system clock if the interface has no timestamps; no phc2sys found"
            )
        }
        (system, interface) => format!("{system} steers the system clock; {interface} an interface's clock"),
    };
    (finding, advice)
}

/// Most processes examined.
const MAX_PROCESSES: usize = 1 << 17;
/// Programs by the names of their processes, which the kernel truncates after 15 letters.
const PROGRAMS: [(&str, Steering); 10] = {
    const fn system(name: &'static str) -> Steering {
        Steering { name, clock: SteeredClock::System }
    }
    const fn interface(name: &'static str) -> Steering {
        Steering { name, clock: SteeredClock::Interface }
    }
    [
        ("chronyd", system("chrony")),
        ("ntpd", system("ntpd")),
        ("ntp-daemon", system("ntpd-rs")),
        ("ntpd-rs", system("ntpd-rs")),
        ("phc2sys", system("phc2sys")),
        ("systemd-timesyn", system("systemd-timesyncd")),
        ("ptp4l", interface("ptp4l")),
        ("ptpd", interface("ptpd")),
        ("ptpd2", interface("ptpd")),
        ("statime", interface("statime")),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    fn check_programs(processes: &[&str], finding: &str, advised: bool) {
        let proc = tempfile::tempdir().expect("a temporary directory");
        for (pid, name) in processes.iter().enumerate() {
            let process = proc.path().join((pid + 1).to_string());
            fs::create_dir(&process).expect("a new directory");
            fs::write(process.join("comm"), format!("{name}\n")).expect("writable");
        }
        // What is no process, and a process that has just ended.
        fs::create_dir(proc.path().join("sys")).expect("a new directory");
        fs::write(proc.path().join("sys/comm"), "phc2sys\n").expect("writable");
        fs::create_dir(proc.path().join("99")).expect("a new directory");
        let (found, advice) = steering_finding(&steering_programs_in(proc.path()));
        assert!(found.contains(finding), "{processes:?}: {found}");
        assert_eq!(advice.is_some(), advised, "{processes:?}");
    }

    #[test]
    fn programs_that_steer_clocks_are_recognised_by_their_processes() {
        check_programs(&["bash", "chronyd"], "chrony steers the system clock", false);
        check_programs(&["systemd-timesyn", "systemd"], "systemd-timesyncd steers the system clock", false);
        check_programs(
            &["ptp4l", "ptp4l", "phc2sys"],
            "phc2sys steers the system clock; ptp4l an interface's clock",
            false,
        );
        check_programs(&["ptp4l"], "no phc2sys found", false);
        check_programs(&["chronyd", "phc2sys"], "chrony, phc2sys steers the system clock", true);
        check_programs(&["chronyd-helper", "ntpdate"], "no time daemon found", false);
        check_programs(&[], "no time daemon found", false);
        assert_eq!(steering_programs_in(Path::new("/there/is/no/such/directory")), []);
    }

    #[test]
    fn the_kernels_units_are_read_right() {
        // SAFETY: plain data for which all zeroes is a valid value.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        timex.freq = -3 * 65_536 / 2;
        timex.offset = 7;
        timex.status = libc::STA_PLL;
        let read = Discipline::from_timex(libc::TIME_OK, &timex);
        assert!(read.synchronized && read.kernel_loop && !read.leap_second_near);
        assert_eq!((read.frequency_ppm, read.pending_offset_ns), (-1.5, 7_000));
        timex.status = libc::STA_NANO | libc::STA_UNSYNC;
        let read = Discipline::from_timex(libc::TIME_INS, &timex);
        assert_eq!((read.synchronized, read.leap_second_near, read.pending_offset_ns), (false, true, 7));
        timex.status = 0;
        assert!(!Discipline::from_timex(libc::TIME_ERROR, &timex).synchronized);
    }

    #[test]
    fn this_kernel_answers() {
        let discipline = Discipline::read().expect("reading needs no rights");
        assert!(discipline.frequency_ppm.abs() <= 500.0, "{discipline:?}");
    }
}
