//! Checks of the ClusterServiceVersion (docs/design/additions.md#bundle-validation).

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::text;
use olm_version::{Range, Version, VersionRelease, quote};
use serde_json::Value;

use crate::content::{Content, Object};
use crate::findings::Findings;
use crate::metadata;
use crate::names::{is_qualified_name, is_subdomain};
use crate::rule;

const API_VERSION: &str = "operators.coreos.com/v1alpha1";
const INSTALL_MODES: [&str; 4] = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
const SKIP_RANGE: &str = "olm.skipRange";

/// Maximum size of all annotations of an object in bytes, as in the API server.
const ANNOTATION_BYTES: usize = 256 << 10;

/// Maximum length of a label value.
const LABEL_BYTES: usize = 63;

/// Annotations that take effect only in this spelling.
const KNOWN_ANNOTATIONS: [&str; 5] =
    ["olm.operatorGroup", "olm.operatorNamespace", "olm.providedAPIs", SKIP_RANGE, "olm.targetNamespaces"];

/// Checks the ClusterServiceVersion that the renderer uses, which is the last one.
pub(crate) fn check(files: &BTreeMap<String, Vec<u8>>, content: &Content, findings: &mut Findings) {
    let all: Vec<&Object> = content.of_kind("ClusterServiceVersion").collect();
    let Some(csv) = all.last() else { return };
    if all.len() > 1 {
        let places: BTreeSet<String> = all.iter().map(|csv| csv.place().file).collect();
        let places = places.into_iter().collect::<Vec<_>>().join(", ");
        for csv in &all {
            let what = format!("one of {} ClusterServiceVersions, in {places}: keep one", all.len());
            findings.add(&rule::CSV_1, csv.place(), what);
        }
    }
    if !["", API_VERSION].contains(&csv.api_version()) {
        let what = format!("expected {API_VERSION}, got {}", quote(csv.api_version()));
        findings.add(&rule::CSV_15, csv.at("apiVersion"), what);
    }
    names(csv, findings);
    versions(files, csv, findings);
    install_modes(csv, findings);
    required_fields(csv, findings);
    annotations(csv, findings);
    examples(csv, findings);
}

/// Converts a dotted path to a JSON pointer.
fn pointer(dotted: &str) -> String {
    format!("/{}", dotted.replace('.', "/"))
}

fn names(csv: &Object, findings: &mut Findings) {
    let allowed = "lower case letters, digits, '-' and '.', at most 63 characters, beginning and ending with a letter or digit";
    for field in ["metadata.name", "spec.replaces"] {
        let Some(name) = csv.text_or_nothing(&pointer(field)) else { continue };
        let may_be_empty = field == "spec.replaces";
        if (may_be_empty && name.is_empty()) || (is_subdomain(name) && name.len() <= LABEL_BYTES) {
            continue;
        }
        let length = name.len();
        let what = if length > LABEL_BYTES && is_subdomain(name) {
            format!("{} has {length} characters, at most {LABEL_BYTES} are allowed", quote(name))
        } else {
            format!("{} is not a name: {allowed}", quote(name))
        };
        findings.add(&rule::CSV_2, csv.at(field), what);
    }
}

fn versions(files: &BTreeMap<String, Vec<u8>>, csv: &Object, findings: &mut Findings) {
    let version = csv.text("/spec/version");
    if csv.text_or_nothing("/spec/version").is_some()
        && let Err(error) = Version::parse(version)
    {
        let what = match version {
            "" => "the version is missing; expected one such as 1.2.3".to_string(),
            _ => format!("{}: expected a version such as 1.2.3: {error}", quote(version)),
        };
        findings.add(&rule::CSV_3, csv.at("spec.version"), what);
    }
    let minimum = csv.text("/spec/minKubeVersion").trim();
    if minimum.is_empty() {
        let what =
            "the oldest Kubernetes that the operator runs on is not named; expected a version such as 1.26.0";
        findings.add(&rule::CSV_6, csv.at("spec.minKubeVersion"), what);
    } else if let Err(error) = Version::parse(csv.text("/spec/minKubeVersion")) {
        let what = format!("{}: expected a version such as 1.26.0: {error}", quote(minimum));
        findings.add(&rule::CSV_7, csv.at("spec.minKubeVersion"), what);
    }
    let release = match csv.value.pointer("/spec/release") {
        None | Some(Value::Null) => return,
        Some(Value::String(text)) if text.is_empty() => return,
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let place = csv.at("spec.release");
    if Version::parse(version).is_ok()
        && let Err(error) = VersionRelease::parse(version, Some(&release))
    {
        findings.add(&rule::CSV_10, place.clone(), format!("{}: {error}", quote(&release)));
    }
    let package = metadata::package(files);
    let expected = format!("{package}-v{version}-{release}");
    if csv.name() != expected {
        let what =
            format!("with a release, metadata.name must be {}, not {}", quote(&expected), quote(csv.name()));
        findings.add(&rule::CSV_10, csv.at("metadata.name"), what);
    }
    if csv.annotation("olm.substitutesFor").is_some() {
        let what = "not allowed beside spec.release: remove one of the two";
        findings.add(&rule::CSV_10, csv.at_annotation("olm.substitutesFor"), what);
    }
}

fn install_modes(csv: &Object, findings: &mut Findings) {
    let place = csv.at("spec.installModes");
    let modes = csv.list("/spec/installModes");
    if modes.is_empty() {
        let what =
            format!("no install modes: list {} with supported: true or false", INSTALL_MODES.join(", "));
        return findings.add(&rule::CSV_4, place, what);
    }
    let mut seen = BTreeSet::new();
    let mut any_supported = false;
    for (index, mode) in modes.iter().enumerate() {
        let kind = text(mode, "/type");
        let place = place.clone().key(&index.to_string());
        if !seen.insert(kind) {
            findings.add(&rule::CSV_4, place.clone(), format!("{} is listed twice", quote(kind)));
        }
        if !INSTALL_MODES.contains(&kind) {
            let what =
                format!("unknown install mode {}: there are {}", quote(kind), INSTALL_MODES.join(", "));
            findings.add(&rule::CSV_5, place, what);
        } else if mode.get("supported") == Some(&Value::Bool(true)) {
            any_supported = true;
        }
    }
    if !any_supported {
        findings.add(
            &rule::CSV_4,
            place,
            "no install mode is supported: set supported: true on one at least",
        );
    }
}

fn required_fields(csv: &Object, findings: &mut Findings) {
    for field in ["apiVersion", "spec.displayName", "spec.install.strategy"] {
        if csv.text_or_nothing(&pointer(field)) == Some("") {
            findings.add(&rule::CSV_11, csv.at(field), "the field must be there and not empty");
        }
    }
    let deployments = csv.value.pointer("/spec/install/spec/deployments");
    if deployments.is_none_or(Value::is_null) {
        let what = "the field must be there; an operator without deployments has []";
        findings.add(&rule::CSV_11, csv.at("spec.install.spec.deployments"), what);
    }
    let strategy = csv.text("/spec/install/strategy");
    if !["", "deployment"].contains(&strategy) {
        let what =
            format!("{} is not looked at: deployments are installed whatever it says", quote(strategy));
        findings.add(&rule::CSV_12, csv.at("spec.install.strategy"), what);
    }
}

fn annotations(csv: &Object, findings: &mut Findings) {
    let annotations = csv.value.pointer("/metadata/annotations").and_then(Value::as_object);
    for key in annotations.into_iter().flat_map(|annotations| annotations.keys()) {
        let known = KNOWN_ANNOTATIONS.into_iter().find(|known| known.eq_ignore_ascii_case(key));
        if let Some(known) = known.filter(|known| known != key) {
            findings.add(&rule::CSV_13, csv.at_annotation(key), format!("must be spelled {known}"));
        }
    }
    let mut bytes = 0;
    for (key, value) in annotations.into_iter().flatten() {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        if !is_qualified_name(key) {
            let what = "the key is not allowed in a pod: it has letters, digits, '-', '_' and '.', at most 63, perhaps after a \
                        DNS-1123 subdomain and '/'";
            findings.add(&rule::CSV_16, csv.at_annotation(key), what);
        }
    }
    if bytes > ANNOTATION_BYTES {
        let what = format!(
            "the annotations have {bytes} bytes, a pod may have {ANNOTATION_BYTES}: shorten the largest"
        );
        findings.add(&rule::CSV_16, csv.at("metadata.annotations"), what);
    }
    if let Some(range) = csv.annotation(SKIP_RANGE)
        && let Err(error) = Range::parse(range)
    {
        let what = format!("{}: expected a range such as \">=1.0.0 <1.2.0\": {error}", quote(range));
        findings.add(&rule::CSV_14, csv.at_annotation(SKIP_RANGE), what);
    }
}

/// Group, version and kind.
type Api<'a> = (&'a str, &'a str, &'a str);

fn shown((group, version, kind): Api<'_>) -> String {
    format!("{kind} of {group}/{version}")
}

fn provided(csv: &Object) -> BTreeSet<Api<'_>> {
    let definitions = csv.list("/spec/customresourcedefinitions/owned").iter().map(|api| {
        let group = text(api, "/name").split_once('.').map_or("", |(_, group)| group);
        (group, text(api, "/version"), text(api, "/kind"))
    });
    let services = csv.list("/spec/apiservicedefinitions/owned").iter();
    let services = services.map(|api| (text(api, "/group"), text(api, "/version"), text(api, "/kind")));
    definitions.chain(services).collect()
}

fn examples(csv: &Object, findings: &mut Findings) {
    let provided = provided(csv);
    let known = ["alm-examples", "olm.examples"];
    let Some((key, examples)) = known.into_iter().find_map(|key| Some((key, csv.annotation(key)?))) else {
        if !provided.is_empty() {
            let what = "the annotation alm-examples is missing: show one object of each provided API";
            findings.add(&rule::CSV_8, csv.at("metadata.annotations"), what);
        }
        return;
    };
    let place = csv.at_annotation(key);
    let expected = "expected a JSON list of objects";
    let parsed =
        if examples.is_empty() { Ok(Value::Null) } else { olm_yaml::json::to_value(examples.as_bytes()) };
    let objects = match parsed {
        Ok(Value::Array(objects)) => objects,
        Ok(Value::Null) => Vec::new(),
        Ok(_) => return findings.add(&rule::CSV_9, place, expected),
        Err(error) => return findings.add(&rule::CSV_9, place, format!("{expected}: {error}")),
    };
    let mut shown_apis = BTreeSet::new();
    for object in &objects {
        let version = text(object, "/apiVersion");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let api = (group, version, text(object, "/kind"));
        if shown_apis.insert(api) && !provided.contains(&api) {
            let what = format!("an example is a {}, which the bundle does not provide", shown(api));
            findings.add(&rule::CSV_9, place.clone(), what);
        }
    }
    for api in provided.difference(&shown_apis) {
        findings.add(&rule::CSV_8, place.clone(), format!("no example of the provided {}", shown(*api)));
    }
}
