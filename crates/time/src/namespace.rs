//! The offsets by which a Linux time namespace shifts the kernel's clocks that count from boot.
//!
//! `sys` reads them for a process; data that leaves the process with times of such a clock must
//! state them. Neither the system clock nor the processor's counter has such an offset.

use serde::{Deserialize, Serialize};

/// A process's view of the machine's clocks minus their values outside of all time namespaces.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeNamespace {
    /// Offset of `CLOCK_MONOTONIC` and `CLOCK_MONOTONIC_RAW`, ns.
    pub monotonic_ns: i64,
    /// Offset of `CLOCK_BOOTTIME`, ns.
    pub boottime_ns: i64,
}

impl TimeNamespace {
    /// Returns true if the clocks are the machine's own.
    pub fn is_initial(&self) -> bool {
        *self == Self::default()
    }

    /// Parses the text of `/proc/PID/timens_offsets`; `None` if it is invalid.
    ///
    /// ```
    /// use probe_sync_time::TimeNamespace;
    ///
    /// let text = "monotonic           2         0\nboottime           -1 500000000\n";
    /// let expected = TimeNamespace { monotonic_ns: 2_000_000_000, boottime_ns: -500_000_000 };
    /// assert_eq!(TimeNamespace::parse(text), Some(expected));
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let of = |clock: &str| {
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(clock))?;
            let mut fields = line.split_whitespace().map(str::parse::<i64>);
            let (Some(Ok(seconds)), Some(Ok(ns))) = (fields.next(), fields.next()) else { return None };
            seconds.checked_mul(1_000_000_000)?.checked_add(ns)
        };
        Some(Self { monotonic_ns: of("monotonic ")?, boottime_ns: of("boottime ")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_texts_state_nothing() {
        for text in
            ["", "monotonic 1 0\n", "monotonic x 0\nboottime 0 0\n", "monotonic 9223372036854775807 0\nboottime 0 0"]
        {
            assert_eq!(TimeNamespace::parse(text), None, "{text:?}");
        }
        let initial = TimeNamespace::parse("monotonic           0         0\nboottime            0         0\n");
        assert!(initial.expect("the kernel's own text").is_initial());
    }
}
