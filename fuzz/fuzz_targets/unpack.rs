//! Fuzzes layers: any bytes, plain or compressed, are unpacked or rejected, and only requested files are returned.
//!
//! The first byte determines whether the rest is split into two layers, and whether checksums of tar headers are
//! fixed first. Otherwise nearly every change of a header would fail there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_oci::ImageLimits;
use olm_oci::fuzzing::unpack;

const BLOCK: usize = 512;
const CHECKSUM: std::ops::Range<usize> = 148..156;

fuzz_target!(|input: &[u8]| {
    let Some((mode, rest)) = input.split_first() else { return };
    let mut layers = rest.to_vec();
    if mode & 1 == 1 {
        layers.chunks_exact_mut(BLOCK).filter(|block| block[257..262] == *b"ustar").for_each(put_right);
    }
    let limits = ImageLimits {
        unpacked_bytes: 1 << 20,
        kept_bytes: 1 << 16,
        files: 100,
        file_bytes: 1 << 15,
        ..ImageLimits::BUNDLE
    };
    let half = (layers.len() / 2).next_multiple_of(BLOCK).min(layers.len());
    let layers = if mode & 2 == 2 { vec![&layers[..half], &layers[half..]] } else { vec![&layers[..]] };
    let Some(files) = unpack(&layers, "configs", &limits) else { return };
    let kept: usize = files.iter().map(|(_, size)| size).sum();
    assert!(kept as u64 <= limits.kept_bytes && files.len() as u64 <= limits.files, "{files:?}");
    for (path, _) in files {
        let mut segments = path.split('/');
        assert_eq!(segments.next(), Some("configs"), "{path:?}");
        assert!(segments.all(|segment| !matches!(segment, "" | "." | "..")), "{path:?}");
    }
});

fn put_right(header: &mut [u8]) {
    header[CHECKSUM].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
