//! In-place editor for catalog files: appends, changes and removes objects, and preserves comments, order and
//! quoting.
//!
//! Each edit is verified: the new text is parsed as the cluster parses it, and must yield the old objects plus the
//! added ones, nothing else. Pure: the caller reads and writes the files.

use olm_cli_core::error::CliError;
use olm_fbc::{Form, Meta};
use serde_json::{Value, json};

use super::yaml_lines;

/// Catalog file, split into documents.
#[derive(Debug, Clone)]
pub(crate) struct CatalogText {
    form: Form,
    /// Documents, each with the text before it. Concatenated they are the file.
    documents: Vec<Document>,
    /// `true` if an edit may have removed comments.
    lost_comments: bool,
}

#[derive(Debug, Clone)]
struct Document {
    text: String,
    /// Null for a document without content, such as one of comments only.
    value: Value,
}

impl CatalogText {
    /// Parses the text of a file. `file` is its path, for messages.
    ///
    /// # Errors
    /// The file is not catalog content, or mixes JSON and YAML so that it cannot be edited.
    pub(crate) fn parse(text: &str, file: &str) -> Result<Self, CliError> {
        let form = if text.trim_start().starts_with('{') { Form::Json } else { Form::Yaml };
        let documents = match form {
            Form::Yaml => yaml_documents(text, file)?,
            Form::Json => json_documents(text, file)?,
        };
        let parsed = Self { form, documents, lost_comments: false };
        if meaning(text, file)? != parsed.values() {
            let why = "the file cannot be edited without changing it: use one document per `---`, or only JSON objects";
            return Err(CliError::at(file, why));
        }
        Ok(parsed)
    }

    pub(crate) fn text(&self) -> String {
        self.documents.iter().map(|document| document.text.as_str()).collect()
    }

    /// Reports whether an edit may have removed comments: it re-rendered a document with such text.
    pub(crate) fn lost_comments(&self) -> bool {
        self.lost_comments
    }

    /// Objects in the file, in order.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Value> {
        self.documents.iter().map(|document| &document.value).filter(|value| !value.is_null())
    }

    /// Appends `object` as the last document.
    ///
    /// # Errors
    /// Only encoding errors.
    pub(crate) fn append(&mut self, object: Value) -> Result<(), CliError> {
        if let Some(last) = self.documents.last_mut().filter(|last| !last.text.ends_with('\n')) {
            last.text.push('\n');
        }
        let text = object_text(&object, self.form)?;
        self.documents.push(Document { text, value: object });
        Ok(())
    }

    /// Appends `entry` to the channel object for which `is_channel` is true.
    ///
    /// # Errors
    /// Only encoding errors.
    pub(crate) fn add_entry(
        &mut self,
        is_channel: impl Fn(&Value) -> bool,
        entry: Value,
    ) -> Result<(), CliError> {
        self.change(is_channel, |channel| match channel.get_mut("entries").and_then(Value::as_array_mut) {
            Some(entries) => entries.push(entry),
            None => channel["entries"] = json!([entry]),
        })
    }

    /// Changes the first object for which `is_match` is true. The text of what does not change is preserved.
    ///
    /// # Errors
    /// Only encoding errors.
    pub(crate) fn change(
        &mut self,
        is_match: impl Fn(&Value) -> bool,
        change: impl FnOnce(&mut Value),
    ) -> Result<(), CliError> {
        let Some(at) = self.documents.iter().position(|document| is_match(&document.value)) else {
            return Ok(());
        };
        let Document { text: old, value: before } = &self.documents[at];
        let mut value = before.clone();
        change(&mut value);
        let text = match self.form {
            Form::Yaml => yaml_lines::replaced(old, before, &value)?.filter(|text| {
                olm_yaml::from_slice(body(text).as_bytes()).is_ok_and(|read| doubles(read) == value)
            }),
            Form::Json => None,
        };
        // If the text has no line for what changes, the whole object is re-rendered below its first comments.
        let text = match text {
            Some(text) => text,
            None => {
                let text = object_text(&value, self.form)?;
                let lead = lead(old);
                let is_comment = |line: &str| line.trim_start().starts_with('#') || line.contains(" #");
                self.lost_comments |= self.form == Form::Yaml && old[lead.len()..].lines().any(is_comment);
                format!("{lead}{}", body(&text))
            }
        };
        self.documents[at] = Document { text, value };
        Ok(())
    }

    /// Removes the objects for which `is_unwanted` is true, with their text.
    pub(crate) fn remove(&mut self, is_unwanted: impl Fn(&Value) -> bool) {
        self.documents.retain(|document| !is_unwanted(&document.value));
    }

    /// Verifies that the text parses to exactly these objects.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn verify(&self, file: &str) -> Result<(), CliError> {
        if meaning(&self.text(), file)? == self.values() {
            return Ok(());
        }
        Err(CliError::at(file, "the edited file would not contain the expected objects; nothing was written"))
    }

    fn values(&self) -> Vec<Value> {
        self.objects().cloned().collect()
    }
}

/// Catalog object from its JSON value.
///
/// # Errors
/// It has no valid selector fields.
pub(crate) fn meta(object: &Value) -> Result<Meta, CliError> {
    Meta::from_json(object.to_string().as_bytes()).map_err(CliError::operational)
}

/// `object` as `opm` writes it, in YAML with its separator.
///
/// # Errors
/// Only encoding errors.
pub(super) fn object_text(object: &Value, form: Form) -> Result<String, CliError> {
    stream_text(vec![meta(object)?], form)
}

/// Catalog objects as one text, in the order of opm.
///
/// # Errors
/// Only encoding errors.
pub(crate) fn stream_text(metas: Vec<Meta>, form: Form) -> Result<String, CliError> {
    let mut text = Vec::new();
    olm_fbc::write(metas, form, &mut text).map_err(CliError::operational)?;
    String::from_utf8(text).map_err(CliError::operational)
}

/// Objects of a catalog file as the cluster reads them.
fn meaning(text: &str, file: &str) -> Result<Vec<Value>, CliError> {
    let mut objects = Vec::new();
    for meta in olm_fbc::MetaReader::new(text.as_bytes(), olm_yaml::Limits::default()) {
        let blob = meta.map_err(|error| CliError::at(file, error))?.blob;
        if !blob.is_empty() {
            objects.push(serde_json::from_slice(&blob).map_err(|error| CliError::at(file, error))?);
        }
    }
    Ok(objects)
}

/// Splits at lines that begin with `---`, as the catalog reader does.
fn yaml_documents(text: &str, file: &str) -> Result<Vec<Document>, CliError> {
    let mut parts: Vec<String> = Vec::new();
    for line in text.split_inclusive('\n') {
        match parts.last_mut() {
            Some(part) if !line.starts_with("---") => part.push_str(line),
            _ => parts.push(line.to_owned()),
        }
    }
    let documents = parts.into_iter().map(|text| {
        let value =
            olm_yaml::from_slice(body(&text).as_bytes()).map_err(|error| CliError::at(file, error))?;
        Ok(Document { text, value: doubles(value) })
    });
    documents.collect()
}

/// Separator, comments and empty lines before the content of a document.
fn lead(document: &str) -> &str {
    let begins =
        |line: &&str| line.starts_with("---") || line.trim().is_empty() || line.trim_start().starts_with('#');
    let end: usize = document.split_inclusive('\n').take_while(begins).map(str::len).sum();
    &document[..end]
}

/// Document without its separator line.
fn body(document: &str) -> &str {
    if !document.starts_with("---") {
        return document;
    }
    document.split_once('\n').map_or("", |(_, body)| body)
}

fn json_documents(text: &str, file: &str) -> Result<Vec<Document>, CliError> {
    let mut documents = Vec::new();
    let mut start = 0;
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    while let Some(value) = stream.next() {
        let value = value.map_err(|error| CliError::at(file, error))?;
        let end = stream.byte_offset();
        documents.push(Document { text: text[start..end].to_owned(), value: doubles(value) });
        start = end;
    }
    if let Some(last) = documents.last_mut() {
        last.text.push_str(&text[start..]);
    }
    Ok(documents)
}

/// `value` with all numbers as doubles, as catalogs store them (docs/design/catalogd.md#canonical-line).
fn doubles(value: Value) -> Value {
    let Ok(text) = serde_json::to_vec(&value) else {
        return value;
    };
    let canonical = olm_yaml::json::canonicalize(&text).map(|canonical| canonical.text);
    canonical.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "foo/index.yaml";

    fn is_alpha(value: &Value) -> bool {
        value["name"] == "alpha" && value["schema"] == "olm.channel"
    }

    /// `text` after adding an entry to channel alpha and an object at the end.
    fn edited(text: &str) -> String {
        let mut file = CatalogText::parse(text, FILE).unwrap();
        let entry = json!({ "name": "foo.v2", "replaces": "foo.v1" });
        file.add_entry(is_alpha, entry).unwrap();
        file.append(json!({ "schema": "olm.bundle", "name": "foo.v2", "package": "foo", "image": "i" }))
            .unwrap();
        file.verify(FILE).unwrap();
        file.text()
    }

    #[test]
    fn edit_preserves_comments_order_and_quoting() {
        let text = "# The catalog of foo.\n---\nschema: olm.package\nname: 'foo' # quoted\n---\n\
                    schema: olm.channel\nname: alpha\nentries: # oldest first\n  - name: foo.v1\n  # more to come\n\npackage: foo\n";
        let expected = "# The catalog of foo.\n---\nschema: olm.package\nname: 'foo' # quoted\n---\n\
                    schema: olm.channel\nname: alpha\nentries: # oldest first\n  - name: foo.v1\n  - name: foo.v2\n    replaces: foo.v1\n  # more to come\n\npackage: foo\n\
                    ---\nimage: i\nname: foo.v2\npackage: foo\nschema: olm.bundle\n";
        assert_eq!(edited(text), expected);
    }

    #[test]
    fn flow_style_list_rewrites_only_its_channel() {
        let text = "schema: olm.package # kept\n---\nschema: olm.channel\npackage: foo\nname: alpha\nentries: [{name: foo.v1}]";
        let expected = "schema: olm.package # kept\n---\nentries:\n- name: foo.v1\n- name: foo.v2\n  replaces: foo.v1\n\
                        name: alpha\npackage: foo\nschema: olm.channel\n---\nimage: i\nname: foo.v2\npackage: foo\nschema: olm.bundle\n";
        assert_eq!(edited(text), expected);
    }

    #[test]
    fn rewritten_channel_keeps_comments_before_its_content() {
        let channel = "entries: [{name: foo.v1}] # one\npackage: foo\nname: alpha\nschema: olm.channel\n";
        let rewritten = "entries:\n- name: foo.v1\n- name: foo.v2\n  replaces: foo.v1\nname: alpha\npackage: foo\nschema: olm.channel\n";
        let entry = json!({ "name": "foo.v2", "replaces": "foo.v1" });
        for (lead, channel, is_lost) in [
            ("# License: none.\n\n", channel, true),
            ("--- # alpha\n  # License: none.\n", channel, true),
            ("# License: none.\n", &channel.replace(" # one", ""), false),
        ] {
            let mut file = CatalogText::parse(&format!("{lead}{channel}"), FILE).unwrap();
            file.add_entry(is_alpha, entry.clone()).unwrap();
            file.verify(FILE).unwrap();
            assert_eq!((file.text(), file.lost_comments()), (format!("{lead}{rewritten}"), is_lost));
        }
    }

    #[test]
    fn block_scalar_that_resembles_entries_is_not_edited() {
        let text = "schema: olm.channel\nname: alpha\nnote: |\n  text\n  entries:\n  - x\nentries:\n- name: >-\n    foo.v1\n";
        let text = edited(text);
        assert!(text.contains("note: |\n  text\n  entries:\n  - x\n"), "{text}");
        assert!(text.contains("    foo.v1\n- name: foo.v2\n  replaces: foo.v1\n"), "{text}");
    }

    #[test]
    fn json_file_is_edited_as_json() {
        let text = "{\"schema\":\"olm.package\"}\n{\"schema\": \"olm.channel\", \"package\": \"foo\", \"name\": \"alpha\", \"entries\": []}\n";
        let text = edited(text);
        assert!(text.starts_with("{\"schema\":\"olm.package\"}\n"), "{text}");
        assert!(text.contains("\n{\n    \"schema\": \"olm.channel\","), "{text}");
        assert!(!text.contains("---"), "{text}");
    }

    #[test]
    fn invalid_or_mixed_file_is_rejected() {
        let error = |text: &str| CatalogText::parse(text, FILE).unwrap_err().to_string();
        assert!(error("a: [").starts_with("foo/index.yaml: "), "{}", error("a: ["));
        assert!(error("{\"schema\":\"a\"}\n---\nschema: b\n").starts_with("foo/index.yaml: "));
    }
}
