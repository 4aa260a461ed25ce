//! The documents of `docs/`, parsed for tests. `docs/writing.md` states the conventions.
//!
//! Pure except for [`documents`]: this crate runs no command. `tests/e2e` runs them on a cluster. The tests of this
//! crate compare the reference pages with the programs and the source.

mod expected;
mod markdown;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

pub use expected::missing_line;
pub use markdown::{Section, anchor, code_spans, links, rows, sections};

/// Document of `docs/`.
#[derive(Clone, Debug)]
pub struct Document {
    /// Path below `docs/`, such as `tasks/install.md`.
    pub path: String,
    /// Complete text.
    pub text: String,
}

/// Block of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Line of the document, from 1, of the first command.
    pub line: usize,
    /// Shell commands.
    pub commands: String,
    /// Expected exit code of the last command.
    pub exit: u8,
    /// Expected lines of output, in this order. `…` matches anything.
    pub output: Vec<String>,
}

/// Commands of a document and their requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Name of the required setup, from `<!-- test: NAME -->`. Empty if there are no commands.
    pub fixture: String,
    /// Command blocks, in order.
    pub steps: Vec<Step>,
    /// First lines of blocks that no test runs, with the reason.
    pub not_run: Vec<(usize, String)>,
}

impl Script {
    /// Reports whether the script changes the servers, so that no other test may run concurrently.
    #[must_use]
    pub fn runs_alone(&self) -> bool {
        matches!(self.fixture.as_str(), "servers" | "mirrored")
    }
}

/// Root folder of the project.
#[must_use]
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all documents, sorted by path.
///
/// # Errors
/// A file cannot be read.
pub fn documents() -> Result<Vec<Document>> {
    let (top, mut found) = (project().join("docs"), Vec::new());
    let mut folders = vec![top.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
                let name = path.strip_prefix(&top)?.to_str().context("a name that is not UTF-8")?;
                found.push(Document { path: name.to_owned(), text });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// Reads the document with this path.
///
/// # Errors
/// The file cannot be read.
pub fn document(path: &str) -> Result<Document> {
    let file = project().join("docs").join(path);
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    Ok(Document { path: path.to_owned(), text })
}

impl Document {
    /// Parses the commands of the document.
    ///
    /// # Errors
    /// A block violates the conventions. The error contains path and line.
    pub fn script(&self) -> Result<Script> {
        let mut reader = Reader::default();
        let mut lines = self.text.lines().enumerate();
        while let Some((index, text)) = lines.next() {
            let line = index + 1;
            let here = || format!("docs/{}:{line}", self.path);
            let end = match text {
                "<!-- sh" => "-->",
                _ if text.starts_with("```") => "```",
                _ => {
                    reader.line(text).with_context(here)?;
                    continue;
                }
            };
            let mut block = String::new();
            loop {
                match lines.next() {
                    Some((_, text)) if text == end => break,
                    Some((_, text)) => block = block + text + "\n",
                    None => bail!("{}: the block has no end {end:?}", here()),
                }
            }
            reader.block(line, text.trim_start_matches('`'), block).with_context(here)?;
        }
        let script = reader.script;
        ensure!(
            script.fixture.is_empty() == script.steps.is_empty(),
            "docs/{}: `<!-- test: NAME -->` belongs to a document with commands, and only there",
            self.path
        );
        Ok(script)
    }
}

/// Parser state of a script.
#[derive(Default)]
struct Reader {
    script: Script,
    /// `true` if the next block may be the output of the last step.
    output_may_follow: bool,
    /// Reason for which the next block is not run.
    reason: Option<String>,
}

impl Reader {
    /// Parses a line outside of blocks.
    fn line(&mut self, text: &str) -> Result<()> {
        if let Some(fixture) = comment(text, "test: ") {
            ensure!(self.script.fixture.is_empty(), "a second fixture");
            self.script.fixture = fixture.to_owned();
        } else if let Some(why) = comment(text, "not run: ") {
            self.reason = Some(why.to_owned());
        } else if !text.is_empty() {
            ensure!(!text.trim_start().starts_with("```"), "an indented block");
            self.output_may_follow = false;
        }
        Ok(())
    }

    /// Adds the block that begins on this line. `info` is its info string.
    fn block(&mut self, line: usize, info: &str, block: String) -> Result<()> {
        let follows = std::mem::replace(&mut self.output_may_follow, info.starts_with("sh"));
        let exit = match (info, info.strip_prefix("sh exit=")) {
            ("sh" | "<!-- sh", _) => 0,
            (_, Some(exit)) => exit.parse().context("exit code")?,
            ("text", _) => {
                ensure!(follows, "no commands directly before this output");
                if let Some(step) = self.script.steps.last_mut() {
                    step.output = block.lines().map(str::to_owned).collect();
                }
                return Ok(());
            }
            ("console", _) => {
                let why = self.reason.take().context("no `<!-- not run: … -->` before")?;
                self.script.not_run.push((line, why));
                return Ok(());
            }
            _ => bail!("a block is `sh`, `sh exit=N`, `text` or `console`, not {info:?}"),
        };
        self.script.steps.push(Step { line: line + 1, commands: block, exit, output: Vec::new() });
        Ok(())
    }
}

/// Rest of a comment that fills a line.
fn comment<'a>(line: &'a str, begin: &str) -> Option<&'a str> {
    line.strip_prefix("<!-- ")?.strip_prefix(begin)?.strip_suffix(" -->")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Result<Script> {
        Document { path: "x.md".to_owned(), text: text.to_owned() }.script()
    }

    #[test]
    fn script_parses_commands_output_exit_codes_and_fixture() {
        let text = "# T\n<!-- test: catalog -->\n<!-- sh\nprepare\n-->\n\n```sh\nlook\n```\n\n```text\na\nb\n```\n\
                    words\n```sh exit=4\nfail\n```\n<!-- not run: takes long -->\n```console\nbuild\n```\n";
        let read = script(text).unwrap();
        let step = |line, commands: &str, exit, output: &[&str]| Step {
            line,
            commands: commands.to_owned(),
            exit,
            output: output.iter().map(|&line| line.to_owned()).collect(),
        };
        assert_eq!(
            read.steps,
            [step(4, "prepare\n", 0, &[]), step(8, "look\n", 0, &["a", "b"]), step(17, "fail\n", 4, &[])]
        );
        assert_eq!((read.fixture.as_str(), read.not_run.len()), ("catalog", 1));
    }

    #[test]
    fn violation_of_the_conventions_is_an_error() {
        for (text, expected) in [
            (
                "```bash\nx\n```",
                "docs/x.md:1: a block is `sh`, `sh exit=N`, `text` or `console`, not \"bash\"",
            ),
            ("a\n```text\nx\n```", "docs/x.md:2: no commands directly before this output"),
            ("<!-- test: a -->\n```sh\nx\n```\nwords\n```text\ny\n```", "docs/x.md:6: no commands directly"),
            ("```console\nx\n```", "docs/x.md:1: no `<!-- not run: … -->` before"),
            ("  ```sh\n", "docs/x.md:1: an indented block"),
            ("```sh\nx\n", "docs/x.md:1: the block has no end \"```\""),
            ("```sh\nx\n```\n", "docs/x.md: `<!-- test: NAME -->` belongs to"),
            ("<!-- test: a -->\n", "docs/x.md: `<!-- test: NAME -->` belongs to"),
        ] {
            let error = script(text).unwrap_err();
            let error = error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ");
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
