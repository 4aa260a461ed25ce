//! What every command works with: output, progress, and the wish of the user to stop.

use tokio_util::sync::CancellationToken;

use crate::failure::{Code, Failure};
use crate::output::Output;
use crate::progress::Progress;

/// One run of the program.
pub(crate) struct Session {
    /// Standard output.
    pub(crate) output: Output,
    /// Progress and warnings.
    pub(crate) progress: Progress,
    interrupt: CancellationToken,
}

impl Session {
    /// A session of this process. From now on a signal no longer ends the process by itself: commands notice it at the next
    /// step, so that nothing temporary stays behind.
    pub(crate) fn start() -> Self {
        let interrupt = CancellationToken::new();
        let token = interrupt.clone();
        tokio::spawn(async move {
            if signalled().await.is_ok() {
                token.cancel();
                // Who asks twice does not want to wait.
                if signalled().await.is_ok() {
                    std::process::exit(Code::Interrupted as i32);
                }
            }
        });
        Self { output: Output::new(), progress: Progress::new(), interrupt }
    }

    /// Fails once a signal has come; for loops of work that does not wait.
    ///
    /// # Errors
    /// [`Failure::interrupted`].
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.interrupt.is_cancelled() { Err(Failure::interrupted()) } else { Ok(()) }
    }

    /// Waits for `work`, or drops it when a signal comes.
    ///
    /// # Errors
    /// Those of `work`, or [`Failure::interrupted`].
    pub(crate) async fn unless_interrupted<T, E: Into<Failure>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            result = work => result.map_err(Into::into),
            () = self.interrupt.cancelled() => Err(Failure::interrupted()),
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
