//! Spans of OpenTelemetry traces (docs/design/operations.md#traces). Without an exporter they are disabled.

use std::fmt::Display;

use tracing::{Instrument, Span};

/// Target of the spans and events that are exported and never logged.
pub const TRACES: &str = "olm_traces";

/// Gives the current exported span the status of this error.
pub fn failed(error: &impl Display) {
    tracing::error!(target: TRACES, %error);
}

/// Runs `work` in `span`, which gets the status of its error.
///
/// # Errors
/// That of `work`.
pub async fn traced<T, E: Display>(span: Span, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    async { work.await.inspect_err(failed) }.instrument(span).await
}
