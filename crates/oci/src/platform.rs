//! Choice of one image of a multi-platform index (docs/design/images.md#resolve-and-pull).

use oci_distribution::manifest::ImageIndexEntry;

/// Operating system and processor, with Go's names as in image indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePlatform {
    /// `linux`
    pub os: String,
    /// `amd64`, `arm64`, …
    pub architecture: String,
    /// Processor variant. Only `arm` and `arm64` have one.
    pub variant: String,
}

impl ImagePlatform {
    /// Platform of this process.
    pub fn current() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "x86" => ("386", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", ""),
            "powerpc64" => ("ppc64", ""),
            "loongarch64" => ("loong64", ""),
            same => (same, ""),
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: variant.to_owned() }
    }

    /// Any platform: the first entry of an index is taken.
    pub fn any() -> Self {
        Self { os: String::new(), architecture: String::new(), variant: String::new() }
    }

    /// Entry to pull: one for exactly this platform, otherwise one for a lesser variant of an ARM processor,
    /// otherwise one without a platform.
    pub fn choose<'a>(&self, entries: &'a [ImageIndexEntry]) -> Option<&'a ImageIndexEntry> {
        entries
            .iter()
            .filter_map(|entry| Some((self.rank(entry)?, entry)))
            .min_by_key(|(rank, _)| *rank)
            .map(|(_, e)| e)
    }

    /// Preference of an entry, lower is better. `None` if it does not run on this platform.
    fn rank(&self, entry: &ImageIndexEntry) -> Option<usize> {
        if *self == Self::any() {
            return Some(0);
        }
        let Some(platform) = &entry.platform else {
            return Some(usize::MAX);
        };
        if platform.os.to_string() != self.os || platform.architecture.to_string() != self.architecture {
            return None;
        }
        let variant = platform.variant.as_deref().unwrap_or_default();
        let accepted: &[&str] = match (self.architecture.as_str(), self.variant.as_str()) {
            ("arm64", "v8") => &["v8", ""],
            ("arm", "v7") => &["v7", "v6", "v5", ""],
            ("arm", "v6") => &["v6", "v5", ""],
            _ => &[&self.variant],
        };
        accepted.iter().position(|known| *known == variant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(platforms: &[&str]) -> Vec<ImageIndexEntry> {
        let entry = |platform: &&str| {
            let parts: Vec<&str> = platform.split('/').collect();
            let platform = match parts.as_slice() {
                [os, architecture] => serde_json::json!({ "os": os, "architecture": architecture }),
                [os, architecture, variant] => {
                    serde_json::json!({ "os": os, "architecture": architecture, "variant": variant })
                }
                _ => serde_json::Value::Null,
            };
            serde_json::from_value(serde_json::json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": parts.join("/"), "size": 1, "platform": platform,
            }))
            .unwrap()
        };
        platforms.iter().map(entry).collect()
    }

    #[test]
    fn platform_choice_prefers_exact_then_lesser_then_unspecified() {
        for (own, entries, expected) in [
            ("amd64/", &["linux/arm64", "linux/amd64"][..], Some("linux/amd64")),
            ("amd64/", &["windows/amd64", "linux/amd64"], Some("linux/amd64")),
            ("amd64/", &["linux/amd64/v3", "linux/amd64"], Some("linux/amd64")),
            ("amd64/", &["linux/s390x", "", "linux/amd64"], Some("linux/amd64")),
            ("amd64/", &["linux/s390x", ""], Some("")),
            ("amd64/", &["linux/arm64", "unknown/unknown"], None),
            ("amd64/", &[], None),
            ("arm64/v8", &["linux/arm64", "linux/arm64/v8"], Some("linux/arm64/v8")),
            ("arm64/v8", &["linux/arm/v7", "linux/arm64"], Some("linux/arm64")),
            ("arm/v7", &["linux/arm/v5", "linux/arm/v6"], Some("linux/arm/v6")),
        ] {
            let (architecture, variant) = own.split_once('/').unwrap();
            let platform = ImagePlatform {
                os: "linux".into(),
                architecture: architecture.into(),
                variant: variant.into(),
            };
            let entries_given = index(entries);
            let chosen = platform.choose(&entries_given).map(|entry| entry.digest.as_str());
            assert_eq!(chosen, expected, "{own} of {entries:?}");
        }
    }
}
