//! The sample operator as OLM content: registry+v1 bundles from the templates in `bundle/`, and catalogs of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// API group that the operator serves.
pub const GROUP: &str = "sample.olm.example";

const TEMPLATES: [(&str, &str); 4] = [
    ("metadata/annotations.yaml", include_str!("../bundle/metadata/annotations.yaml")),
    (
        "manifests/operator.clusterserviceversion.yaml",
        include_str!("../bundle/manifests/operator.clusterserviceversion.yaml"),
    ),
    ("manifests/greetings.crd.yaml", include_str!("../bundle/manifests/greetings.crd.yaml")),
    ("manifests/settings.configmap.yaml", include_str!("../bundle/manifests/settings.configmap.yaml")),
];

/// A package of the sample operator.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Package name.
    pub package: String,
    /// API group of its CRD. Only [`GROUP`] is served; any other makes the package independent of all others.
    pub group: String,
    /// Image of the operator.
    pub image: String,
}

impl Sample {
    /// The package that really answers greetings.
    #[must_use]
    pub fn serving(package: &str, image: &str) -> Self {
        Self { package: package.to_owned(), group: GROUP.to_owned(), image: image.to_owned() }
    }

    /// A package with a CRD of its own, whose operator runs and does nothing.
    #[must_use]
    pub fn idle(package: &str, image: &str) -> Self {
        Self { package: package.to_owned(), group: format!("{package}.{GROUP}"), image: image.to_owned() }
    }

    /// Name of the bundle of this version.
    #[must_use]
    pub fn bundle_name(&self, version: &str) -> String {
        format!("{}.v{version}", self.package)
    }

    /// Files of the bundle of this version, by path.
    #[must_use]
    pub fn bundle(&self, version: &str) -> BTreeMap<String, Vec<u8>> {
        let mode = if self.group == GROUP { "serve" } else { "idle" };
        let values = [
            ("${PACKAGE}", self.package.as_str()),
            ("${GROUP}", &self.group),
            ("${IMAGE}", &self.image),
            ("${VERSION}", version),
            ("${MODE}", mode),
        ];
        let fill =
            |text: &str| values.iter().fold(text.to_owned(), |text, (key, value)| text.replace(key, value));
        TEMPLATES.iter().map(|(path, text)| ((*path).to_owned(), fill(text).into_bytes())).collect()
    }

    /// The package in catalog form, one JSON object a line: `bundles` are (version, image of the bundle), and each
    /// channel is a name with its entries as `olm.channel` takes them.
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
    fn nothing_of_the_template_is_left() {
        let sample = Sample::idle("garden", "r.example/sample:1");
        let files = sample.bundle("1.2.3");
        assert_eq!(files.len(), TEMPLATES.len());
        for (path, bytes) in &files {
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert!(!text.contains("${"), "{path}: {text}");
        }
        let csv = String::from_utf8(files["manifests/operator.clusterserviceversion.yaml"].clone()).unwrap();
        assert!(csv.contains("name: garden.v1.2.3\n") && csv.contains("args: [\"idle\"]"));
        assert!(!csv.contains("args: [\"serve\"]"));
    }

    #[test]
    fn a_catalog_line_a_meta() {
        let sample = Sample::serving("greeter", "r.example/sample:1");
        let entries = vec![json!({"name": "greeter.v1.0.0"})];
        let text = sample.catalog(&[("stable", entries)], &[("1.0.0", "r.example/b@sha256:0".into())]);
        let schemas: Vec<Value> =
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["schema"].clone()).collect();
        assert_eq!(schemas, ["olm.package", "olm.channel", "olm.bundle"]);
    }
}
