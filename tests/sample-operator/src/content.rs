//! The sample operator as OLM content: registry+v1 bundles from the templates in `bundle/`, and catalogs of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// API group of the greetings that [`Sample::serving`] answers.
pub const GROUP: &str = "sample.olm.example";
/// Path of the CSV in a bundle.
pub const CSV: &str = "manifests/operator.clusterserviceversion.yaml";

/// Path in the bundle, and template of a file.
type Template = (&'static str, &'static str);

const ANNOTATIONS: Template =
    ("metadata/annotations.yaml", include_str!("../bundle/metadata/annotations.yaml"));
const CRD: Template =
    ("manifests/greetings.crd.yaml", include_str!("../bundle/manifests/greetings.crd.yaml"));
const PLAIN: [Template; 4] = [
    ANNOTATIONS,
    (CSV, include_str!("../bundle/manifests/operator.clusterserviceversion.yaml")),
    CRD,
    ("manifests/settings.configmap.yaml", include_str!("../bundle/manifests/settings.configmap.yaml")),
];
const WEBHOOKS: [Template; 3] = [
    ANNOTATIONS,
    (CSV, include_str!("../bundle/webhooks/operator.clusterserviceversion.yaml")),
    (CRD.0, include_str!("../bundle/webhooks/greetings.crd.yaml")),
];
const AGGREGATED: [Template; 2] =
    [ANNOTATIONS, (CSV, include_str!("../bundle/aggregated/operator.clusterserviceversion.yaml"))];
const SCOPED: [Template; 5] = [
    ANNOTATIONS,
    (CSV, include_str!("../bundle/scoped/operator.clusterserviceversion.yaml")),
    CRD,
    ("manifests/scripts.configmap.yaml", include_str!("../bundle/scoped/scripts.configmap.yaml")),
    ("manifests/operator.networkpolicy.yaml", include_str!("../bundle/scoped/operator.networkpolicy.yaml")),
];

/// Function of a package's operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Serving,
    Idle,
    Webhooks,
    Aggregated,
    Scoped,
}

/// Package of the sample operator.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Package name.
    pub package: String,
    /// API group of its CRD. All packages except for [`Sample::serving`] have their own.
    pub group: String,
    /// Image of the operator.
    pub image: String,
    work: Work,
}

impl Sample {
    /// Package that answers greetings of [`GROUP`] in all namespaces.
    #[must_use]
    pub fn serving(package: &str, image: &str) -> Self {
        Self { group: GROUP.to_owned(), ..Self::of(package, image, Work::Serving) }
    }

    /// Package whose operator runs and does nothing.
    #[must_use]
    pub fn idle(package: &str, image: &str) -> Self {
        Self::of(package, image, Work::Idle)
    }

    /// Package with two versions of its API and all three types of webhooks, for all namespaces only.
    #[must_use]
    pub fn webhooks(package: &str, image: &str) -> Self {
        Self::of(package, image, Work::Webhooks)
    }

    /// Package with an aggregated API, for all namespaces only.
    #[must_use]
    pub fn aggregated(package: &str, image: &str) -> Self {
        Self::of(package, image, Work::Aggregated)
    }

    /// Package with every install mode that answers greetings in the watched namespaces. It also has a NetworkPolicy,
    /// a ConfigMap with text that resembles a template, and a script that must be executable.
    #[must_use]
    pub fn scoped(package: &str, image: &str) -> Self {
        Self::of(package, image, Work::Scoped)
    }

    fn of(package: &str, image: &str, work: Work) -> Self {
        let group = format!("{package}.{GROUP}");
        Self { package: package.to_owned(), group, image: image.to_owned(), work }
    }

    /// Name of this version's bundle.
    #[must_use]
    pub fn bundle_name(&self, version: &str) -> String {
        format!("{}.v{version}", self.package)
    }

    /// Files of this version's bundle, by path.
    #[must_use]
    pub fn bundle(&self, version: &str) -> BTreeMap<String, Vec<u8>> {
        let templates: &[Template] = match self.work {
            Work::Serving | Work::Idle => &PLAIN,
            Work::Webhooks => &WEBHOOKS,
            Work::Aggregated => &AGGREGATED,
            Work::Scoped => &SCOPED,
        };
        let mode = if self.work == Work::Serving { "serve" } else { "idle" };
        let values = [
            ("${PACKAGE}", self.package.as_str()),
            ("${GROUP}", &self.group),
            ("${IMAGE}", &self.image),
            ("${VERSION}", version),
            ("${MODE}", mode),
        ];
        let fill =
            |text: &str| values.iter().fold(text.to_owned(), |text, (key, value)| text.replace(key, value));
        templates.iter().map(|(path, text)| ((*path).to_owned(), fill(text).into_bytes())).collect()
    }

    /// Catalog of the package, one JSON object per line. `bundles` are pairs of version and bundle image. Each
    /// channel is a name with its entries in the format of `olm.channel`.
    #[must_use]
    pub fn catalog(&self, channels: &[(&str, Vec<Value>)], bundles: &[(&str, String)]) -> String {
        let package = &self.package;
        let default = channels.first().map_or("", |(name, _)| *name);
        let mut metas = vec![json!({"schema": "olm.package", "name": package, "defaultChannel": default})];
        for (name, entries) in channels {
            metas
                .push(json!({"schema": "olm.channel", "package": package, "name": name, "entries": entries}));
        }
        for (version, image) in bundles {
            let property =
                json!({"type": "olm.package", "value": {"packageName": package, "version": version}});
            metas.push(json!({"schema": "olm.bundle", "package": package, "name": self.bundle_name(version),
                "image": image, "properties": [property]}));
        }
        metas.iter().map(|meta| format!("{meta}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundle_contains_no_template_variables() {
        let image = "r.example/sample:1";
        for (sample, count, argument) in [
            (Sample::serving("garden", image), PLAIN.len(), "[\"serve\"]"),
            (Sample::idle("garden", image), PLAIN.len(), "[\"idle\"]"),
            (Sample::webhooks("garden", image), WEBHOOKS.len(), "[webhooks]"),
            (Sample::aggregated("garden", image), AGGREGATED.len(), "[aggregated]"),
            (Sample::scoped("garden", image), SCOPED.len(), "[serve]"),
        ] {
            let files = sample.bundle("1.2.3");
            assert_eq!(files.len(), count);
            for (path, bytes) in &files {
                let text = String::from_utf8(bytes.clone()).unwrap();
                assert!(!text.contains("${"), "{path}: {text}");
            }
            let csv = String::from_utf8(files[CSV].clone()).unwrap();
            assert!(csv.contains("name: garden.v1.2.3\n") && csv.contains(&format!("args: {argument}")));
        }
    }

    #[test]
    fn catalog_has_one_object_per_line() {
        let sample = Sample::serving("greeter", "r.example/sample:1");
        let entries = vec![json!({"name": "greeter.v1.0.0"})];
        let text = sample.catalog(&[("stable", entries)], &[("1.0.0", "r.example/b@sha256:0".into())]);
        let schemas: Vec<Value> =
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["schema"].clone()).collect();
        assert_eq!(schemas, ["olm.package", "olm.channel", "olm.bundle"]);
    }
}
