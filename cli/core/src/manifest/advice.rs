//! Suggestions for common mistakes in YAML and in ClusterExtensions (cases seeds-s2-4, seeds-s2-6).

use serde_json::Value;

use super::rules::{Fault, FaultKind};
use crate::names::nearest;

/// Common wrong field names, with the right ones.
const OTHER_NAMES: [(&str, &str); 7] = [
    ("selfCertified", "upgradeConstraintPolicy: SelfCertified"),
    ("channel", "channels: [NAME]"),
    ("name", "packageName: NAME"),
    ("package", "packageName: NAME"),
    ("versionRange", "version: \"RANGE\""),
    ("startingCSV", "version: \"1.2.3\"; upgrades stay within it"),
    ("installPlanApproval", "version: \"1.2.3\"; an exact version is not upgraded"),
];

/// Replacement for an invalid value. `line` is the line of the file with the value.
pub(super) fn of(schema: &Value, fault: &Fault, value: Option<&Value>, line: Option<&str>) -> Option<String> {
    let field = fault.path.last().map(String::as_str).unwrap_or_default();
    let field = if field.chars().all(|c| c.is_ascii_digit()) { "- " } else { &format!("{field}: ") };
    match (&fault.kind, value) {
        (_, Some(Value::String(text))) if text.ends_with(')') && call_out(text).is_some() => call_out(text),
        (FaultKind::Type(expected), Some(value))
            if expected == "string" && !value.is_object() && !value.is_array() =>
        {
            let source = line.and_then(name_and_value).map_or("…", |(_, value)| value);
            Some(format!("quote it: {field}\"{source}\""))
        }
        (FaultKind::Type(expected), Some(Value::String(text))) if expected == "array" => {
            Some(format!("write a list: {field}[{text}]"))
        }
        (FaultKind::Enum(allowed), Some(Value::String(text))) => {
            let meant = allowed.iter().find(|one| one.eq_ignore_ascii_case(text))?;
            Some(format!("write {field}{meant}"))
        }
        (FaultKind::Unknown, _) => unknown(schema, &fault.path),
        (_, Some(Value::String(text))) if text.contains('<') && text.trim().ends_with('>') => {
            Some(format!("replace {} with a value", text.trim()))
        }
        _ => None,
    }
}

/// Place where a misplaced field belongs.
fn unknown(schema: &Value, path: &[String]) -> Option<String> {
    let (field, parent) = path.split_last()?;
    let mut here = schema;
    for step in parent {
        here =
            if step.chars().all(|c| c.is_ascii_digit()) { &here["items"] } else { &here["properties"][step] };
    }
    let names = || here["properties"].as_object().into_iter().flat_map(|fields| fields.keys());
    if let Some(name) = names().find(|name| name.eq_ignore_ascii_case(field)) {
        return Some(format!("write {name}"));
    }
    let mut places = Vec::new();
    places_of(&schema["properties"]["spec"], field, &mut vec!["spec".to_owned()], &mut places);
    if let Some(place) = places.first() {
        return Some(format!("{field} belongs in {place}"));
    }
    if let Some((_, other)) = OTHER_NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(field)) {
        return Some(format!("write, in spec.source.catalog, {other}"));
    }
    nearest(field, names().map(String::as_str)).map(|name| format!("did you mean {name}?"))
}

/// Collects the paths of the objects that have a field of this name.
fn places_of(schema: &Value, field: &str, path: &mut Vec<String>, places: &mut Vec<String>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if name == field {
            places.push(path.join("."));
        }
        path.push(name.clone());
        places_of(schema, field, path, places);
        path.pop();
    }
}

/// Line, from 1, and suggestion for a YAML syntax error that the parser reported in line `at`.
pub(super) fn syntax(text: &str, at: usize) -> Option<(usize, String)> {
    let lines: Vec<_> = text.lines().collect();
    // The parser may report the error one line late.
    let near = [at, at.saturating_sub(1), at + 1];
    let near = near.into_iter().filter_map(|number| Some((number, *lines.get(number.checked_sub(1)?)?)));
    let of = |advice: &dyn Fn(usize, &str) -> Option<String>| {
        near.clone().find_map(|(number, line)| Some((number, advice(number, line)?)))
    };
    // The parser reports a line that follows a call-out, perhaps after an empty one.
    let mut above = (at.saturating_sub(3)..=at).rev().chain([at + 1]);
    of(&|_, line| unquoted(line))
        .or_else(|| above.find_map(|number| Some((number, call_out(lines.get(number.checked_sub(1)?)?)?))))
        .or_else(|| of(&|number, line| too_deep(&lines, number, line)))
        .or_else(|| of(&|number, line| not_in_block(&lines, number, line)))
}

/// Suggestion for the number of an explanation beside an example on a web page: alone in its line, after a quoted value,
/// or in parentheses.
fn call_out(line: &str) -> Option<String> {
    let (before, last) = line.trim().rsplit_once(' ').unwrap_or_else(|| ("", line.trim()));
    let number = last.trim_start_matches('(').trim_end_matches(')');
    let is_number = (1..=2).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let ends = before.is_empty() || before.ends_with(['"', '\'']) || last.starts_with('(');
    (is_number && ends).then(|| format!("remove the call-out {last}"))
}

/// Suggestion for the text of a block that is not indented below its field, such as `message: |`.
fn not_in_block(lines: &[&str], number: usize, line: &str) -> Option<String> {
    let column = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
    let above = lines.get(..number.checked_sub(1)?)?.iter().rev();
    let above = above.take_while(|above| above.trim().is_empty() || column(above) >= column(line));
    let (name, _) = above
        .filter_map(|above| name_and_value(above))
        .find(|(name, value)| !name.is_empty() && matches!(*value, "|" | "|-" | "|+" | ">" | ">-" | ">+"))?;
    Some(format!("indent the text of {name} deeper than {name}"))
}

/// Name and value of a line `name: value` or `- value`, without a comment. The name of the latter is empty.
fn name_and_value(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let line = line.strip_prefix("- ").unwrap_or(line).trim_start();
    let (name, value) = line.split_once(':').unwrap_or(("", line));
    let value = value.split(" #").next().unwrap_or_default().trim();
    (!value.is_empty()).then_some((name.trim(), value))
}

/// Suggestion for `name: value` whose value begins with a YAML indicator.
fn unquoted(line: &str) -> Option<String> {
    let (name, value) = name_and_value(line)?;
    let special = match value.as_bytes() {
        [b'>' | b'|', rest @ ..] => !matches!(rest, [] | [b'+' | b'-', ..]),
        [b'*' | b'&' | b'!' | b'%' | b'@' | b'`', ..] => true,
        _ => false,
    };
    let field = if name.is_empty() { "- ".to_owned() } else { format!("{name}: ") };
    special.then(|| format!("quote it: {field}\"{value}\""))
}

/// Suggestion for a field indented deeper than the previous one, which already has a value.
fn too_deep(lines: &[&str], number: usize, line: &str) -> Option<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    // The first field of an entry of a list begins after its dash.
    let column = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
    let (name, _) = line.trim_start().split_once(':')?;
    let meaningful = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let before = lines.get(..number.checked_sub(1)?)?.iter().rev().find(meaningful)?;
    let (above, _) = name_and_value(before).filter(|(above, _)| !above.is_empty())?;
    (indent(line) > column(before)).then(|| {
        format!(
            "{name} is indented deeper than {above}, which already has a value: start both in the same column"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Case seeds-s2-4
    #[test]
    fn advice_names_line_and_rewrite() {
        for (text, at, expected) in [
            ("a: b\nversion: >=1.16\n", 2, Some((2, "quote it: version: \">=1.16\""))),
            ("version: *\nb: c\n", 2, Some((1, "quote it: version: \"*\""))),
            ("version: >1 # why\n", 1, Some((1, "quote it: version: \">1\""))),
            ("- >1.11.1\n", 1, Some((1, "quote it: - \">1.11.1\""))),
            ("text: |\n  x\n y\n", 3, None),
            (
                "- message: |\n  The package is old.\n- a: b\n",
                2,
                Some((2, "indent the text of message deeper than message")),
            ),
            (
                "message: |\nThe package\nis old: yes\n",
                3,
                Some((3, "indent the text of message deeper than message")),
            ),
            (
                "apiVersion: v1\n  kind: X\n",
                2,
                Some((
                    2,
                    "kind is indented deeper than apiVersion, which already has a value: start both in the same column",
                )),
            ),
            ("a:\n  b: c\n", 2, None),
            ("- a: b\n  c: d\n", 2, None),
            ("a: b\n1\n\nc: d\n", 4, Some((2, "remove the call-out 1"))),
            ("- a: b 1\n  c: \"d\" 2\n", 2, Some((2, "remove the call-out 2"))),
            ("a:\n  b: 'c' (1)\n", 1, Some((2, "remove the call-out (1)"))),
        ] {
            let advice = syntax(text, at);
            let advice = advice.as_ref().map(|(line, advice)| (*line, advice.as_str()));
            assert_eq!(advice, expected, "{text}");
        }
    }
}
