//! Decimal spelling of floats.

/// Shortest decimal that parses to the same float: `d.ddd × 10^exponent`.
pub(crate) struct Decimal {
    negative: bool,
    digits: String,
    exponent: i32,
}

impl From<f64> for Decimal {
    fn from(value: f64) -> Self {
        Self::parse(&serde_json::to_string(&value).unwrap_or_default())
    }
}

impl From<f32> for Decimal {
    fn from(value: f32) -> Self {
        Self::parse(&serde_json::to_string(&value).unwrap_or_default())
    }
}

impl Decimal {
    /// Parses any decimal notation.
    fn parse(text: &str) -> Self {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let significant = digits.trim_start_matches('0');
        let leading = (digits.len() - significant.len()) as i32;
        let shift = whole.len() as i32 - 1 - leading;
        match significant.trim_end_matches('0') {
            "" => Self { negative, digits: "0".to_owned(), exponent: 0 },
            digits => Self {
                negative,
                digits: digits.to_owned(),
                exponent: exponent.parse::<i32>().unwrap_or(0) + shift,
            },
        }
    }

    /// Power of ten of the first digit.
    pub(crate) fn exponent(&self) -> i32 {
        self.exponent
    }

    /// Formats without an exponent, such as `-0.025` or `1200`.
    pub(crate) fn plain(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let digits = &self.digits;
        let Ok(power) = usize::try_from(self.exponent) else {
            let zeros = "0".repeat(self.exponent.unsigned_abs() as usize - 1);
            return format!("{sign}0.{zeros}{digits}");
        };
        match digits.split_at_checked(power + 1) {
            Some((whole, "")) => format!("{sign}{whole}"),
            Some((whole, fraction)) => format!("{sign}{whole}.{fraction}"),
            None => format!("{sign}{digits}{}", "0".repeat(power + 1 - digits.len())),
        }
    }

    /// Formats with a signed exponent of at least `width` digits, such as `1.5e+21`.
    pub(crate) fn scientific(&self, width: usize) -> String {
        let sign = if self.negative { "-" } else { "" };
        let (first, rest) = self.digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let power = if self.exponent < 0 { '-' } else { '+' };
        format!("{sign}{first}{point}{rest}e{power}{:0width$}", self.exponent.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_format_plain_and_scientific() {
        let cases = [
            (0.0, "0", "0e+0"),
            (-0.0, "-0", "-0e+0"),
            (1.0, "1", "1e+0"),
            (-1.5, "-1.5", "-1.5e+0"),
            (1200.0, "1200", "1.2e+3"),
            (0.025, "0.025", "2.5e-2"),
            (1e-6, "0.000001", "1e-6"),
            (1e20, "100000000000000000000", "1e+20"),
            (123_456.75, "123456.75", "1.2345675e+5"),
            // Two decimals of that length are equally near: the even one is used.
            (4_938_271_560_493_801.0 / 4.0, "1234567890123450.2", "1.2345678901234502e+15"),
        ];
        for (value, plain, scientific) in cases {
            assert_eq!(Decimal::from(value).plain(), plain);
            assert_eq!(Decimal::from(value).scientific(1), scientific);
        }
        assert_eq!(Decimal::from(16_777_216.0_f32).plain(), "16777216");
        assert_eq!(Decimal::from(1e-5_f32).scientific(2), "1e-05");
    }
}
