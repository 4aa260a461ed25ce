//! Builds of kustomizations with the tool of the user.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// Largest input, in bytes for each file and each kustomization.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// Deadline of one build. Remote resources are downloaded.
const DEADLINE: Duration = Duration::from_secs(120);
/// Largest error text that is read.
const MAX_ERROR: u64 = 1 << 20;
/// Programs in the order of preference, with the arguments before the folder.
const TOOLS: [(&str, &str); 2] = [("kustomize", "build"), ("kubectl", "kustomize")];

/// Objects of the kustomization in a folder, as YAML.
///
/// # Errors
/// No tool is installed, or it fails, exceeds its deadline or prints too much.
pub(super) async fn build(folder: &Path, session: &Session) -> Result<String, CliError> {
    let tool = TOOLS.iter().find_map(|(name, command)| Some((installed(name)?, *name, *command)));
    let Some((program, name, command)) = tool else {
        let why = "the kustomization needs kustomize or kubectl, and neither is in a folder of PATH; install one, \
                   or build it elsewhere and pass the objects with --from -";
        return Err(CliError::at(folder.display(), why));
    };
    let what = format!("{name} {command} {}", folder.display());
    let _step = session.progress.step(&what);
    let mut build = Command::new(program);
    build.arg(command).arg(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A build that is interrupted or exceeds its deadline is dropped.
    let run = run(build.kill_on_drop(true), &what);
    let result = session.interruptible(tokio::time::timeout(DEADLINE, run)).await?;
    result.map_err(|_| CliError::at(&what, format!("no result after {} s", DEADLINE.as_secs())))?
}

async fn run(build: &mut Command, what: &str) -> Result<String, CliError> {
    let failed = |error: std::io::Error| CliError::at(what, error);
    let mut child = build.spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (output, error) = tokio::join!(read(stdout, MAX_BYTES + 1), read(stderr, MAX_ERROR));
    let (output, error) = (output.map_err(failed)?, error.map_err(failed)?);
    if output.len() as u64 > MAX_BYTES {
        return Err(CliError::at(what, format!("the output is larger than {MAX_BYTES} bytes")));
    }
    let status = child.wait().await.map_err(failed)?;
    if !status.success() {
        let error = String::from_utf8_lossy(&error);
        return Err(CliError::at(what, format!("{status}: {}", error.trim())));
    }
    String::from_utf8(output).map_err(|_| CliError::at(what, "the output is not UTF-8"))
}

/// Reads at most `limit` bytes. The pipe is closed then, which ends the tool.
async fn read(pipe: Option<impl AsyncRead + Unpin>, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(limit).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Path of a program in the folders of `PATH`.
fn installed(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    env::split_paths(&path).map(|folder| folder.join(&file)).find(|program| program.is_file())
}
