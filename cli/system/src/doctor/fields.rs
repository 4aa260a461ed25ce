//! Secret values of named fields, variables and flags in text, such as `password: x`, `API_KEY=x` and `--token x`. Pure.

use std::sync::LazyLock;

use regex::Regex;

use super::redact::REDACTED;

/// Suffixes of the names of secret values, also in the plural. Names are compared in lower case without `-`, `_` and `.`.
const ENDS: [&str; 11] = [
    "pass",
    "password",
    "passwd",
    "pwd",
    "token",
    "secret",
    "key",
    "connectionstring",
    "credential",
    "authorization",
    "auth",
];
/// Parts that make every name secret that has them.
const PARTS: [&str; 3] = ["password", "passwd", "passphrase"];
/// Names that end in `key` or `keys`, and have no secret.
const PUBLIC: [&str; 7] = [
    "key",
    "keys",
    "topologykey",
    "publickey",
    "matchlabelkeys",
    "mismatchlabelkeys",
    "xkuberneteslistmapkeys",
];

/// Name that may be secret, its closing quote, and what separates it from its value.
static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"(?i)(?<name>[\w.-]*(?:passw(?:or)?d[\w.-]*|passphrase[\w.-]*|(?:pass|pwd|token|secret|key|connection[_-]?string|credential|authorization|auth|sig|signature)s?))(?<quote>\\*["'])?(?<sign>[ \t]*[:=,][=>]?|[ \t]+)"#,
    )
    .ok()
});

/// Reports whether the value of a field or variable of this name is secret.
pub(super) fn is_secret(name: &str) -> bool {
    let plain = plain(name);
    let singular = plain.strip_suffix('s').unwrap_or(&plain);
    !PUBLIC.contains(&plain.as_str())
        && (PARTS.iter().any(|part| plain.contains(part))
            || ENDS.iter().any(|end| plain.ends_with(end) || singular.ends_with(end)))
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_' | '.')).collect::<String>().to_lowercase()
}

/// Text without the values of fields with secret names.
pub(super) fn redact(text: &str) -> String {
    let Some(pattern) = NAME.as_ref() else { return REDACTED.to_owned() };
    let (mut redacted, mut done, mut at) = (String::with_capacity(text.len()), 0, 0);
    while let Some(found) = pattern.captures_at(text, at) {
        let (Some(name), Some(sign)) = (found.name("name"), found.name("sign")) else { break };
        let field = Field {
            text,
            start: name.start(),
            name: name.as_str(),
            is_quoted: found.name("quote").is_some(),
            sign: sign.as_str().trim().get(..1).unwrap_or_default(),
            value: sign.end() + blanks(&text[sign.end()..]),
        };
        let end = if field.is_secret() { field.end() } else { field.value };
        if field.is_secret() && end > field.value {
            redacted += &text[done..field.value];
            redacted += REDACTED;
            (done, at) = (end, end);
        } else {
            at = name.end();
        }
    }
    redacted + &text[done..]
}

/// Length of the blanks at the beginning of a text.
fn blanks(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t']).len()
}

/// Field in a text.
struct Field<'a> {
    text: &'a str,
    /// Position of the name, and of the value.
    start: usize,
    value: usize,
    name: &'a str,
    is_quoted: bool,
    /// `:`, `=`, `,` or empty.
    sign: &'a str,
}

impl Field<'_> {
    fn is_secret(&self) -> bool {
        match self.sign {
            "" | "," => self.name.starts_with('-') && is_secret(self.name),
            // Signatures of URLs give access.
            "=" => is_secret(self.name) || is_signature(self.name),
            _ => is_secret(self.name),
        }
    }

    /// Position behind the value.
    fn end(&self) -> usize {
        let rest = &self.text[self.value..];
        let length = match rest.trim_start_matches('\\').bytes().next() {
            // A shell joins quoted parts and the text that follows.
            Some(b'"' | b'\'') if self.sign == "=" => quoted(rest) + joined(&rest[quoted(rest)..]),
            Some(b'"' | b'\'') => quoted(rest),
            Some(b'[') if self.sign == ":" => array(rest),
            // An object, whose fields have names.
            Some(b'{') if self.sign == ":" => 0,
            _ if self.sign == ":" && self.is_block() => self.block(),
            _ => self.unquoted(),
        };
        self.value + length
    }

    fn unquoted(&self) -> usize {
        let rest = &self.text[self.value..];
        let until = |is_end: fn(char) -> bool| rest.find(is_end).unwrap_or(rest.len());
        if self.sign == "=" && self.text[..self.start].ends_with(['?', '&']) {
            return until(|c| c.is_whitespace() || matches!(c, '&' | '#' | '"' | '\'' | '<' | '>'));
        }
        let line = line(rest);
        if self.sign == ":" && self.is_quoted {
            let literal = rest.find([',', '}', ']', '\n']).unwrap_or(rest.len());
            if serde_json::from_str::<serde_json::Value>(rest[..literal].trim()).is_ok() {
                return rest[..literal].trim_end().len();
            }
        }
        let plain = plain(self.name);
        let is_sentence =
            PARTS.iter().chain(&["pass", "pwd", "authorization"]).any(|part| plain.contains(part));
        if self.sign == ":" && (is_sentence || self.is_line()) {
            line.len()
        } else {
            until(char::is_whitespace)
        }
    }

    /// Text of the line before the name.
    fn before(&self) -> &str {
        let before = &self.text[..self.start];
        before.rsplit('\n').next().unwrap_or_default()
    }

    /// Reports whether the line begins with the name, as in YAML.
    fn is_line(&self) -> bool {
        self.before().trim_start_matches([' ', '\t', '-', '"', '\'']).is_empty()
    }

    /// Reports whether the value is in the lines below.
    fn is_block(&self) -> bool {
        let line = line(&self.text[self.value..]).trim();
        let first = line.split(' ').next().unwrap_or_default();
        let is_header = first.starts_with(['|', '>']) && first.len() <= 3;
        is_header || (line.is_empty() && self.is_line())
    }

    /// Length of a block of YAML: the lines that are indented more than the name, and items of a list.
    fn block(&self) -> usize {
        let rest = &self.text[self.value..];
        let before = self.before();
        let indent = if self.is_line() {
            before.trim_end_matches(['"', '\'']).len()
        } else {
            before.len() - before.trim_start_matches([' ', '\t']).len()
        };
        let mut length = rest.split('\n').next().unwrap_or_default().len();
        for next in rest[length..].strip_prefix('\n').unwrap_or_default().split('\n') {
            let content = next.trim_start_matches([' ', '\t']);
            let depth = next.len() - content.len();
            let is_part = depth > indent || (depth == indent && content.starts_with("- "));
            if !is_part && !content.trim().is_empty() {
                break;
            }
            length = (length + 1 + next.len()).min(rest.len());
        }
        // Blank lines at the end are not part of the value.
        rest[..length].trim_end().len()
    }
}

fn is_signature(name: &str) -> bool {
    let name = name.to_lowercase();
    name.ends_with("signature") || name.rsplit(['-', '_', '.']).next() == Some("sig")
}

/// First line of a text.
fn line(text: &str) -> &str {
    text.split(['\n', '\r']).next().unwrap_or_default()
}

/// Length of a text in quotes. Quotes inside of it have more backslashes than the first one, or are doubled. Without an
/// end, that of the line.
fn quoted(text: &str) -> usize {
    let depth = text.len() - text.trim_start_matches('\\').len();
    let bytes = text.as_bytes();
    let Some(quote) = bytes.get(depth) else { return text.len() };
    let (mut at, mut backslashes) = (depth + 1, 0);
    while let Some(byte) = bytes.get(at) {
        let is_doubled = *quote == b'\'' && bytes.get(at + 1) == Some(quote);
        match byte {
            b'\\' => backslashes += 1,
            byte if byte == quote && backslashes <= depth && is_doubled => at += 1,
            byte if byte == quote && backslashes <= depth => return at + 1,
            _ => backslashes = 0,
        }
        at += 1;
    }
    line(text).len()
}

/// Length of the text that follows a quoted one without a separator.
fn joined(text: &str) -> usize {
    text.find(|c: char| c.is_whitespace() || r#",;&)}]"'\"#.contains(c)).unwrap_or(text.len())
}

/// Length of an array with its brackets. Without an end, that of the line.
fn array(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => at += quoted(&text[at..]).max(1) - 1,
            b'[' => depth += 1,
            b']' if depth == 1 => return at + 1,
            b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    line(text).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_names_are_removed_to_their_end() {
        assert!(NAME.is_some());
        for (text, expected) in [
            ("password: |\n  hunter2\n\n  hunter2\nnext: 1", "password: REDACTED\nnext: 1"),
            ("a:\n- password: >-\n    hunter2\n  next: 1", "a:\n- password: REDACTED\n  next: 1"),
            ("passwords:\n- hunter2\n- hunter2\nnext: 1", "passwords:REDACTED\nnext: 1"),
            ("password: correct horse hunter2\nnext", "password: REDACTED\nnext"),
            ("login with password: correct hunter2", "login with password: REDACTED"),
            ("'password': 'it''s hunter2' b", "'password': REDACTED b"),
            ("DB_PASSWORD=abc,hunter2 b", "DB_PASSWORD=REDACTED b"),
            ("DB_PASSWORD=abc&hunter2 b", "DB_PASSWORD=REDACTED b"),
            ("https://h/?token=abc&b=1", "https://h/?token=REDACTED&b=1"),
            (r#"{"password":"a\"hunter2"}"#, r#"{"password":REDACTED}"#),
            (r#"m="{\"password\":\"a\\\"hunter2\",\"b\":1}""#, r#"m="{\"password\":REDACTED,\"b\":1}""#),
            (r#"{"password": ["]hunter2"], "b": 1}"#, r#"{"password": REDACTED, "b": 1}"#),
            (r#"{"token": 1234567, "b": 1}"#, r#"{"token": REDACTED, "b": 1}"#),
            ("run --password hunter2 --v 2", "run --password REDACTED --v 2"),
            (r#"["--db-pass", "hunter2", "b"]"#, r#"["--db-pass", REDACTED, "b"]"#),
            ("DB_PASSWORD=\"a b\"hunter2 c", "DB_PASSWORD=REDACTED c"),
            ("SECRET_KEY=hunter2", "SECRET_KEY=REDACTED"),
            ("api token := hunter2 b", "api token := REDACTED b"),
            ("password: |\r\n  hunter2\r\nb", "password: REDACTED\r\nb"),
            ("MYSQL_PASS: hunter2", "MYSQL_PASS: REDACTED"),
            ("credentials: [hunter2, hunter2]", "credentials: REDACTED"),
            ("https://h/?sv=1&sig=hunter2&se=1", "https://h/?sv=1&sig=REDACTED&se=1"),
        ] {
            assert_eq!(redact(text), expected);
        }
    }

    #[test]
    fn text_without_secret_values_is_not_redacted() {
        for text in [
            "tls-cert and tls-key flags must be used together",
            "key=\"olmv1-system/catalogd\" topologyKey: kubernetes.io/hostname",
            "imagePullSecrets: {\"name\": \"pull\"}",
            "the password is wrong",
            "value of global-pull-secret should be of the format <namespace>/<name>",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
