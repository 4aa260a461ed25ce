//! State shared by all commands: output, progress, and interruption by signals.

use tokio_util::sync::CancellationToken;

use crate::error::{CliError, Code};
use crate::output::Output;
use crate::progress::Progress;

/// One run of the program.
pub struct Session {
    /// Standard output of the command.
    pub output: Output,
    /// Progress lines on standard error.
    pub progress: Progress,
    interrupt: CancellationToken,
}

impl Session {
    /// Starts the session. From now on a signal does not end the process directly: commands notice it at the next
    /// step, so that temporary files are removed.
    pub fn start() -> Self {
        let interrupt = CancellationToken::new();
        let token = interrupt.clone();
        tokio::spawn(async move {
            if olm_os::stop_signal().await.is_ok() {
                token.cancel();
                // A second signal ends the process at once.
                if olm_os::stop_signal().await.is_ok() {
                    std::process::exit(Code::Interrupted as i32);
                }
            }
        });
        Self { output: Output::new(), progress: Progress::new(), interrupt }
    }

    /// Session for work beside this one, without progress lines. A signal interrupts both.
    pub fn in_background(&self) -> Self {
        Self { output: Output::new(), progress: Progress::hidden(), interrupt: self.interrupt.clone() }
    }

    /// Session for the removal of what the command created, which a first signal does not stop.
    pub fn for_removal() -> Self {
        let interrupt = CancellationToken::new();
        Self { output: Output::new(), progress: Progress::new(), interrupt }
    }

    /// Fails after a signal, for loops that do not wait.
    ///
    /// # Errors
    /// [`CliError::interrupted`].
    pub fn check(&self) -> Result<(), CliError> {
        if self.interrupt.is_cancelled() { Err(CliError::interrupted()) } else { Ok(()) }
    }

    /// Waits for `work`, and drops it when a signal arrives.
    ///
    /// # Errors
    /// Errors of `work`, or [`CliError::interrupted`].
    pub async fn unless_interrupted<T, E: Into<CliError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, CliError> {
        self.interruptible(work).await?.map_err(Into::into)
    }

    /// Output of `work`, which is dropped when a signal arrives.
    ///
    /// # Errors
    /// [`CliError::interrupted`].
    pub async fn interruptible<T>(&self, work: impl Future<Output = T>) -> Result<T, CliError> {
        tokio::select! {
            output = work => Ok(output),
            () = self.interrupt.cancelled() => Err(CliError::interrupted()),
        }
    }

    /// Result of `work` in a detached thread. After a signal the thread is not joined, because reading a terminal or a
    /// pipe may never end.
    ///
    /// # Errors
    /// The thread cannot be started, or ends without a result (`lost`), or [`CliError::interrupted`].
    pub async fn detached<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        lost: &str,
    ) -> Result<T, CliError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let run = move || {
            // After a signal, the receiver is closed.
            let _ = sender.send(work());
        };
        let started = std::thread::Builder::new().spawn(run);
        started.map_err(|error| CliError::operational(format!("cannot start a thread: {error}")))?;
        self.interruptible(receiver).await?.map_err(|_| CliError::operational(lost))
    }
}
