//! How a command fails: the exit code and the words.

use std::fmt;
use std::io;

/// Exit codes other than 0 (docs/design/additions.md#exit-codes-and-output). 6 belongs to a command that does not exist
/// yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// Something did not work: network, disk, access rights, content that cannot be read.
    Operational = 1,
    /// The command line is wrong.
    Usage = 2,
    /// What was checked has errors.
    Findings = 3,
    /// What was asked for does not exist: catalog, package, version, bundle, channel.
    NoCandidate = 4,
    /// Something would change, and the user wants to be told so.
    Changes = 5,
    /// Ended by Ctrl-C or a termination signal.
    Interrupted = 130,
}

/// Why a command ends without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// With a message for people: what is wrong, and what to do.
    Told(Code, String),
    /// The findings have been printed already.
    Findings,
    /// With this exit code; what is wrong with the command line has been printed already.
    Shown(u8),
    /// Standard output cannot be written.
    Output(io::Error),
}

impl Failure {
    /// Something did not work.
    pub(crate) fn operational(message: impl Into<String>) -> Self {
        Self::Told(Code::Operational, message.into())
    }

    /// The command line is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Told(Code::Usage, message.into())
    }

    /// What was asked for does not exist.
    pub(crate) fn no_candidate(message: impl Into<String>) -> Self {
        Self::Told(Code::NoCandidate, message.into())
    }

    /// A signal asked the program to end.
    pub(crate) fn interrupted() -> Self {
        Self::Told(Code::Interrupted, "interrupted".to_owned())
    }

    /// The exit code of the process. A reader that went away, as in `olm … | head`, is no failure.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Told(code, _) => *code as u8,
            Self::Findings => Code::Findings as u8,
            Self::Shown(code) => *code,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Output(_) => Code::Operational as u8,
        }
    }

    /// What to print, if anything is left to say.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Self::Told(_, message) => Some(message.clone()),
            Self::Findings | Self::Shown(_) => None,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
            Self::Output(error) => Some(format!("cannot write to standard output: {error}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message().unwrap_or_default())
    }
}

impl From<olm_fbc::LoadError> for Failure {
    fn from(error: olm_fbc::LoadError) -> Self {
        Self::operational(error.to_string())
    }
}

impl From<olm_oci::PullError> for Failure {
    fn from(error: olm_oci::PullError) -> Self {
        Self::operational(error.unmarked())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let gone = Failure::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!((gone.exit_code(), gone.message()), (0, None));
        let full = Failure::Output(io::ErrorKind::StorageFull.into());
        assert_eq!(full.exit_code(), 1);
        assert_eq!(full.message().as_deref(), Some("cannot write to standard output: no storage space"));
    }
}
