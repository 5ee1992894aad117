//! Who steers the system clock, and whether it was disturbed.
//!
//! Place in the flow: `Discipline` is asked by `doctor`; [`ClockWatch`] runs beside the probes
//! and marks windows in which the clock was stepped or slewed. Reference: `adjtimex(2)`; `modes = 0` only reads, and
//! needs no rights.
//!
//! What it does not do: change the clock. Nothing in this project does.

use crate::Error;
pub use crate::clock_watch::{ClockEvent, ClockWatch};
use crate::host::read_line;

/// What the kernel knows about the steering of `CLOCK_REALTIME`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Discipline {
    /// Some program (chrony, ntpd, phc2sys, systemd-timesyncd) keeps the clock synchronised, and says so.
    pub synchronized: bool,
    /// The kernel's phase-locked loop is on.
    pub kernel_loop: bool,
    /// A leap second is being inserted, deleted or waited for.
    pub leap_second_near: bool,
    /// Correction of the clock's rate, ppm.
    pub frequency_ppm: f64,
    /// Phase still to be slewed away, ns.
    pub pending_offset_ns: i64,
    /// What the steering program thinks its error is, µs.
    pub estimated_error_us: i64,
    /// Its upper bound; grows by 500 ppm while nobody updates it, µs.
    pub maximum_error_us: i64,
    /// TAI − UTC, s; 0 when nobody told the kernel.
    pub tai_offset_s: i64,
}

impl Discipline {
    /// Asks the kernel.
    ///
    /// # Errors
    /// Where a sandbox forbids even to ask.
    pub(crate) fn read() -> Result<Self, Error> {
        // SAFETY: `timex` is plain data for which all zeroes is a valid value; `modes = 0` asks only.
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

/// The programs on this host that steer clocks, by name. A container does not see those of its host.
pub(crate) fn time_daemons() -> Vec<&'static str> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered =
        processes.filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()));
    let names: Vec<String> = numbered.filter_map(|process| read_line(process.path().join("comm"))).collect();
    daemons_among(&names)
}

fn daemons_among(names: &[String]) -> Vec<&'static str> {
    let runs = |(comm, _): &&(&str, &str)| names.iter().any(|name| name == comm);
    DAEMONS.iter().filter(runs).map(|(_, name)| *name).collect()
}

/// As the kernel names processes, at most 15 characters, and what people call them.
const DAEMONS: [(&str, &str); 8] = [
    ("chronyd", "chronyd"),
    ("ntpd", "ntpd"),
    ("ntp-daemon", "ntpd-rs"),
    ("systemd-timesyn", "systemd-timesyncd"),
    ("ptp4l", "ptp4l"),
    ("phc2sys", "phc2sys"),
    ("timemaster", "timemaster"),
    ("ptpd", "ptpd"),
];

#[cfg(test)]
mod tests {
    use super::*;

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
    fn time_daemons_are_known_by_the_kernels_short_names() {
        let check = |names: &[&str], expected: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(daemons_among(&names), expected);
        };
        check(&["bash", "phc2sys", "ptp4l", "ptp4l"], &["ptp4l", "phc2sys"]);
        check(&["systemd-timesyn", "chronyd-helper"], &["systemd-timesyncd"]);
        check(&[], &[]);
        time_daemons();
    }

    #[test]
    fn this_kernel_answers() {
        let discipline = Discipline::read().expect("reading needs no rights");
        assert!(discipline.frequency_ppm.abs() <= 500.0, "{discipline:?}");
    }
}
