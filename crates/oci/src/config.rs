//! Configuration of a [`crate::Puller`].

use std::path::PathBuf;
use std::time::Duration;

use crate::policy::PolicySource;
use crate::{CredentialSource, DeniedNetworks, ImageLimits, ImagePlatform, Proxies, RegistryPaths, Retry};

/// Configuration of a [`crate::Puller`].
#[derive(Debug, Clone)]
pub struct Config {
    /// Folder with additional CA certificates, one or more per file, and client certificates (`NAME.cert`,
    /// `NAME.key`). Reread when it changes. Without it the folders of single registries are used.
    pub cas_dir: Option<PathBuf>,
    /// Source of registry logins.
    pub credentials: CredentialSource,
    /// Paths of the configuration of mirrors, blocked registries, certificates and credentials on this machine.
    pub paths: RegistryPaths,
    /// HTTP proxies.
    pub proxies: Proxies,
    /// Networks in which no registry may be.
    pub denied: DeniedNetworks,
    /// Signature policy.
    pub policy: PolicySource,
    /// Platform to choose from a multi-platform image.
    pub platform: ImagePlatform,
    /// Size limits of an image.
    pub limits: ImageLimits,
    /// Retries of failed requests.
    pub retry: Retry,
    /// Longest pause of a registry within a response.
    pub read_timeout: Duration,
    /// Longest time to resolve a tag.
    pub resolve_timeout: Duration,
    /// Longest time for a pull, including the wait for other pulls.
    pub pull_timeout: Duration,
    /// Concurrent pulls.
    pub concurrency: usize,
    /// Concurrent pulls from one registry.
    pub concurrency_per_registry: usize,
}

impl Config {
    /// Defaults of docs/design/operations.md#image-limits with the given limits. Paths, proxies and policy come
    /// from the environment.
    pub fn new(limits: ImageLimits) -> Self {
        Self {
            cas_dir: None,
            credentials: CredentialSource::AuthFiles,
            paths: RegistryPaths::from_env(),
            proxies: Proxies::from_env(),
            denied: DeniedNetworks::default(),
            policy: PolicySource::from_env(false),
            platform: ImagePlatform::current(),
            limits,
            retry: Retry::default(),
            read_timeout: Duration::from_secs(30),
            resolve_timeout: Duration::from_secs(60),
            pull_timeout: Duration::from_secs(15 * 60),
            concurrency: 4,
            concurrency_per_registry: 2,
        }
    }

    /// Applies the values of the server flags `--image-limits` and `--registry-deny-cidrs`.
    ///
    /// # Errors
    /// The invalid flag, in the format of Go's flag library.
    pub fn apply_flags(&mut self, image_limits: &str, registry_deny_cidrs: &str) -> Result<(), String> {
        let invalid = |flag: &str, value: &str, why: String| {
            format!("invalid argument {value:?} for {flag:?} flag: {why}")
        };
        let limits = self.override_limits(image_limits);
        limits.map_err(|why| invalid("--image-limits", image_limits, why))?;
        let denied = registry_deny_cidrs.parse();
        self.denied = denied.map_err(|why| invalid("--registry-deny-cidrs", registry_deny_cidrs, why))?;
        Ok(())
    }

    /// Applies the value of `--image-limits` (docs/design/operations.md#image-limits): pairs `key=value` separated
    /// by commas. The last pair of a key wins. Sizes and counts are whole numbers from 1, optionally with the
    /// suffix `Ki`, `Mi` or `Gi`. `pull-timeout` is a number with the suffix `s`, `m` or `h`.
    ///
    /// # Errors
    /// The first invalid pair, with the allowed values.
    fn override_limits(&mut self, text: &str) -> Result<(), String> {
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("missing value for {pair}"))?;
            self.override_limit(key.trim(), value.trim())?;
        }
        Ok(())
    }

    fn override_limit(&mut self, key: &str, value: &str) -> Result<(), String> {
        if key == "pull-timeout" {
            let seconds = [("s", 1), ("m", 60), ("h", 3600)];
            let timeout = scaled(value, &seconds);
            let timeout = timeout.ok_or_else(|| {
                format!("invalid value of {key}={value}: want a number from 1, followed by s, m or h")
            })?;
            // Capped: an `Instant` in the far future overflows.
            self.pull_timeout = Duration::from_secs(timeout.min(u64::from(u32::MAX)));
            return Ok(());
        }
        let limits = self.limits.by_key();
        let known = limits.each_ref().map(|(known, _)| *known).join(", ");
        let (_, limit) = limits
            .into_iter()
            .find(|(known, _)| *known == key)
            .ok_or_else(|| format!("unknown limit {key}: want one of {known}, pull-timeout"))?;
        let factors = [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("", 1)];
        *limit = scaled(value, &factors).ok_or_else(|| {
            format!("invalid value of {key}={value}: want a whole number from 1, optionally followed by Ki, Mi or Gi")
        })?;
        Ok(())
    }
}

/// Parses a number from 1 with one of the unit suffixes.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (digits, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    number.checked_mul(*factor).filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // docs/design/operations.md#start-up-errors
    #[test]
    fn invalid_flag_values_are_reported_like_go() {
        let mut config = Config::new(ImageLimits::CATALOG);
        config.apply_flags("files=3", "10.0.0.0/8").unwrap();
        assert_eq!((config.limits.files, config.denied.is_empty()), (3, false));
        for (limits, denied, expect) in [
            ("files", "", "invalid argument \"files\" for \"--image-limits\" flag: missing value for files"),
            ("", "x", "invalid argument \"x\" for \"--registry-deny-cidrs\" flag: invalid CIDR address: x"),
        ] {
            assert_eq!(config.apply_flags(limits, denied).unwrap_err(), expect);
        }
    }

    // docs/design/operations.md#image-limits
    #[test]
    fn image_limits_flag_overrides_single_limits() {
        let over = |text: &str| {
            let mut config = Config::new(ImageLimits::CATALOG);
            config.override_limits(text).map(|()| config)
        };
        let config = over("layers=3, blob-bytes=2Mi,files=5,files=6,pull-timeout=2m,").unwrap();
        let expect = ImageLimits { layers: 3, blob_bytes: 2 << 20, files: 6, ..ImageLimits::CATALOG };
        assert_eq!((config.limits, config.pull_timeout), (expect, Duration::from_secs(120)));
        assert_eq!(over("").unwrap().limits, ImageLimits::CATALOG);
        let endless = over("pull-timeout=18446744073709551615s").unwrap().pull_timeout;
        assert!(std::time::Instant::now().checked_add(endless).is_some());
        for (key, _) in ImageLimits::CATALOG.clone().by_key() {
            assert!(
                over(&format!("{key}=1Gi")).is_ok_and(|config| config.limits != ImageLimits::CATALOG),
                "{key}"
            );
        }
        for (text, expect) in [
            ("files", "missing value for files"),
            (
                "files=0",
                "invalid value of files=0: want a whole number from 1, optionally followed by Ki, Mi or Gi",
            ),
            (
                "files=-1",
                "invalid value of files=-1: want a whole number from 1, optionally followed by Ki, Mi or Gi",
            ),
            (
                "files=99999999999999Gi",
                "invalid value of files=99999999999999Gi: want a whole number from 1, optionally followed by Ki, Mi or \
                 Gi",
            ),
            (
                "pull-timeout=5",
                "invalid value of pull-timeout=5: want a number from 1, followed by s, m or h",
            ),
            (
                "size=1",
                "unknown limit size: want one of layers, blob-bytes, unpacked-bytes, kept-bytes, files, file-bytes, path-depth, path-bytes, tree-path-bytes, zstd-window, ratio, pull-timeout",
            ),
        ] {
            assert_eq!(over(text).err().as_deref(), Some(expect), "{text}");
        }
    }
}
