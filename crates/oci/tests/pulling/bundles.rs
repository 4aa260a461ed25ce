//! Hostile bundle images. Their content stays in memory, within [`ImageLimits::BUNDLE`].

use crate::fixture::*;
use olm_image::Layer;
use olm_oci::{BUNDLE_FOLDERS, ImageLimits};

/// Pulls a bundle with these layers. Returns each file as `path=content`.
async fn pull(layers: &[Layer]) -> Result<Vec<String>, String> {
    let fixture = Fixture::with(|config| config.limits = ImageLimits::BUNDLE).await;
    fixture.registry.add_image("a/bundle", "v1", &image(layers, "unused"));
    let canonical = fixture.resolve("a/bundle:v1").await;
    let files = fixture.puller.pull_files(&canonical, &BUNDLE_FOLDERS).await.map(|(files, _)| files);
    let files = files.map_err(|error| error.to_string())?;
    let line = |(path, content): (&String, &Vec<u8>)| format!("{path}={}", String::from_utf8_lossy(content));
    Ok(files.iter().map(line).collect())
}

fn csv() -> Entry {
    file("manifests/csv.yaml", "csv")
}

/// Layer with an entry whose name is not UTF-8.
fn unnamed(bytes: &[u8]) -> Layer {
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    header.set_size(0);
    header.set_cksum();
    stored(&[header.as_bytes().as_slice(), &[0; 1024]].concat())
}

#[tokio::test]
async fn links_are_accepted_only_to_files_of_the_bundle() {
    for (entries, expected) in [
        (&[file("other/a.yaml", "a"), link("manifests", "other")][..], Err("link manifests to \"other\"")),
        (&[link("manifests", "/etc"), csv()], Err("link manifests to \"/etc\"")),
        (&[link("manifests", ".."), file("manifests/a.yaml", "a")], Err("link manifests to \"..\"")),
        (&[link("manifests", "manifests"), csv()], Err("link manifests to \"manifests\"")),
        (
            &[link("manifests", "metadata"), link("metadata", "manifests")],
            Err("link manifests to \"metadata\""),
        ),
        (&[csv(), link("metadata", "manifests")], Err("link metadata to \"manifests\"")),
        // Later entries replace earlier ones.
        (&[csv(), link("manifests", "/etc"), csv()], Err("link manifests to \"/etc\"")),
        (
            &[csv(), link("manifests/loop.yaml", "loop.yaml")],
            Err("link manifests/loop.yaml to \"loop.yaml\""),
        ),
        (
            &[csv(), file("secret", "s"), link("manifests/s.yaml", "../secret")],
            Err("link manifests/s.yaml to \"../secret\""),
        ),
        (
            &[csv(), link("manifests/s.yaml", "csv.yaml")],
            Ok(&["manifests/csv.yaml=csv", "manifests/s.yaml=csv"][..]),
        ),
        (
            &[csv(), link("metadata/s.yaml", "../manifests/csv.yaml")],
            Ok(&["manifests/csv.yaml=csv", "metadata/s.yaml=csv"]),
        ),
    ] {
        let names: Vec<_> = entries.iter().map(|entry| &entry.name).collect();
        match (pull(&[tar_layer(entries)]).await, expected) {
            (Ok(files), Ok(expected)) => assert_eq!(files, expected, "{names:?}"),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{names:?}: {error}"),
            (result, _) => panic!("{names:?}: {result:?}"),
        }
    }
}

#[tokio::test]
async fn devices_and_fifos_are_rejected() {
    for (kind, name) in [(b'3', "character device"), (b'4', "block device"), (b'6', "FIFO")] {
        let error = pull(&[tar_layer(&[csv(), entry("manifests/x", kind, "")])]).await.unwrap_err();
        assert!(error.contains(&format!("entry \"manifests/x\" is a {name}")), "{error}");
    }
    // Outside the bundle folders such entries are ignored.
    let elsewhere = tar_layer(&[csv(), entry("dev/x", b'3', ""), entry("run/x", b'6', "")]);
    assert_eq!(pull(&[elsewhere]).await.unwrap(), ["manifests/csv.yaml=csv"]);
    let hard_links = tar_layer(&[csv(), hard_link("manifests/h.yaml", "manifests/csv.yaml")]);
    assert_eq!(pull(&[hard_links]).await.unwrap(), ["manifests/csv.yaml=csv", "manifests/h.yaml=csv"]);
    assert!(pull(&[tar_layer(&[hard_link("manifests/h.yaml", "/etc/passwd")])]).await.is_err());
}

#[tokio::test]
async fn whiteouts_hide_files_of_lower_layers() {
    let lower = || tar_layer(&[csv(), file("manifests/old.yaml", "old"), file("metadata/a.yaml", "a")]);
    for (upper, expected) in [
        (&[file("manifests/.wh.old.yaml", "")][..], &["manifests/csv.yaml=csv", "metadata/a.yaml=a"][..]),
        (&[file(".wh.manifests", "")], &["metadata/a.yaml=a"]),
        (&[file(".wh..wh..opq", "")], &[]),
        (
            &[file("manifests/.wh..wh..opq", ""), file("manifests/new.yaml", "n")],
            &["manifests/new.yaml=n", "metadata/a.yaml=a"],
        ),
    ] {
        assert_eq!(pull(&[lower(), tar_layer(upper)]).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn file_names_must_be_utf8_within_the_bundle() {
    let error = pull(&[unnamed(b"manifests/\xff\xfe.yaml")]).await.unwrap_err();
    assert!(error.ends_with("names must be UTF-8"), "{error}");
    assert_eq!(pull(&[unnamed(b"bin/\xff\xfe")]).await.unwrap(), [""; 0]);
    let odd = "manifests/\u{1b}[2J\u{7}\n.yaml";
    assert_eq!(pull(&[tar_layer(&[file(odd, "x")])]).await.unwrap(), [format!("{odd}=x")]);
    // `..` cannot leave the tree.
    let climbing = tar_layer(&[csv(), file("manifests/../../../etc/passwd", "root")]);
    assert_eq!(pull(&[climbing]).await.unwrap(), ["manifests/csv.yaml=csv"]);
}

#[tokio::test]
async fn bundle_over_a_limit_is_rejected() {
    let many: Vec<Entry> = (0..100_000).map(|n| file(&format!("manifests/{n}.yaml"), "")).collect();
    let large =
        |name: &str, mebibytes: usize| file(&format!("manifests/{name}"), &"x".repeat(mebibytes << 20));
    for (layers, expected) in [
        (vec![tar_layer(&many)], "files: 20001 > 20000"),
        (vec![tar_layer(&[large("a", 33)])], "file-bytes: 34603008 > 33554432"),
        // Each single layer is within the limit.
        (
            vec![tar_layer(&[large("a", 30)]), tar_layer(&[large("b", 30)]), tar_layer(&[large("c", 30)])],
            "kept-bytes: 94371840 > 67108864",
        ),
        // Replaced content counts against the limit too.
        (vec![tar_layer(&[large("a", 30)]); 3], "kept-bytes: 94371840 > 67108864"),
        (vec![tar_layer(&[]); 129], "layers: 129 > 128"),
    ] {
        let error = pull(&layers).await.unwrap_err();
        assert!(error.contains(&format!("image exceeds limit {expected}")), "{error}");
    }
}
