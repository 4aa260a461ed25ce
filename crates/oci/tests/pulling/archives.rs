//! Hostile, broken and oversized layers.

use std::io::Write;

use crate::fixture::*;
use olm_image::Layer;
use olm_oci::ImageLimits;

// Cases catalogd-31, catalogd-32, operations-a54
#[tokio::test]
async fn hostile_paths_and_links_are_confined_or_rejected() {
    let a = || file("configs/a.yaml", "a");
    compare_entries(&[
        (&[a(), file("configs/../../evil", "x"), file("../configs/x", "x")], Ok(&["configs/a.yaml=a"])),
        (&[a(), file("/configs/abs", "x")], Ok(&["configs/a.yaml=a", "configs/abs=x"])),
        (&[a(), link("configs/s.yaml", "a.yaml")], Ok(&["configs/a.yaml=a", "configs/s.yaml=a"])),
        (
            &[a(), hard_link("configs/h.yaml", "configs/a.yaml")],
            Ok(&["configs/a.yaml=a", "configs/h.yaml=a"]),
        ),
        (
            &[a(), file("etc/passwd", "root"), link("configs/s.yaml", "/etc/passwd")],
            Err("link configs/s.yaml to \"/etc/passwd\": not a file of the unpacked folder"),
        ),
        (
            &[a(), link("configs/s.yaml", "../../../../../../etc/passwd")],
            Err("link configs/s.yaml to \"../../../../../../etc/passwd\": not a file of the unpacked folder"),
        ),
        (
            &[a(), link("configs/s.yaml", "gone.yaml")],
            Err("link configs/s.yaml to \"gone.yaml\": not a file of the unpacked folder"),
        ),
        (
            &[a(), link("configs/up", ".."), file("configs/up/up/evil", "x")],
            Err("link configs/up to \"..\": not a file of the unpacked folder"),
        ),
        (
            &[hard_link("configs/h", "etc/passwd")],
            Err("error applying layer[0]: link configs/h: no such file or directory"),
        ),
    ])
    .await;
}

// Cases catalogd-33, operations-a54
#[tokio::test]
async fn unsupported_entries_are_ignored_outside_of_the_folder_or_rejected() {
    let a = || file("configs/a.yaml", "a");
    compare_entries(&[
        (
            &[a(), entry("configs/f", b'6', "")],
            Err(
                "error applying layer[0]: entry \"configs/f\" is a FIFO: only files, folders and links are allowed",
            ),
        ),
        (
            &[a(), entry("configs/c", b'3', "")],
            Err(
                "error applying layer[0]: entry \"configs/c\" is a character device: only files, folders and links are allowed",
            ),
        ),
        (&[a(), entry("dev/f", b'6', ""), entry("dev/c", b'3', "")], Ok(&["configs/a.yaml=a"])),
        (&[entry("configs/z", b'Z', "")], Err("error applying layer[0]: unhandled tar header type 90")),
        (
            &[a(), file("configs/.wh..", "")],
            Err("error applying layer[0]: invalid whiteout name: .wh..: invalid archive"),
        ),
        (
            &[a(), file("configs/.wh.", "")],
            Err("error applying layer[0]: invalid whiteout name: .wh.: invalid archive"),
        ),
        (
            &[file("configs/x", "1"), file("configs/x/y", "2")],
            Err("error applying layer[0]: mkparent configs/x/y: not a directory"),
        ),
        (
            &[a(), file("configs", "a file")],
            Err("the image's labels name the folder \"configs\", which is not in the image"),
        ),
    ])
    .await;
}

/// Compares the unpacked files, or the error, of one layer with these entries.
/// Entries of an archive, and the paths or the error that a pull returns.
type EntriesRow<'a> = (&'a [Entry], Result<&'a [&'a str], &'a str>);

async fn compare_entries(rows: &[EntriesRow<'_>]) {
    for &(entries, expected) in rows {
        let fixture = Fixture::new().await;
        let result = fixture.pull_layers(&[tar_layer(entries)]).await;
        let names: Vec<_> = entries.iter().map(|entry| &entry.name).collect();
        match expected {
            Ok(listing) => {
                result.unwrap();
                assert_eq!(fixture.listing(), listing, "{names:?}");
                assert_eq!(fixture.leftovers(), ["out"]);
            }
            Err(text) => {
                let expected = Err(format!("error applying image: {text}"));
                assert_eq!(result, expected, "{names:?}");
                assert_eq!(fixture.pull_layers(&[tar_layer(entries)]).await, expected, "{names:?}, again");
                assert_eq!(fixture.leftovers(), [""; 0]);
            }
        }
    }
}

#[tokio::test]
async fn broken_archive_is_a_terminal_error() {
    let tar = tar(&[file("configs/x", &"x".repeat(2000))]);
    let mut checksum = tar.clone();
    checksum[0] ^= 1;
    let gzip = tar_layer(&[file("configs/x", "x")]).blob;
    let twice = Layer::from_tar(&gzip).unwrap().blob.to_vec();
    // A header outside the folder that claims 8 EiB.
    let mut huge = tar::Header::new_gnu();
    huge.set_path("bin/x").unwrap();
    huge.set_size(u64::MAX >> 1);
    huge.set_cksum();
    for (name, blob, expected) in [
        (
            "text",
            b"this is not an archive at all".to_vec(),
            "error applying layer[0]: the layer is not a tar archive, or is damaged at its start: failed to read entire block; a catalog or bundle is an image, not an artifact of single files",
        ),
        ("cut in a file", tar[..1000].to_vec(), "unexpected EOF"),
        ("checksum", checksum, "archive header checksum mismatch"),
        ("gzip in gzip", twice, ""),
        ("huge file elsewhere", [huge.as_bytes().to_vec(), vec![0; 2048]].concat(), ""),
        ("cut gzip", gzip[..gzip.len() / 2].to_vec(), ""),
        (
            "bzip2",
            b"BZh91AY&SY....".to_vec(),
            "the layer is compressed with bzip2: only layers as plain, gzip or zstd tar are supported",
        ),
        (
            "xz",
            b"\xfd7zXZ\0....".to_vec(),
            "the layer is compressed with xz: only layers as plain, gzip or zstd tar are supported",
        ),
    ] {
        let fixture = Fixture::new().await;
        let digest = fixture.registry.add_image("a/cat", "v1", &image(&[stored(&blob)], "/configs"));
        let error = fixture.pull(&fixture.resolve(&format!("a/cat@{digest}")).await).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("error applying image: terminal error: error applying layer[0]: "),
            "{name}: {text}"
        );
        assert!(text.contains(expected), "{name}: {text}");
        assert!(error.is_terminal(), "{name}");
        assert_eq!(fixture.leftovers(), [""; 0]);
    }
}

#[tokio::test]
async fn claimed_size_over_limit_is_rejected_at_once() {
    let fixture = Fixture::new().await;
    let mut header = tar::Header::new_gnu();
    header.set_path("configs/x").unwrap();
    header.set_size(u64::MAX >> 1);
    header.set_cksum();
    let error = fixture.pull_layers(&[stored(header.as_bytes())]).await.unwrap_err();
    assert_eq!(
        error,
        "error applying image: image exceeds limit file-bytes: 9223372036854775807 > 536870912"
    );
}

const SMALL_LIMITS: ImageLimits = ImageLimits {
    layers: 2,
    blob_bytes: 100_000,
    unpacked_bytes: 100_000,
    kept_bytes: 3_000,
    files: 8,
    file_bytes: 2_000,
    path_depth: 4,
    path_bytes: 40,
    tree_path_bytes: 150,
    zstd_window: 1 << 20,
    ratio: 200,
};

fn text(length: usize) -> String {
    "x".repeat(length)
}

/// Zstandard frame with a window of `1 << log` bytes.
fn frame(log: u32, content: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(log).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn replaced_and_hidden_content_does_not_count_against_the_tree_limits() {
    let long = format!("configs/{}", text(30));
    let hidden = [file(&format!("configs/.wh.{}", text(30)), "")];
    let fixture = Fixture::with(|config| config.limits = ImageLimits { layers: 9, ..SMALL_LIMITS }).await;
    let replaced: Vec<Layer> = (0..4)
        .flat_map(|_| [tar_layer(&[file(&long, ""), link(&long, "y"), file(&long, "")]), tar_layer(&hidden)])
        .collect();
    assert_eq!(fixture.pull_layers(&replaced).await.map(|pulled| pulled.files), Ok(0));
}

// Case operations-a54
#[tokio::test]
async fn each_limit_rejects_larger_image() {
    let many: Vec<Entry> = (0..9).map(|n| file(&format!("configs/{n}"), "")).collect();
    let folders: Vec<Entry> = (0..8).map(|n| dir(&format!("configs/{n}"))).collect();
    let links: Vec<Entry> = [file("configs/a", &text(1000))]
        .into_iter()
        .chain((0..3).map(|n| link(&format!("configs/l{n}"), "a")))
        .collect();
    for (layers, expected) in [
        (vec![tar_layer(&[]), tar_layer(&[]), tar_layer(&[])], "layers: 3 > 2"),
        (vec![stored(&vec![0; 100_001])], "blob-bytes: 100001 > 100000"),
        (vec![tar_layer(&[file("bin/opm", &text(200_000))])], "unpacked-bytes: "),
        (vec![tar_layer(&[file("configs/x", &text(2001))])], "file-bytes: 2001 > 2000"),
        (
            vec![tar_layer(&[file("configs/x", &text(2000)), file("configs/y", &text(2000))])],
            "kept-bytes: 4000 > 3000",
        ),
        (vec![tar_layer(&links)], "kept-bytes: 4000 > 3000"),
        (vec![tar_layer(&many)], "files: 9 > 8"),
        // Each was stored as a file, although only the last one remains.
        (vec![tar_layer(&vec![file("configs/same", ""); 9])], "files: 9 > 8"),
        // Including the implied folder.
        (vec![tar_layer(&folders)], "files: 9 > 8"),
        (vec![tar_layer(&[link("configs/l", &text(41))])], "path-bytes: 41 > 40"),
        (vec![tar_layer(&[file("configs/a/b/c/d", "")])], "path-depth: 5 > 4"),
        // The implied folder has 7 bytes.
        (
            vec![tar_layer(&[0, 1, 2, 3].map(|n| file(&format!("configs/{n}{}", text(30)), "")))],
            "tree-path-bytes: 163 > 150",
        ),
        (
            vec![tar_layer(&[0, 1, 2].map(|n| link(&format!("configs/{n}{n}"), &text(40))))],
            "tree-path-bytes: 157 > 150",
        ),
        (vec![stored(&frame(21, &tar(&[file("configs/x", "")])))], "zstd-window: 1048577 > 1048576"),
        // The first frame is within the limit, the second one is not.
        (
            vec![stored(&[frame(20, &tar(&[file("configs/x", "")])[..512]), frame(27, &[0; 512])].concat())],
            "zstd-window: 1048577 > 1048576",
        ),
        (vec![tar_layer(&[file(&format!("configs/{}", text(40)), "")])], "path-bytes: 48 > 40"),
    ] {
        let fixture = Fixture::with(|config| config.limits = SMALL_LIMITS).await;
        let error = fixture.pull_layers(&layers).await.unwrap_err();
        assert!(
            error.starts_with(&format!("error applying image: image exceeds limit {expected}")),
            "{error}"
        );
        assert_eq!(fixture.leftovers(), [""; 0]);
    }
}

#[tokio::test]
async fn decompression_bombs_and_long_names_are_rejected() {
    // 128 MiB of zeros in 128 KiB of gzip, outside the folder.
    let size = 128 << 20;
    let mut header = tar::Header::new_gnu();
    header.set_path("bin/zeros").unwrap();
    header.set_size(size);
    header.set_cksum();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(header.as_bytes()).unwrap();
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), size), &mut gzip).unwrap();
    let fixture = Fixture::new().await;
    let error = fixture.pull_layers(&[stored(&gzip.finish().unwrap())]).await.unwrap_err();
    assert!(error.starts_with("error applying image: image exceeds limit ratio: "), "{error}");

    // A name of half a million unwanted folders.
    let long = [Entry { content: b"a/".repeat(500_000), ..entry("././@LongLink", b'L', "") }, file("a", "")];
    let error = fixture.pull_layers(&[tar_layer(&long)]).await.unwrap_err();
    assert_eq!(error, "error applying image: image exceeds limit path-bytes: 999999 > 4096");

    // The archive reader keeps long names in memory, so they have a separate limit.
    let mut long_name = tar(&[Entry { content: vec![b'x'; 3 << 20], ..entry("././@LongLink", b'L', "") }]);
    long_name.truncate(long_name.len() - 1024);
    let error = fixture.pull_layers(&[stored(&long_name)]).await.unwrap_err();
    assert_eq!(error, "error applying image: image exceeds limit header-bytes: 1048577 > 1048576");
}
