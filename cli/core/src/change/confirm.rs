//! Confirmation prompt.

use std::io::{self, IsTerminal, Write};

use crate::error::CliError;
use crate::output::printable;
use crate::session::Session;

/// Asks `question` on the terminal, unless `yes` is set.
///
/// # Errors
/// The answer is no, or there is no terminal and `--yes` is required.
pub async fn confirm(question: &str, yes: bool, session: &Session) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CliError::usage(format!(
            "{question} Standard input or standard error is not a terminal; confirm with --yes"
        )));
    }
    let question = printable(&format!("{question} [y/N] "));
    let ask = move || {
        let mut answer = String::new();
        let asked = write!(io::stderr(), "{question}")
            .and_then(|()| io::stderr().flush())
            .and_then(|()| io::stdin().read_line(&mut answer));
        asked.map(|_| answer)
    };
    let answer = session.detached(ask, "cannot read the answer").await?;
    let answer = answer.map_err(|error| CliError::operational(format!("cannot read the answer: {error}")))?;
    if is_yes(&answer) {
        Ok(())
    } else {
        Err(CliError::operational("not confirmed; nothing has been changed"))
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_y_or_yes_confirms() {
        for (answer, expected) in
            [("y\n", true), ("Yes\r\n", true), ("", false), ("\n", false), ("n\n", false), ("yep", false)]
        {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }
}
