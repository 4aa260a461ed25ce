//! State shared by all commands: output, progress, and interruption by signals.

use tokio_util::sync::CancellationToken;

use crate::error::{CliError, Code};
use crate::output::Output;
use crate::progress::Progress;

/// One run of the program.
pub(crate) struct Session {
    pub(crate) output: Output,
    pub(crate) progress: Progress,
    interrupt: CancellationToken,
}

impl Session {
    /// Starts the session. From now on a signal does not end the process directly: commands notice it at the next
    /// step, so that temporary files are removed.
    pub(crate) fn start() -> Self {
        let interrupt = CancellationToken::new();
        let token = interrupt.clone();
        tokio::spawn(async move {
            if signalled().await.is_ok() {
                token.cancel();
                // A second signal ends the process at once.
                if signalled().await.is_ok() {
                    std::process::exit(Code::Interrupted as i32);
                }
            }
        });
        Self { output: Output::new(), progress: Progress::new(), interrupt }
    }

    /// Fails after a signal, for loops that do not wait.
    ///
    /// # Errors
    /// [`CliError::interrupted`].
    pub(crate) fn check(&self) -> Result<(), CliError> {
        if self.interrupt.is_cancelled() { Err(CliError::interrupted()) } else { Ok(()) }
    }

    /// Waits for `work`, and drops it when a signal arrives.
    ///
    /// # Errors
    /// Errors of `work`, or [`CliError::interrupted`].
    pub(crate) async fn unless_interrupted<T, E: Into<CliError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, CliError> {
        tokio::select! {
            result = work => result.map_err(Into::into),
            () = self.interrupt.cancelled() => Err(CliError::interrupted()),
        }
    }
}

async fn signalled() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result,
        _ = terminate.recv() => Ok(()),
    }
}
