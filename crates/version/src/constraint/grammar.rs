//! Grammar of constraints: rewrites hyphen ranges, splits groups into operators and operands
//! (docs/design/resolution.md#constraint-grammar).

use std::ops::Range;

use super::Op;
use crate::pointer::{Pointer, Rewritten, span};
use crate::version::is_identifier_char;

/// Operators, longer spellings before their prefixes. No operator means equal. The last spelling of an operator is its
/// canonical one.
pub(super) const OPS: [(&str, Op); 12] = [
    ("!=", Op::NotEqual),
    ("=>", Op::GreaterOrEqual),
    (">=", Op::GreaterOrEqual),
    ("=<", Op::LessOrEqual),
    ("<=", Op::LessOrEqual),
    ("~>", Op::Tilde),
    ("=", Op::Equal),
    (">", Op::Greater),
    ("<", Op::Less),
    ("~", Op::Tilde),
    ("^", Op::Caret),
    ("", Op::Equal),
];

/// Version of an operand as written, split but not yet evaluated.
#[derive(Debug)]
pub(super) struct Operand<'a> {
    pub(super) text: &'a str,
    pub(super) parts: [Option<&'a str>; 3],
    pub(super) pre: Option<&'a str>,
}

/// Splits a group into operators and operands. The error points at the first fault of the grammar.
pub(super) fn split_group(group: &str) -> Result<Vec<(Op, Operand<'_>)>, Pointer> {
    let mut terms = Vec::new();
    let mut rest = skip_space(group);
    loop {
        let found = OPS.iter().find_map(|(text, op)| Some((*op, skip_space(rest.strip_prefix(text)?))));
        let (op, after_op) = found.unwrap_or((Op::Equal, rest));
        let Some((operand, after_operand)) = scan_operand(after_op) else {
            return Err(missing_operand(group, after_op));
        };
        terms.push((op, operand));
        let next = skip_space(after_operand);
        if next.is_empty() {
            return Ok(terms);
        }
        rest = match next.strip_prefix(',') {
            Some(after_comma) => skip_space(after_comma),
            None if next.len() < after_operand.len() => next,
            None => {
                let expected =
                    "a blank, a comma or || after a version (major.minor.patch, then -pre, then +build)";
                return Err(Pointer::new(offending(group, next), expected));
            }
        };
    }
}

/// Points at the position of a missing operand.
fn missing_operand(group: &str, rest: &str) -> Pointer {
    let at = offending(group, rest);
    let expected = match group.get(at.clone()).unwrap_or_default() {
        word if word.eq_ignore_ascii_case("or") => "|| between alternatives",
        word if word.eq_ignore_ascii_case("and") || word.starts_with('&') => {
            "a blank or a comma between versions that must all match"
        }
        "==" | "=" => "one of = != > >= < <= ~ ^ before a version",
        word if word.starts_with('V') => "a lower-case v or none",
        _ => "a version, such as 1.2.3, 1.2 or 1.2.x",
    };
    Pointer::new(at, expected)
}

/// Word at the start of `rest`, or a run of one character. Empty at the end of the group.
fn offending(group: &str, rest: &str) -> Range<usize> {
    let start = group.len() - rest.len();
    let Some(first) = rest.chars().next() else { return start..start };
    let length = if first.is_ascii_alphabetic() {
        rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len())
    } else if first == '&' || first == '=' {
        rest.find(|c| c != first).unwrap_or(rest.len())
    } else {
        first.len_utf8()
    };
    start..start + length
}

/// Rewrites every `A - B` to `>= A, <= B ` and drops the white space around it.
///
/// Like the reference, this finds matches in the original text, wherever they start, and then replaces the first
/// occurrence of each match's text in the intermediate result.
pub(super) fn rewrite_hyphen_ranges(text: &str) -> Rewritten {
    let mut rewritten = Rewritten::unchanged(text);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let Some((low, high, after)) = scan_hyphen_range(rest) else {
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let range = &rest[..rest.len() - after.len()];
        if let Some(start) = rewritten.text().find(range) {
            let operand = |text| {
                let inside = span(range, text);
                start + inside.start..start + inside.end
            };
            let (low, high, end) = (operand(low), operand(high), start + range.len());
            let mut next = Rewritten::default();
            next.push_from(&rewritten, 0..start);
            next.push_new(">= ", rewritten.origin(low.start));
            next.push_from(&rewritten, low.clone());
            next.push_new(", <= ", rewritten.origin(high.start));
            next.push_from(&rewritten, high.clone());
            next.push_new(" ", rewritten.origin(high.end.saturating_sub(1)));
            next.push_from(&rewritten, end..rewritten.text().len());
            rewritten = next;
        }
        rest = after;
    }
    rewritten
}

/// Scans a hyphen range at the start of `text`. Returns both operands and the rest.
fn scan_hyphen_range(text: &str) -> Option<(&str, &str, &str)> {
    let (low, rest) = scan_operand(skip_space(text))?;
    let rest = some_space(some_space(rest)?.strip_prefix('-')?)?;
    let (high, rest) = scan_operand(rest)?;
    Some((low.text, high.text, skip_space(rest)))
}

/// Scans the longest operand at the start of `text`. `None` if there is none.
fn scan_operand(text: &str) -> Option<(Operand<'_>, &str)> {
    let (major, mut rest) = scan_some(text.strip_prefix('v').unwrap_or(text), is_part_char)?;
    let mut parts = [Some(major), None, None];
    for part in &mut parts[1..] {
        let Some((found, after)) = rest.strip_prefix('.').and_then(|r| scan_some(r, is_part_char)) else {
            break;
        };
        (*part, rest) = (Some(found), after);
    }
    let (pre, rest) = scan_suffix(rest, '-');
    let (_, rest) = scan_suffix(rest, '+');
    let text = &text[..text.len() - rest.len()];
    Some((Operand { text, parts, pre }, rest))
}

/// Scans `lead` and the dot-separated identifiers behind it, if present.
fn scan_suffix(text: &str, lead: char) -> (Option<&str>, &str) {
    let Some(body) = text.strip_prefix(lead) else {
        return (None, text);
    };
    let Some((_, mut rest)) = scan_some(body, is_identifier_char) else {
        return (None, text);
    };
    while let Some((_, after)) = rest.strip_prefix('.').and_then(|r| scan_some(r, is_identifier_char)) {
        rest = after;
    }
    (Some(&body[..body.len() - rest.len()]), rest)
}

/// Splits off the longest non-empty prefix of accepted characters.
fn scan_some(text: &str, accepts: fn(char) -> bool) -> Option<(&str, &str)> {
    let end = text.find(|c| !accepts(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// `|` is accepted because of an accident in the reference's pattern: hyphen ranges can extend across `||`.
fn is_part_char(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, 'x' | 'X' | '*' | '|')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0c' | '\r')
}

fn skip_space(text: &str) -> &str {
    text.trim_start_matches(is_space)
}

fn some_space(text: &str) -> Option<&str> {
    let rest = skip_space(text);
    (rest.len() < text.len()).then_some(rest)
}

pub(super) fn is_wildcard(part: &str) -> bool {
    matches!(part, "x" | "X" | "*")
}
