//! Messages about text that is not GraphQL, and detection of nesting that is unsafe to parse.

use async_graphql::Pos;

/// Deepest nesting of brackets. The parser recurses for each, and no allowed query comes close.
const MAX_NESTING: usize = 64;

/// `true` if brackets of any kind nest too deeply for the parser.
pub(crate) fn nests_too_deeply(text: &str) -> bool {
    let mut rest = text;
    let mut nesting = 0usize;
    while let Some(first) = rest.bytes().next() {
        rest = match first {
            b'#' => rest.find(['\n', '\r']).map_or("", |end| &rest[end..]),
            b'"' => after_string(rest),
            _ => {
                match first {
                    b'{' | b'[' | b'(' => nesting += 1,
                    b'}' | b']' | b')' => nesting = nesting.saturating_sub(1),
                    _ => {}
                }
                if nesting > MAX_NESTING {
                    return true;
                }
                let length = rest.chars().next().map_or(1, char::len_utf8);
                &rest[length..]
            }
        };
    }
    false
}

/// Text after the string at the start of `text`. Empty if the string does not end.
fn after_string(text: &str) -> &str {
    let is_block = text.starts_with("\"\"\"");
    let end = if is_block { "\"\"\"" } else { "\"" };
    let mut rest = &text[end.len()..];
    loop {
        let Some(position) = rest.find(['"', '\\']) else {
            return "";
        };
        rest = &rest[position..];
        let escape = if is_block { "\\\"\"\"" } else { "\\" };
        if let Some(after) = rest.strip_prefix(end) {
            return after;
        }
        rest = match rest.strip_prefix(escape) {
            // Only an escaped quote or backslash is relevant.
            Some(after) if !is_block && after.starts_with(['"', '\\']) => &after[1..],
            Some(after) => after,
            None => &rest[1..],
        };
    }
}

/// Describes the token at `position`.
pub(crate) fn unexpected(text: &str, position: Pos) -> String {
    let line = text.split('\n').nth(position.line.saturating_sub(1)).unwrap_or_default();
    let lines = text.split('\n').skip(position.line).map(|line| line.trim_matches(is_ignored));
    let rest_of_line =
        line.char_indices().nth(position.column.saturating_sub(1)).map_or("", |(at, _)| &line[at..]);
    // The parser may stop before blanks and comments.
    let rest = std::iter::once(rest_of_line.trim_matches(is_ignored)).chain(lines);
    let found = rest.filter(|line| !line.starts_with('#')).find(|line| !line.is_empty()).unwrap_or_default();
    let run = |is_part: fn(char) -> bool| &found[..found.find(|part| !is_part(part)).unwrap_or(found.len())];
    match found.chars().next() {
        None => "Unexpected EOF".to_owned(),
        Some('A'..='Z' | 'a'..='z' | '_') => {
            format!("Unexpected Name \"{}\"", run(|part| part.is_ascii_alphanumeric() || part == '_'))
        }
        Some('0'..='9' | '-') => {
            let number = run(|part| part.is_ascii_digit() || "+-.eE".contains(part));
            let kind = if number.contains(['.', 'e', 'E']) { "Float" } else { "Int" };
            format!("Unexpected {kind} \"{number}\"")
        }
        Some('"') => "Unexpected String".to_owned(),
        Some('.') if found.starts_with("...") => "Unexpected ...".to_owned(),
        Some(sign @ ('!' | '$' | '(' | ')' | ':' | '=' | '@' | '[' | ']' | '{' | '|' | '}' | '&')) => {
            format!("Unexpected {sign}")
        }
        Some(other) => format!("Unexpected character {other:?}"),
    }
}

fn is_ignored(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | ',' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_nesting_is_detected_outside_of_strings_and_comments() {
        let deep = |open: &str, count: usize| open.repeat(count);
        assert!(!nests_too_deeply(&deep("{", MAX_NESTING)));
        assert!(nests_too_deeply(&deep("{", MAX_NESTING + 1)));
        assert!(nests_too_deeply(&deep("{a(b:[", MAX_NESTING)));
        assert!(!nests_too_deeply(&deep("{a}", 1000)));
        for quiet in [r#""{\"{""#, r#"""" {"{ \""" { """"#, "#{{{\n", r#""\\""#, "é"] {
            assert!(!nests_too_deeply(&deep(quiet, 1000)), "{quiet}");
            assert!(nests_too_deeply(&(quiet.to_owned() + &deep("{", MAX_NESTING + 1))), "{quiet}");
        }
        assert!(!nests_too_deeply(&("\"".to_owned() + &deep("{", 1000))));
    }

    #[test]
    fn unexpected_token_is_named() {
        let rows = [
            ("{ a ) }", (1, 5), "Unexpected )"),
            ("{\n  a b: }", (2, 8), "Unexpected }"),
            ("{ a", (1, 4), "Unexpected EOF"),
            ("{ a  # done\n\n ,", (1, 4), "Unexpected EOF"),
            ("{ a  # more\n\n  query", (1, 4), "Unexpected Name \"query\""),
            ("é foo_1 x", (1, 3), "Unexpected Name \"foo_1\""),
            ("é", (1, 1), "Unexpected character 'é'"),
            ("-1.5e3", (1, 1), "Unexpected Float \"-1.5e3\""),
            ("12", (1, 1), "Unexpected Int \"12\""),
            ("\"x\"", (1, 1), "Unexpected String"),
            ("... x", (1, 1), "Unexpected ..."),
            ("", (1, 1), "Unexpected EOF"),
            ("x", (7, 7), "Unexpected EOF"),
        ];
        for (text, (line, column), expect) in rows {
            assert_eq!(unexpected(text, Pos { line, column }), expect, "{text}");
        }
    }
}
