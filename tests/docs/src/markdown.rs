//! Parser of the Markdown subset that the documents use.

/// Heading with the lines below it, up to the next heading of any level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// Text of the heading.
    pub heading: &'a str,
    /// Lines below it.
    pub lines: Vec<&'a str>,
}

/// Sections of a document. Ignores lines in fenced blocks.
#[must_use]
pub fn sections(text: &str) -> Vec<Section<'_>> {
    let (mut found, mut fenced) = (Vec::<Section<'_>>::new(), false);
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if !fenced && heading.len() < line.len() && heading.starts_with(' ') {
            found.push(Section { heading: heading.trim(), lines: Vec::new() });
        } else if let Some(section) = found.last_mut() {
            section.lines.push(line);
        }
    }
    found
}

/// Cells of the tables among the lines, without header rows.
#[must_use]
pub fn rows<'a>(lines: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let is_rule = |line: &&str| line.starts_with("| ---") || line.starts_with("|---");
        if line.starts_with('|') && !is_rule(line) && !lines.get(index + 1).is_some_and(is_rule) {
            found.push(cells(line));
        }
    }
    found
}

/// Cells of a row. `\|` does not separate cells.
fn cells(row: &str) -> Vec<&str> {
    let mut cells = Vec::new();
    let mut from = 1;
    for (at, _) in row.match_indices('|').skip(1) {
        if !row[..at].ends_with('\\') {
            cells.push(row[from..at].trim());
            from = at + 1;
        }
    }
    cells
}

/// Contents of the code spans on a line.
#[must_use]
pub fn code_spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// Targets of the links in a text.
#[must_use]
pub fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect()
}

/// Anchor of a heading: lower case, blanks become `-`, punctuation is removed.
#[must_use]
pub fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_tables_spans_links_and_anchors_are_parsed() {
        let text = "# A b\nx\n```sh\n# no heading\n```\n## `C`: d?\n| h | i |\n| --- | --- |\n| `a\\|b` | see [x](y.md#z) |\n";
        let found = sections(text);
        assert_eq!(found.iter().map(|section| section.heading).collect::<Vec<_>>(), ["A b", "`C`: d?"]);
        assert_eq!(rows(&found[1].lines), [["`a\\|b`", "see [x](y.md#z)"]]);
        assert_eq!(code_spans("| `a` and `b` |"), ["a", "b"]);
        assert_eq!(links(text), ["y.md#z"]);
        assert_eq!(anchor("`C`: d? E-f"), "c-d-e-f");
    }
}
