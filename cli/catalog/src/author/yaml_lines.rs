//! Changes to the lines of one YAML document: items of a block list, and values of one line. Pure.
//!
//! A result may be wrong for unusual layouts. The caller parses it and compares it with the desired object.

use olm_cli_core::error::CliError;
use olm_cli_core::output;
use serde_json::{Map, Value, json};

/// Text of the object `new`, with all lines of `document`, the text of `old`, that do not differ. `None` if the layout
/// has no line per item or value.
///
/// # Errors
/// Only encoding errors.
pub(super) fn replaced(document: &str, old: &Value, new: &Value) -> Result<Option<String>, CliError> {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return Ok(None);
    };
    let removed = before.keys().any(|key| !after.contains_key(key));
    let mut text = (!removed).then(|| document.to_owned());
    for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(*value)) {
        let Some(current) = text else { break };
        text = match (before.get(key).and_then(Value::as_array), value) {
            (Some(list), Value::Array(items)) => with_items(&current, key, list, items)?,
            (None, Value::String(_)) => with_value(&current, key, value)?,
            _ => None,
        };
    }
    Ok(text)
}

/// Lines of a document.
struct Lines<'a>(Vec<&'a str>);

impl<'a> Lines<'a> {
    fn of(document: &'a str) -> Self {
        Self(document.split_inclusive('\n').collect())
    }

    /// Index of the line that begins with the key.
    fn key(&self, key: &str) -> Option<usize> {
        self.0.iter().position(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')))
    }

    /// End of the block that begins at the line `start`.
    fn block_end(&self, start: usize) -> usize {
        let ends = |line: &str| is_content(line) && !line.starts_with([' ', '-']);
        let end = self.0[start + 1..].iter().position(|line| ends(line));
        end.map_or(self.0.len(), |at| start + 1 + at)
    }

    /// End of the last line with content between `start` and `end`.
    fn content_end(&self, start: usize, end: usize) -> usize {
        let last = self.0[start..end].iter().rposition(|line| is_content(line));
        last.map_or(start, |last| start + last + 1)
    }

    /// Document with `text` in place of the lines from `from` to before `to`.
    fn with(&self, from: usize, to: usize, text: &str) -> String {
        let mut result = self.0[..from].concat();
        if !result.is_empty() && !result.ends_with('\n') {
            result.push('\n');
        }
        result + text + &self.0[to..].concat()
    }
}

fn is_content(line: &str) -> bool {
    !line.trim().is_empty() && !line.trim_start().starts_with('#')
}

/// Document whose list `key` has the items `new` in place of `old`. Equal items at both ends keep their text.
fn with_items(document: &str, key: &str, old: &[Value], new: &[Value]) -> Result<Option<String>, CliError> {
    let lines = Lines::of(document);
    let Some(at) = lines.key(key) else { return Ok(None) };
    let end = lines.block_end(at);
    let Some(first) = (at + 1..end).find(|index| is_content(lines.0[*index])) else { return Ok(None) };
    let indent = lines.0[first].len() - lines.0[first].trim_start().len();
    let indent = " ".repeat(indent);
    let begins = |index: &usize| {
        lines.0[*index].strip_prefix(&indent).is_some_and(|rest| {
            rest.strip_prefix('-').is_some_and(|rest| rest.starts_with([' ', '\n', '\r']))
        })
    };
    let starts: Vec<usize> = (first..end).filter(begins).collect();
    let kept = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = old.len().min(new.len()) - kept;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
    if starts.len() != old.len() || starts.is_empty() {
        return Ok(None);
    }
    let item_end =
        |item: usize| lines.content_end(starts[item], starts.get(item + 1).copied().unwrap_or(end));
    let changed = old.len() - tail;
    let (from, to) = match (kept < changed, kept) {
        (true, _) => (starts[kept], item_end(changed - 1)),
        (false, 0) => (starts[0], starts[0]),
        (false, _) => (item_end(kept - 1), item_end(kept - 1)),
    };
    let mut text = String::new();
    let added = &new[kept..new.len() - tail];
    if !added.is_empty() {
        for line in output::yaml(&json!(added))?.lines() {
            text += &format!("{indent}{line}\n");
        }
    }
    Ok(Some(lines.with(from, to, &text)))
}

/// Document with `value` at `key`.
fn with_value(document: &str, key: &str, value: &Value) -> Result<Option<String>, CliError> {
    let lines = Lines::of(document);
    let text = output::yaml(&Map::from_iter([(key.to_owned(), value.clone())]))?;
    Ok(Some(match lines.key(key) {
        Some(at) => lines.with(at, lines.content_end(at, lines.block_end(at)), &text),
        None => {
            let end = lines.content_end(0, lines.0.len());
            lines.with(end, end, &text)
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(document: &str, edit: impl Fn(&mut Value)) -> Option<String> {
        let old: Value = olm_yaml::from_slice(document.as_bytes()).unwrap();
        let mut new = old.clone();
        edit(&mut new);
        let text = replaced(document, &old, &new).unwrap()?;
        assert_eq!(olm_yaml::from_slice(text.as_bytes()).unwrap(), new, "{text}");
        Some(text)
    }

    const CHANNEL: &str = "# The channel.\nname: stable # for all\nentries: # newest last\n  # first\n  - name: a\n    skips: [x] # odd\n\n  - name: 'b'\n  # later\npackage: foo\n";

    #[test]
    fn only_lines_of_a_changed_item_differ() {
        let skips = |item: usize| move |value: &mut Value| value["entries"][item]["skips"] = json!(["z"]);
        assert_eq!(
            change(CHANNEL, skips(1)),
            Some(CHANNEL.replace("- name: 'b'\n", "- name: b\n    skips:\n    - z\n"))
        );
        assert_eq!(
            change(CHANNEL, skips(0)),
            Some(CHANNEL.replace("    skips: [x] # odd\n", "    skips:\n    - z\n"))
        );
    }

    #[test]
    fn items_are_added_and_removed_at_any_place() {
        let list = |edit: fn(&mut Vec<Value>)| {
            move |value: &mut Value| edit(value["entries"].as_array_mut().unwrap())
        };
        let c = "  - name: c\n";
        assert_eq!(
            change(CHANNEL, list(|items| items.push(json!({ "name": "c" })))),
            Some(CHANNEL.replace("  # later", &format!("{c}  # later")))
        );
        assert_eq!(
            change(CHANNEL, list(|items| items.insert(0, json!({ "name": "c" })))),
            Some(CHANNEL.replace("  - name: a", &format!("{c}  - name: a")))
        );
        assert_eq!(
            change(CHANNEL, list(|items| items.truncate(1))),
            Some(CHANNEL.replace("  - name: 'b'\n", ""))
        );
    }

    #[test]
    fn value_of_a_key_is_replaced_or_appended() {
        let set =
            |key: &'static str, value: &'static str| move |object: &mut Value| object[key] = json!(value);
        assert_eq!(
            change(CHANNEL, set("package", "bar")),
            Some(CHANNEL.replace("package: foo", "package: bar"))
        );
        assert_eq!(change("a: b", set("c", "d")), Some("a: b\nc: d\n".to_owned()));
        assert_eq!(change("a: |\n  b\n  c\nd: e\n", set("a", "f")), Some("a: f\nd: e\n".to_owned()));
    }

    #[test]
    fn layout_without_line_per_item_is_not_changed() {
        let add = |value: &mut Value| value["entries"].as_array_mut().unwrap().push(json!({ "name": "c" }));
        assert_eq!(change("entries: [{name: a}]\n", add), None);
        assert_eq!(change("entries: []\n", add), None);
    }
}
