//! Fuzzes `.indexignore`: any patterns in two folders and any file name yield content or an error.
//!
//! The input is the outer file, the inner file and a name, separated by zero bytes.

#![no_main]

use std::io::{self, Read};
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use olm_fbc::{Entry, EntryKind, Folder, LoadLimits, LoadError, load};

struct Ignoring<'a> {
    outer: &'a [u8],
    inner: &'a [u8],
    name: String,
}

impl Folder for Ignoring<'_> {
    fn entries(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let entry = |name: &str, kind| Entry { name: name.into(), kind };
        let folder = match directory.components().count() {
            0 => "inner",
            1 => "deep",
            _ => return Ok(vec![entry(&self.name, EntryKind::File)]),
        };
        Ok(vec![
            entry(".indexignore", EntryKind::File),
            entry("a.yaml", EntryKind::File),
            entry(&self.name, EntryKind::File),
            entry(folder, EntryKind::Directory),
        ])
    }

    fn open(&self, file: &Path) -> io::Result<Box<dyn Read + '_>> {
        match file.to_str() {
            Some(".indexignore") => Ok(Box::new(self.outer)),
            Some("inner/.indexignore") => Ok(Box::new(self.inner)),
            _ => Ok(Box::new(&b"{\"schema\":\"a\"}"[..])),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(3, |byte| *byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (outer, inner, name) = (next(), next(), next());
    let name = String::from_utf8_lossy(name).replace(['/', '\0'], "");
    let name = if matches!(name.as_str(), "" | "." | "..") { "b.json".to_owned() } else { name };
    let mut metas = 0;
    let loaded =
        load(&Ignoring { outer, inner, name }, &LoadLimits::default(), &mut |_| -> Result<(), LoadError> {
            metas += 1;
            Ok(())
        });
    assert!(loaded.is_err() || metas <= 5);
});
