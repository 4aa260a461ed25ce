//! Checks that the tests exist that the table of threats and ignored end-to-end tests name.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use olm_docs::{code_spans, document, project, rows};

#[test]
fn threats_name_existing_tests() -> Result<()> {
    let page = document("design/threats.md")?;
    let lines: Vec<&str> = page.text.lines().collect();
    let threats = rows(&lines);
    ensure!(threats.len() > 20, "only {} rows", threats.len());
    for row in threats {
        let [threat, prevented, tests] = row[..] else {
            anyhow::bail!("expected threat, prevention and tests: {row:?}");
        };
        let tests = code_spans(tests);
        ensure!(!prevented.is_empty() && !tests.is_empty(), "nothing prevents or tests: {threat}");
        for test in tests {
            ensure_test(test)?;
        }
    }
    Ok(())
}

/// Checks that `test`, as `FILE::TEST`, exists.
fn ensure_test(test: &str) -> Result<()> {
    let (path, function) = test.split_once("::").with_context(|| format!("{test}: not FILE::TEST"))?;
    let source = fs::read_to_string(project().join(path)).with_context(|| test.to_owned())?;
    // The test attribute precedes the function, possibly with comments and other attributes in between.
    let above =
        source.split_once(&format!("fn {function}(")).with_context(|| format!("{test} does not exist"))?.0;
    let is_test = above.rsplit("\n\n").next().is_some_and(|above| above.contains("test"));
    ensure!(is_test, "{test} is not a test");
    Ok(())
}

#[test]
fn ignored_e2e_tests_name_tests_that_prove_the_same() -> Result<()> {
    let mut ignored = 0;
    for entry in fs::read_dir(project().join("tests/e2e/tests/side_by_side"))? {
        let path = entry?.path();
        for rest in fs::read_to_string(&path)?.split("#[ignore").skip(1) {
            let reason = rest.split_once(']').context("the attribute ends")?.0;
            let test = reason.strip_prefix(" = \"only with --full, because ");
            let test = test.and_then(|test| test.strip_suffix(" proves it\""));
            ensure_test(test.with_context(|| format!("{}: {reason}", path.display()))?)?;
            ignored += 1;
        }
    }
    ensure!(ignored > 0, "no ignored test was found");
    Ok(())
}
