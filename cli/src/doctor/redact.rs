//! Removal of secrets from objects, logs and messages. Pure. Removes too much rather than too little
//! (docs/design/cli.md#support-data).

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};

/// Text in the place of a secret.
pub(super) const REDACTED: &str = "REDACTED";
/// Shortest value of a Secret that is looked for in other texts. Shorter ones would match by chance.
const MIN_KNOWN: usize = 6;
/// Ends of field names, in lower case without `-` and `_`, whose texts are secret.
const SECRET_FIELDS: [&str; 16] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "token",
    "secret",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "accountkey",
    "connectionstring",
    "credential",
    "credentials",
    "authorization",
    "auth",
];
/// Annotation of `kubectl apply` with a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Patterns of secrets. Group `keep`, if any, remains.
static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let patterns = [
        // Private keys. Line feeds may be escaped, and the end may be cut off.
        r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|\z)",
        // The end of one whose begin is cut off, and base64 of one.
        r"([A-Za-z0-9+/=]+\s+)*-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----",
        r"LS0tLS1CRUdJTi(BE|BF|BP|BQ|BS)[A-Za-z0-9+/=]+",
        r#"(?i)(?<keep>(proxy-)?authorization\\?["']?\s*[:=]\s*\[?\\?["']?)[^\r\n"'\\]+"#,
        r"(?i)(?<keep>\b(bearer|basic)\s+)[a-z0-9._~+/=-]{6,}",
        r#"(?<keep>[A-Za-z][A-Za-z0-9+.-]*://)[^/\s"'<>\\]*@"#,
        // Field or variable whose name says that its value is secret.
        r#"(?i)(?<keep>[\w.-]*(password|passwd|passphrase|pwd|token|secret|api[_-]?key|access[_-]?key|private[_-]?key|account[_-]?key|credentials?|auth)\\?["']?\s*[:=]\s*\\?)("[^"]*"?|'[^']*'?|[^\s"',;&}\]]+)"#,
        // JSON web tokens, and base64 of JSON objects such as pull secrets.
        r"\beyJ[A-Za-z0-9_+/=-]{6,}(\.[A-Za-z0-9_-]+)*",
        // Tokens of common services.
        r"\b(gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{8,}|(AKIA|ASIA)[A-Z0-9]{16}|sha256~[\w-]{20,})",
    ];
    patterns.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect()
});

/// Redaction with the values of the Secrets that were read.
#[derive(Default)]
pub(super) struct Redactor {
    known: Vec<String>,
}

impl Redactor {
    /// Remembers a value of a Secret, in plain text and in base64.
    pub(super) fn learn(&mut self, value: &[u8]) {
        use base64::Engine as _;
        let plain = std::str::from_utf8(value).map(str::trim).unwrap_or_default();
        let encoded = base64::prelude::BASE64_STANDARD.encode(value);
        for secret in [plain.to_owned(), encoded] {
            if secret.len() >= MIN_KNOWN && !self.known.contains(&secret) {
                self.known.push(secret);
            }
        }
        // The longest first: a shorter one may be a part of it.
        self.known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    /// Text without secrets.
    pub(super) fn text(&self, text: &str) -> String {
        let mut redacted = text.to_owned();
        for secret in &self.known {
            if redacted.contains(secret) {
                redacted = redacted.replace(secret, REDACTED);
            }
        }
        for pattern in PATTERNS.iter() {
            let replace = |found: &Captures<'_>| {
                let kept = found.name("keep").map_or("", |kept| kept.as_str());
                let end = if found[0].ends_with('@') { "@" } else { "" };
                format!("{kept}{REDACTED}{end}")
            };
            redacted = pattern.replace_all(&redacted, replace).into_owned();
        }
        redacted
    }

    /// Removes the secrets of an object, in place: those of Secrets at any depth, environment variables and fields with
    /// secret names, and secrets in texts. Also removes what repeats the object: managed fields and the last
    /// applied configuration.
    pub(super) fn object(&self, object: &mut Value) {
        match object {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => {
                let mut is_value = false;
                for item in items {
                    // Value of a flag that is an argument of its own.
                    if is_value && item.is_string() {
                        wipe(item);
                    }
                    is_value = item.as_str().is_some_and(|flag| flag.starts_with('-') && is_secret(flag));
                    self.object(item);
                }
            }
            Value::Object(fields) => self.fields(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn fields(&self, fields: &mut Map<String, Value>) {
        fields.remove("managedFields");
        fields.remove(LAST_APPLIED);
        if fields.get("kind").is_some_and(|kind| kind == "Secret") {
            for part in ["data", "stringData"] {
                fields.get_mut(part).into_iter().for_each(wipe);
            }
        }
        // An environment variable, or another pair of name and value.
        if fields.get("name").and_then(Value::as_str).is_some_and(is_secret)
            && let Some(value) = fields.get_mut("value")
        {
            wipe(value);
        }
        for (name, value) in fields.iter_mut() {
            if is_secret(name) && value.is_string() {
                wipe(value);
            } else {
                self.object(value);
            }
        }
    }
}

/// Replaces all texts and numbers of a value.
fn wipe(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) => {}
        Value::String(_) | Value::Number(_) => *value = Value::from(REDACTED),
    }
}

/// Reports whether the text of a field or variable of this name is secret.
fn is_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| !matches!(c, '-' | '_' | '.')).collect();
    let plain = plain.to_lowercase();
    SECRET_FIELDS.iter().any(|end| plain.ends_with(end))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patterns_compile() {
        assert_eq!(PATTERNS.len(), 9);
    }

    #[test]
    fn secrets_in_texts_are_removed_and_the_rest_is_kept() {
        let redactor = Redactor::default();
        for (text, expected) in [
            ("pulling registry.example.com/a@sha256:ab: not found", None),
            (
                "GET https://user:hunter2@registry.example.com/v2/",
                Some("GET https://REDACTED@registry.example.com/v2/"),
            ),
            ("proxy http://hunter2@proxy:3128", Some("proxy http://REDACTED@proxy:3128")),
            ("Authorization: Bearer hunter2hunter2", Some("Authorization: REDACTED")),
            (r#"{"Authorization":["Basic hunter2="]}"#, Some(r#"{"Authorization":["REDACTED"]}"#)),
            ("sent bearer hunter2.hunter2", Some("sent bearer REDACTED")),
            ("DB_PASSWORD=hunter2 next=1", Some("DB_PASSWORD=REDACTED next=1")),
            (r#"{"password": "hunter 2", "a": 1}"#, Some(r#"{"password": REDACTED, "a": 1}"#)),
            (r#"msg="{\"token\":\"hunter2\"}""#, Some(r#"msg="{\"token\":\REDACTED}""#)),
            ("x?access_token=hunter2&y=1", Some("x?access_token=REDACTED&y=1")),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\nb",
                Some("REDACTED\nb"),
            ),
            ("-----BEGIN PRIVATE KEY-----\nhunter2", Some("REDACTED")),
            ("hunter2hunter2\n-----END PRIVATE KEY-----\nb", Some("REDACTED\nb")),
            ("a: LS0tLS1CRUdJTiBQUklWhunter2", Some("a: REDACTED")),
            ("caBundle: LS0tLS1CRUdJTiBDRVJUSUZJ", None),
            ("jwt eyJhbGciOi.eyJzdWIi.c2ln end", Some("jwt REDACTED end")),
            ("id AKIAABCDEFGHIJKLMNOP", Some("id REDACTED")),
        ] {
            let redacted = redactor.text(text);
            assert_eq!(redacted, expected.unwrap_or(text));
            assert!(!redacted.contains("hunter2"), "{redacted}");
        }
    }

    #[test]
    fn known_values_are_removed_from_any_text() {
        let mut redactor = Redactor::default();
        redactor.learn(b"correct horse\n");
        redactor.learn(b"abc");
        assert_eq!(redactor.text("said correct horse, abc"), "said REDACTED, abc");
        assert_eq!(redactor.text("Y29ycmVjdCBob3JzZQo="), REDACTED);
    }

    #[test]
    fn secrets_in_objects_are_removed_at_any_depth() {
        let mut object = json!({
            "kind": "ClusterObjectSet",
            "metadata": {"name": "a", "managedFields": [1], "annotations": {LAST_APPLIED: "hunter2", "note": "kept"}},
            "spec": {
                "phases": [{"objects": [{"object": {"kind": "Secret", "data": {"a": "hunter2"}, "stringData": {"b": "hunter2"}}}]}],
                "env": [{"name": "API_TOKEN", "value": "hunter2"}, {"name": "HTTP_PROXY", "value": "http://a:hunter2@proxy"},
                    {"name": "MODE", "value": "fast"}],
                "args": ["--db-password", "hunter2", "--global-pull-secret=a/b", "--v", "2"],
                "config": {"adminPassword": "hunter2", "secretName": "kept", "imagePullSecrets": [{"name": "kept"}]},
            },
        });
        Redactor::default().object(&mut object);
        let text = object.to_string();
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(object["spec"]["config"]["secretName"], "kept");
        assert_eq!(object["spec"]["config"]["imagePullSecrets"][0]["name"], "kept");
        assert_eq!(object["spec"]["env"][2]["value"], "fast");
        assert_eq!(
            object["spec"]["args"],
            json!(["--db-password", REDACTED, "--global-pull-secret=REDACTED", "--v", "2"])
        );
        assert_eq!(object["metadata"], json!({"name": "a", "annotations": {"note": "kept"}}));
    }
}
