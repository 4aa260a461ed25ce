//! Real catalog: it loads, its stored form is a fixed point, it is valid, it can be written, and packages can be
//! read from it.

#![allow(clippy::unwrap_used)]

mod files;

use std::{fs, time::Instant};

use files::Files;
use olm_fbc::{Form, Meta, MetaReader, PackageContent, SCHEMA_PACKAGE, validate_folder, write};
use olm_yaml::Limits;

#[test]
fn community_catalog_loads_validates_and_round_trips() {
    let Some(data) = olm_require::field_data() else { return };
    let catalog = data.join("catalogs/community-v4.20");
    let start = Instant::now();
    let (mut packages, mut bytes, mut metas, mut bundles, mut warnings) = (0, 0, 0, 0, 0);
    for folder in fs::read_dir(catalog).unwrap() {
        let path = folder.unwrap().path().join("catalog.yaml");
        let file = fs::read(&path).unwrap();
        let stored: Vec<_> =
            MetaReader::new(file.as_slice(), Limits::default()).collect::<Result<_, _>>().unwrap();
        let text: Vec<u8> = stored.iter().flat_map(|meta| meta.blob.clone()).collect();
        let again: Vec<_> =
            MetaReader::new(text.as_slice(), Limits::default()).collect::<Result<_, _>>().unwrap();
        let fields = |metas: &[Meta]| -> Vec<_> {
            metas
                .iter()
                .map(|m| (m.schema.clone(), m.package.clone(), m.name.clone(), m.blob.clone()))
                .collect()
        };
        assert!(fields(&stored) == fields(&again), "{}", path.display());

        let files = Files::from([("catalog.json", std::str::from_utf8(&text).unwrap())]);
        let report = validate_folder(&files, &olm_fbc::LoadLimits::default(), true);
        assert!(report.is_valid(), "{:?}", report.reference_message);
        warnings += report.findings.len();
        // Alternates the format between packages, since this is the slow part.
        let form = if packages % 2 == 0 { Form::Json } else { Form::Yaml };
        packages += 1;
        let mut written = Vec::new();
        write(stored.clone(), form, &mut written).unwrap();
        let read_back = MetaReader::new(written.as_slice(), Limits::default());
        let read_back: Vec<Meta> = read_back.collect::<Result<_, _>>().unwrap();
        assert!(sorted(&stored) == sorted(&read_back), "{} as {form:?}", path.display());

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
        "community_catalog: {packages} packages, {metas} metas, {bundles} bundles, {warnings} warnings, {bytes} bytes in {:?}",
        start.elapsed()
    ));
    assert!(bundles > 100);
}

/// Lines of metas, sorted.
fn sorted(metas: &[Meta]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = metas.iter().map(|meta| meta.blob.as_slice()).collect();
    lines.sort_unstable();
    lines
}

/// Prints past the output capture of the test runner.
fn say(line: &str) {
    use std::io::Write;
    // Fails only if standard output is closed.
    let _ = writeln!(std::io::stdout(), "{line}");
}
