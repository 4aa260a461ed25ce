//! Stored content of catalogs, and the HTTP API that serves it. catalogd and `olm catalog serve` use the same code.
//!
//! ```text
//! folder of a catalog ─ load (olm-fbc) ► content::Store ► http
//! ```

pub mod content;
pub mod encoding;
pub mod http;
