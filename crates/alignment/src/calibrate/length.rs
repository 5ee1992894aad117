//! Lengths of time as text.
//!
//! Instants are formatted in `measured`.

/// A length of time with the unit that suits its size.
pub(super) fn length(ns: f64) -> String {
    match ns {
        ns if !ns.is_finite() => "∞".to_owned(),
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.3} µs", ns * 1e-3),
        ns if ns < 1e9 => format!("{:.6} ms", ns * 1e-6),
        ns => {
            // Whole seconds are no less exact for want of zeros.
            let seconds = format!("{:.9}", ns * 1e-9);
            format!("{} s", seconds.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}
