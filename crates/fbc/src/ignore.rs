//! `.indexignore` files, which exclude files of a catalog folder from its content
//! (docs/design/catalogd.md#indexignore).
//!
//! The patterns resemble those of git but differ: a file can be re-included below an excluded directory, only files
//! are tested, and `**` does not backtrack.

use std::path::{Path, PathBuf};

/// Longest line of an ignore file, in bytes.
const MAX_LINE: usize = 64 << 10;
/// Most patterns of all ignore files. Every file of the folder is tested against each.
const MAX_PATTERNS: usize = 1000;

/// Patterns of all ignore files, in the order in which the files are visited.
#[derive(Debug, Default)]
pub(crate) struct Ignore {
    patterns: Vec<Pattern>,
}

#[derive(Debug)]
struct Pattern {
    /// Directory of the ignore file. The pattern applies to paths below it.
    domain: PathBuf,
    include: bool,
    /// Only matches directories of a path, not the file itself.
    directory: bool,
    components: Components,
}

#[derive(Debug)]
enum Components {
    /// Any component of the path may match.
    Any(Glob),
    /// The components must match in order, starting at the first.
    InOrder(Vec<Component>),
}

#[derive(Debug)]
enum Component {
    Empty,
    DoubleStar,
    Glob(Glob),
}

impl Ignore {
    /// Adds the patterns of the ignore file in the directory `domain`.
    ///
    /// # Errors
    /// A line of 64 KiB or more, or more than 1,000 patterns in all files.
    pub(crate) fn add(&mut self, domain: &Path, file: &[u8]) -> Result<(), &'static str> {
        for line in file.split(|b| *b == b'\n') {
            if line.len() >= MAX_LINE {
                return Err("a line is longer than 65536 bytes");
            }
            let line = olm_yaml::json::lossy(line);
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                self.patterns.push(Pattern::parse(domain, line));
            }
            if self.patterns.len() > MAX_PATTERNS {
                return Err("the folder has more than 1000 ignore patterns");
            }
        }
        Ok(())
    }

    /// `true` if the file at `path` is ignored. The last matching pattern decides.
    pub(crate) fn ignores(&self, path: &Path) -> bool {
        let last = self.patterns.iter().rev().find(|pattern| pattern.matches(path));
        last.is_some_and(|pattern| !pattern.include)
    }
}

impl Pattern {
    fn parse(domain: &Path, line: &str) -> Self {
        let (include, line) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let (directory, line) = line.strip_suffix('/').map_or((false, line), |rest| (true, rest));
        let components = if line.contains('/') {
            Components::InOrder(line.split('/').map(Component::parse).collect())
        } else {
            Components::Any(Glob::parse(line))
        };
        Self { domain: domain.to_owned(), include, directory, components }
    }

    fn matches(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.domain) else {
            return false;
        };
        let path: Vec<Vec<char>> =
            below.iter().map(|c| olm_yaml::json::lossy(c.as_encoded_bytes()).chars().collect()).collect();
        match &self.components {
            Components::Any(glob) => {
                let tested = path.len().saturating_sub(usize::from(self.directory));
                path[..tested].iter().any(|component| glob.matches(component))
            }
            Components::InOrder(components) => {
                // A rest of the path is below a matched directory.
                let rest = match_in_order(components, &path);
                rest.is_some_and(|rest| !(self.directory && rest.is_empty()))
            }
        }
    }
}

/// Matches the components of an anchored pattern against those of a path. Returns the rest of the path, or `None`
/// if the pattern does not match.
fn match_in_order<'a>(components: &[Component], path: &'a [Vec<char>]) -> Option<&'a [Vec<char>]> {
    let last = components.len().saturating_sub(1);
    let mut rest = path;
    let mut skipping = false;
    let mut matched = false;
    for (index, component) in components.iter().enumerate() {
        match component {
            Component::Empty => skipping = false,
            Component::DoubleStar if index == last => break,
            Component::DoubleStar => skipping = true,
            Component::Glob(glob) if skipping => {
                skipping = false;
                let at = rest.iter().position(|component| glob.matches(component))?;
                rest = &rest[at + 1..];
                matched = true;
            }
            Component::Glob(glob) => {
                let (first, below) = rest.split_first()?;
                if !glob.matches(first) {
                    return None;
                }
                rest = below;
                // A file does not match the directory part of a pattern.
                matched = !(rest.is_empty() && index < last);
            }
        }
    }
    matched.then_some(rest)
}

impl Component {
    fn parse(text: &str) -> Self {
        match text {
            "" => Self::Empty,
            "**" => Self::DoubleStar,
            _ if text.contains("**") => Self::Glob(Glob(None)),
            _ => Self::Glob(Glob::parse(text)),
        }
    }
}

/// Pattern for one component: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a literal. `None` is an invalid pattern,
/// which matches nothing.
#[derive(Debug)]
struct Glob(Option<Vec<Token>>);

#[derive(Debug)]
enum Token {
    Star,
    AnyCharacter,
    Literal(char),
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Glob {
    fn parse(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            let token = match c {
                '*' => Some(Token::Star),
                '?' => Some(Token::AnyCharacter),
                '\\' => rest.next().map(Token::Literal),
                '[' => class(&mut rest),
                _ => Some(Token::Literal(c)),
            };
            match token {
                Some(token) => tokens.push(token),
                None => return Self(None),
            }
        }
        Self(Some(tokens))
    }

    fn matches(&self, text: &[char]) -> bool {
        let Some(tokens) = &self.0 else { return false };
        let (mut token, mut at) = (0, 0);
        // Position to continue at after a mismatch: after the last star, which then takes one more character.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match tokens.get(token) {
                Some(Token::Star) => {
                    retry = Some((token + 1, at));
                    token += 1;
                    continue;
                }
                Some(one) if text.get(at).is_some_and(|c| one.accepts(*c)) => {
                    token += 1;
                    at += 1;
                    continue;
                }
                None if at == text.len() => return true,
                _ => {}
            }
            match retry {
                Some((after, taken)) if taken < text.len() => {
                    retry = Some((after, taken + 1));
                    (token, at) = (after, taken + 1);
                }
                _ => return false,
            }
        }
    }
}

impl Token {
    fn accepts(&self, c: char) -> bool {
        match self {
            Self::Star => false,
            Self::AnyCharacter => true,
            Self::Literal(literal) => *literal == c,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

/// Parses a class after its `[`. `None` if it is invalid.
fn class(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Token> {
    let negated = rest.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        if !ranges.is_empty() && rest.next_if_eq(&']').is_some() {
            return Some(Token::Class { negated, ranges });
        }
        let low = class_character(rest)?;
        let high = if rest.next_if_eq(&'-').is_some() { class_character(rest)? } else { low };
        ranges.push((low, high));
    }
}

fn class_character(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    match rest.next()? {
        '-' | ']' => None,
        '\\' => rest.next(),
        c => Some(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directory and content of an ignore file.
    type File = (&'static str, &'static str);

    fn ignored(files: &[File], path: &str) -> bool {
        let mut ignore = Ignore::default();
        for (domain, lines) in files {
            ignore.add(Path::new(domain), lines.as_bytes()).unwrap();
        }
        ignore.ignores(Path::new(path))
    }

    #[test]
    fn glob_matches_one_component() {
        let cases = [
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("a*b*c", "aXbYbZc", true),
            ("?", "é", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[!a]x", "!x", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            (r"[\]]", "]", true),
            ("[a", "a", false),
            ("[]a]", "a", false),
            ("[a-]", "a", false),
            (r"a\", "a", false),
            ("", "", true),
        ];
        for (glob, text, expected) in cases {
            let text: Vec<char> = text.chars().collect();
            assert_eq!(Glob::parse(glob).matches(&text), expected, "{glob} on {text:?}");
        }
    }

    // Cases catalogd-3, catalogd-4, catalogd-5 and the worked example of A2.
    #[test]
    fn ignore_patterns_match_relative_to_their_file() {
        let allow = "**/*\n!*.json\n!*.yaml\n**/objects/*.json\n**/objects/*.yaml";
        let cases: &[(&[File], &str, bool)] = &[
            (&[("", "skip/\n!skip/keep.yaml")], "skip/keep.yaml", false),
            (&[("", "skip/\n!skip/keep.yaml")], "skip/other.yaml", true),
            (&[("", "*.yaml"), ("a", "!*.yaml")], "a/x.yaml", false),
            (&[("", "*.yaml"), ("a", "!*.yaml")], "a/b/c.yaml", false),
            (&[("", "*.yaml"), ("a", "!*.yaml")], "b/x.yaml", true),
            (&[("", "/a\nb/c")], "a", true),
            (&[("", "/a\nb/c")], "b/c", true),
            (&[("", "/a\nb/c")], "x/a", false),
            (&[("", "/a\nb/c")], "x/b/c", false),
            (&[("", "/a\nb/c")], "b/c2", false),
            (&[("", allow)], "p/catalog.yaml", false),
            (&[("", allow)], "p/objects/x.yaml", true),
            (&[("", allow)], "p/objects/deep/x.yaml", false),
            (&[("", allow)], "notes.txt", true),
            (&[("", "a/")], "a", false),
            (&[("", "a/")], "a/b", true),
            (&[("", "**")], "a/b", true),
            (&[("", "/**")], "a/b", false),
            (&[("", "a/**")], "a", false),
            (&[("", "a/**")], "a/b/c", true),
            (&[("", "a/**/z")], "a/z", true),
            (&[("", "a/**/z")], "a/b/c/z", true),
            (&[("", "a**/z")], "ab/z", false),
            (&[("d", "x")], "x", false),
            (&[("d", "x")], "dx/x", false),
            (&[("", "# a\n  \t\n\\#x  \r\n")], "#x", true),
        ];
        for (files, path, expected) in cases {
            assert_eq!(ignored(files, path), *expected, "{files:?} on {path}");
        }
    }

    #[test]
    fn line_over_limit_is_rejected() {
        let mut ignore = Ignore::default();
        assert!(ignore.add(Path::new(""), &[b'a'; MAX_LINE - 1]).is_ok());
        assert!(ignore.add(Path::new(""), &[b'a'; MAX_LINE]).is_err());
    }

    #[test]
    fn patterns_over_total_limit_are_rejected() {
        let mut ignore = Ignore::default();
        for file in ["a", "b"] {
            assert_eq!(ignore.add(Path::new(file), "x\n# y\n".repeat(MAX_PATTERNS / 2).as_bytes()), Ok(()));
        }
        let refused = ignore.add(Path::new("c"), b"x");
        assert_eq!(refused, Err("the folder has more than 1000 ignore patterns"));
    }
}
