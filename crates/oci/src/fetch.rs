//! Transfer of a layer from the network to a blocking thread, with its digest computed on the way.

use std::io::{self, Read};

use aws_lc_rs::digest::{self, Context, SHA256, SHA384, SHA512};
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::Digest;

/// Capacity of the channel in chunks: keeps both sides busy and bounds memory.
pub(crate) const QUEUE: usize = 16;

/// Hasher for each algorithm that a [`Digest`] can name.
pub struct Hasher {
    name: &'static str,
    context: Context,
}

impl Hasher {
    /// Hasher of the algorithm of `digest`.
    pub fn new(digest: &Digest) -> Self {
        let (name, algorithm) = match digest.algorithm() {
            "sha384" => ("sha384", &SHA384),
            "sha512" => ("sha512", &SHA512),
            _ => ("sha256", &SHA256),
        };
        Self { name, context: Context::new(algorithm) }
    }

    /// Adds content.
    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// Digest of the added content.
    #[must_use]
    pub fn finish(self) -> String {
        format!("{}:{}", self.name, hex::encode(self.context.finish()))
    }

    /// SHA-256 digest of `bytes`.
    pub fn sha256(bytes: &[u8]) -> Digest {
        Digest::of_sha256(&hex::encode(digest::digest(&SHA256, bytes)))
    }

    /// Digest of `bytes` in the algorithm of `like`.
    pub(crate) fn digest(like: &Digest, bytes: &[u8]) -> String {
        let mut hasher = Self::new(like);
        hasher.update(bytes);
        hasher.finish()
    }
}

/// Receiving end for a blocking thread. It ends when the sender is dropped, whether complete or not. Only the
/// digest shows whether the layer is complete.
pub(crate) struct LayerReader {
    chunks: mpsc::Receiver<Bytes>,
    current: Bytes,
    hasher: Hasher,
}

impl LayerReader {
    pub(crate) fn new(chunks: mpsc::Receiver<Bytes>, digest: &Digest) -> Self {
        Self { chunks, current: Bytes::new(), hasher: Hasher::new(digest) }
    }

    /// Reads to the end and returns the digest of everything received.
    pub(crate) fn finish(mut self) -> String {
        while self.fill() {
            self.current.clear();
        }
        self.hasher.finish()
    }

    /// Waits for data. `false` at the end of the layer.
    fn fill(&mut self) -> bool {
        while self.current.is_empty() {
            match self.chunks.blocking_recv() {
                None => return false,
                Some(chunk) => {
                    self.hasher.update(&chunk);
                    self.current = chunk;
                }
            }
        }
        true
    }
}

impl Read for LayerReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.fill() {
            return Ok(0);
        }
        let length = buffer.len().min(self.current.len());
        buffer[..length].copy_from_slice(&self.current.split_to(length));
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_reader_yields_and_hashes_all_chunks() {
        let digest: Digest =
            Hasher::digest(&format!("sha512:{}", "0".repeat(128)).parse().unwrap(), b"one two")
                .parse()
                .unwrap();
        let (sender, receiver) = mpsc::channel(QUEUE);
        for chunk in ["one", "", " two"] {
            sender.blocking_send(Bytes::from_static(chunk.as_bytes())).unwrap();
        }
        drop(sender);
        let mut reader = LayerReader::new(receiver, &digest);
        let mut start = [0; 4];
        reader.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"one ");
        assert_eq!(reader.finish(), digest.as_str());
    }
}
