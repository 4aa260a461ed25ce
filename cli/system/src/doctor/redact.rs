//! Removal of secrets from objects, logs and messages. Pure. Removes too much rather than too little
//! (docs/design/cli.md#support-data).

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};

use super::fields::{self, is_secret};

/// Text in the place of a secret.
pub(super) const REDACTED: &str = "REDACTED";
/// Shortest value of a Secret that is looked for in other texts. Shorter ones would match by chance.
const MIN_KNOWN: usize = 6;
/// Environment variables whose literal values are kept. Every other one may be a secret.
const PUBLIC_VARIABLES: [&str; 14] = [
    "POD_NAME",
    "POD_NAMESPACE",
    "NAMESPACE",
    "OPERATOR_NAME",
    "OPERATOR_NAMESPACE",
    "OPERATOR_CONDITION_NAME",
    "WATCH_NAMESPACE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "GOMEMLIMIT",
    "RUST_LOG",
];
/// Annotation of `kubectl apply` with a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Patterns of secrets. Groups `keep` and `end`, if any, remain.
static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let patterns = [
        // Private keys. Line feeds may be escaped, and the end may be cut off.
        r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|\z)",
        // Private keys whose beginning is cut off, and base64 of private keys.
        r"([A-Za-z0-9+/=]+\s+)*-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----",
        r"LS0tLS1CRUdJTi(BE|BF|BP|BQ|BS)[A-Za-z0-9+/=]+",
        r"(?i)(?<keep>\b(bearer|basic)\s+)[a-z0-9._~+/=-]{6,}",
        // User and password of a data source of Go.
        r#"[^\s"':@/=]+:\S*?(?<end>@(tcp[46]?|unix|udp)\()"#,
        // User and password of a proxy without scheme.
        r#"[^\s"':@/=]+:[^\s"'@/][^\s"'@]*(?<end>@[\w.-]+:\d{1,5}\b)"#,
        // JSON web tokens, and base64 of JSON objects such as pull secrets.
        r"\b(eyJ|eyAi|ewog|ewoJ|ew0K)[A-Za-z0-9_+/=-]{6,}(\.[A-Za-z0-9_-]+)*",
        // Tokens of common services.
        r"\b(gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{8,}|(AKIA|ASIA)[A-Z0-9]{16}|sha256~[\w-]{20,})",
    ];
    patterns.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect()
});

/// URL: scheme, then host and path with user and password.
static URL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"([A-Za-z][A-Za-z0-9+.-]*://)([^\s"'<>\\]*)"#).ok());

/// URL without user and password. A password may contain slashes, and a path `@`, such as that of an image with digest.
fn without_user(url: &Captures<'_>) -> String {
    let rest = &url[2];
    let image = rest.find("@sha256:").map_or(rest, |digest| &rest[..digest]);
    let has_password = image.split('/').next().is_some_and(|host| host.contains(':'));
    let users = if has_password { image } else { image.split('/').next().unwrap_or_default() };
    match users.rfind('@') {
        Some(at) => format!("{}{REDACTED}{}", &url[1], &rest[at..]),
        None => url[0].to_owned(),
    }
}

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
                let group = |name| found.name(name).map_or("", |kept| kept.as_str());
                format!("{}{REDACTED}{}", group("keep"), group("end"))
            };
            redacted = pattern.replace_all(&redacted, replace).into_owned();
        }
        if let Some(url) = URL.as_ref() {
            redacted = url.replace_all(&redacted, without_user).into_owned();
        }
        fields::redact(&redacted)
    }

    /// Removes the secrets of an object, in place: the data of Secrets and ConfigMaps at any depth, environment
    /// variables, fields with secret names, and secrets in texts. Also removes what repeats the object: managed
    /// fields and the last applied configuration.
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
                    let is_flag =
                        |text: &str| text.starts_with('-') && !text.contains('=') && is_secret(text);
                    is_value = item.as_str().is_some_and(is_flag);
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
        if fields.get("kind").is_some_and(|kind| kind == "Secret" || kind == "ConfigMap") {
            for part in ["data", "stringData", "binaryData"] {
                fields.get_mut(part).into_iter().for_each(wipe);
            }
        }
        for variable in fields.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
            let is_public = variable["name"].as_str().is_some_and(|name| PUBLIC_VARIABLES.contains(&name));
            let is_proxy = variable["name"].as_str().is_some_and(is_proxy);
            match variable.get_mut("value") {
                Some(value) if is_proxy => wipe_login(value),
                Some(value) if !is_public => wipe(value),
                _ => {}
            }
        }
        // Another pair of name and value.
        if fields.get("name").and_then(Value::as_str).is_some_and(is_secret)
            && let Some(value) = fields.get_mut("value")
        {
            wipe(value);
        }
        for (name, value) in fields.iter_mut() {
            if is_secret(name) {
                wipe_plain(value);
            }
            if is_proxy(name) {
                wipe_login(value);
            }
            self.object(value);
        }
    }
}

/// Reports whether a variable or field has the address of a proxy.
fn is_proxy(name: &str) -> bool {
    let name = name.replace('_', "").to_lowercase();
    matches!(name.as_str(), "httpproxy" | "httpsproxy")
}

/// Replaces user and password in the address of a proxy, or the whole text if it is not an address.
fn wipe_login(value: &mut Value) {
    let Some(text) = value.as_str().filter(|text| !text.is_empty()) else { return };
    match olm_oci::proxy_address(text) {
        Some(url) if url.username().is_empty() && url.password().is_none() => {}
        Some(url) => {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            let host = url.host_str().unwrap_or_default();
            *value = Value::from(format!("{}://{REDACTED}@{host}{port}", url.scheme()));
        }
        None => *value = Value::from(REDACTED),
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

/// Replaces a text or number, and those of an array. Fields of objects have names of their own.
fn wipe_plain(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(wipe_plain),
        Value::String(_) | Value::Number(_) => *value = Value::from(REDACTED),
        Value::Object(_) | Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patterns_compile() {
        assert_eq!(PATTERNS.len(), 8);
        assert!(URL.is_some());
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
            (r#"{"Authorization":["Basic hunter2="]}"#, Some(r#"{"Authorization":REDACTED}"#)),
            ("sent bearer hunter2.hunter2", Some("sent bearer REDACTED")),
            ("DB_PASSWORD=hunter2 next=1", Some("DB_PASSWORD=REDACTED next=1")),
            (r#"{"password": "hunter 2", "a": 1}"#, Some(r#"{"password": REDACTED, "a": 1}"#)),
            (r#"msg="{\"token\":\"hunter2\"}""#, Some(r#"msg="{\"token\":REDACTED}""#)),
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
            ("auth ewogICJhdXRocyI6", Some("auth REDACTED")),
            ("postgres://u:a/hunter2@h/db", Some("postgres://REDACTED@h/db")),
            ("dsn u:hunter2@tcp(db)/a", Some("dsn REDACTED@tcp(db)/a")),
            ("HTTPS_PROXY=u:hunter2@proxy.example:3128", Some("HTTPS_PROXY=REDACTED@proxy.example:3128")),
            ("docker://u:hunter2@h:5000/a@sha256:ab", Some("docker://REDACTED@h:5000/a@sha256:ab")),
            ("docker://h:5000/a@sha256:ab", None),
            ("https://h/a@b", None),
            ("id AKIAABCDEFGHIJKLMNOP", Some("id REDACTED")),
        ] {
            let redacted = redactor.text(text);
            assert_eq!(redacted, expected.unwrap_or(text));
            assert!(!redacted.contains("hunter2"), "{redacted}");
        }
    }

    #[test]
    fn login_of_proxy_is_removed_and_its_address_is_kept() {
        for (address, expected) in [
            ("u:hunter2@proxy:3128", "http://REDACTED@proxy:3128"),
            ("u:hunter2@proxy", "http://REDACTED@proxy"),
            ("u:p/hunter2@proxy:3128", "REDACTED"),
            ("hunter2@proxy:3128", "http://REDACTED@proxy:3128"),
            ("socks5://u:hunter2@proxy", "socks5://REDACTED@proxy"),
            ("http://:hunter2@proxy", "http://REDACTED@proxy"),
            ("proxy:3128", "proxy:3128"),
            ("http://proxy:3128", "http://proxy:3128"),
            ("hunter2 ://", "REDACTED"),
            ("", ""),
        ] {
            for name in ["HTTP_PROXY", "HTTPS_PROXY", "https_proxy"] {
                let mut object = json!({"spec": {"env": [{"name": name, "value": address}]}});
                Redactor::default().object(&mut object);
                assert_eq!(object["spec"]["env"][0]["value"], expected, "{name} {address}");
            }
            // The Proxy of OpenShift.
            let mut object = json!({"spec": {"httpProxy": address, "httpsProxy": address}});
            Redactor::default().object(&mut object);
            assert_eq!(object["spec"], json!({"httpProxy": expected, "httpsProxy": expected}));
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
                "phases": [{"objects": [{"object": {"kind": "ConfigMap", "data": {"a.yaml": "hunter2"}}}, {"object": {"kind": "Secret", "data": {"a": "hunter2"}, "stringData": {"b": "hunter2"}}}]}],
                "env": [{"name": "API_TOKEN", "value": "hunter2"}, {"name": "HTTP_PROXY", "value": "http://a:hunter2@proxy"},
                    {"name": "MODE", "value": "hunter2"}, {"name": "WATCH_NAMESPACE", "value": "demo"}],
                "args": ["--db-password", "hunter2", "--global-pull-secret=a/b", "--v", "2"],
                "config": {"adminPassword": "hunter2", "passwords": ["hunter2"], "smtpPass": "hunter2", "pinKey": 1234, "secretName": "kept", "imagePullSecrets": [{"name": "kept"}]},
            },
        });
        Redactor::default().object(&mut object);
        let text = object.to_string();
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(object["spec"]["config"]["secretName"], "kept");
        assert_eq!(object["spec"]["config"]["imagePullSecrets"][0]["name"], "kept");
        assert_eq!(object["spec"]["config"]["pinKey"], REDACTED);
        assert_eq!(object["spec"]["env"][3]["value"], "demo");
        assert_eq!(
            object["spec"]["args"],
            json!(["--db-password", REDACTED, "--global-pull-secret=REDACTED", "--v", "2"])
        );
        assert_eq!(object["metadata"], json!({"name": "a", "annotations": {"note": "kept"}}));
    }
}
