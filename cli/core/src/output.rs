//! Standard output. Every byte that a command prints passes [`Output`].
//!
//! Three formats: a table (or other text) for people, JSON and YAML for programs. JSON and YAML documents carry a
//! version and a kind, have a fixed order of fields and never depend on the terminal.

use std::io::{self, BufWriter, Stdout, Write};

use clap::ValueEnum;
use olm_api::text::{is_hidden, visible};
use serde::Serialize;

use crate::error::CliError;

/// API version of the documents that `-o json` and `-o yaml` print (docs/design/cli.md#exit-codes-and-output).
pub(crate) const API_VERSION: &str = "cli.ext.olm.operatorframework.io/v1";

/// Output format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable
    Table,
    /// Machine-readable
    Json,
    /// Machine-readable
    Yaml,
}

/// The `--output` flag.
#[derive(Debug, clap::Args)]
pub struct FormatArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: Format,
}

/// Result with its version and kind.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

/// Result that is a list.
#[derive(Debug, Serialize)]
pub struct List<T> {
    /// Entries in the order of the output.
    pub items: Vec<T>,
}

/// Buffered standard output. Only [`Output::finish`] guarantees that the text is written.
pub struct Output {
    writer: BufWriter<Stdout>,
}

impl Output {
    /// Standard output with an empty buffer.
    pub(crate) fn new() -> Self {
        Self { writer: BufWriter::with_capacity(1 << 16, io::stdout()) }
    }

    /// Writes `text`, with hidden characters escaped.
    ///
    /// # Errors
    /// [`CliError::Output`].
    pub fn text(&mut self, text: &str) -> Result<(), CliError> {
        unless_gone(self.writer.write_all(visible(text).as_bytes()))
    }

    /// Calls `write` with the buffered writer, for output too large to be built in memory.
    ///
    /// # Errors
    /// Errors of `write`.
    pub fn write_with(
        &mut self,
        write: impl FnOnce(&mut BufWriter<Stdout>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        write(&mut self.writer)
    }

    /// Writes a result in the given format. `text` renders the table format.
    ///
    /// # Errors
    /// [`CliError::Output`].
    pub fn result<T: Serialize>(
        &mut self,
        format: Format,
        kind: &'static str,
        body: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), CliError> {
        self.text(&result(format, kind, body, text)?)
    }

    /// Flushes the buffer.
    ///
    /// # Errors
    /// [`CliError::Output`].
    pub fn finish(&mut self) -> Result<(), CliError> {
        unless_gone(self.writer.flush())
    }
}

/// Renders a result in the given format. `text` renders the table format.
///
/// # Errors
/// The result cannot be encoded.
pub fn result<T: Serialize>(
    format: Format,
    kind: &'static str,
    body: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<String, CliError> {
    let document = Document { api_version: API_VERSION, kind, body };
    match format {
        Format::Table => Ok(printable(&text(body))),
        Format::Json => json(&document),
        Format::Yaml => yaml(&document),
    }
}

/// Ignores a closed pipe. The result of the command still decides the exit code.
fn unless_gone(written: io::Result<()>) -> Result<(), CliError> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(CliError::Output),
    }
}

/// `value` as JSON, indented by two spaces, with a final line feed.
pub fn json(value: &impl Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(value)?;
    // Hidden characters occur only within JSON strings.
    let mut shown = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if is_hidden(c) {
            shown.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            shown.push(c);
        }
    }
    Ok(shown + "\n")
}

/// `value` as one YAML document that YAML 1.1 and 1.2 readers parse alike.
pub fn yaml(value: &impl Serialize) -> Result<String, CliError> {
    // No folding, so that users can search for the text as printed.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    let text = serde_saphyr::to_string_with_options(value, options);
    let mut text = text.map_err(|error| CliError::operational(error.to_string()))?;
    if text.contains(is_hidden) {
        // JSON is valid YAML, and has an escape for each character.
        return json(value);
    }
    // A block scalar at the end lacks the line feed.
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Catalog text with terminal control characters escaped.
pub fn printable(text: &str) -> String {
    visible(text).into_owned()
}

/// Text of an element or attribute of XML 1.0, which has no control characters.
pub fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// `1 object`, `2 objects`
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// `namespace/name`, or `name` of an object without namespace, on one line.
pub fn qualified(namespace: &str, name: &str) -> String {
    let slash = if namespace.is_empty() { "" } else { "/" };
    olm_api::text::one_line(&format!("{namespace}{slash}{name}")).into_owned()
}

/// Catalog text on one line, with white space as single blanks. `-` for an empty one.
fn one_line(text: &str) -> String {
    let words = printable(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() { "-".to_owned() } else { words }
}

/// Rows of cells, printed in aligned columns as `kubectl` does.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Table with these column names.
    pub fn new(columns: &[&str]) -> Self {
        Self { rows: vec![columns.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row. White space inside a cell becomes a single blank, an empty cell `-`.
    pub fn row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(|cell| one_line(cell.as_ref())).collect());
    }

    /// Drops the last column unless its cells differ.
    pub fn without_uniform_column(mut self) -> Self {
        let mut cells = self.rows[1..].iter().map(|row| row.last());
        let first = cells.next();
        if cells.all(|cell| Some(cell) == first) {
            self.rows.iter_mut().for_each(|row| drop(row.pop()));
        }
        self
    }

    /// Rendered text: columns three blanks apart, no trailing blanks.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.rows.first().map_or(0, Vec::len)).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            text += padded.collect::<Vec<_>>().join("   ").trim_end();
            text.push('\n');
        }
        text
    }
}

/// Column in which values begin.
const VALUE_COLUMN: usize = 20;

/// Lines of `key: value` with aligned values.
#[derive(Default)]
pub struct Fields {
    /// Lines so far.
    pub text: String,
}

impl Fields {
    /// Adds a line. White space inside a value becomes a single blank, an empty value `-`.
    pub fn add(&mut self, indent: usize, key: &str, value: &str) {
        let value = one_line(value);
        let width = VALUE_COLUMN - indent;
        self.text += &format!("{:indent$}{:width$}{value}\n", "", format!("{key}:"));
    }

    /// Adds one line per value, with the key on the first.
    pub fn list(&mut self, indent: usize, key: &str, values: &[String]) {
        for (number, value) in values.iter().enumerate() {
            if number == 0 {
                self.add(indent, key, value);
            } else {
                self.text += &format!("{:VALUE_COLUMN$}{}\n", "", printable(value).trim());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn table_column_is_as_wide_as_its_widest_cell() {
        let mut table = Table::new(&["NAME", "NOTE"]);
        table.row(["a-long-name", "two\n words\u{1b}[31m"]);
        table.row(["b", ""]);
        assert_eq!(table.text(), "NAME          NOTE\na-long-name   two words\\u{1b}[31m\nb             -\n");
    }

    #[test]
    fn yaml_1_1_and_1_2_readers_get_the_same_value() {
        for text in [
            "yes",
            "no",
            "on",
            "~",
            "null",
            "1.10",
            "0o17",
            "017",
            "1_000",
            "12:30:45",
            "2020-01-01",
            "1e3",
            ".5",
            "",
            " lead",
            "trail ",
            "a: b",
            "# c",
            "- d",
            "a\nb",
            "a\n\nb\n",
            "\n",
            "a\n\n",
            "  x\ny",
            "tab\tx",
            "'",
            "\"",
            "\\",
            "é \u{1F600}",
            "\u{2028}",
            "\u{85}",
            "\u{1b}[0m",
            "{",
            "[x]",
            "*a",
            "&a",
            "!t",
            "%d",
            "@x",
            "`x",
            "=",
            "<<",
            "---",
            "a # b",
            "a very long line that is longer than eighty characters, with blanks  doubled here and there, and a colon: too ",
        ] {
            let value = json!({ "key": text, "list": [text, { "deep": text }], "n": [1, -2, 1.5, true, null, {}, []] });
            let written = yaml(&value).unwrap();
            assert_eq!(olm_yaml::from_slice(written.as_bytes()).unwrap(), value, "{text:?} as {written}");
            let value = json!({ text: 1 });
            let written = yaml(&value).unwrap();
            assert!(written.ends_with('\n'));
            assert_eq!(olm_yaml::from_slice(written.as_bytes()).unwrap(), value, "key {text:?} as {written}");
        }
    }

    #[test]
    fn hidden_characters_are_escaped_in_all_formats() {
        let text = "a\u{1b}[2J\u{7f}\u{9b}\u{202e}\u{2066}\u{200b}\u{feff}b";
        let body = json!({ text: text, "list": [text] });
        for format in [Format::Table, Format::Json, Format::Yaml] {
            let written = result(format, "List", &body, |_| text.to_owned()).unwrap();
            assert!(!written.contains(is_hidden), "{format:?}: {written:?}");
            if format != Format::Table {
                let read: serde_json::Value = olm_yaml::from_slice(written.as_bytes()).unwrap();
                assert_eq!((&read[text], &read["list"]), (&json!(text), &json!([text])), "{written}");
            }
        }
    }

    #[test]
    fn document_has_api_version_and_kind() {
        #[derive(Serialize)]
        struct Body {
            items: Vec<u8>,
        }
        let document = Document { api_version: API_VERSION, kind: "List", body: &Body { items: vec![1] } };
        assert_eq!(
            yaml(&document).unwrap(),
            "apiVersion: cli.ext.olm.operatorframework.io/v1\nkind: List\nitems:\n- 1\n"
        );
    }
}
