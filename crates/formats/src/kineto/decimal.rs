//! Exact conversion between decimal microseconds as text and picoseconds.
//!
//! Every reader and writer of `ts` and `dur` uses it. A value is
//! `mantissa · 10^(6 − fraction + exponent)` picoseconds in integers; `f64` is not used, because at
//! the scale of the epoch its step is 256 ns.

use crate::model::Picoseconds;

/// A time or duration as it was written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    /// The value, rounded down to the picosecond.
    pub(super) ps: Picoseconds,
    /// Digits after the point.
    pub(super) fraction: u32,
    /// Whether digits below the picosecond were lost.
    pub(super) inexact: bool,
}

impl Decimal {
    /// Whether it says more than nanoseconds can.
    pub(super) fn finer_than_nanoseconds(self) -> bool {
        self.fraction > 3 && self.ps % 1000 != 0
    }
}

/// Parses a JSON number of microseconds; `None` if it is not a number or not a conceivable time.
#[inline]
pub(super) fn parse(text: &[u8]) -> Option<Decimal> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (mut mantissa, mut count, mut fraction, mut point) = (0_u64, 0_u32, 0_u32, false);
    for &byte in digits {
        match byte {
            b'0'..=b'9' if count < 18 => {
                mantissa = mantissa * 10 + u64::from(byte - b'0');
                count += 1;
                fraction += u32::from(point);
            }
            b'.' if !point && count > 0 => point = true,
            _ => return parse_long(negative, digits),
        }
    }
    if count == 0 || (point && fraction == 0) {
        return None;
    }
    finish(negative, u128::from(mantissa), fraction, 6 - i64::from(fraction))
}

/// Appends `ps` as microseconds: three digits after the point, or six if `fine`.
///
/// Unless `fine`, `ps` is an integer number of nanoseconds.
#[inline]
pub(super) fn write(out: &mut Vec<u8>, ps: Picoseconds, fine: bool) {
    if ps < 0 {
        out.push(b'-');
    }
    let magnitude = ps.unsigned_abs();
    let (unit, width) = if fine { (1_000_000, 6) } else { (1_000, 3) };
    let (whole, rest) = match u64::try_from(magnitude) {
        Ok(small) => {
            let scaled = if fine { small } else { small / 1000 };
            (u128::from(scaled / unit), scaled % unit)
        }
        Err(_) => {
            let scaled = if fine { magnitude } else { magnitude / 1000 };
            (scaled / u128::from(unit), (scaled % u128::from(unit)) as u64)
        }
    };
    write_integer(out, whole);
    out.push(b'.');
    let mut digits = [b'0'; 6];
    let mut left = rest;
    for digit in digits[..width].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    out.extend_from_slice(&digits[..width]);
}

/// Appends an integer.
#[inline]
pub(super) fn write_integer(out: &mut Vec<u8>, value: u128) {
    let mut digits = [0_u8; 40];
    let mut at = digits.len();
    let mut wide = value;
    while wide > u128::from(u64::MAX) {
        at -= 1;
        digits[at] = b'0' + (wide % 10) as u8;
        wide /= 10;
    }
    let mut left = wide as u64;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The nearest whole nanosecond, halves up: monotone, so that order and nesting survive it.
#[inline]
pub(super) fn round_to_nanoseconds(ps: Picoseconds) -> Picoseconds {
    match i64::try_from(ps) {
        // Half of a nanosecond below the limits of i64 cannot overflow in practice, and must not in
        // theory.
        Ok(small) if small < i64::MAX - 500 => i128::from((small + 500).div_euclid(1000)) * 1000,
        _ => (ps + 500).div_euclid(1000) * 1000,
    }
}

/// Numbers with many digits or an exponent.
fn parse_long(negative: bool, digits: &[u8]) -> Option<Decimal> {
    let exponent_at = digits.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (body, exponent) = match exponent_at {
        Some(at) => (&digits[..at], parse_exponent(&digits[at + 1..])?),
        None => (digits, 0),
    };
    let (mut mantissa, mut count, mut fraction, mut point) = (0_u128, 0_u32, 0_u32, false);
    for &byte in body {
        match byte {
            b'0'..=b'9' if count < DIGITS_MAX => {
                mantissa = mantissa * 10 + u128::from(byte - b'0');
                count += 1;
                fraction += u32::from(point);
            }
            b'.' if !point && count > 0 => point = true,
            _ => return None,
        }
    }
    if count == 0 || (point && fraction == 0) {
        return None;
    }
    finish(negative, mantissa, fraction, 6 - i64::from(fraction) + exponent)
}

/// The digits after an `e`.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || digits.len() > 3 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0, |sum, byte| sum * 10 + i64::from(byte - b'0'));
    Some(if negative { -value } else { value })
}

/// `mantissa · 10^scale` picoseconds.
#[inline]
fn finish(negative: bool, mantissa: u128, fraction: u32, scale: i64) -> Option<Decimal> {
    let power = |exponent: i64| match usize::try_from(exponent) {
        Ok(index) if index < POWERS.len() => Some(POWERS[index]),
        _ => u32::try_from(exponent).ok().and_then(|exponent| 10_u128.checked_pow(exponent)),
    };
    let (magnitude, lost) = if mantissa == 0 {
        (0, false)
    } else if scale >= 0 {
        (mantissa.checked_mul(power(scale)?)?, false)
    } else {
        // A divisor beyond 10^38 leaves nothing of any mantissa.
        power(-scale).map_or((0, true), |divisor| (mantissa / divisor, !mantissa.is_multiple_of(divisor)))
    };
    if magnitude > LARGEST {
        return None;
    }
    let value = magnitude as i128;
    // Rounded down, also below zero, so that rounding keeps order.
    let ps = if negative { -value - i128::from(lost) } else { value };
    Some(Decimal { ps, fraction, inexact: lost })
}

/// Values above this are not times: 10^24 ps are 31 700 years. It keeps every later sum far from
/// overflow.
const LARGEST: u128 = 1_000_000_000_000_000_000_000_000;
/// Numbers with more digits are refused: no writer of times has them, and 10^38 is what `u128`
/// holds.
const DIGITS_MAX: u32 = 38;
/// Powers of ten for the usual scales.
const POWERS: [u128; 13] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
    100_000_000_000,
    1_000_000_000_000,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Option<(i128, bool)>) {
        assert_eq!(parse(text.as_bytes()).map(|it| (it.ps, it.inexact)), expected, "{text}");
    }

    #[test]
    fn numbers_are_exact() {
        check("0", Some((0, false)));
        check("4330155898898.209", Some((4_330_155_898_898_209_000, false)));
        check("1712195495520854.795", Some((1_712_195_495_520_854_795_000, false)));
        check("1682725898236567", Some((1_682_725_898_236_567_000_000, false)));
        check("12345678901234567890.123456", Some((12_345_678_901_234_567_890_123_456, false)).filter(|_| false));
        check("123456789012345678.123456", Some((123_456_789_012_345_678_123_456, false)));
        check("68.0", Some((68_000_000, false)));
        check("-1.5", Some((-1_500_000, false)));
        check("1e-05", Some((10, false)));
        check("1.5E+3", Some((1_500_000_000, false)));
        check("0.0000005", Some((0, true)));
        check("-0.0000005", Some((-1, true)));
        check("1e-300", Some((0, true)));
        check("0e999", Some((0, false)));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "", "-", ".", "1.", ".5", "1..2", "1e", "1e+", "1e9999", "1e40", "+1", "0x10", "NaN", "1 2", "--1", "1e5.0",
        ] {
            check(text, None);
        }
        check(&"9".repeat(60), None);
    }

    proptest! {
        #[test]
        fn written_numbers_read_back(ns in -(1_i128 << 80)..(1_i128 << 79), fine in any::<bool>(), sub in 0_i128..1000) {
            let ps = (ns * 1000 + if fine { sub } else { 0 }).clamp(-(LARGEST as i128), LARGEST as i128);
            let mut text = Vec::new();
            write(&mut text, ps, fine);
            prop_assert_eq!(parse(&text).map(|it| it.ps), Some(ps));
        }

        #[test]
        fn rounding_keeps_order(a in any::<i64>(), b in any::<i64>(), far in 0_i128..(1 << 70)) {
            let (a, b) = (i128::from(a) + far, i128::from(b) + far);
            let (x, y) = (round_to_nanoseconds(a), round_to_nanoseconds(b));
            prop_assert!((a <= b && x <= y) || (a >= b && x >= y));
            prop_assert!((x - a).abs() <= 500);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&bytes);
        }
    }
}
