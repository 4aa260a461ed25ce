//! Command failures: exit code and message.

use std::fmt;
use std::io;

/// Exit codes other than 0 (docs/design/cli.md#exit-codes-and-output).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Operation failed: network, disk, access rights, unreadable content.
    Operational = 1,
    /// Invalid command line.
    Usage = 2,
    /// The checked object has errors.
    Findings = 3,
    /// The requested object does not exist: catalog, package, version, bundle, channel.
    NoCandidate = 4,
    /// Something would change, and `--exit-code` was given.
    Changes = 5,
    /// The plan requires an approval.
    ApprovalRequired = 6,
    /// Ended by Ctrl-C or a termination signal.
    Interrupted = 130,
}

/// Reason for which a command ends without success.
#[derive(Debug)]
pub enum CliError {
    /// Exit code and message: what failed, and the next step.
    Message(Code, String),
    /// Findings that are already printed.
    Findings,
    /// Exit code of a command line error that is already printed.
    ExitCode(u8),
    /// Standard output cannot be written.
    Output(io::Error),
}

impl CliError {
    /// Failed operation, with exit code 1.
    pub fn operational(message: impl ToString) -> Self {
        Self::Message(Code::Operational, message.to_string())
    }

    /// Failed operation at a place, such as a file or a field.
    pub fn at(place: impl fmt::Display, problem: impl fmt::Display) -> Self {
        Self::operational(format!("{place}: {problem}"))
    }

    /// Wrong command line, with exit code 2.
    pub fn usage(message: impl ToString) -> Self {
        Self::Message(Code::Usage, message.to_string())
    }

    /// Errors of the checked object, or refusal of the cluster, with exit code 3.
    pub fn findings(message: impl ToString) -> Self {
        Self::Message(Code::Findings, message.to_string())
    }

    /// Missing object, with exit code 4.
    pub fn no_candidate(message: impl ToString) -> Self {
        Self::Message(Code::NoCandidate, message.to_string())
    }

    /// Interruption by a signal.
    pub(crate) fn interrupted() -> Self {
        Self::Message(Code::Interrupted, "interrupted".to_owned())
    }

    /// Exit code of the process. A closed pipe, as in `olm … | head`, is not a failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Message(code, _) => *code as u8,
            Self::Findings => Code::Findings as u8,
            Self::ExitCode(code) => *code,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Output(_) => Code::Operational as u8,
        }
    }

    /// Message to print, if it is not printed yet.
    pub fn message(&self) -> Option<String> {
        match self {
            Self::Message(_, message) => Some(message.clone()),
            Self::Findings | Self::ExitCode(_) => None,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
            Self::Output(error) => Some(format!("cannot write to standard output: {error}")),
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message().unwrap_or_default())
    }
}

// The message has that of the cause, which is therefore no source.
impl std::error::Error for CliError {}

macro_rules! operational_errors {
    ($($error:ty),*) => {$(
        impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                Self::operational(error.to_string())
            }
        }
    )*};
}

operational_errors!(olm_bundle::BundleLoadError, olm_fbc::LoadError, olm_pack::PackError, serde_json::Error);

impl From<olm_oci::PullError> for CliError {
    fn from(error: olm_oci::PullError) -> Self {
        Self::operational(error.unmarked())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_pipe_is_no_failure() {
        let gone = CliError::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!((gone.exit_code(), gone.message()), (0, None));
        let full = CliError::Output(io::ErrorKind::StorageFull.into());
        assert_eq!(full.exit_code(), 1);
        assert_eq!(full.message().as_deref(), Some("cannot write to standard output: no storage space"));
    }
}
