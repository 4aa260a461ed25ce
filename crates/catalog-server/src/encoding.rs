//! Content encodings: negotiation and compressors (docs/design/catalogd.md#compression).

use std::io::{self, Write};

/// Minimum length of a compressed body in bytes.
pub const LEAST_COMPRESSED: u64 = 1024;
/// Half the time of level 6 for a quarter more bytes of a real catalog: clients receive the first copy while it is
/// written.
const GZIP_LEVEL: u32 = 2;
const ZSTD_LEVEL: i32 = 3;

/// A supported content encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encoding {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Encoding {
    /// The token in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// A compressor that writes to `sink`.
    ///
    /// # Errors
    /// The compressor cannot be allocated.
    pub fn encoder<W: Write>(self, sink: W) -> io::Result<Encoder<W>> {
        Ok(match self {
            Self::Gzip => {
                Encoder::Gzip(flate2::write::GzEncoder::new(sink, flate2::Compression::new(GZIP_LEVEL)))
            }
            Self::Zstd => Encoder::Zstd(zstd::stream::write::Encoder::new(sink, ZSTD_LEVEL)?),
        })
    }
}

/// A running compressor.
pub enum Encoder<W: Write> {
    /// gzip
    Gzip(flate2::write::GzEncoder<W>),
    /// zstd
    Zstd(zstd::stream::write::Encoder<'static, W>),
}

impl<W: Write> Encoder<W> {
    /// Writes the end of the compressed stream and returns the sink.
    ///
    /// # Errors
    /// An error of the sink.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

impl Encoder<Vec<u8>> {
    /// Takes the bytes compressed so far.
    pub fn take(&mut self) -> Vec<u8> {
        match self {
            Self::Gzip(encoder) => std::mem::take(encoder.get_mut()),
            Self::Zstd(encoder) => std::mem::take(encoder.get_mut()),
        }
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}

/// The encoding that `Accept-Encoding` prefers: the higher quality, and zstd if equal. `*` selects none.
pub fn negotiate<'a>(accept: impl IntoIterator<Item = &'a str>) -> Option<Encoding> {
    let (mut gzip, mut zstd) = (0.0, 0.0);
    for item in accept.into_iter().flat_map(|value| value.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let slot = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "gzip" => &mut gzip,
            "zstd" => &mut zstd,
            _ => continue,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        *slot = quality.map_or(1.0, |text| text.trim().parse::<f32>().unwrap_or(0.0).clamp(0.0, 1.0));
    }
    match (gzip, zstd) {
        (gzip, zstd) if zstd > 0.0 && zstd >= gzip => Some(Encoding::Zstd),
        (gzip, _) if gzip > 0.0 => Some(Encoding::Gzip),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Case catalogd-47
    #[test]
    fn accept_encoding_selects_highest_quality() {
        let rows = [
            ("gzip", Some(Encoding::Gzip)),
            ("gzip, zstd", Some(Encoding::Zstd)),
            ("gzip;q=1, zstd;q=0.5", Some(Encoding::Gzip)),
            ("GZIP ; q=0.1", Some(Encoding::Gzip)),
            ("zstd;q=0, gzip;q=0", None),
            ("gzip;q=nan", None),
            ("*", None),
            ("br, deflate", None),
            ("identity", None),
            ("", None),
        ];
        for (header, expect) in rows {
            assert_eq!(negotiate([header]), expect, "{header}");
        }
        assert_eq!(negotiate(["br", "gzip"]), Some(Encoding::Gzip));
        assert_eq!(negotiate([]), None);
    }
}
