//! ClusterExtensions from files, validated like the API server does. Each error has file, line, field and a
//! suggestion.

mod advice;
mod rules;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use olm_api::ClusterExtension;
use olm_version::quote;
use olm_yaml::{Limits, Stream, StreamError};
use serde_json::Value;

use self::rules::{Fault, FaultKind};
use crate::classic_kinds;
use crate::error::CliError;
use crate::progress::say;
use crate::session::Session;
use crate::version_expression;

/// Largest file. The API server accepts no larger object.
const MAX_FILE: u64 = 3 << 20;
/// API version of ClusterExtensions.
pub const API_VERSION: &str = "olm.operatorframework.io/v1";
const KIND: &str = "ClusterExtension";
/// Path of the version expression.
const VERSION: [&str; 4] = ["spec", "source", "catalog", "version"];

/// Warning that `kubectl` prints when an extension with a service account is applied
/// (docs/design/api.md#deprecated-service-account).
const SERVICE_ACCOUNT_WARNING: &str = "Validation failed for ValidatingAdmissionPolicy \
'clusterextension-serviceaccount-deprecated' with binding 'clusterextension-serviceaccount-deprecated': spec.serviceAccount is \
deprecated, ignored, and will be removed in a future release. The operator-controller's cluster-admin service account is used \
for all cluster interactions.";

/// Reads the ClusterExtensions, at least one, of the file at `path`. `-` is standard input. Skips objects of other
/// kinds, because they may be applied together. Prints warnings of the API server.
///
/// # Errors
/// The file cannot be read, or contains errors. All errors have been printed.
pub async fn read_extensions(path: &str, session: &Session) -> Result<Vec<ClusterExtension>, CliError> {
    let text = text(path, MAX_FILE, session).await?;
    let checked = CheckedFile::new(path, &text);
    if checked.findings.is_empty() {
        for warning in &checked.warnings {
            say(&format!("warning: {warning}"));
        }
        return Ok(checked.extensions);
    }
    for finding in checked.messages(path) {
        say(&format!("error: {finding}"));
    }
    Err(CliError::Findings)
}

/// Rejects command lines that use standard input more than once.
///
/// # Errors
/// More than one of the files is `-`.
pub fn check_inputs(files: &[Option<&str>]) -> Result<(), CliError> {
    let requested = files.iter().filter(|file| **file == Some("-")).count();
    if requested > 1 { Err(CliError::usage("only one of the files can be standard input")) } else { Ok(()) }
}

/// Reads the ClusterExtension of a file, without its status, which does not describe the cluster.
///
/// # Errors
/// The file cannot be read, or does not contain exactly one.
pub async fn only_extension(file: &str, session: &Session) -> Result<ClusterExtension, CliError> {
    let mut extensions = read_extensions(file, session).await?;
    match (extensions.pop(), extensions.len()) {
        (Some(extension), 0) => Ok(ClusterExtension { status: None, ..extension }),
        (_, others) => Err(CliError::usage(format!(
            "{} has {} ClusterExtensions; expected one",
            quote(file),
            others + 1
        ))),
    }
}

/// Validation errors of an extension that does not come from a file, each with its field.
pub fn validation_errors(extension: &Value) -> Vec<String> {
    let mut faults = identity_faults(extension);
    faults.extend(rules::faults(&rules::schema(), extension));
    faults.iter().map(|fault| format!("{}: {}", shown_path(&fault.path), fault.message)).collect()
}

/// Text of the file at `path`, at most `limit` bytes. `-` is standard input.
///
/// # Errors
/// The file cannot be read, is too large, or is not UTF-8.
pub async fn text(path: &str, limit: u64, session: &Session) -> Result<String, CliError> {
    let path = path.to_owned();
    session.detached(move || read_text(&path, limit), "the file was not read").await?
}

fn read_text(path: &str, limit: u64) -> Result<String, CliError> {
    let failed =
        |error: std::io::Error| CliError::operational(format!("cannot read {}: {error}", quote(path)));
    let mut bytes = Vec::new();
    if path == "-" {
        std::io::stdin().take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        // Checked before opening, for a clear error.
        if Path::new(path).is_dir() {
            return Err(CliError::usage(format!("{} is a directory; specify a file", quote(path))));
        }
        File::open(path).map_err(failed)?.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() as u64 > limit {
        return Err(CliError::usage(format!("{} is larger than {limit} bytes", quote(path))));
    }
    String::from_utf8(bytes).map_err(|_| CliError::usage(format!("{} is not UTF-8 text", quote(path))))
}

/// Validation result of a file.
#[derive(Debug, Default)]
struct CheckedFile {
    extensions: Vec<ClusterExtension>,
    /// Line, from 1, and text of each finding.
    findings: Vec<(usize, String)>,
    /// Messages with file and line.
    warnings: Vec<String>,
}

impl CheckedFile {
    /// Findings with file and line, sorted by line.
    fn messages(&self, file: &str) -> Vec<String> {
        let mut findings: Vec<_> = self.findings.iter().collect();
        findings.sort_by_key(|(line, _)| *line);
        findings.iter().map(|(line, text)| format!("{file}:{line}: {text}")).collect()
    }

    fn new(file: &str, text: &str) -> Self {
        let mut checked = Self::default();
        let mut documents = Stream::new(text.as_bytes(), Limits::default()).with_repeated_keys();
        let schema = rules::schema();
        loop {
            let document = documents.next(|json, _| olm_yaml::json::to_value(json));
            let first = documents.position().line;
            checked.findings.extend(documents.repeated_keys().iter().map(|key| {
                let path = shown_path(&key.path);
                (key.line, format!("{path}: the key is also on line {}: remove one of the two", key.first))
            }));
            match document {
                Ok(None) => break,
                Ok(Some(Value::Null)) => {}
                Ok(Some(mut object)) if object.is_object() => {
                    rules::drop_nulls(&schema, &mut object);
                    checked.add(&schema, file, text, first, &object);
                }
                Ok(Some(_)) => {
                    let expected = "expected an object with apiVersion, kind and metadata";
                    checked.findings.push((first, expected.to_owned()));
                }
                Err(error) => {
                    checked.findings.push(syntax_finding(text, &error));
                    return checked;
                }
            }
        }
        if checked.extensions.is_empty() && checked.findings.is_empty() {
            checked.findings.push((1, format!("there is no {KIND} in this file")));
        }
        checked
    }

    /// Checks an object, which begins at line `first` of `text`.
    fn add(&mut self, schema: &Value, file: &str, text: &str, first: usize, object: &Value) {
        if let Some(hint) = classic_kinds::hint(object.to_string().as_bytes()) {
            if classic_kinds::is_used(object) {
                self.warnings.push(format!("{file}:{first}: {hint}"));
                return;
            }
            self.findings.push((first, hint));
            return;
        }
        let identity = identity_faults(object);
        if identity.is_empty() && !is_extension(object) {
            return;
        }
        let mut faults = identity;
        faults.extend(rules::faults(schema, object));
        let version = at_path(object, &VERSION).and_then(Value::as_str);
        let refusal = version.and_then(|text| version_expression::check(text).err());
        if let Some(refusal) = refusal {
            // Its error is more specific than that of the schema, and covers texts that only the controller rejects.
            faults.retain(|fault| fault.path != VERSION);
            let line = field_line(text, first, &VERSION);
            let refusal = refusal.to_string().replace('\n', "\n  ");
            self.findings.push((line, refusal));
        }
        let paths: Vec<&[String]> = faults.iter().map(|fault| fault.path.as_slice()).collect();
        for (fault, line) in faults.iter().zip(olm_yaml::field_lines(text.as_bytes(), first, &paths)) {
            let source = text.lines().nth(line - 1);
            let advice = advice::of(schema, fault, at_path(object, &fault.path), source);
            let advice = advice.map(|advice| format!("\n  {advice}")).unwrap_or_default();
            self.findings.push((line, format!("{}: {}{advice}", shown_path(&fault.path), fault.message)));
        }
        if !self.findings.is_empty() {
            return;
        }
        match serde_json::from_value::<ClusterExtension>(object.clone()) {
            Ok(extension) => {
                let account = extension.spec.as_ref().and_then(|spec| spec.service_account.as_ref());
                if account.is_some_and(|account| !account.name.is_empty()) {
                    let line = field_line(text, first, &["spec", "serviceAccount"]);
                    self.warnings.push(format!("{file}:{line}: {SERVICE_ACCOUNT_WARNING}"));
                }
                self.extensions.push(extension);
            }
            Err(error) => self.findings.push((first, error.to_string())),
        }
    }
}

fn is_extension(object: &Value) -> bool {
    object["kind"] == KIND && object["apiVersion"] == API_VERSION
}

/// Errors in fields that every object has. Empty for objects of other groups.
fn identity_faults(object: &Value) -> Vec<Fault> {
    let fault = |path: &[&str], message: String, kind| Fault {
        path: path.iter().map(|&step| step.to_owned()).collect(),
        message,
        kind,
    };
    let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let mut faults = Vec::new();
    let required = || "the field is required".to_owned();
    if version.is_none() {
        faults.push(fault(&["apiVersion"], required(), FaultKind::Value));
    }
    if kind.is_none() {
        faults.push(fault(&["kind"], required(), FaultKind::Value));
    }
    let meant = kind.is_some_and(|kind| kind.eq_ignore_ascii_case(KIND));
    if !meant || !faults.is_empty() {
        return faults;
    }
    for (field, found, allowed) in [("apiVersion", version, API_VERSION), ("kind", kind, KIND)] {
        if found != Some(allowed) {
            let message = format!("{} is not allowed; allowed: {allowed}", quote(found.unwrap_or_default()));
            faults.push(fault(&[field], message, FaultKind::Enum(vec![allowed.to_owned()])));
        }
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if !olm_bundle::subdomain_faults(name).is_empty() {
        let message = if name.is_empty() {
            required()
        } else {
            format!("{}: allowed: lowercase letters, digits, - and ., at most 253", quote(name))
        };
        faults.push(fault(&["metadata", "name"], message, FaultKind::Value));
    }
    faults
}

/// Line of one field of the document that begins at line `first`.
fn field_line(text: &str, first: usize, path: &[&str]) -> usize {
    let path: Vec<String> = path.iter().map(|&step| step.to_owned()).collect();
    olm_yaml::field_lines(text.as_bytes(), first, &[&path]).first().copied().unwrap_or(first)
}

fn at_path<'a>(object: &'a Value, path: &[impl AsRef<str>]) -> Option<&'a Value> {
    path.iter().map(AsRef::as_ref).try_fold(object, |value, step: &str| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        other => other.get(step),
    })
}

/// `spec.source.catalog.channels[0]`
fn shown_path(path: &[String]) -> String {
    let mut shown = String::new();
    for step in path {
        if step.chars().all(|c| c.is_ascii_digit()) {
            shown += &format!("[{step}]");
        } else {
            shown += if shown.is_empty() { "" } else { "." };
            shown += step;
        }
    }
    shown
}

/// Advice for a YAML syntax error that was reported in this line of a file, from 1, with the line that it is about.
pub fn syntax_advice(text: &str, line: usize) -> Option<(usize, String)> {
    advice::syntax(text, line)
}

fn syntax_finding(text: &str, error: &StreamError) -> (usize, String) {
    let at = match error {
        StreamError::Document { at, position, .. } => at.unwrap_or(position.line),
        StreamError::Read(_) => 1,
    };
    match advice::syntax(text, at) {
        Some((line, advice)) => (line, format!("{error}\n  {advice}")),
        None => (at, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Vec<String> {
        CheckedFile::new("x.yaml", text).messages("x.yaml")
    }

    /// Extension with the text `catalog` below `spec.source.catalog`, from line 11 on.
    fn extension(catalog: &str) -> String {
        format!(
            "apiVersion: olm.operatorframework.io/v1\nkind: ClusterExtension\nmetadata:\n  name: x\nspec:\n  namespace: ns\n  \
             source:\n    sourceType: Catalog\n    catalog:\n      packageName: pipe\n{catalog}"
        )
    }

    // Case seeds-s2-1
    #[test]
    fn service_account_is_accepted_with_kubectl_warning() {
        let text = extension("      version: \">=1.11, <1.13\"\n")
            .replace("  source:", "  serviceAccount:\n    name: installer\n  source:");
        let checked = CheckedFile::new("x.yaml", &text);
        assert_eq!((checked.findings.len(), checked.extensions.len()), (0, 1));
        assert!(checked.warnings[0].starts_with("x.yaml:7: Validation failed for"), "{:?}", checked.warnings);
        assert!(checked.warnings[0].contains("spec.serviceAccount is deprecated, ignored"));
    }

    // Cases seeds-s2-4, seeds-s2-5
    #[test]
    fn finding_has_line_field_and_rewrite() {
        for (catalog, expected) in [
            (
                "      version: 1.10\n",
                "x.yaml:11: spec.source.catalog.version: expected a string, found the number 1.1\n  quote it: version: \"1.10\"",
            ),
            (
                "      version: 1.x\n      version: 2.x\n",
                "x.yaml:12: spec.source.catalog.version: the key is also on line 11: remove one of the two",
            ),
            (
                "      channels: latest\n",
                "x.yaml:11: spec.source.catalog.channels: expected a list, found \"latest\"\n  \
                 write a list: channels: [latest]",
            ),
            (
                "      selfCertified: true\n",
                "x.yaml:11: spec.source.catalog.selfCertified: unknown field \"selfCertified\"; allowed here: \
                 channels, packageName, selector, upgradeConstraintPolicy, version\n  write, in spec.source.catalog, \
                 upgradeConstraintPolicy: SelfCertified",
            ),
            (
                "  upgradeConstraintPolicy: SelfCertified\n",
                "x.yaml:11: spec.upgradeConstraintPolicy: unknown field \"upgradeConstraintPolicy\"; allowed here: \
                 config, install, namespace, progressDeadlineMinutes, serviceAccount, source\n  \
                 upgradeConstraintPolicy belongs in spec.source.catalog",
            ),
            (
                "      channels:\n      - <channel_name>\n",
                "x.yaml:12: spec.source.catalog.channels[0]: \"<channel_name>\": channels entries must be valid \
                 DNS1123 subdomains\n  replace <channel_name> with a value",
            ),
            (
                "      version: >=1.16\n",
                "x.yaml:11: error converting YAML to JSON: yaml: line 11: did not find expected comment or line break\n  \
                 quote it: version: \">=1.16\"",
            ),
            (
                "      version: *\n",
                "x.yaml:11: error converting YAML to JSON: yaml: line 11: did not find expected alphabetic or numeric \
                 character\n  quote it: version: \"*\"",
            ),
        ] {
            assert_eq!(checked(&extension(catalog)), [expected], "{catalog}");
        }
        let text = extension("").replace("sourceType: Catalog", "sourceType: catalog");
        assert_eq!(
            checked(&text),
            [
                "x.yaml:8: spec.source.sourceType: \"catalog\" is not allowed; allowed: Catalog\n  write sourceType: Catalog"
            ]
        );
        let text = extension("").replace("name: x", "name: <clusterextension_name>");
        assert_eq!(
            checked(&text),
            [
                "x.yaml:4: metadata.name: \"<clusterextension_name>\": allowed: lowercase letters, digits, - and ., \
                 at most 253\n  replace <clusterextension_name> with a value"
            ]
        );
    }

    // Case seeds-s2-4
    #[test]
    fn wrong_indentation_is_rejected_with_its_line() {
        let text = extension("").replace('\n', "\n  ");
        assert_eq!(
            checked(&text),
            [
                "x.yaml:2: error converting YAML to JSON: yaml: line 2: mapping values are not allowed in this context\n  kind is indented deeper than apiVersion, which already has a value: start both in the same column"
            ]
        );
    }

    // Case seeds-s1-5
    #[test]
    fn classic_kind_gets_hint_and_other_object_is_skipped() {
        let group = "apiVersion: operators.coreos.com/v1\nkind: OperatorGroup\nmetadata: {name: g}\n";
        let findings = checked(group);
        assert!(
            findings[0].starts_with("x.yaml:1: OperatorGroup is an object of classic OLM: "),
            "{findings:?}"
        );
        let both = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: ns}}\n---\n{}", extension(""));
        let judged_both = CheckedFile::new("x.yaml", &both);
        assert_eq!((judged_both.findings.len(), judged_both.extensions.len()), (0, 1));
        let condition =
            "apiVersion: operators.coreos.com/v2\nkind: OperatorCondition\nmetadata: {name: x.v1}\n";
        let judged = CheckedFile::new("x.yaml", &format!("{condition}---\n{}", extension("")));
        assert_eq!((judged.findings.len(), judged.extensions.len(), judged.warnings.len()), (0, 1, 1));
        assert_eq!(
            checked("apiVersion: v1\nkind: Namespace\n"),
            ["x.yaml:1: there is no ClusterExtension in this file"]
        );
        assert_eq!(checked("kind: clusterextension\n"), ["x.yaml:1: apiVersion: the field is required"]);
        assert_eq!(checked("[1]\n"), ["x.yaml:1: expected an object with apiVersion, kind and metadata"]);
    }

    #[test]
    fn field_without_value_counts_as_absent() {
        assert_eq!(checked(&extension("      version:\n      channels: null\n")), [""; 0]);
        let text = extension("").replace("packageName: pipe", "packageName:");
        assert_eq!(checked(&text), ["x.yaml:10: spec.source.catalog.packageName: the field is required"]);
        let text = extension("      channels: [~]\n");
        assert!(
            checked(&text)[0].contains("channels[0]: expected a string, found null"),
            "{:?}",
            checked(&text)
        );
    }
}
