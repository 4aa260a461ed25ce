//! Vectors of `fbc`: catalog folders with their stored lines and query responses, and of `fbc-validate`: catalogs
//! with the message of `opm validate`. The HTTP side of the queries (status, headers, malformed query strings)
//! belongs to the server and is not tested here.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use olm_fbc::{Entry, EntryKind, Folder, LoadError, LoadLimits, Meta, MetaSelector, load, validate_folder};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn vectors() -> PathBuf {
    std::env::var_os("OLM_VECTORS_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors"), PathBuf::from)
}

#[test]
fn fbc_vectors_match() {
    let root = vectors().join("fbc");
    let Ok(entries) = fs::read_dir(&root) else {
        say(&format!("fbc: skipped, no folder {}", root.display()));
        return;
    };
    let mut cases: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.join("case.yaml").is_file()).collect();
    cases.sort();
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            check(case).err().map(|why| format!("{}: {why}", case.file_name().unwrap().display()))
        })
        .collect();
    say(&format!("fbc: {} passed, {} failed", cases.len() - failures.len(), failures.len()));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn fbc_validate_vectors_match() {
    let root = vectors().join("fbc-validate");
    let Ok(entries) = fs::read_dir(&root) else {
        say(&format!("fbc-validate: skipped, no folder {}", root.display()));
        return;
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let (mut passed, mut failures) = (0, Vec::new());
    for file in files {
        let rows = olm_yaml::from_slice(&fs::read(&file).unwrap()).unwrap();
        for row in items(&rows["cases"]) {
            match check_validation(row) {
                Ok(()) => passed += 1,
                Err(why) => failures.push(format!("{}: {why}", row["name"])),
            }
        }
    }
    say(&format!("fbc-validate: {passed} passed, {} failed", failures.len()));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn check_validation(row: &Value) -> Result<(), String> {
    let scratch = tempfile::tempdir().unwrap();
    let one = row["fbc"].as_str().map(|text| ("catalog.yaml", text)).into_iter();
    let many = row["files"].as_object().into_iter().flatten();
    for (path, text) in one.chain(many.map(|(path, text)| (path.as_str(), text.as_str().unwrap()))) {
        let path = scratch.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let report = validate_folder(&Directory(scratch.path().to_owned()), &LoadLimits::default(), true);
    let message = report.reference_message.as_deref();
    let expected = row["error"].as_str();
    let accepted: Vec<&str> =
        expected.into_iter().chain(items(&row["error_any"]).filter_map(Value::as_str)).collect();
    let good = match (row["expect"].as_str(), row["match"].as_str()) {
        (Some("valid"), _) => message.is_none() && report.errors().next().is_none(),
        (Some("error"), Some("prefix")) => {
            message.is_some_and(|message| message.starts_with(row["prefix"].as_str().unwrap()))
        }
        (Some("error"), _) => message.is_some_and(|message| accepted.contains(&message)),
        _ => return Err(format!("unknown expectation {}", row["expect"])),
    };
    if !good {
        return Err(format!("expected {accepted:?}, found {message:?}"));
    }
    if message.is_some() && report.errors().next().is_none() {
        return Err("a message, but no finding".to_owned());
    }
    if let Some(finding) = report.errors().find(|finding| finding.origin.is_none()) {
        return Err(format!("no origin: {finding}"));
    }
    Ok(())
}

fn check(folder: &Path) -> Result<(), String> {
    let case = olm_yaml::from_slice(&fs::read(folder.join("case.yaml")).unwrap()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("root");
    let configs = root.join("configs");
    if folder.join("configs").is_dir() {
        copy(&folder.join("configs"), &configs);
    }
    for step in items(&case["make"]) {
        make(&configs, step);
    }

    let mut metas: Vec<Meta> = Vec::new();
    let loaded = load::<LoadError>(&Directory(root), &LoadLimits::default(), &mut |meta| {
        metas.push(meta);
        Ok(())
    });
    let expected = if case["wanted"].is_object() { &case["wanted"] } else { &case };
    match (expected["expect"].as_str(), loaded) {
        (Some("ok"), Ok(())) => check_content(folder, &case, &metas),
        (Some("error"), Err(error)) => check_error(&case, &error.to_string()),
        (Some("ok"), Err(error)) => Err(format!("does not load: {error}")),
        (Some("error"), Ok(())) => Err(format!("loads {} metas, an error is expected", metas.len())),
        (other, _) => Err(format!("unknown expectation {other:?}")),
    }
}

fn check_content(folder: &Path, case: &Value, metas: &[Meta]) -> Result<(), String> {
    let all = text(metas, &MetaSelector::default());
    if case["all"].is_object() {
        check_body(folder, &case["all"], &all).map_err(|why| format!("all: {why}"))?;
    } else if !items(&case["all_any"]).any(|body| check_body(folder, body, &all).is_ok()) {
        return Err(format!("none of the accepted contents: {}", String::from_utf8_lossy(&all)));
    }
    for query in items(&case["queries"]) {
        let raw = query["query"].as_str().unwrap_or_default();
        let method = query["method"].as_str().unwrap_or("GET");
        let filtered = query["endpoint"].as_str() != Some("all");
        if query["status"] != 200 || method != "GET" || !query["body"].is_object() {
            continue;
        }
        let selector = if filtered { selector(raw) } else { MetaSelector::default() };
        check_body(folder, &query["body"], &text(metas, &selector))
            .map_err(|why| format!("query {raw:?}: {why}"))?;
    }
    Ok(())
}

fn text(metas: &[Meta], selector: &MetaSelector) -> Vec<u8> {
    let is_selected = |meta: &&Meta| selector.matches(&meta.schema, &meta.package, &meta.name);
    metas.iter().filter(is_selected).flat_map(|meta| meta.blob.clone()).collect()
}

/// Parses a query string as the server does: pairs with `;` or an invalid escape are dropped, the first of equal
/// names wins.
fn selector(query: &str) -> MetaSelector {
    let mut found = [None, None, None];
    for pair in query.split('&').filter(|pair| !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (unescape(name), unescape(value)) else {
            continue;
        };
        if let Some(index) = ["schema", "package", "name"].iter().position(|known| *known == name) {
            found[index].get_or_insert(value);
        }
    }
    let [schema, package, name] = found.map(Option::unwrap_or_default);
    MetaSelector { schema, package, name }
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                hex::decode(digits).ok()?[0]
            }
            _ => byte,
        });
    }
    // Text that is not UTF-8 matches no stored value.
    Some(String::from_utf8(bytes).unwrap_or_else(|_| "\0".to_owned()))
}

fn check_body(folder: &Path, expected: &Value, found: &[u8]) -> Result<(), String> {
    let shown = || {
        let text = String::from_utf8_lossy(found);
        text.chars().take(3000).collect::<String>()
    };
    if let Some(file) = expected["file"].as_str() {
        let file = fs::read(folder.join(file)).unwrap();
        if file != found {
            let file = String::from_utf8_lossy(&file).chars().take(3000).collect::<String>();
            return Err(format!("content differs\n--- expected\n{file}\n--- found\n{}", shown()));
        }
    }
    if let Some(text) = expected["text"].as_str()
        && text.as_bytes() != found
    {
        return Err(format!("expected {text:?}, found {:?}", shown()));
    }
    if expected["bytes"].as_u64().is_some_and(|bytes| bytes != found.len() as u64) {
        return Err(format!("expected {} bytes, found {}: {}", expected["bytes"], found.len(), shown()));
    }
    let lines = found.iter().filter(|byte| **byte == b'\n').count() as u64;
    if expected["lines"].as_u64().is_some_and(|expected| expected != lines) {
        return Err(format!("expected {} lines, found {lines}", expected["lines"]));
    }
    let digest = hex::encode(Sha256::digest(found));
    if expected["sha256"].as_str().is_some_and(|expected| expected != digest) {
        return Err(format!("digest differs: {}", shown()));
    }
    Ok(())
}

fn check_error(case: &Value, message: &str) -> Result<(), String> {
    if let Some(hidden) = case["wanted"]["must_not_contain"].as_str()
        && message.contains(hidden)
    {
        return Err(format!("message shows {hidden:?}: {message}"));
    }
    let error = &case["error"];
    let one = error["contains"].as_str().into_iter();
    let any: Vec<&str> = one.chain(items(&error["contains_any"]).filter_map(Value::as_str)).collect();
    let good = any.is_empty() || any.iter().any(|text| message.contains(text));
    if !good {
        let note = format!("message {message:?} contains none of {any:?}");
        if error["binding"] == true {
            return Err(note);
        }
        say(&format!("  not binding: {note}"));
    }
    Ok(())
}

fn items(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map_or_else(Default::default, |items| items.iter())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::write(target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

fn make(configs: &Path, step: &Value) {
    let (kind, step) = step.as_object().unwrap().iter().next().unwrap();
    fs::create_dir_all(configs).unwrap();
    let path = configs.join(step["path"].as_str().unwrap());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match kind.as_str() {
        "dir" => fs::create_dir_all(path).unwrap(),
        "symlink" => std::os::unix::fs::symlink(step["target"].as_str().unwrap(), path).unwrap(),
        "fifo" => {
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        }
        "file" => fs::write(path, file_bytes(step)).unwrap(),
        other => panic!("unknown step {other}"),
    }
}

fn file_bytes(step: &Value) -> Vec<u8> {
    if let Some(text) = step["text"].as_str() {
        text.as_bytes().repeat(step["repeat"].as_u64().unwrap_or(1) as usize)
    } else if let Some(text) = step["base64"].as_str() {
        STANDARD.decode(text).unwrap().repeat(step["repeat"].as_u64().unwrap_or(1) as usize)
    } else {
        items(&step["parts"]).flat_map(file_bytes).collect()
    }
}

/// Folder on disk that opens only regular files within it.
struct Directory(PathBuf);

impl Folder for Directory {
    fn entries(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        fs::read_dir(self.0.join(directory))?
            .map(|entry| {
                let entry = entry?;
                let kind = if entry.file_type()?.is_dir() { EntryKind::Directory } else { EntryKind::File };
                Ok(Entry { name: entry.file_name(), kind })
            })
            .collect()
    }

    fn open(&self, file: &Path) -> io::Result<Box<dyn io::Read>> {
        let path = self.0.join(file).canonicalize()?;
        if !path.starts_with(self.0.canonicalize()?) {
            return Err(io::Error::other("link leaves the catalog"));
        }
        let kind = fs::metadata(&path)?;
        if !kind.is_file() && !kind.is_dir() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(Box::new(fs::File::open(path)?))
    }
}

/// Prints past the output capture of the test runner.
fn say(line: &str) {
    use std::io::Write;
    // Fails only if standard output is closed.
    let _ = writeln!(std::io::stdout(), "{line}");
}
