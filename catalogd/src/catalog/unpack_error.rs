//! Errors of unpacking and verifying content.

use olm_api::conditions::messages::{CATALOG_CONTENT, CATALOG_IMAGE};
use olm_oci::PullError;

use crate::content::ContentWriteError;

/// An earlier failure that every attempt with the same image repeats.
#[derive(Clone, Debug)]
pub(super) struct ContentError {
    pub(super) message: String,
    pub(super) terminal: bool,
}

/// Error of unpacking or verifying content.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnpackError {
    #[error("{}: {}", CATALOG_IMAGE, .0)]
    Pull(#[from] PullError),
    #[error("{}: {}", CATALOG_CONTENT, .0)]
    Store(#[from] ContentWriteError),
    /// The same image failed before and is not pulled again.
    #[error("{}", .0.message)]
    KnownFailure(ContentError),
    #[error("{}: {}", CATALOG_CONTENT, .0)]
    Disk(#[from] std::io::Error),
    /// An earlier process ended while it unpacked the image.
    #[error(
        "{}: catalogd ended while it unpacked image {}: it is unpacked again after all other catalogs",
        CATALOG_IMAGE,
        .0
    )]
    Suspect(String),
    /// The catalog changed meanwhile, or the process stops.
    #[error("the image is no longer requested")]
    Superseded,
}

impl UnpackError {
    pub(super) fn is_terminal(&self) -> bool {
        match self {
            Self::Pull(error) => error.is_terminal(),
            Self::KnownFailure(failure) => failure.terminal,
            Self::Store(_) | Self::Disk(_) | Self::Suspect(_) | Self::Superseded => false,
        }
    }

    /// `true` if the signature policy definitely rejects the image.
    pub(super) fn is_rejected(&self) -> bool {
        matches!(self, Self::Pull(error) if error.is_rejected())
    }

    /// Reason why the signature policy did not accept the image, if that is the error.
    pub(super) fn unverified(&self) -> Option<&PullError> {
        match self {
            Self::Pull(error) if error.is_unverified() => Some(error),
            _ => None,
        }
    }

    /// `true` if every attempt with the same image fails in the same way.
    pub(super) fn is_of_the_content(&self) -> bool {
        match self {
            Self::Pull(error) => error.is_of_the_content(),
            Self::Store(error) => error.is_of_the_content(),
            Self::KnownFailure(_) | Self::Disk(_) | Self::Suspect(_) | Self::Superseded => false,
        }
    }
}
