//! The typed pass of a bundle: unknown fields vanish, known ones are checked for type, zero values take
//! their normal form (spec 04 §3.3, §14.2, appendix B).
//!
//! The types are data (`typed/types.txt`), not Rust structs: the pass has to keep the difference between
//! absent, null, empty and zero, which generated structs lose.

mod convert;
mod types;

pub(crate) use convert::{ConvertError, convert, shortest};
pub(crate) use types::{Type, types};
