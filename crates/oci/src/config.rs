//! How a [`crate::Puller`] works.

use std::path::PathBuf;
use std::time::Duration;

use crate::{Limits, Platform};

/// How to pull.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folder with additional CA certificates, one or more per file; read again when it changes.
    pub cas_dir: Option<PathBuf>,
    /// Credentials file, read at each use; absent is fine.
    pub auth_file: Option<PathBuf>,
    /// What of a multi-platform image is taken.
    pub platform: Platform,
    /// How much an image may cost.
    pub limits: Limits,
    /// How failed requests are repeated.
    pub retry: Retry,
    /// Longest silence of a registry within an answer.
    pub read_timeout: Duration,
    /// Longest time to resolve a tag.
    pub resolve_timeout: Duration,
    /// Longest time for a pull, waiting for other pulls included.
    pub pull_timeout: Duration,
    /// Pulls at once.
    pub concurrency: usize,
    /// Pulls at once from one registry.
    pub concurrency_per_registry: usize,
}

impl Config {
    /// Defaults of spec 06 §10.4 with the given limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            cas_dir: None,
            auth_file: None,
            platform: Platform::current(),
            limits,
            retry: Retry::default(),
            read_timeout: Duration::from_secs(30),
            resolve_timeout: Duration::from_secs(60),
            pull_timeout: Duration::from_secs(15 * 60),
            concurrency: 4,
            concurrency_per_registry: 2,
        }
    }
}

/// How failed requests are repeated: those that found no server, 429 and 5xx.
#[derive(Debug, Clone)]
pub struct Retry {
    /// Attempts in all.
    pub attempts: u32,
    /// Wait before the second attempt; each further wait is twice as long. A `Retry-After` header wins.
    pub first_delay: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 5, first_delay: Duration::from_millis(250) }
    }
}
