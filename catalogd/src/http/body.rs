//! Response bodies: pieces of text and byte ranges of a file, compressed on the way if asked for, read on
//! blocking threads only as fast as the client takes them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;

use super::Encoding;
use super::encoding::Encoder;
use crate::content::read_range;

/// Bytes read at once.
const CHUNK: u64 = 128 << 10;

/// A part of a body.
#[derive(Clone, Debug)]
pub enum Piece {
    /// These bytes.
    Text(Bytes),
    /// A range of the file.
    File(Range<u64>),
}

/// A body of `pieces` that is read whole and handed to `keep` before it is sent.
pub fn kept_body(file: Arc<File>, pieces: Vec<Piece>, keep: impl FnOnce(Bytes) + Send + 'static) -> Body {
    let sending = Sending { file, pieces: pieces.into(), encoder: None };
    let read = move || -> io::Result<Bytes> {
        let mut sending = sending;
        let mut whole = Vec::new();
        while let Some(chunk) = sending.read()? {
            whole.extend_from_slice(&chunk);
        }
        let whole = Bytes::from(whole);
        keep(whole.clone());
        Ok(whole)
    };
    Body::from_stream(stream::once(async {
        tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
    }))
}

/// What is left to send.
struct Sending {
    file: Arc<File>,
    pieces: VecDeque<Piece>,
    encoder: Option<Encoder<Vec<u8>>>,
}

/// A body of `pieces`, of the file and compressed as asked.
///
/// # Errors
/// No compressor could be made.
pub fn body(file: Arc<File>, pieces: Vec<Piece>, encoding: Option<Encoding>) -> io::Result<Body> {
    let encoder = encoding.map(|encoding| encoding.encoder(Vec::new())).transpose()?;
    let sending = Sending { file, pieces: pieces.into(), encoder };
    Ok(Body::from_stream(stream::try_unfold(sending, |sending| async {
        if sending.pieces.is_empty() && sending.encoder.is_none() {
            return Ok(None);
        }
        let step = tokio::task::spawn_blocking(move || sending.step()).await;
        step.map_err(io::Error::other)?
    })))
}

impl Sending {
    /// The next chunk to send, or `None` at the end.
    fn step(mut self) -> io::Result<Option<(Bytes, Self)>> {
        loop {
            let plain = self.read()?;
            let Some(mut encoder) = self.encoder.take() else {
                return Ok(plain.map(|chunk| (chunk, self)));
            };
            let Some(plain) = plain else {
                let rest = encoder.finish()?;
                return Ok((!rest.is_empty()).then(|| (Bytes::from(rest), self)));
            };
            encoder.write_all(&plain)?;
            let chunk = encoder.take();
            self.encoder = Some(encoder);
            if !chunk.is_empty() {
                return Ok(Some((Bytes::from(chunk), self)));
            }
        }
    }

    /// Up to [`CHUNK`] bytes, gathered from as many pieces as that takes.
    fn read(&mut self) -> io::Result<Option<Bytes>> {
        let mut chunk = Vec::new();
        while let Some(piece) = self.pieces.pop_front() {
            match piece {
                Piece::Text(text) => chunk.extend_from_slice(&text),
                Piece::File(range) => {
                    let room = CHUNK - (chunk.len() as u64).min(CHUNK);
                    let end = range.end.min(range.start + room);
                    let from = chunk.len();
                    chunk.resize(from + usize::try_from(end - range.start).unwrap_or_default(), 0);
                    read_range(&self.file, range.start..end, &mut chunk[from..])?;
                    if end < range.end {
                        self.pieces.push_front(Piece::File(end..range.end));
                    }
                }
            }
            if chunk.len() as u64 >= CHUNK {
                break;
            }
        }
        Ok((!chunk.is_empty()).then(|| Bytes::from(chunk)))
    }
}
