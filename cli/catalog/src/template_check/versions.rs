//! Value of `--kube`: Kubernetes versions and ranges of minor releases. Pure.

use std::str::FromStr;

use olm_oci::KubernetesVersion;

/// Largest number of versions.
const MAX: usize = 100;

/// List of Kubernetes versions, in the order as given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KubernetesVersions(pub(crate) Vec<KubernetesVersion>);

impl KubernetesVersions {
    /// The version of a cluster, and its next minor release.
    pub(crate) fn upgrade_of(version: KubernetesVersion) -> Self {
        let minor = version.minor.saturating_add(1);
        Self(vec![version, KubernetesVersion { minor, patch: None, ..version }])
    }
}

impl FromStr for KubernetesVersions {
    type Err = String;

    /// Parses versions and ranges, separated by commas: `1.31..1.36`, `1.31,1.33`, `1.31.4`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut versions = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let parse =
                |text: &str| text.parse::<KubernetesVersion>().map_err(|error| format!("{text:?}: {error}"));
            let (first, last) = (parse(first)?, parse(last)?);
            let is_range = part.contains("..");
            if is_range && (first.patch.or(last.patch).is_some() || first.major != last.major || last < first)
            {
                return Err(format!(
                    "{part:?}: a range is from a minor release to a later one of the same major version, such as 1.31..1.36"
                ));
            }
            let minors = first.minor..=last.minor;
            versions.extend(minors.take(MAX + 1).map(|minor| KubernetesVersion { minor, ..first }));
            if versions.len() > MAX {
                return Err(format!("more than {MAX} versions"));
            }
        }
        Ok(Self(versions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_ranges_parse() {
        let range =
            "a range is from a minor release to a later one of the same major version, such as 1.31..1.36";
        let no_version = "expected <major>.<minor> or <major>.<minor>.<patch>, such as 1.31";
        let rows = [
            ("1.31..1.33", Ok("1.31 1.32 1.33".to_owned())),
            ("1.31,1.33.2", Ok("1.31 1.33.2".to_owned())),
            ("v1.31..v1.31", Ok("1.31".to_owned())),
            ("1.33..1.31", Err(format!("\"1.33..1.31\": {range}"))),
            ("1.31..2.1", Err(format!("\"1.31..2.1\": {range}"))),
            ("1.31.1..1.32", Err(format!("\"1.31.1..1.32\": {range}"))),
            ("1.31..", Err(format!("\"\": {no_version}"))),
            ("1", Err(format!("\"1\": {no_version}"))),
            ("1.0..1.18446744073709551615", Err("more than 100 versions".to_owned())),
        ];
        for (text, expected) in rows {
            let parsed = text.parse().map(|versions: KubernetesVersions| {
                versions.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            });
            assert_eq!(parsed, expected, "{text}");
        }
        let of = |text: &str| KubernetesVersions::upgrade_of(text.parse().unwrap());
        assert_eq!(of("1.36.3"), "1.36.3,1.37".parse().unwrap());
    }
}
