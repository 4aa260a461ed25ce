//! Responses from a catalog's content: conditions, ranges, encodings (docs/design/catalogd.md#conditional-requests,
//! docs/design/catalogd.md#compression).

use std::io;
use std::ops::Range;
use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use olm_fbc::MetaSelector;
use tokio::sync::Semaphore;

use super::body::{Piece, Unsent, body, compressing_body, copied_body, gather, gather_compressed};
use super::precondition::{PreconditionResult, evaluate, range_applies};
use super::range::{RequestedRange, content_range, parse_range};
use super::response::{ContentResponse, JSON_LINES, error};
use super::route::Endpoint;
use crate::content::Snapshot;
use crate::content::answer_cache::LONGEST;
use crate::encoding::{Encoding, LEAST_COMPRESSED, negotiate};

/// Answers up to this length are compressed in memory, one at a time. Requests for the same answer meanwhile use
/// the cached result.
const COMPRESSED_WHOLE: u64 = 4 << 20;
static COMPRESSING_WHOLE: Semaphore = Semaphore::const_new(1);
/// Longer answers are compressed while they are sent, at most two at a time. Further ones are sent uncompressed.
static COMPRESSING_STREAMS: Semaphore = Semaphore::const_new(2);

/// Answers a request for the blobs that `selector` selects.
///
/// # Errors
/// The content cannot be read.
pub(super) async fn deliver(
    endpoint: Endpoint,
    snapshot: &Arc<Snapshot>,
    selector: &MetaSelector,
    method: &Method,
    headers: &HeaderMap,
) -> io::Result<Response> {
    let length: u64 = snapshot.index.ranges(selector).map(|range| range.end - range.start).sum();
    let encoding = encoding(method, headers, length);
    let answer = ContentResponse::of(snapshot);
    match evaluate(headers, &snapshot.tag, snapshot.modified) {
        PreconditionResult::Proceed => {}
        PreconditionResult::NotModified => {
            return Ok(answer.tagged(snapshot, encoding).status(StatusCode::NOT_MODIFIED).empty());
        }
        PreconditionResult::Failed => return Ok(answer.status(StatusCode::PRECONDITION_FAILED).empty()),
    }
    if endpoint == Endpoint::All
        && let Some(range) = headers.get(header::RANGE)
        && range_applies(headers, &snapshot.tag, snapshot.modified)
        && let Some(response) = ranged(&answer, snapshot, range)?
    {
        return Ok(response);
    }
    if selector.selects_all() {
        return whole(endpoint, answer, snapshot, encoding).await;
    }
    if let Some(encoding) = encoding {
        return compressed(answer, snapshot, selector, length, encoding).await;
    }
    // The body of a HEAD request is dropped unread, so nothing is gathered for it.
    let is_gathered =
        length <= LONGEST && snapshot.index.ranges(selector).nth(1).is_some() && method != Method::HEAD;
    let Some(unsent) = is_gathered.then(|| Unsent::reserve(length)).flatten() else {
        return plain(answer, snapshot, selector, length);
    };
    let known = match snapshot.answers.get(selector, None) {
        Some(known) => known,
        None => {
            let gathered = gather(Arc::clone(&snapshot.data.file), snapshot.ranges(selector)).await?;
            snapshot.answers.insert(selector, None, gathered.clone());
            gathered
        }
    };
    answer.tagged(snapshot, None).json_lines(known.len() as u64).body(unsent.body(known))
}

/// The encoding of an answer of `length` bytes.
fn encoding(method: &Method, headers: &HeaderMap, length: u64) -> Option<Encoding> {
    if method == Method::HEAD || length < LEAST_COMPRESSED {
        return None;
    }
    negotiate(headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()))
}

/// All data, compressed if a copy is available. The copy may still be written.
async fn whole(
    endpoint: Endpoint,
    answer: ContentResponse,
    snapshot: &Arc<Snapshot>,
    encoding: Option<Encoding>,
) -> io::Result<Response> {
    if let Some(encoding) = encoding
        && let Some(copy) = snapshot.compressed(encoding).await
    {
        let answer = answer.tagged(snapshot, Some(encoding));
        return match copy.length() {
            Some(length) => answer.json_lines(length).body(body(copy.file, [Piece::File(0..length)])),
            None => answer.with(header::CONTENT_TYPE, JSON_LINES).body(copied_body(copy)),
        };
    }
    let has_ranges = endpoint == Endpoint::All;
    let answer = if has_ranges { answer.with(header::ACCEPT_RANGES, "bytes") } else { answer };
    plain(answer, snapshot, &MetaSelector::default(), snapshot.data.length)
}

fn plain(
    answer: ContentResponse,
    snapshot: &Arc<Snapshot>,
    selector: &MetaSelector,
    length: u64,
) -> io::Result<Response> {
    let answer = answer.tagged(snapshot, None).json_lines(length);
    let pieces = snapshot.ranges(selector).map(Piece::File);
    answer.body(body(Arc::clone(&snapshot.data.file), pieces))
}

/// A part of the data, compressed. Cached if it is small, plain if too many answers are being compressed or unsent.
async fn compressed(
    answer: ContentResponse,
    snapshot: &Arc<Snapshot>,
    selector: &MetaSelector,
    length: u64,
    encoding: Encoding,
) -> io::Result<Response> {
    if length > COMPRESSED_WHOLE {
        return match COMPRESSING_STREAMS.try_acquire() {
            Ok(permit) => {
                let (file, ranges) = (Arc::clone(&snapshot.data.file), snapshot.ranges(selector));
                let answer = answer.tagged(snapshot, Some(encoding)).with(header::CONTENT_TYPE, JSON_LINES);
                answer.body(compressing_body(file, ranges, encoding, permit)?)
            }
            Err(_) => plain(answer, snapshot, selector, length),
        };
    }
    match compressed_whole(snapshot, selector, length, encoding).await? {
        Some((unsent, bytes)) => {
            let answer = answer.tagged(snapshot, Some(encoding)).json_lines(bytes.len() as u64);
            answer.body(unsent.body(bytes))
        }
        None => plain(answer, snapshot, selector, length),
    }
}

/// The selected blobs, compressed in memory. `None` if too many answers are unsent.
async fn compressed_whole(
    snapshot: &Arc<Snapshot>,
    selector: &MetaSelector,
    length: u64,
    encoding: Encoding,
) -> io::Result<Option<(Unsent, Bytes)>> {
    let remembered = || snapshot.answers.get(selector, Some(encoding));
    let unsent = |known: Bytes| Unsent::reserve(known.len() as u64).map(|unsent| (unsent, known));
    if let Some(known) = remembered() {
        return Ok(unsent(known));
    }
    let turn = COMPRESSING_WHOLE.acquire().await.map_err(io::Error::other)?;
    if let Some(known) = remembered() {
        return Ok(unsent(known));
    }
    // A compressed answer may be as long as the plain one.
    let Some(unsent) = Unsent::reserve(length) else { return Ok(None) };
    let (file, ranges) = (Arc::clone(&snapshot.data.file), snapshot.ranges(selector));
    let (made, _turn) = gather_compressed(file, ranges, encoding, turn).await?;
    snapshot.answers.insert(selector, Some(encoding), made.clone());
    Ok(Some((unsent, made)))
}

/// The answer to a valid `Range` header. `None` if it requests everything.
fn ranged(
    answer: &ContentResponse,
    snapshot: &Arc<Snapshot>,
    range: &HeaderValue,
) -> io::Result<Option<Response>> {
    let size = snapshot.data.length;
    match parse_range(range.to_str().ok(), size) {
        RequestedRange::Whole => Ok(None),
        RequestedRange::Parts(parts) => {
            partial(answer.clone().tagged(snapshot, None), snapshot, &parts).map(Some)
        }
        RequestedRange::Unsatisfiable(text) => {
            let mut response = error(StatusCode::RANGE_NOT_SATISFIABLE, text);
            let answer = answer.clone().with(header::CONTENT_RANGE, format!("bytes */{size}"));
            response.headers_mut().extend(answer.headers);
            Ok(Some(response))
        }
    }
}

/// Status 206 with one part, or with several as `multipart/byteranges`.
fn partial(answer: ContentResponse, snapshot: &Arc<Snapshot>, parts: &[Range<u64>]) -> io::Result<Response> {
    let size = snapshot.data.length;
    let answer = answer.status(StatusCode::PARTIAL_CONTENT).with(header::ACCEPT_RANGES, "bytes");
    let file = Arc::clone(&snapshot.data.file);
    if let [part] = parts {
        let length = part.end - part.start;
        let answer = answer.with(header::CONTENT_RANGE, content_range(part, size)).json_lines(length);
        return answer.body(body(file, [Piece::File(part.clone())]));
    }
    // Content is JSON lines, which never contain a line of dashes.
    let boundary = format!("----{}", snapshot.tag);
    let mut pieces = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let start = if number == 0 { "" } else { "\r\n" };
        let head = format!(
            "{start}--{boundary}\r\nContent-Range: {}\r\nContent-Type: application/jsonl\r\n\r\n",
            content_range(part, size)
        );
        pieces.push(Piece::Text(Bytes::from(head)));
        pieces.push(Piece::File(part.clone()));
    }
    pieces.push(Piece::Text(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
    let length = pieces.iter().map(Piece::length).sum::<u64>();
    answer
        .with(header::CONTENT_TYPE, format!("multipart/byteranges; boundary={boundary}"))
        .with(header::CONTENT_LENGTH, length)
        .body(body(file, pieces))
}
