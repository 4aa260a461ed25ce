//! Canonical text of Kubernetes quantities (`resource.Quantity`), docs/design/bundles.md#normal-form.
//!
//! The reference parses a quantity into a number and a suffix family, and formats it again. Revisions therefore
//! contain the canonical text, not the authored one.

/// Number of digits above which the reference leaves its family-preserving fast path.
const FAST_PATH_DIGITS: usize = 18;
/// Significant digits kept of a number. Further digits only affect rounding up.
const DECIMAL_DIGITS: usize = 30;
const BINARY_DIGITS: usize = 19;
const NANO: i32 = -9;
/// Maximum value of a quantity. Larger values are capped.
const MAX_VALUE: i128 = i64::MAX as i128;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Decimal,
    Exponent,
    Binary,
}

/// Parsed text of a quantity.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point without leading zeros, or `0`.
    whole: &'a str,
    fraction: &'a str,
    family: Family,
    /// Power of ten (decimal families) or of two (binary family).
    exponent: i32,
}

/// Returns the canonical spelling of `text`.
///
/// # Errors
/// `text` is not a number with an optional known suffix.
pub(crate) fn canonical(text: &str) -> Result<String, QuantityError> {
    let parts = split(text)?;
    if is_kept_verbatim(&parts) {
        return Ok(text.to_string());
    }
    let (value, scale) = match parts.family {
        Family::Binary => binary_value(&parts),
        Family::Decimal | Family::Exponent => decimal_value(&parts),
    };
    if value == 0 {
        return Ok("0".into());
    }
    Ok(print(value, scale, parts.family, parts.negative))
}

/// Reports whether two texts are the same quantity, such as `0.5` and `500m`.
///
/// ```
/// assert!(olm_bundle::is_same_quantity("0.5", "500m"));
/// assert!(!olm_bundle::is_same_quantity("1Gi", "1G"));
/// ```
pub fn is_same_quantity(a: &str, b: &str) -> bool {
    canonical(a).is_ok_and(|a| canonical(b).is_ok_and(|b| a == b))
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if text.is_empty() || fraction.contains('.') {
        return Err(QuantityError::Format);
    }
    let letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let digits = letters.strip_prefix(['+', '-']).unwrap_or(letters);
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    let (family, exponent) = family_of(suffix).ok_or(QuantityError::Suffix)?;
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    Ok(Parts { negative: text.starts_with('-'), whole, fraction, family, exponent })
}

const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn family_of(suffix: &str) -> Option<(Family, i32)> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Some((Family::Decimal, *exponent));
    }
    if let Some(index) = BINARY_SUFFIXES.iter().position(|name| *name == suffix) {
        return Some((Family::Binary, 10 * i32::try_from(index).ok()?));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
    (-1000..=1000).contains(&exponent).then_some((Family::Exponent, exponent))
}

/// Reports whether the reference caches the text instead of formatting it: decimal with a scale divisible by three.
fn is_kept_verbatim(parts: &Parts<'_>) -> bool {
    let Some(scale) = fast_path_scale(parts) else {
        return false;
    };
    let trailing_zeros = parts.fraction.bytes().rev().chain(parts.whole.bytes().rev());
    scale % 3 == 0
        && !parts.whole.starts_with('0')
        && trailing_zeros.take(3).filter(|b| *b == b'0').count() < 3
}

fn fast_path_scale(parts: &Parts<'_>) -> Option<i32> {
    let digits = parts.whole.len() + parts.fraction.len();
    let scale = parts.exponent - i32::try_from(parts.fraction.len()).ok()?;
    (parts.family != Family::Binary && digits <= FAST_PATH_DIGITS && scale >= NANO).then_some(scale)
}

/// Significant digits as a number, the power of ten of the last digit, and `true` if digits were truncated.
fn significant(parts: &Parts<'_>, limit: usize) -> (i128, i32, bool) {
    let mut value = 0i128;
    let mut taken = 0;
    let mut cut = false;
    let mut scale = 0i32;
    let digits = parts.whole.bytes().map(|b| (b, 0)).chain(parts.fraction.bytes().map(|b| (b, 1)));
    for (digit, fractional) in digits {
        if taken < limit {
            value = value * 10 + i128::from(digit - b'0');
            taken += usize::from(value != 0);
            scale = scale.saturating_sub(fractional);
        } else {
            cut |= digit != b'0';
            scale = scale.saturating_add(1 - fractional);
        }
    }
    (value, scale, cut)
}

/// Magnitude as `value × 10^scale`, at least nano, rounded up and capped.
fn decimal_value(parts: &Parts<'_>) -> (i128, i32) {
    let (value, scale, cut) = significant(parts, DECIMAL_DIGITS);
    at_least_nano(value, scale.saturating_add(parts.exponent), cut, fast_path_scale(parts).is_some())
}

fn binary_value(parts: &Parts<'_>) -> (i128, i32) {
    let (value, scale, cut) = significant(parts, BINARY_DIGITS);
    at_least_nano(value << parts.exponent, scale, cut, false)
}

fn at_least_nano(mut value: i128, mut scale: i32, mut cut: bool, uncapped: bool) -> (i128, i32) {
    while scale < NANO && value != 0 {
        cut |= value % 10 != 0;
        value /= 10;
        scale += 1;
    }
    if value == 0 {
        return (i128::from(cut), if cut { NANO } else { 0 });
    }
    value += i128::from(cut);
    if !uncapped && exceeds_maximum(value, scale) {
        return (MAX_VALUE, 0);
    }
    (value, scale)
}

fn exceeds_maximum(value: i128, scale: i32) -> bool {
    let Some(power) = 10i128.checked_pow(scale.unsigned_abs()) else {
        return scale > 0;
    };
    let rounded_up = if scale < 0 { Some((value - 1) / power + 1) } else { value.checked_mul(power) };
    rounded_up.is_none_or(|whole| whole > MAX_VALUE)
}

fn print(value: i128, scale: i32, family: Family, negative: bool) -> String {
    let sign = if negative { "-" } else { "" };
    if family == Family::Binary
        && let Some(whole) = whole_number(value, scale)
        && whole >= 1024
    {
        let (mut whole, mut index) = (whole, 0);
        while whole % 1024 == 0 && index + 1 < BINARY_SUFFIXES.len() {
            whole /= 1024;
            index += 1;
        }
        return format!("{sign}{whole}{}", BINARY_SUFFIXES[index]);
    }
    let (mut value, mut scale) = (value, scale);
    while value % 10 == 0 {
        value /= 10;
        scale += 1;
    }
    let largest = if family == Family::Exponent { i32::MAX } else { 18 };
    while scale.rem_euclid(3) != 0 || scale > largest {
        value = value.saturating_mul(10);
        scale -= 1;
    }
    if family == Family::Exponent {
        return if scale == 0 { format!("{sign}{value}") } else { format!("{sign}{value}e{scale}") };
    }
    let suffix =
        DECIMAL_SUFFIXES.iter().find(|(_, exponent)| *exponent == scale).map_or("", |(name, _)| name);
    format!("{sign}{value}{suffix}")
}

fn whole_number(value: i128, scale: i32) -> Option<i128> {
    let power = 10i128.checked_pow(scale.unsigned_abs())?;
    if scale >= 0 {
        return value.checked_mul(power);
    }
    (value % power == 0).then_some(value / power)
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn quantities_have_documented_canonical_texts() {
        // docs/design/bundles.md#normal-form
        let rows = [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("0.1Ki", "102400m"),
            ("1e3", "1e3"),
            ("1000", "1k"),
            ("1000000", "1M"),
            ("2000M", "2G"),
            ("1500M", "1500M"),
            ("1234567", "1234567"),
            ("0.0000000001", "1n"),
            ("1.0005", "1000500u"),
            ("0.5m", "500u"),
            ("0Mi", "0"),
            ("0", "0"),
            ("1048576", "1048576"),
            ("1024Gi", "1Ti"),
            ("1e19", "10e18"),
            (".5", "500m"),
            ("0.25Gi", "256Mi"),
            ("1E", "1E"),
            ("100000m", "100"),
            ("01", "01"),
            ("+5", "+5"),
            ("1.", "1."),
            ("1E3", "1E3"),
            ("1000000Mi", "1000000Mi"),
            ("-0.5", "-500m"),
            ("512Ki", "512Ki"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("9223372036854775808", "9223372036854775807"),
            ("16Ei", "9223372036854775807"),
            ("1.500", "1.500"),
            ("0.0", "0"),
            ("00", "0"),
            ("2e-10", "1e-9"),
            // A text without digits is zero.
            ("-", "0"),
            (".", "0"),
            ("Mi", "0"),
        ];
        for (input, expected) in rows {
            assert_eq!(canonical(input).as_deref(), Ok(expected), "{input}");
        }
    }

    #[test]
    fn malformed_quantities_are_errors() {
        for text in ["", "x", "1.2.3", "1 Gi", "1Gi!", "true", "é"] {
            assert_eq!(canonical(text), Err(QuantityError::Format), "{text}");
        }
        for text in ["--1", "1K", "1e", "1ki", "1mm", "1e99999999999"] {
            assert_eq!(canonical(text), Err(QuantityError::Suffix), "{text}");
        }
    }

    proptest! {
        #[test]
        fn canonical_does_not_panic_for_any_text(text in "\\PC{0,12}") {
            let _ = canonical(&text);
        }

        // Above 2^63 the reference itself caps only on the second parse.
        #[test]
        fn canonical_form_is_stable(text in "[+-]?[0-9]{1,3}(\\.[0-9]{0,30})?(|[numkMGTP]|[KMGTPE]i|e-?[0-9])") {
            if let Ok(once) = canonical(&text) {
                prop_assert_eq!(canonical(&once), Ok(once.clone()));
            }
        }

        #[test]
        fn small_binary_quantities_keep_their_value(value in 1u64..1 << 20, power in 0usize..4) {
            let text = format!("{value}{}", BINARY_SUFFIXES[power]);
            let once = canonical(&text).unwrap();
            let parts = split(&once).unwrap();
            let (digits, scale, _) = significant(&parts, DECIMAL_DIGITS);
            let shown = match parts.family {
                Family::Binary => digits << parts.exponent,
                _ => digits * 10i128.pow(u32::try_from(scale + parts.exponent).unwrap()),
            };
            prop_assert_eq!(shown, i128::from(value) << (10 * power));
        }
    }
}
