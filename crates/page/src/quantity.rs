//! Human-readable durations: a number with the unit that suits its size.

use probe_sync_time::with_unit;

/// A clock difference in ns, to the nanosecond, in a suitable unit, with its sign.
pub fn signed(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "+" };
    let size = ns.abs();
    if size.is_finite() { format!("{sign}{}", with_unit(size, [1, 3, 6, 9])) } else { format!("{sign}∞") }
}

/// A duration in ns, for people: four digits, without trailing zeros, in a suitable unit.
pub fn unsigned(ns: f64) -> String {
    if !ns.is_finite() {
        return "∞".into();
    }
    // The digits decide on the unit, too: 999.96 ns are 1 µs.
    let digits = if ns > 0.0 { 3 - (ns.log10().floor() as i32).max(-1) } else { 0 };
    let ns = (ns * 10_f64.powi(digits)).round() / 10_f64.powi(digits);
    let (number, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns * 1e-3, "µs"),
        ns if ns < 1e9 => (ns * 1e-6, "ms"),
        ns => (ns * 1e-9, "s"),
    };
    let decimals = if number > 0.0 { (3 - number.log10().floor() as i32).clamp(0, 3) as usize } else { 0 };
    let text = format!("{number:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_carry_sign_and_unit() {
        assert_eq!(signed(-7_654_321.0), "-7.654321 ms");
        assert_eq!(signed(12.34), "+12.3 ns");
        assert_eq!(signed(2.5e9), "+2.500000000 s");
        assert_eq!(signed(f64::NEG_INFINITY), "-∞");
        for (ns, text) in [
            (0.0, "0 ns"),
            (0.04, "0.04 ns"),
            (10.62, "10.62 ns"),
            (205.0, "205 ns"),
            (999.96, "1 µs"),
            (1234.4, "1.234 µs"),
            (165_900.0, "165.9 µs"),
            (5e8, "500 ms"),
            (2.5e9, "2.5 s"),
            (86_400e9, "86400 s"),
            (f64::INFINITY, "∞"),
        ] {
            assert_eq!(unsigned(ns), text);
        }
    }
}
