//! In-memory file tree of the applied layers: paths, layer order, whiteouts and links.
//!
//! A path is relative to the image root, without `.`, `..` or empty segments. The root itself is `""`. Links are
//! only followed within the tree. A target above the root resolves to the root.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

/// Most links followed for one path. More are treated as a loop.
const MAX_HOPS: usize = 40;
/// Most segments visited for one path, including those of links. More are treated as a loop.
const MAX_STEPS: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node<C> {
    Dir,
    File(C),
    /// Symbolic link with its target as written.
    Link(String),
}

#[derive(Debug)]
struct LayerNode<C> {
    layer: usize,
    node: Node<C>,
}

/// Fault of an entry or link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("mkparent {0}: not a directory")]
    Parent(String),
    #[error("link {0}: no such file or directory")]
    HardLink(String),
    #[error("link {path} to {target:?}: not a file of the unpacked folder")]
    Link { path: String, target: String },
}

/// File tree after some layers.
#[derive(Debug)]
pub(crate) struct Tree<C> {
    nodes: BTreeMap<String, LayerNode<C>>,
    /// Bytes of all paths and link targets.
    path_bytes: u64,
    layer: usize,
    /// Folders without any content of lower layers. Many whiteouts of one folder search it once.
    hidden: HashSet<String>,
}

impl<C: Clone> Tree<C> {
    pub(crate) fn new() -> Self {
        Self { nodes: BTreeMap::new(), path_bytes: 0, layer: 0, hidden: HashSet::new() }
    }

    /// Starts the next layer. Whiteouts hide content of earlier layers.
    pub(crate) fn next_layer(&mut self) {
        self.layer += 1;
        self.hidden.clear();
    }

    /// Number of nodes, including implied folders.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of all paths and link targets, including implied folders.
    pub(crate) fn path_bytes(&self) -> u64 {
        self.path_bytes
    }

    /// Resolves links to folders within `path`, but not its last segment. `None` for a loop.
    pub(crate) fn locate(&self, path: &str) -> Option<String> {
        self.walk(path, false)
    }

    fn walk(&self, path: &str, follow_last: bool) -> Option<String> {
        let mut pending: Vec<&str> = path.split('/').rev().collect();
        let mut at = String::new();
        let (mut hops, mut steps) = (0, 0);
        while let Some(segment) = pending.pop() {
            steps += 1;
            if steps > MAX_STEPS {
                return None;
            }
            let parent = at.len();
            match segment {
                "" | "." => continue,
                ".." => {
                    at.truncate(at.rfind('/').unwrap_or(0));
                    continue;
                }
                _ if at.is_empty() => at.push_str(segment),
                _ => at.extend(["/", segment]),
            }
            if pending.is_empty() && !follow_last {
                break;
            }
            if let Some(LayerNode { node: Node::Link(target), .. }) = self.nodes.get(&at) {
                hops += 1;
                if hops > MAX_HOPS {
                    return None;
                }
                at.truncate(parent);
                if target.starts_with('/') {
                    at.clear();
                }
                pending.extend(target.split('/').rev());
            }
        }
        Some(at)
    }

    /// Puts `node` at `path` (a result of [`Tree::locate`]), replacing what was there. A folder is merged with an
    /// existing folder. The root is never replaced.
    pub(crate) fn put(&mut self, path: &str, node: Node<C>) -> Result<(), TreeError> {
        if path.is_empty() {
            return Ok(());
        }
        for (end, _) in path.match_indices('/') {
            let parent = &path[..end];
            match self.nodes.get(parent).map(|entry| &entry.node) {
                Some(Node::Dir) => {}
                Some(Node::File(_) | Node::Link(_)) => return Err(TreeError::Parent(path.to_owned())),
                None => self.insert(parent, Node::Dir),
            }
        }
        if !matches!(node, Node::Dir) {
            self.remove_below(path, usize::MAX);
        }
        self.insert(path, node);
        Ok(())
    }

    fn insert(&mut self, path: &str, node: Node<C>) {
        self.path_bytes += path_bytes(path, &node);
        if let Some(replaced) = self.nodes.insert(path.to_owned(), LayerNode { layer: self.layer, node }) {
            self.path_bytes -= path_bytes(path, &replaced.node);
        }
    }

    /// Creates a hard link: `path` gets the content of the file at `target`.
    pub(crate) fn put_hard_link(&mut self, path: &str, target: &str) -> Result<(), TreeError> {
        let found = self.walk(target, false);
        match found.and_then(|path| self.nodes.get(&path)).map(|entry| entry.node.clone()) {
            Some(node @ (Node::File(_) | Node::Link(_))) => self.put(path, node),
            Some(Node::Dir) | None => Err(TreeError::HardLink(path.to_owned())),
        }
    }

    /// Applies a whiteout: removes `path` and everything below it, as far as it is of lower layers.
    pub(crate) fn hide(&mut self, path: &str) {
        self.hide_below(path);
        self.remove(path, self.layer);
    }

    /// Applies an opaque whiteout: removes everything below `path` that is of lower layers.
    pub(crate) fn hide_below(&mut self, path: &str) {
        if !self.hidden.contains(path) && self.remove_below(path, self.layer) {
            self.hidden.insert(path.to_owned());
        }
    }

    /// Removes everything below `path` that is of a layer under `layer`. Returns `true` if there was anything
    /// below.
    fn remove_below(&mut self, path: &str, layer: usize) -> bool {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let paths: Vec<String> = self.below(&prefix).map(|(path, _)| path.to_owned()).collect();
        for path in paths.iter().rev() {
            self.remove(path, layer);
        }
        !paths.is_empty()
    }

    /// Removes the node at `path` if it is of a layer under `layer`, except for a non-empty folder.
    fn remove(&mut self, path: &str, layer: usize) {
        let Some(entry) = self.nodes.get(path) else {
            return;
        };
        let needed = matches!(entry.node, Node::Dir) && self.below(&format!("{path}/")).next().is_some();
        if entry.layer < layer && !needed {
            self.path_bytes -= path_bytes(path, &entry.node);
            self.nodes.remove(path);
        }
    }

    fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a LayerNode<C>)> {
        self.nodes
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(move |(path, _)| path.starts_with(prefix))
            .map(|(path, entry)| (path.as_str(), entry))
    }

    /// `true` if `path` is a folder, explicit or implied.
    pub(crate) fn is_dir(&self, path: &str) -> bool {
        path.is_empty()
            || matches!(self.nodes.get(path), Some(LayerNode { node: Node::Dir, .. }))
            || self.below(&format!("{path}/")).next().is_some()
    }

    /// All folders in order, parents first.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter(|(_, entry)| matches!(entry.node, Node::Dir)).map(|(path, _)| path.as_str())
    }

    /// All files in order. A link is resolved to its file.
    pub(crate) fn files(&self) -> impl Iterator<Item = Result<(&str, &C), TreeError>> {
        self.nodes.iter().filter_map(|(path, entry)| match &entry.node {
            Node::Dir => None,
            Node::File(content) => Some(Ok((path.as_str(), content))),
            Node::Link(target) => {
                let found = self.walk(path, true).and_then(|path| self.nodes.get(&path));
                Some(match found.map(|entry| &entry.node) {
                    Some(Node::File(content)) => Ok((path.as_str(), content)),
                    _ => Err(TreeError::Link { path: path.clone(), target: target.clone() }),
                })
            }
        })
    }
}

fn path_bytes<C>(path: &str, node: &Node<C>) -> u64 {
    let target = if let Node::Link(target) = node { target.len() } else { 0 };
    (path.len() + target) as u64
}

/// Folders of an image to unpack. `""` stands for everything.
#[derive(Debug, Clone)]
pub(crate) struct FolderFilter(Vec<String>);

impl FolderFilter {
    pub(crate) fn new(folders: impl IntoIterator<Item = String>) -> Self {
        Self(folders.into_iter().collect())
    }

    /// `true` if `path` is a selected folder or below one.
    pub(crate) fn covers(&self, path: &str) -> bool {
        self.0.iter().any(|folder| is_within(path, folder))
    }

    /// Selected folders at or below `path`.
    pub(crate) fn within<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(String::as_str).filter(move |folder| is_within(folder, path))
    }
}

fn is_within(path: &str, folder: &str) -> bool {
    folder.is_empty()
        || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Normalizes the name of an archive entry. `None` if it leaves the image root. Absolute names start at the root.
pub(crate) fn clean(name: &str) -> Option<String> {
    let mut segments = Vec::new();
    for segment in name.split('/') {
        match segment {
            "" | "." => {}
            ".." if segments.pop().is_none() && !name.starts_with('/') => return None,
            ".." => {}
            _ => segments.push(segment),
        }
    }
    Some(segments.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Builds a tree from script lines: `+path content`, `/path` for a folder, `@path target`, `=path target` for a
    /// hard link, `-path` for a whiteout, `%path` for an opaque folder, `^` for the next layer.
    fn build(script: &[&str]) -> Result<Tree<String>, TreeError> {
        let mut tree = Tree::new();
        for line in script {
            let (command, rest) = line.split_at(1);
            let (path, value) = rest.split_once(' ').unwrap_or((rest, ""));
            let path = tree.locate(path).unwrap();
            match command {
                "+" => tree.put(&path, Node::File(value.to_owned()))?,
                "/" => tree.put(&path, Node::Dir)?,
                "@" => tree.put(&path, Node::Link(value.to_owned()))?,
                "=" => tree.put_hard_link(&path, value)?,
                "-" => tree.hide(&path),
                "%" => tree.hide_below(&path),
                _ => tree.next_layer(),
            }
        }
        Ok(tree)
    }

    fn files(script: &[&str]) -> Result<Vec<String>, String> {
        let tree = build(script).map_err(|error| error.to_string())?;
        tree.files()
            .map(|file| {
                file.map(|(path, content)| format!("{path}={content}")).map_err(|error| error.to_string())
            })
            .collect()
    }

    #[test]
    fn whiteouts_hide_lower_layers_only() {
        for (script, expected) in [
            (&["+a 1", "^", "+a 2"][..], &["a=2"][..]),
            (&["+d/a 1", "+d/b 1", "^", "-d/a"], &["d/b=1"]),
            (&["+d/a 1", "^", "-d"], &[]),
            // A whiteout hides lower layers only, at any position in its own layer.
            (&["+d/a 1", "^", "+d/b 2", "-d"], &["d/b=2"]),
            (&["+d/a 1", "^", "-d", "+d/a 2"], &["d/a=2"]),
            (&["+d/a 1", "+d/e/b 1", "^", "+d/c 2", "%d"], &["d/c=2"]),
            (&["+d/a 1", "^", "%"], &[]),
            (&["+d/a 1", "^", "+d x"], &["d=x"]),
            (&["+d x", "^", "/d", "+d/a 1"], &["d/a=1"]),
            (&["+d/a 1", "^", "/d"], &["d/a=1"]),
            (&["+d/a 1", "+da 1", "^", "-d"], &["da=1"]),
        ] {
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            assert_eq!(files(script), Ok(expected), "{script:?}");
        }
    }

    #[test]
    fn repeated_whiteouts_search_folder_once() {
        let mut tree = Tree::new();
        tree.put("d/old", Node::File(String::new())).unwrap();
        tree.next_layer();
        for number in 0..20_000 {
            tree.put(&format!("d/{number}"), Node::File(String::new())).unwrap();
        }
        let start = std::time::Instant::now();
        (0..20_000).for_each(|_| tree.hide("d"));
        assert!(start.elapsed() < std::time::Duration::from_secs(20));
        assert_eq!(tree.len(), 20_001);
        tree.next_layer();
        tree.hide("d");
        assert_eq!(tree.len(), 0);
    }

    #[test]
    fn links_resolve_within_the_tree_or_fail() {
        for (script, expected) in [
            (&["+c/a 1", "@c/s a"][..], Ok(&["c/a=1", "c/s=1"][..])),
            (&["+c/a 1", "@c/s /c/a"], Ok(&["c/a=1", "c/s=1"])),
            (&["+c/a 1", "@c/s ./x/../a", "@c/t s"], Ok(&["c/a=1", "c/s=1", "c/t=1"])),
            (&["@c/s a", "^", "+c/a 2"], Ok(&["c/a=2", "c/s=2"])),
            (&["+c/a 1", "=c/h c/a", "^", "+c/a 2"], Ok(&["c/a=2", "c/h=1"])),
            (&["@c/d e", "+c/d/x 1"], Err("link c/d to \"e\": not a file of the unpacked folder")),
            (&["@c/d e", "+c/d/x 1", "-c/d", "^", "-c/d"], Ok(&["c/e/x=1"])),
            (
                &["@c/s ../../etc/passwd"],
                Err("link c/s to \"../../etc/passwd\": not a file of the unpacked folder"),
            ),
            (&["@c/s s"], Err("link c/s to \"s\": not a file of the unpacked folder")),
            (&["@c/a b", "@c/b a"], Err("link c/a to \"b\": not a file of the unpacked folder")),
            (&["=c/h c/missing"], Err("link c/h: no such file or directory")),
            (&["/c/d", "=c/h c/d"], Err("link c/h: no such file or directory")),
            (&["+c/f 1", "+c/f/g 1"], Err("mkparent c/f/g: not a directory")),
        ] {
            let expected = expected.map(|lines| lines.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(files(script), expected.map_err(str::to_owned), "{script:?}");
        }
    }

    #[test]
    fn folders_are_listed_with_implied_parents() {
        let tree = build(&["/a/b", "+c/d 1"]).unwrap();
        assert_eq!(tree.dirs().collect::<Vec<_>>(), ["a", "a/b", "c"]);
        assert!(["", "a", "a/b", "c"].iter().all(|path| tree.is_dir(path)));
        assert!(["c/d", "x", "a/b/c"].iter().all(|path| !tree.is_dir(path)));
        assert_eq!(tree.len(), 4);
    }

    #[test]
    fn folder_filter_covers_folders_and_their_content() {
        let folders = FolderFilter::new(["configs".to_owned(), "a/b".to_owned()]);
        for (path, expected) in
            [("configs", true), ("configs/x", true), ("configs2", false), ("a", false), ("a/b/c", true)]
        {
            assert_eq!(folders.covers(path), expected, "{path}");
        }
        assert!(FolderFilter::new([String::new()]).covers("anything"));
        assert_eq!(folders.within("a").collect::<Vec<_>>(), ["a/b"]);
        assert_eq!(folders.within("").count(), 2);
    }

    #[test]
    fn entry_names_are_normalized() {
        for (name, expected) in [
            ("configs/a", Some("configs/a")),
            ("./configs//a/", Some("configs/a")),
            ("/configs/a", Some("configs/a")),
            ("/../configs/a", Some("configs/a")),
            ("configs/../../evil", None),
            ("../configs/x", None),
            ("x/../configs/a", Some("configs/a")),
            (".", Some("")),
        ] {
            assert_eq!(clean(name).as_deref(), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn normalized_name_never_leaves_the_root(name in "[a./]{0,24}") {
            if let Some(path) = clean(&name) {
                prop_assert!(path.is_empty() || path.split('/').all(|s| !matches!(s, "" | "." | "..")), "{}", path);
                prop_assert_eq!(clean(&path), Some(path.clone()));
            }
        }

        /// Property: every located path is clean, and every walk ends.
        #[test]
        fn links_never_leave_the_tree(script in proptest::collection::vec(("[@+/=-]", "[abc]{1}(/[abc]){0,2}", "(\\.\\./|/|[abc]/){0,3}[abc.]"), 0..24)) {
            let mut tree = Tree::new();
            for (command, path, target) in &script {
                let Some(path) = tree.locate(path) else { continue };
                prop_assert!(path.is_empty() || path.split('/').all(|s| !matches!(s, "" | "." | "..")), "{}", path);
                // Errors are fine here. Only the paths of accepted nodes are checked.
                let _ = match command.as_str() {
                    "+" => tree.put(&path, Node::File(target.clone())),
                    "/" => tree.put(&path, Node::Dir),
                    "@" => tree.put(&path, Node::Link(target.clone())),
                    "=" => tree.put_hard_link(&path, target),
                    _ => { tree.hide(&path); Ok(()) }
                };
            }
            prop_assert_eq!(tree.files().filter_map(Result::ok).filter(|(path, _)| path.is_empty()).count(), 0);
        }
    }
}
