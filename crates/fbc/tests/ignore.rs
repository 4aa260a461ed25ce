//! `.indexignore` against a slow and simple implementation of its rules (docs/design/catalogd.md#indexignore).

#![allow(clippy::unwrap_used)]

mod files;

use std::collections::BTreeMap;

use files::Files;
use olm_fbc::{LoadError, LoadLimits, load};
use proptest::prelude::*;

/// `true` if a glob of letters, `?` and `*` matches. Tries every split.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((b'*', pattern)), _) => (0..=text.len()).any(|taken| glob(pattern, &text[taken..])),
        (Some((b'?', pattern)), Some((_, text))) => glob(pattern, text),
        (Some((one, pattern)), Some((other, text))) => one == other && glob(pattern, text),
        (Some(_), None) => false,
    }
}

fn component(pattern: &str, text: &str) -> bool {
    glob(pattern.as_bytes(), text.as_bytes())
}

/// Position of a glob of an anchored pattern on a path.
#[derive(Clone, Copy)]
struct Landing {
    at: usize,
    /// `true` if the glob follows `**`.
    searched: bool,
}

/// Every placement of the globs of an anchored pattern on the first components of a path. A glob matches the
/// component right after the previous one, or after `**` the first later component that it matches, without
/// backtracking.
fn layouts(pattern: &[&str], path: &[&str], from: usize, searched: bool) -> Vec<Vec<Landing>> {
    let Some((first, rest)) = pattern.split_first() else {
        return vec![Vec::new()];
    };
    match *first {
        "" => layouts(rest, path, from, false),
        "**" if rest.is_empty() => vec![Vec::new()],
        "**" => layouts(rest, path, from, true),
        glob => {
            let matching = (from..path.len()).filter(|at| !glob.contains("**") && component(glob, path[*at]));
            let landing = matching.take(1).find(|at| searched || *at == from);
            let behind = landing.map_or_else(Vec::new, |at| layouts(rest, path, at + 1, false));
            let landing = landing.map(|at| Landing { at, searched });
            behind.into_iter().map(|layout| landing.into_iter().chain(layout).collect()).collect()
        }
    }
}

fn matches(line: &str, path: &[&str]) -> bool {
    let (line, directory) = line.strip_suffix('/').map_or((line, false), |line| (line, true));
    if !line.contains('/') {
        let tested = path.len() - usize::from(directory);
        return path[..tested].iter().any(|text| component(line, text));
    }
    let parts: Vec<&str> = line.split('/').collect();
    let open_end = parts.last() == Some(&"**");
    let layout = layouts(&parts, path, 0, false).into_iter().next();
    let Some(last) = layout.and_then(|layout| layout.last().copied()) else { return false };
    // The path is that of a file: a directory pattern must not match it, unless `**` found it there.
    let on_file = last.at + 1 == path.len();
    !(on_file && (directory || open_end && !last.searched))
}

/// `true` if the last matching line ignores the path. Only ignore files in its parent directories apply.
fn ignored(ignores: &[(String, Vec<String>)], path: &str) -> bool {
    let mut decision = false;
    for (domain, lines) in ignores {
        let below = if domain.is_empty() { Some(path) } else { path.strip_prefix(&format!("{domain}/")) };
        let Some(below) = below else { continue };
        let parts: Vec<&str> = below.split('/').collect();
        for line in lines {
            let (line, include) = line.strip_prefix('!').map_or((line.as_str(), false), |line| (line, true));
            if matches(line, &parts) {
                decision = !include;
            }
        }
    }
    decision
}

fn line() -> impl Strategy<Value = String> {
    let part = prop_oneof![3 => "[ab]{1,2}", 2 => "[ab*?]{1,2}", 1 => Just("*".to_owned()), 1 => Just("**".to_owned())];
    (
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.3),
        prop::collection::vec(part, 1..4),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(include, anchored, parts, directory)| {
            let mark = |set: bool, mark: &str| if set { mark.to_owned() } else { String::new() };
            mark(include, "!") + &mark(anchored, "/") + &parts.join("/") + &mark(directory, "/")
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn patterns_match_like_reference_model(
        root in prop::collection::vec(line(), 0..4),
        nested in prop::collection::vec(line(), 0..3),
        paths in prop::collection::btree_set("[ab]{1,2}(/[ab]{1,2}){0,3}", 1..6),
    ) {
        let is_directory = |path: &str| paths.iter().any(|other| other.starts_with(&format!("{path}/")));
        let paths: Vec<&String> = paths.iter().filter(|path| !is_directory(path) && *path != "a").collect();
        let mut files: BTreeMap<String, String> =
            paths.iter().map(|path| ((*path).clone(), format!("schema: {path:?}"))).collect();
        files.insert(".indexignore".to_owned(), root.join("\n"));
        files.insert("a/.indexignore".to_owned(), nested.join("\n"));
        let mut loaded = Vec::new();
        load::<LoadError>(&Files(files), &LoadLimits::default(), &mut |meta| {
            loaded.push(meta.schema);
            Ok(())
        })
        .unwrap();
        let ignores = [(String::new(), root), ("a".to_owned(), nested)];
        let mut expected: Vec<String> =
            paths.iter().filter(|path| !ignored(&ignores, path)).map(|path| (*path).clone()).collect();
        loaded.sort();
        expected.sort();
        prop_assert_eq!(loaded, expected);
    }
}
