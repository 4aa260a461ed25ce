//! Comparison of command output with the output in a document.

/// Returns the first of the `expected` lines that is missing in `output`.
///
/// The lines must occur in this order, possibly with other lines in between. Runs of blanks equal one blank, because
/// column widths depend on the names in them. `…` matches anything.
#[must_use]
pub fn missing_line<'a>(expected: &'a [String], output: &str) -> Option<&'a str> {
    let printed: Vec<String> = output.lines().map(one_blank).collect();
    let mut printed = printed.iter();
    expected
        .iter()
        .find(|line| {
            let pattern = one_blank(line);
            !pattern.is_empty() && !printed.any(|printed| matches(&pattern, printed))
        })
        .map(String::as_str)
}

fn one_blank(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn matches(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('…') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(begin) else {
        return false;
    };
    let (middle, end) = rest.rsplit_once('…').unwrap_or(("", rest));
    for piece in middle.split('…') {
        match text.find(piece) {
            Some(at) => text = &text[at + piece.len()..],
            None => return false,
        }
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_match_in_order_with_other_lines_between() {
        let output = "NAME    AGE\na       3s\nnoise\nb  4s failed to pull\n";
        for (expected, missing) in [
            (&["NAME AGE", "b 4s failed…"][..], None),
            (&["a   …s", "", "b…pull"], None),
            (&["…noise…"], None),
            (&["b … to …l"], None),
            (&["noise", "a 3s"], Some("a 3s")),
            (&["b 4s"], Some("b 4s")),
            (&["a…b"], Some("a…b")),
            (&["x…"], Some("x…")),
        ] {
            let expected: Vec<String> = expected.iter().map(|&line| line.to_owned()).collect();
            assert_eq!(missing_line(&expected, output), missing, "{expected:?}");
        }
    }
}
