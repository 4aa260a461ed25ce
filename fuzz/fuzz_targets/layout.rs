//! Fuzzes images from disk: any layout or archive is refused, or yields an image whose parts match their digests.
//!
//! The first byte determines the form: an archive, whose checksums are fixed, or the files of a layout, separated by
//! zero bytes. There, `@2` in a file is replaced by the digest of the second file after the index: random bytes match no
//! digest.

#![no_main]

use std::collections::BTreeMap;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use olm_oci::Hasher;
use olm_pack::fuzzing::{archive, image};

const BLOCK: usize = 512;
const CHECKSUM: std::ops::Range<usize> = 148..156;

fuzz_target!(|input: &[u8]| {
    let Some((mode, rest)) = input.split_first() else { return };
    let files = if mode & 1 == 1 {
        let mut tar = rest.to_vec();
        tar.chunks_exact_mut(BLOCK).filter(|block| block[257..262] == *b"ustar").for_each(put_right);
        let Ok(files) = archive(&tar) else { return };
        files
    } else {
        layout(rest)
    };
    let Ok(read) = image(files.clone(), false) else { return };
    if files.contains_key("index.json") {
        for blob in read.blobs().chain([&read.manifest]) {
            let hex = digest(blob)["sha256:".len()..].to_owned();
            let is_there = files.get(&format!("blobs/sha256/{hex}")) == Some(blob);
            assert!(is_there || *blob == read.config && **blob == *b"{}", "{hex}");
        }
    }
    if let Ok(whole) = image(files, true) {
        assert_eq!(whole.digest(), read.digest());
    }
});

fn digest(content: &[u8]) -> String {
    Hasher::sha256(content).as_str().to_owned()
}

/// Files of a layout. References lead to later files only.
fn layout(text: &[u8]) -> BTreeMap<String, Bytes> {
    let mut files = BTreeMap::new();
    let mut digests: Vec<(usize, String)> = Vec::new();
    let parts: Vec<&[u8]> = text.split(|byte| *byte == 0).take(10).collect();
    for (index, part) in parts.iter().enumerate().rev() {
        let mut part = part.to_vec();
        if let Ok(text) = std::str::from_utf8(&part) {
            let with = |text: String, (of, digest): &(usize, String)| text.replace(&format!("@{of}"), digest);
            part = digests.iter().fold(text.to_owned(), with).into_bytes();
        }
        let digest = digest(&part);
        let name = match index {
            0 => "index.json".to_owned(),
            _ => format!("blobs/sha256/{}", &digest["sha256:".len()..]),
        };
        digests.push((index, digest));
        files.insert(name, Bytes::from(part));
    }
    files
}

fn put_right(header: &mut [u8]) {
    header[CHECKSUM].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
