//! Version expressions of `spec.source.catalog.version` (docs/design/cli.md#version-expressions). A text that
//! the API server would reject is rejected with the API server's message, the position of the fault, and a rewrite
//! that works. A text that the API server would admit by mistake, and the controller would reject at each reconcile, is
//! rejected in the same way.
//!
//! Pure: takes a text, returns a constraint or a [`VersionExpressionError`].

use std::fmt;

use olm_api::cluster_extension::{VERSION_MAX_CHARACTERS, version_pattern};
use olm_version::{Constraint, Pointer, quote};
use regex::Regex;

use crate::error::CliError;

/// Field name in the API server's message.
const FIELD: &str = "spec.source.catalog.version";

/// Rejected version expression. Displays the message, the position and the rewrite, one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionExpressionError {
    /// Text as given.
    text: String,
    /// Message of the API server, or of the controller where the API server would admit the text.
    message: String,
    /// Position of the fault. `None` if the whole text is too long or empty.
    pointer: Option<Pointer>,
    /// Advice that makes the expression valid.
    rewrite: Option<String>,
}

impl fmt::Display for VersionExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(pointer) = &self.pointer {
            for line in pointer.draw(&self.text).lines() {
                write!(f, "\n  {line}")?;
            }
        }
        self.rewrite.iter().try_for_each(|rewrite| write!(f, "\n{rewrite}"))
    }
}

impl From<VersionExpressionError> for CliError {
    fn from(error: VersionExpressionError) -> Self {
        Self::usage(error.to_string())
    }
}

/// Parses a version expression that both the API server and the controller accept.
///
/// # Errors
/// See [`VersionExpressionError`].
pub fn check(text: &str) -> Result<Constraint, VersionExpressionError> {
    let refuse = |message: String| VersionExpressionError {
        text: text.to_owned(),
        message,
        pointer: None,
        rewrite: None,
    };
    let admission = Admission::new().map_err(|fault| refuse(format!("the pattern of {FIELD}: {fault}")))?;
    let parsed = Constraint::parse(text);
    if text.trim().is_empty() {
        let rewrite = Some("omit the version to allow any".to_owned());
        return Err(VersionExpressionError { rewrite, ..refuse(invalid_value(text)) });
    }
    let rewrite = || rewrite(&admission, text, parsed.as_ref().ok());
    if text.chars().count() > VERSION_MAX_CHARACTERS {
        let message = format!("{FIELD}: Too long: may not be more than {VERSION_MAX_CHARACTERS} bytes");
        return Err(VersionExpressionError { rewrite: rewrite(), ..refuse(message) });
    }
    if !admission.admits(text) {
        // Of two faults at one position, the grammar's message comes first: it is more specific.
        let faults = Constraint::fault_in(text).into_iter().chain([admission.fault_in(text)]);
        let pointer = faults.min_by_key(|pointer| pointer.at.start);
        return Err(VersionExpressionError { pointer, rewrite: rewrite(), ..refuse(invalid_value(text)) });
    }
    parsed.clone().map_err(|fault| {
        let message = format!(
            "desired version range {} is invalid: {fault}\nthe API server accepts it, but operator-controller \
             rejects it at each retry",
            quote(text)
        );
        VersionExpressionError { pointer: Constraint::fault_in(text), rewrite: rewrite(), ..refuse(message) }
    })
}

fn invalid_value(text: &str) -> String {
    format!("{FIELD}: Invalid value: {}: invalid version expression", quote(text))
}

/// Validation pattern of the CRD.
struct Admission(Regex);

impl Admission {
    fn new() -> Result<Self, regex::Error> {
        // The API server uses RE2, which differs only in white space: it has no vertical tab.
        let pattern = version_pattern().replace(r"\s", r"[\t\n\f\r ]");
        Regex::new(&format!("(?-u){pattern}")).map(Self)
    }

    fn admits(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// Position of the first character that no admitted text has after the same prefix.
    fn fault_in(&self, text: &str) -> Pointer {
        const WILDCARD: &str = "x as wildcard: the API server rejects * here";
        /// Any prefix of an admitted text becomes admitted with one of these suffixes.
        const ENDS: [&str; 5] = ["", "0", "a", "|0", "=0"];
        let is_prefix =
            |end: &usize| ENDS.iter().any(|rest| self.admits(&format!("{}{rest}", &text[..*end])));
        let characters = text.char_indices().map(|(start, c)| (start, start + c.len_utf8()));
        let found = characters.into_iter().find(|(_, end)| !is_prefix(end));
        let (start, end) = found.unwrap_or((text.len(), text.len()));
        let digits = text[..start].trim_end_matches('0').len();
        let (at, expected) = match &text[start..end] {
            "." if text[end..].starts_with('*') => (start..end + 1, WILDCARD),
            "*" => (start..end, WILDCARD),
            "-" => (start..end, "two comparators such as >=A, <=B instead of a hyphen range"),
            digit if digit.starts_with(|c: char| c.is_ascii_digit()) && digits < start => {
                (digits..start, "a number without leading zeros")
            }
            _ => (start..end, "a version expression such as 1.2.x or >=1.2.0, <2.0.0 || 3.0.1"),
        };
        Pointer { at, expected: expected.into() }
    }

    /// The constraint, if both the API server and the controller accept `text`.
    fn accepts(&self, text: &str) -> Option<Constraint> {
        let short = text.chars().count() <= VERSION_MAX_CHARACTERS;
        if short && self.admits(text) { Constraint::parse(text).ok() } else { None }
    }
}

/// Advice to write the first accepted candidate of two: `text` with common mistakes fixed, then the canonical form. If
/// `text` has a meaning in the controller's grammar, the candidate must have the same.
fn rewrite(admission: &Admission, text: &str, meaning: Option<&Constraint>) -> Option<String> {
    let fixed = corrected(text);
    let canonical = meaning.cloned().or_else(|| Constraint::parse(&fixed).ok()).map(|c| c.to_string());
    let accepted = |candidate: &String| {
        let read = admission.accepts(candidate);
        read.is_some_and(|read| meaning.is_none_or(|meaning| read == *meaning))
    };
    let found = [Some(fixed), canonical].into_iter().flatten().find(accepted)?;
    let why = if meaning.is_some() { "which means the same" } else { "if that is what you mean" };
    Some(format!("write {}, {why}", quote(&found)))
}

/// `text` with operators of other version languages replaced by those of this one.
fn corrected(text: &str) -> String {
    let mut fixed = String::new();
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        let alphabetic = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let at_border = fixed.is_empty() || fixed.ends_with(' ');
        let (taken, written) = match &rest[..alphabetic] {
            word if at_border && word.eq_ignore_ascii_case("or") => (alphabetic, " || "),
            word if at_border && word.eq_ignore_ascii_case("and") => (alphabetic, ", "),
            _ => foreign_sign(rest, &fixed),
        };
        let taken = taken.max(first.len_utf8());
        fixed.push_str(if written.is_empty() { &rest[..taken] } else { written });
        rest = &rest[taken..];
    }
    tidy(&fixed)
}

/// Operators of other version languages, and their replacements.
const FOREIGN_SIGNS: [(&str, &str); 8] = [
    ("||", " || "),
    ("&&", ", "),
    ("==", "="),
    ("|", " || "),
    ("&", ", "),
    (";", ", "),
    ("*]", "x"),
    ("*", "x"),
];

/// Number of bytes of a foreign operator at the start of `rest`, and its replacement. (0, "") if there is none.
fn foreign_sign(rest: &str, before: &str) -> (usize, &'static str) {
    if let Some((sign, written)) = FOREIGN_SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
        return (sign.len(), written);
    }
    let mut characters = rest.chars();
    let first = characters.next();
    let is_before_digit = characters.as_str().trim_start().starts_with(|c: char| c.is_ascii_digit());
    match first {
        Some('V') if is_before_digit => (1, "v"),
        Some('!') if is_before_digit && !before.ends_with('=') => (1, "!="),
        _ => (0, ""),
    }
}

/// `text` with single blanks, and without repeated, leading or trailing separators.
fn tidy(text: &str) -> String {
    let alternatives = text.split("||").map(|group| {
        let comparators = group.split(',').map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
        comparators.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    });
    alternatives.filter(|group| !group.is_empty()).collect::<Vec<_>>().join(" || ")
}

#[cfg(test)]
pub(crate) mod tests {
    use olm_version::Constraint;

    use super::{Admission, check};

    /// Expressions of the product documents (cases seeds-s2-1, seeds-s2-2).
    pub(crate) const OF_PRODUCT_DOCUMENTS: [&str; 26] = [
        ">=1.11, <1.13",
        "1.11.1",
        ">1.11.1",
        "1.14.x",
        ">=1.16",
        "1.11.x || 1.13.x",
        ">= 1.2.0, < 2.0.0",
        "=1.11",
        ">=1.12.X",
        "<=2.x",
        "*",
        "~1.11.0",
        "~1",
        "~1.12",
        "~1.12.x",
        "~1.x",
        "^0",
        "^0.0",
        "^0.0.3",
        "^0.2",
        "^0.2.3",
        "^1.2.x",
        "^1.2.3",
        "^2.x",
        "^2.3",
        ">= 2.0.0, < 3",
    ];

    #[test]
    fn expression_valid_for_both_sides_is_accepted() {
        // Rows of docs/design/api.md#version-expression that both sides accept
        let rows = [
            "1.2.3",
            "v1.2.3",
            "=1.2.3",
            ">=1.2.3 <2",
            ">=1.2.3,<2",
            "<1 || >2",
            "=>1",
            "=<1",
            "~>1.2",
            "1.*",
            "1.2.*",
            "x",
            "X",
            "1-alpha",
            "1.0.0+2",
            " 1 ",
            "\t1",
            "1\n",
            "1.x.x",
            "1.x.*",
            "*.1",
            "vx",
            "v1",
            "1.0.0 || x",
            "1 2.*",
            "1 2.x.x",
        ];
        for text in OF_PRODUCT_DOCUMENTS.into_iter().chain(rows) {
            assert_eq!(check(text), Constraint::parse(text).map_err(|_| unreachable!()), "{text:?}");
        }
    }

    // docs/design/cli.md#version-expressions; case seeds-s2-6: each text with its fault, the text at its
    // position, and the end of the message
    #[test]
    fn expression_rejected_by_api_server_gets_rewrite() {
        for (text, faulty, rewrite) in [
            ("1.11 OR 1.13", "OR", r#"write "1.11 || 1.13", if that is what you mean"#),
            ("1.11.x || *", "*", r#"write "1.11.x || x", which means the same"#),
            ("1.2 - 1.4", "- ", r#"write ">=1.2, <=1.4", which means the same"#),
            ("01.2.3", "01", r#"write "1.2.3", which means the same"#),
            ("1.2.007", "007", r#"write "1.2.7", which means the same"#),
            (">=1.0 && <2.0", "&&", r#"write ">=1.0, <2.0", if that is what you mean"#),
            (">=1.0 AND <2.0", "AND", r#"write ">=1.0, <2.0", if that is what you mean"#),
            (">=1.0 and <2.0 or 3", "and", r#"write ">=1.0, <2.0 || 3", if that is what you mean"#),
            ("==1.2.3", "=1", r#"write "=1.2.3", if that is what you mean"#),
            ("V1.2.3", "V", r#"write "v1.2.3", if that is what you mean"#),
            ("1.2.3,", "", r#"write "1.2.3", if that is what you mean"#),
            (",1.2.3", ",", r#"write "1.2.3", if that is what you mean"#),
            (">=1,, <2", ",", r#"write ">=1, <2", if that is what you mean"#),
            ("1.x, || 2.x", "||", r#"write "1.x || 2.x", if that is what you mean"#),
            ("1;2", ";", r#"write "1, 2", if that is what you mean"#),
            ("!1", "!", r#"write "!=1", if that is what you mean"#),
            ("1 | 2", "|", r#"write "1 || 2", if that is what you mean"#),
            ("1.*.*", ".*", r#"write "1.x.x", which means the same"#),
            (">=1 <2.1.*", "*", r#"write ">=1 <2.1.x", which means the same"#),
            (">1 <*", "*", r#"write ">1 <x", which means the same"#),
            ("1.0||2.0 - 3.0", "- ", r#"write ">=1.0 || 2.0, <=3.0", which means the same"#),
        ] {
            let error = check(text).unwrap_err();
            let message =
                format!("spec.source.catalog.version: Invalid value: {text:?}: invalid version expression");
            assert_eq!(error.message, message);
            let pointer = error.pointer.as_ref().unwrap();
            assert!(text[pointer.at.start..].starts_with(faulty), "{text}: {pointer:?}");
            assert_eq!(error.to_string().lines().last(), Some(rewrite), "{error}");
        }
        assert_eq!(
            check("1.11 OR 1.13").unwrap_err().to_string(),
            "spec.source.catalog.version: Invalid value: \"1.11 OR 1.13\": invalid version expression\n  1.11 OR \
             1.13\n       ^^ expected || between alternatives\nwrite \"1.11 || 1.13\", if that is what you mean"
        );
    }

    #[test]
    fn empty_expression_is_rejected_with_hint_to_omit_it() {
        for text in ["", " ", "\t\n"] {
            assert_eq!(
                check(text).unwrap_err().to_string(),
                format!(
                    "spec.source.catalog.version: Invalid value: {text:?}: invalid version expression\nomit the version to allow any"
                )
            );
        }
    }

    #[test]
    fn unfixable_expression_gets_no_rewrite() {
        for text in [
            "foobar",
            "1.2.3.4",
            "<<1",
            ">~1",
            "1..2",
            ".1.2",
            "1.Y",
            "||",
            "1.2.3-",
            "1.2.3-a..b",
            "1\u{b}2é",
        ] {
            let error = check(text).unwrap_err();
            assert!(error.pointer.is_some() && error.rewrite.is_none(), "{text:?}: {error:?}");
        }
    }

    #[test]
    fn expression_over_64_characters_is_too_long() {
        let long = "1.2.3 || 1.2.4 || 1.2.5 || 1.2.6 || 1.2.7 || 1.2.8 || 1.2.9 || 1.3";
        assert_eq!(
            check(long).unwrap_err().to_string(),
            "spec.source.catalog.version: Too long: may not be more than 64 bytes"
        );
        let padded = format!(">=1.2.3 {}", " ".repeat(60));
        assert_eq!(
            check(&padded).unwrap_err().to_string(),
            "spec.source.catalog.version: Too long: may not be more than 64 bytes\nwrite \">=1.2.3\", which means the same"
        );
        assert!(check(&format!("1.2.3-{}", "a".repeat(58))).is_ok());
    }

    // docs/design/api.md#version-expression, the bottom rows
    #[test]
    fn expression_valid_only_for_api_server_is_rejected() {
        for (text, fault, rewrite) in [
            ("1.*]", r#"improper constraint: "1.*]""#, Some("1.x")),
            ("1.0.0 || *]", r#"improper constraint: " *]""#, Some("1.0.0 || x")),
            ("1.0.0 || 2.1.*]", r#"improper constraint: " 2.1.*]""#, Some("1.0.0 || 2.1.x")),
            ("|", "constraint parser error", None),
            ("1.0.0-01", "constraint parser error", None),
            ("18446744073709551616.0.0", "constraint parser error", None),
        ] {
            let error = check(text).unwrap_err();
            assert_eq!(
                error.message,
                format!(
                    "desired version range {text:?} is invalid: {fault}\nthe API server accepts it, but operator-controller rejects it at each retry"
                )
            );
            assert!(error.pointer.is_some(), "{text}");
            let shown = rewrite.map(|rewrite| format!("write {rewrite:?}, if that is what you mean"));
            let last =
                error.to_string().lines().last().filter(|line| line.starts_with("write")).map(str::to_owned);
            assert_eq!(last, shown);
        }
    }

    #[test]
    fn canonical_form_is_admitted() {
        let admission = Admission::new().unwrap();
        for text in [
            "*",
            "1.*.*",
            "1.2 - 1.4 || ~>2 || ^* || !=x.1",
            "01.02.03-rc.1+b",
            "=>1 =<v2.3",
            "x-0",
            "<=1.2-beta, >*-a.1",
            "18446744073709551615.x",
            "~0.0.0||1|",
        ] {
            if let Ok(constraint) = Constraint::parse(text) {
                let canonical = constraint.to_string();
                assert_eq!(admission.accepts(&canonical), Some(constraint), "{text}: {canonical}");
            }
        }
    }
}
