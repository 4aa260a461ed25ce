//! Reading holds one document at a time, whatever the size of the file. Measures the peak of this process, so this
//! file has only one test.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::{self, Read, Write},
};

use olm_fbc::{Meta, MetaReader};
use olm_yaml::Limits;

/// Bytes of one document and of a whole stream.
const DOCUMENT: usize = 16 << 10;
const STREAM: usize = 8 << 20;
/// Largest allowed growth of the peak: a small multiple of a document, and memory retained by the allocator.
const ALLOWED: usize = 2 << 20;

/// Stream of equal documents, generated while it is read.
struct Documents {
    document: Vec<u8>,
    at: usize,
    left: usize,
}

impl Read for Documents {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.document[self.at..];
        let count = rest.len().min(buffer.len()).min(self.left);
        buffer[..count].copy_from_slice(&rest[..count]);
        self.left -= count;
        self.at = (self.at + count) % self.document.len();
        Ok(count)
    }
}

/// Peak resident size of this process, in bytes.
fn peak() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<usize>().ok()? << 10)
}

#[test]
fn memory_is_bounded_by_the_largest_document() {
    if peak().is_none() {
        // Fails only if standard output is closed.
        let _ = writeln!(io::stdout(), "memory: skipped, /proc/self/status has no VmHWM");
        return;
    }
    let value = "x".repeat(DOCUMENT);
    let forms = [
        ("JSON", format!("{{\"schema\":\"s\",\"value\":\"{value}\"}}\n")),
        ("YAML", format!("---\nschema: s\nvalue: {value}\n")),
        ("JSON in one line", format!("{{\"schema\":\"s\",\"value\":\"{value}\"}}")),
    ];
    let reader = |document: &str, count: usize| {
        let left = count * document.len();
        let stream = Documents { document: document.as_bytes().to_vec(), at: 0, left };
        MetaReader::new(stream, Limits::default()).map(Result::unwrap)
    };
    let count = STREAM / DOCUMENT;
    for (form, document) in &forms {
        // Warm up: base memory of reading.
        reader(document, 4).for_each(drop);
        let before = peak().unwrap();
        let bytes: usize = reader(document, count).map(|meta| meta.blob.len()).sum();
        let grown = peak().unwrap() - before;
        assert!(bytes > STREAM, "{form}: {bytes}");
        assert!(grown < ALLOWED, "{form}: {grown} bytes more for {STREAM}");
        let _ = writeln!(
            io::stdout(),
            "memory: {form}: peak grew by {} KiB for {} MiB",
            grown >> 10,
            STREAM >> 20
        );
    }
    // The measurement detects retained memory.
    let before = peak().unwrap();
    let kept: Vec<Meta> = reader(&forms[0].1, count).collect();
    let grown = peak().unwrap() - before;
    assert!(grown > STREAM / 2, "{grown} bytes for {} metas", kept.len());
}
