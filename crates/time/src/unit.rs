//! A difference of times as text, in the unit that suits its size.

/// Formats a time with its unit, with this many decimals for ns, µs, ms and s.
///
/// ```
/// use probe_sync_time::with_unit;
///
/// assert_eq!(with_unit(-12_345.6, [0, 3, 3, 6]), "-12.346 µs");
/// assert_eq!(with_unit(999.6, [0, 3, 3, 6]), "1000 ns");
/// ```
pub fn with_unit(ns: f64, [in_ns, in_us, in_ms, in_s]: [usize; 4]) -> String {
    let (value, unit, decimals) = match ns.abs() {
        size if size < 1e3 => (ns, "ns", in_ns),
        size if size < 1e6 => (ns / 1e3, "µs", in_us),
        size if size < 1e9 => (ns / 1e6, "ms", in_ms),
        _ => (ns / 1e9, "s", in_s),
    };
    format!("{value:.decimals$} {unit}")
}
