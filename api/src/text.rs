//! Makes text from catalogs, bundles, file names and registries safe to display on terminals and in conditions.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Write;

pub use olm_version::is_hidden;

/// Escapes every character that [`is_hidden`] as `\u{…}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden)
}

/// Escapes line feeds, too, so that a name cannot forge another line: names of RBAC objects, users, verbs and resources
/// may have any characters.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || is_hidden(c))
}

fn escaped(text: &str, is_escaped: fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_escaped(c) {
            // Writing to a String does not fail.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Error text with all causes, each once: `outer: inner`.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_has_no_line_break() {
        for (text, shown) in [
            ("plain\tgrün", "plain\tgrün"),
            ("a\nb\r\u{85}\u{2028}\u{b}", "a\\u{a}b\\u{d}\\u{85}\\u{2028}\\u{b}"),
        ] {
            assert_eq!(one_line(text), shown);
        }
    }

    #[test]
    fn hidden_characters_are_escaped() {
        for (text, shown) in [
            ("plain, grün, 日本\n\tmore", "plain, grün, 日本\n\tmore"),
            ("\u{1b}[2Jx\r", "\\u{1b}[2Jx\\u{d}"),
            ("\u{7f}\u{9b}31m", "\\u{7f}\\u{9b}31m"),
            ("a\u{202e}b\u{2066}c\u{200f}d\u{61c}", "a\\u{202e}b\\u{2066}c\\u{200f}d\\u{61c}"),
            ("\u{feff}\u{2028}\u{0}", "\\u{feff}\\u{2028}\\u{0}"),
            // Zero-width joiners are kept: emoji and some languages need them.
            ("\u{1f469}\u{200d}\u{1f4bb}", "\u{1f469}\u{200d}\u{1f4bb}"),
        ] {
            assert_eq!(visible(text), shown);
            assert_eq!(visible(&visible(text)), shown, "idempotent");
        }
    }
}
