//! Opens the user's browser.

use std::io::Write;
use std::process::{Command, Stdio};

use maud::{DOCTYPE, html};
use olm_cli_core::error::CliError;
use tempfile::NamedTempFile;

/// Programs that open a file with the program of the user's choice.
const OPENERS: [&str; 3] = ["xdg-open", "open", "explorer"];

/// Opens a file that leads to `address`, because other users can read the arguments of a process. The file is removed
/// when the result is dropped. `None` if there is no program to open it.
///
/// # Errors
/// The file cannot be written.
pub(super) fn open(address: &str) -> Result<Option<NamedTempFile>, CliError> {
    let failed = |error| CliError::operational(format!("cannot write a temporary file: {error}"));
    // Readable only for its owner, as all temporary files.
    let file = tempfile::Builder::new().prefix("olm-console-").suffix(".html").tempfile();
    let mut file = file.map_err(failed)?;
    let page = html! {
        (DOCTYPE)
        meta http-equiv="refresh" content=(format!("0;url={address}"));
        a href=(address) { "Open the console" }
    };
    file.write_all(page.into_string().as_bytes()).map_err(failed)?;
    let start = |program: &&str| {
        let mut command = Command::new(program);
        command.arg(file.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok()
    };
    Ok(OPENERS.iter().any(start).then_some(file))
}
