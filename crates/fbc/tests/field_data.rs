//! A real catalog: it loads, its stored form is a fixed point, and packages can be read from it.

#![allow(clippy::unwrap_used)]

use std::{fs, path::PathBuf, time::Instant};

use olm_fbc::{MetaReader, PackageContent, SCHEMA_PACKAGE};
use olm_yaml::Limits;

#[test]
fn community_catalog() {
    let Some(data) = std::env::var_os("OLM_FIELD_DATA") else {
        say("community_catalog: skipped, OLM_FIELD_DATA is not set");
        return;
    };
    let catalog = PathBuf::from(data).join("catalogs/community-v4.20");
    let start = Instant::now();
    let (mut bytes, mut metas, mut bundles) = (0, 0, 0);
    for folder in fs::read_dir(catalog).unwrap() {
        let path = folder.unwrap().path().join("catalog.yaml");
        let file = fs::read(&path).unwrap();
        let stored: Vec<_> =
            MetaReader::new(file.as_slice(), Limits::default()).collect::<Result<_, _>>().unwrap();
        let text: Vec<u8> = stored.iter().flat_map(|meta| meta.blob.clone()).collect();
        let again: Vec<_> =
            MetaReader::new(text.as_slice(), Limits::default()).collect::<Result<_, _>>().unwrap();
        assert_eq!(stored, again, "{}", path.display());

        let package = &stored.iter().find(|meta| meta.schema == SCHEMA_PACKAGE).unwrap().name;
        let lines = stored.iter().map(|meta| meta.blob.as_slice());
        let content = PackageContent::from_metas(package, lines).unwrap();
        assert_eq!(content.packages.len(), 1, "{package}");
        let default = &content.packages[0].default_channel;
        assert!(content.channels.iter().any(|channel| channel.name == *default), "{package}");
        let complete = content.bundles.iter().all(|b| b.package == *package && !b.properties.is_empty());
        assert!(complete, "{package}");
        bytes += file.len();
        metas += stored.len();
        bundles += content.bundles.len();
    }
    say(&format!(
        "community_catalog: {metas} metas, {bundles} bundles, {bytes} bytes in {:?}",
        start.elapsed()
    ));
    assert!(bundles > 100);
}

/// Prints past the test runner's capture: the line is for whoever runs the tests.
fn say(line: &str) {
    use std::io::Write;
    // Nothing can be said where standard output is closed.
    let _ = writeln!(std::io::stdout(), "{line}");
}
