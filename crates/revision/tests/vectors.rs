//! Rows of `phases.yaml`, `probes.yaml` and `digests.yaml`, anywhere below the vector directory.

#![allow(clippy::unwrap_used, reason = "a malformed row fails the test")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use olm_api::cluster_object_set::{
    CollisionProtection, LifecycleState, ObjectRef, ObservedPhase, Phase as SpecPhase, PhaseObject,
    ProgressionProbe,
};
use olm_api::{ClusterObjectSet, ClusterObjectSetSpec};
use olm_revision::content::{ContentPhase, digests, resolve, secrets};
use olm_revision::digest::{changed_content, phase_text};
use olm_revision::generate::{BundleIdentity, Draft, Extension, RevisionDecision, decide, outdated};
use olm_revision::packing::{pack, unpack};
use olm_revision::probes::{ProbeResult, ProbeStatus, Probes, default_probes, failure_line};
use serde_json::{Value, json};

const SYSTEM: &str = "olmv1-system";

/// Runs one row. `Err` contains the difference.
type Row = fn(&Value) -> Result<(), String>;

#[test]
fn revision_vectors_match() {
    let mut failed = Vec::new();
    for path in files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let sections: &[(&str, Row)] = match name {
            "phases.yaml" => &[("cases", phases_row)],
            "probes.yaml" => &[("cases", probes_row)],
            "digests.yaml" => {
                &[("digests", digest_row), ("packing", packing_row), ("observed", observed_row)]
            }
            _ => continue,
        };
        let text = std::fs::read_to_string(&path).unwrap();
        let document: Value = serde_saphyr::from_str(&text).unwrap();
        let (mut passed, mut failures) = (0, Vec::new());
        for (section, run) in sections {
            for row in document[section].as_array().into_iter().flatten() {
                match run(row) {
                    Ok(()) => passed += 1,
                    Err(difference) => {
                        failures.push(format!("{name} {section} {}: {difference}", row["name"]))
                    }
                }
            }
        }
        say(&format!("{name}: {passed} passed, {} failed", failures.len()));
        failed.append(&mut failures);
    }
    for failure in &failed {
        say(failure);
    }
    assert!(failed.is_empty(), "{} rows failed", failed.len());
}

fn files() -> Vec<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let root = std::env::var_os("OLM_VECTORS_DIR").map_or(default, PathBuf::from);
    let (mut folders, mut files) = (vec![root], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what} is {got:?}, not {want:?}")) }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn phases_row(row: &Value) -> Result<(), String> {
    let bundle = BundleIdentity {
        package: text(&row["package"]),
        version: text(&row["version"]),
        ..BundleIdentity::default()
    };
    let extension =
        Extension { name: text(&row["extension"]), uid: "uid".to_owned(), progress_deadline_minutes: None };
    let name = extension.name.clone();
    let objects = row["objects"].as_array().cloned().unwrap_or_default();
    let draft = Draft::new(extension, &bundle, objects).map_err(|error| error.to_string())?;
    let existing: Vec<ClusterObjectSet> =
        row["existing"].as_array().into_iter().flatten().map(|old| existing(&name, old)).collect();
    let RevisionDecision::New { number } =
        decide(&draft, &existing, None, SYSTEM).map_err(|error| error.to_string())?
    else {
        return Err("no new revision".to_owned());
    };
    let revision = draft.number(number, SYSTEM).map_err(|error| error.to_string())?;
    let expect = &row["expect"];
    equal("number", &Some(number), &expect["number"].as_i64())?;
    equal("revision", &revision.set.metadata.name, &Some(text(&expect["revision"])))?;
    let mut deleted: Vec<String> =
        outdated(&existing).iter().filter_map(|set| set.metadata.name.clone()).collect();
    deleted.sort();
    equal("deleted", &deleted, &texts(&expect["deleted"]))?;
    let mut names: Vec<String> = revision.secrets.iter().filter_map(|s| s.metadata.name.clone()).collect();
    names.sort();
    equal("secrets", &names, &texts(&expect["secrets"]))?;
    let spec = revision.set.spec.unwrap();
    let want = expect["phases"].as_array().cloned().unwrap_or_default();
    let phase_names: Vec<String> = spec.phases.iter().map(|phase| phase.name.clone()).collect();
    equal("phases", &phase_names, &want.iter().map(|phase| text(&phase["name"])).collect())?;
    for (phase, want) in spec.phases.iter().zip(&want) {
        let want = want["objects"].as_array().unwrap();
        equal("number of objects", &phase.objects.len(), &want.len())?;
        for (object, want) in phase.objects.iter().zip(want) {
            phases_object(object, want, &revision.secrets)?;
        }
    }
    Ok(())
}

fn phases_object(object: &PhaseObject, want: &Value, secrets: &[Secret]) -> Result<(), String> {
    let reference = object.ref_.as_ref().ok_or("inline object")?;
    let secret =
        secrets.iter().find(|s| s.metadata.name.as_deref() == Some(&reference.name)).ok_or("no Secret")?;
    let bytes = &secret.data.as_ref().unwrap()[&reference.key].0;
    let stored = unpack(bytes, &reference.name, &reference.key)?;
    let identity = format!(
        "{} {} {}/{}",
        text(&stored["apiVersion"]),
        text(&stored["kind"]),
        text(&stored["metadata"]["namespace"]),
        text(&stored["metadata"]["name"])
    );
    equal("object", &identity, &text(&want["object"]))?;
    if let Some(json) = want["json"].as_str() {
        equal("json", &String::from_utf8_lossy(bytes).into_owned(), &json.to_owned())?;
    }
    equal(&identity, &reference.key, &text(&want["key"]))
}

fn existing(extension: &str, old: &Value) -> ClusterObjectSet {
    let number = old["revision"].as_i64().unwrap();
    let mut spec = spec(Vec::new());
    spec.revision = number;
    spec.lifecycle_state = LifecycleState::from(text(&old["state"]));
    // The content differs from every draft.
    spec.phases =
        vec![SpecPhase { name: "other".to_owned(), objects: Vec::new(), collision_protection: None }];
    ClusterObjectSet::new(&format!("{extension}-{number}"), spec)
}

fn spec(phases: Vec<SpecPhase>) -> ClusterObjectSetSpec {
    ClusterObjectSetSpec {
        lifecycle_state: LifecycleState::Active,
        revision: 1,
        collision_protection: CollisionProtection::Prevent,
        phases,
        progress_deadline_minutes: None,
        progression_probes: Vec::new(),
    }
}

fn probes_row(row: &Value) -> Result<(), String> {
    let specs: Vec<ProgressionProbe> = match &row["probes"] {
        Value::String(_) => default_probes(),
        list => serde_json::from_value(list.clone()).map_err(|error| error.to_string())?,
    };
    let (object, expect) = (&row["object"], &row["expect"]);
    let probes = match (Probes::new(&specs), expect["build_error"].as_str()) {
        (Ok(probes), None) => probes,
        (Err(error), Some(want)) => {
            return equal("error", &without_parentheses(&error.to_string()), &without_parentheses(want));
        }
        (Ok(_), Some(want)) => return Err(format!("no error, not {want:?}")),
        (Err(error), None) => return Err(error.to_string()),
    };
    let result = probes.probe(object);
    let status = status(result.status);
    if texts(&expect["also_accept"]).iter().any(|accepted| accepted == status) {
        return Ok(());
    }
    equal("status", &status, &expect["status"].as_str().unwrap_or_default())?;
    equal("messages", &result.messages, &collapsed(texts(&expect["messages"])))?;
    if let Some(line) = expect["line"].as_str() {
        let (object_name, messages) = line.split_once(": ").ok_or("malformed row")?;
        let messages = collapsed(messages.split(" and ").map(str::to_owned).collect());
        let want = format!("{object_name}: {}", messages.join(" and "));
        equal("line", &failure_line(object, &result), &want)?;
    }
    for (index, result) in probes.each(object).into_iter().enumerate() {
        each_probe(index, &result, &expect["each"])?;
    }
    Ok(())
}

fn each_probe(index: usize, result: &ProbeResult, expect: &Value) -> Result<(), String> {
    let want = expect.as_array().into_iter().flatten().find(|want| want["index"] == json!(index));
    let (want_status, want_messages) = match want {
        Some(want) => (text(&want["status"]), collapsed(texts(&want["messages"]))),
        None => ("True".to_owned(), Vec::new()),
    };
    equal(&format!("status {index}"), &status(result.status).to_owned(), &want_status)?;
    equal(&format!("messages {index}"), &result.messages, &want_messages)
}

fn status(status: ProbeStatus) -> &'static str {
    match status {
        ProbeStatus::True => "True",
        ProbeStatus::False => "False",
        ProbeStatus::Unknown => "Unknown",
    }
}

/// Removes repeated messages, and converts values in Go's notation to JSON.
fn collapsed(messages: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for message in messages {
        let message = match message.split_once("%!s(") {
            Some((before, "<nil>)")) => format!("{before}null"),
            Some((before, rest)) => {
                let value = rest.trim_end_matches(')').split_once('=').map_or(rest, |(_, value)| value);
                format!("{before}{value}")
            }
            None => message,
        };
        if !out.contains(&message) {
            out.push(message);
        }
    }
    out
}

fn without_parentheses(text: &str) -> String {
    match (text.find('('), text.rfind(')')) {
        (Some(open), Some(close)) if open < close => format!("{}{}", &text[..open], &text[close + 1..]),
        _ => text.to_owned(),
    }
}

fn digest_row(row: &Value) -> Result<(), String> {
    let mut data = BTreeMap::new();
    let mut phases = Vec::new();
    for phase in row["phases"].as_array().unwrap() {
        let mut objects = Vec::new();
        for object in phase["objects"].as_array().into_iter().flatten() {
            let json = object["json"].as_str().unwrap();
            objects.push(if object["source"] == "ref" {
                let key = format!("k{}", data.len());
                let bytes = if object["gzip"] == true { gzip(json) } else { json.as_bytes().to_vec() };
                data.insert(key.clone(), ByteString(bytes));
                let reference = ObjectRef { name: "content".to_owned(), namespace: String::new(), key };
                PhaseObject { object: None, ref_: Some(reference), collision_protection: None }
            } else {
                let inline = serde_json::from_str(json).map_err(|error| error.to_string())?;
                PhaseObject { object: Some(inline), ref_: None, collision_protection: None }
            });
        }
        phases.push(SpecPhase { name: text(&phase["name"]), objects, collision_protection: None });
    }
    let spec = spec(phases);
    let secret = Secret { immutable: Some(true), data: Some(data), ..Secret::default() };
    let found = secrets(&spec, SYSTEM).into_iter().map(|key| (key, secret.clone())).collect();
    let content = resolve(&spec, SYSTEM, &found).map_err(|error| error.to_string())?;
    for ((phase, digest), want) in
        content.iter().zip(digests(&content)).zip(row["phases"].as_array().unwrap())
    {
        let canonical = phase_text(&phase.name, phase.objects.iter().map(|o| (&o.object, o.numbers)));
        equal("canonical", &canonical, &text(&want["canonical"]))?;
        equal("digest", &digest.digest, &text(&want["digest"]))?;
        equal("name", &digest.name, &text(&want["name"]))?;
    }
    Ok(())
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn packing_row(row: &Value) -> Result<(), String> {
    let mut phases = Vec::new();
    for phase in row["phases"].as_array().unwrap() {
        let parse = |object: &Value| serde_json::from_str(&padded(object["json"].as_str().unwrap())).unwrap();
        let objects = phase["objects"].as_array().into_iter().flatten().map(parse).collect();
        phases.push(ContentPhase::inline(&text(&phase["name"]), objects));
    }
    let namespace = text(&row["system_namespace"]);
    let (phases, secrets) = pack(&text(&row["revision"]), &text(&row["owner"]), &namespace, &phases)?;
    for (phase, want) in phases.iter().zip(row["phases"].as_array().unwrap()) {
        for (object, want) in phase.objects.iter().zip(want["objects"].as_array().unwrap()) {
            let reference = object.ref_.as_ref().unwrap();
            equal("key", &reference.key, &text(&want["key"]))?;
            equal("secret", &reference.name, &text(&want["secret"]))?;
        }
    }
    for secret in secrets {
        equal("namespace", &secret.metadata.namespace, &Some(namespace.clone()))?;
        equal("immutable", &secret.immutable, &Some(true))?;
    }
    Ok(())
}

/// Replaces `{{pad:N}}` with N times the letter x.
fn padded(json: &str) -> String {
    match json.split_once("{{pad:") {
        Some((before, rest)) => {
            let (count, after) = rest.split_once("}}").unwrap();
            format!("{before}{}{}", "x".repeat(count.parse().unwrap()), padded(after))
        }
        None => json.to_owned(),
    }
}

fn observed_row(row: &Value) -> Result<(), String> {
    let phases = |key: &str| -> Vec<ObservedPhase> { serde_json::from_value(row[key].clone()).unwrap() };
    let error = row["error"].as_str().map(str::to_owned);
    equal("error", &changed_content(&phases("stored"), &phases("current")), &error)
}

/// Prints to standard output, past the capture of the test runner.
fn say(line: &str) {
    use std::io::Write;
    // Ignore a closed standard output.
    let _ = writeln!(std::io::stdout(), "{line}");
}
