//! Catalogs for measurements: generated ones that resemble the large public ones, and real ones.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use anyhow::Result;
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use serde_json::{Serializer, Value, json};

/// Files of a catalog: content by path.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Size of a generated catalog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) packages: usize,
    pub(crate) bundles: usize,
}

/// Size of the largest public catalog.
pub(crate) const LARGE: Shape = Shape { packages: 333, bundles: 7018 };
/// Second catalog of the case `update`.
pub(crate) const OTHER: Shape = Shape { packages: 20, bundles: 200 };
/// Catalogs of the case `many`.
pub(crate) const SMALL: Shape = Shape { packages: 5, bundles: 100 };

/// Requested package: 1.5 MB.
pub(crate) const PACKAGE: &str = "argocd-operator";
const PACKAGE_BUNDLES: usize = 80;
/// Requested bundle of that package: 82 kB.
pub(crate) const BUNDLE: &str = "argocd-operator.v0.40.0";
const BUNDLE_SIZE: usize = 82_000;
/// Sizes of the other bundles in bytes, as one JSON line.
const BUNDLE_SIZES: std::ops::Range<u64> = 15_000..20_200;

static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    "access alert backup balance bind bucket cache capacity certificate channel claim class cluster compute \
     config connect controller credential database deploy device driver endpoint engine event export failover \
     gateway grant health image import index ingress instance issuer label lease limit listener log metric mirror \
     monitor namespace network node operator pipeline policy pool probe provider proxy queue quota recover region \
     replica restore route schedule secret storage"
        .split(' ')
        .collect()
});

/// Pseudorandom numbers, reproducible by seed (splitmix64).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn word(&mut self) -> &'static str {
        WORDS[(self.next() % WORDS.len() as u64) as usize]
    }

    pub(crate) fn text(&mut self, words: usize) -> String {
        (0..words).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn digest(&mut self) -> String {
        format!("sha256:{}", (0..4).map(|_| format!("{:016x}", self.next())).collect::<String>())
    }
}

/// Generates a catalog of `shape`: one folder and file per package, JSON as `opm render` writes it.
pub(crate) fn generate(shape: Shape, seed: u64) -> Result<Files> {
    let mut numbers = Numbers::new(seed);
    let mut files = Files::new();
    let mut left = shape.bundles - PACKAGE_BUNDLES;
    for number in 0..shape.packages {
        let (name, bundles) = match shape.packages - 1 - number {
            0 => (PACKAGE.to_owned(), PACKAGE_BUNDLES),
            others => {
                // The numbers of bundles vary from 1 to twice the average.
                let average = (left / others) as u64;
                let bundles = if others == 1 { left } else { (1 + numbers.below(2 * average - 1)) as usize };
                left -= bundles;
                (format!("{}-{}-{number:03}", numbers.word(), numbers.word()), bundles)
            }
        };
        files.extend([package_file(&name, bundles, &mut numbers)?]);
    }
    Ok(files)
}

/// Generates a catalog with one package of `bundles` bundles.
pub(crate) fn package_files(name: &str, bundles: usize, seed: u64) -> Result<Files> {
    Ok(Files::from([package_file(name, bundles, &mut Numbers::new(seed))?]))
}

/// Path and content of the file of a package.
fn package_file(name: &str, bundles: usize, numbers: &mut Numbers) -> Result<(String, Vec<u8>)> {
    let mut file = Vec::new();
    for document in package(name, bundles, numbers)? {
        let mut serializer = Serializer::with_formatter(&mut file, PrettyFormatter::with_indent(b"    "));
        document.serialize(&mut serializer)?;
        file.push(b'\n');
    }
    Ok((format!("{name}/catalog.json"), file))
}

fn package(name: &str, bundles: usize, numbers: &mut Numbers) -> Result<Vec<Value>> {
    let bundle_name = |minor: usize| format!("{name}.v0.{minor}.0");
    let entry = |minor: usize| match minor {
        0 => json!({"name": bundle_name(0)}),
        minor => json!({"name": bundle_name(minor), "replaces": bundle_name(minor - 1)}),
    };
    let entries: Vec<Value> = (0..bundles).map(entry).collect();
    let mut documents = vec![
        json!({"schema": "olm.package", "name": name, "defaultChannel": "stable", "description": numbers.text(4)}),
        json!({"schema": "olm.channel", "package": name, "name": "stable", "entries": entries}),
    ];
    for minor in 0..bundles {
        let bundle_name = bundle_name(minor);
        let size = if bundle_name == BUNDLE {
            BUNDLE_SIZE
        } else {
            (BUNDLE_SIZES.start + numbers.below(BUNDLE_SIZES.end - BUNDLE_SIZES.start)) as usize
        };
        documents.push(bundle(name, &bundle_name, minor, size, numbers)?);
    }
    Ok(documents)
}

/// Generates a bundle of about `size` bytes as one line.
fn bundle(package: &str, name: &str, minor: usize, size: usize, numbers: &mut Numbers) -> Result<Value> {
    let version = format!("0.{minor}.0");
    let kinds: Vec<String> =
        (0..4).map(|number| format!("{}{number}", capitalised(numbers.word()))).collect();
    let image =
        |numbers: &mut Numbers| format!("registry.example/{package}/{}@{}", numbers.word(), numbers.digest());
    let mut properties: Vec<Value> = kinds
        .iter()
        .map(|kind| json!({"type": "olm.gvk", "value": {"group": format!("{package}.example"), "kind": kind, "version": "v1"}}))
        .collect();
    properties.push(json!({"type": "olm.package", "value": {"packageName": package, "version": version}}));
    let related: Vec<Value> =
        (0..8).map(|_| json!({"name": numbers.word(), "image": image(numbers)})).collect();
    let description = numbers.text(size / 13);
    let mut written = serde_json::to_string(&(&properties, &related))?.len() + description.len() + 1600;
    let mut owned = Vec::new();
    for kind in &kinds {
        let mut descriptors = Vec::new();
        while written < size * (owned.len() + 1) / kinds.len() {
            let descriptor = json!({
                "path": format!("{}.{}", numbers.word(), numbers.word()),
                "displayName": numbers.text(2),
                "description": numbers.text(12),
                "x-descriptors": ["urn:alm:descriptor:text"],
            });
            written += descriptor.to_string().len() + 1;
            descriptors.push(descriptor);
        }
        owned.push(json!({"kind": kind, "name": format!("{}.{package}.example", kind.to_lowercase()), "version": "v1",
            "displayName": kind, "specDescriptors": descriptors}));
    }
    let install_modes: Vec<Value> = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
        .map(|mode| json!({"type": mode, "supported": mode == "AllNamespaces"}))
        .to_vec();
    properties.push(json!({"type": "olm.csv.metadata", "value": {
        "annotations": {"capabilities": "Deep Insights", "categories": numbers.word(), "containerImage": image(numbers),
            "createdAt": "2024-01-01T00:00:00Z", "repository": format!("https://git.example/{package}")},
        "apiServiceDefinitions": {},
        "crdDescriptions": {"owned": owned},
        "description": description,
        "displayName": capitalised(package),
        "installModes": install_modes,
        "keywords": [numbers.word(), numbers.word()],
        "maintainers": [{"name": package, "email": format!("team@{package}.example")}],
        "maturity": "alpha",
        "provider": {"name": capitalised(numbers.word())},
    }}));
    Ok(json!({"schema": "olm.bundle", "name": name, "package": package, "image": image(numbers),
        "properties": properties, "relatedImages": related}))
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_catalog_has_its_shape_and_depends_only_on_the_seed() {
        let files = generate(OTHER, 7).unwrap();
        assert_eq!(files, generate(OTHER, 7).unwrap());
        assert_ne!(files, generate(OTHER, 8).unwrap());
        assert_eq!(files.len(), OTHER.packages);
        let mut bundles = BTreeMap::new();
        let mut stored = 0;
        for file in files.values() {
            for document in serde_json::Deserializer::from_slice(file).into_iter::<Value>() {
                let document = document.unwrap();
                let size = document.to_string().len();
                stored += size;
                if document["schema"] == "olm.bundle" {
                    bundles.insert(document["name"].as_str().unwrap().to_owned(), size);
                }
            }
        }
        assert_eq!(bundles.len(), OTHER.bundles);
        // 193 MB of JSON on disk are 124 MB in the store.
        let on_disk: usize = files.values().map(Vec::len).sum();
        let ratio = on_disk as f64 / stored as f64;
        assert!((1.5..1.62).contains(&ratio), "{ratio}");
        let special = bundles.remove(BUNDLE).unwrap();
        assert!(special.abs_diff(BUNDLE_SIZE) < 2_000, "{special}");
        let average = bundles.values().sum::<usize>() / bundles.len();
        assert!(average.abs_diff(17_600) < 800, "{average}");
        for (name, size) in bundles {
            assert!((14_000..22_000).contains(&size), "{name}: {size}");
        }
    }
}
