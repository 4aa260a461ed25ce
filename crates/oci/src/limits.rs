//! Size limits of images (docs/design/operations.md#image-limits).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Size limits of an image. Sizes are bytes. The key of a field in messages and in `--image-limits` is its name
/// with dashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageLimits {
    /// Number of layers.
    pub layers: u64,
    /// Size of one layer as stored in the registry.
    pub blob_bytes: u64,
    /// Size of all layers unpacked, including discarded content.
    pub unpacked_bytes: u64,
    /// Size of the kept content. A link counts as the file that it points to.
    pub kept_bytes: u64,
    /// Number of kept files, folders and links, including files that later layers replace.
    pub files: u64,
    /// Size of one kept file.
    pub file_bytes: u64,
    /// Segments of a kept path.
    pub path_depth: u64,
    /// Length of a kept path or a link target.
    pub path_bytes: u64,
    /// Total length of all kept paths and link targets.
    pub tree_path_bytes: u64,
    /// Window of a zstd frame, which its decoder holds in memory. Rounded down to a power of two.
    pub zstd_window: u64,
    /// Highest ratio of unpacked to stored size, once the unpacked layers are larger than [`ImageLimits::RATIO_FROM`].
    pub ratio: u64,
}

impl ImageLimits {
    /// Unpacked bytes up to which any ratio is allowed, since small text compresses well.
    pub const RATIO_FROM: u64 = 64 << 20;

    /// Limits of catalogs, which are unpacked to disk.
    pub const CATALOG: Self = Self {
        layers: 128,
        blob_bytes: 2 << 30,
        unpacked_bytes: 4 << 30,
        kept_bytes: 4 << 30,
        files: 200_000,
        file_bytes: 512 << 20,
        path_depth: 64,
        path_bytes: 4096,
        tree_path_bytes: 16 << 20,
        zstd_window: 32 << 20,
        ratio: 200,
    };

    /// Limits of bundles, which are unpacked to memory. Other limits are those of catalogs.
    pub const BUNDLE: Self = Self {
        unpacked_bytes: 512 << 20,
        kept_bytes: 64 << 20,
        files: 20_000,
        file_bytes: 32 << 20,
        tree_path_bytes: 4 << 20,
        ..Self::CATALOG
    };

    /// Value of each limit, with its key in `--image-limits`.
    pub(crate) fn by_key(&mut self) -> [(&'static str, &mut u64); 11] {
        [
            ("layers", &mut self.layers),
            ("blob-bytes", &mut self.blob_bytes),
            ("unpacked-bytes", &mut self.unpacked_bytes),
            ("kept-bytes", &mut self.kept_bytes),
            ("files", &mut self.files),
            ("file-bytes", &mut self.file_bytes),
            ("path-depth", &mut self.path_depth),
            ("path-bytes", &mut self.path_bytes),
            ("tree-path-bytes", &mut self.tree_path_bytes),
            ("zstd-window", &mut self.zstd_window),
            ("ratio", &mut self.ratio),
        ]
    }
}

/// Number of images rejected by each limit, by its key. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct LimitCounts(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl LimitCounts {
    /// Counts an image that exceeds the limit `key`.
    pub fn count(&self, key: &'static str) {
        *self.0.lock().entry(key).or_default() += 1;
    }

    /// Key and count of each exceeded limit, sorted by key.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().iter().map(|(key, count)| (*key, *count)).collect()
    }
}

/// Value that exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("image exceeds limit {key}: {value} > {max}")]
pub(crate) struct Exceeded {
    pub(crate) key: &'static str,
    pub(crate) value: u64,
    pub(crate) max: u64,
}

impl Exceeded {
    pub(crate) fn check(key: &'static str, value: u64, max: u64) -> Result<(), Self> {
        if value > max { Err(Self { key, value, max }) } else { Ok(()) }
    }
}
