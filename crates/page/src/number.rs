//! Numbers of the data block, with as few digits as a chart can show.
//!
//! It does not round the numbers in tables.

use serde::{Serialize, Serializer};

/// A number with as few digits as charts need.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Number(pub f64);

impl Number {
    /// Unknown.
    pub const NONE: Self = Self(f64::NAN);

    /// Rounds to a tenth; from 10 000 on to six digits.
    pub fn tenth(value: f64) -> Self {
        let size = value.abs();
        if size < 1e4 || !size.is_finite() {
            return Self((value * 10.0).round() / 10.0);
        }
        let exponent = size.log10().floor() as i32 - 5;
        // Powers of ten that are whole numbers are exact, their inverses are not.
        let unit = 10_f64.powi(exponent.abs());
        Self(if exponent >= 0 { (value / unit).round() * unit } else { (value * unit).round() / unit })
    }

    /// Rounds to a thousandth.
    pub fn thousandth(value: f64) -> Self {
        Self((value * 1000.0).round() / 1000.0)
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if !value.is_finite() => serializer.serialize_none(),
            // Without ".0".
            value if value.fract() == 0.0 && value.abs() < 9e15 => serializer.serialize_i64(value as i64),
            value => serializer.serialize_f64(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_right_to_what_a_chart_shows() {
        let check = |number: Number, text: &str| {
            assert_eq!(serde_json::to_string(&number).expect("a number"), text);
        };
        check(Number::tenth(12.345), "12.3");
        check(Number::tenth(-0.04), "0");
        check(Number::tenth(1_234_567.8), "1234570");
        check(Number::tenth(9_999.94), "9999.9");
        check(Number::tenth(f64::INFINITY), "null");
        check(Number::NONE, "null");
        check(Number::thousandth(1.23456), "1.235");
        check(Number::thousandth(123_456.789_1), "123456.789");
        check(Number::thousandth(3_596.0), "3596");
        check(Number::tenth(-9.9e18), "-9.9e+18");
    }
}
