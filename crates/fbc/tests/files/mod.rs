//! In-memory catalog folder.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::Path,
};

use olm_fbc::{Entry, EntryKind, Folder};

/// Content by path. A file with the content `gone` cannot be opened.
pub(crate) struct Files(pub(crate) BTreeMap<String, String>);

impl<const N: usize> From<[(&str, &str); N]> for Files {
    fn from(files: [(&str, &str); N]) -> Self {
        Self(files.map(|(path, content)| (path.to_owned(), content.to_owned())).into())
    }
}

impl Folder for Files {
    fn entries(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let below = self.0.keys().filter_map(|path| Path::new(path).strip_prefix(directory).ok());
        let entry = |path: &Path| {
            let mut names = path.iter();
            let name = names.next()?.to_owned();
            let kind = if names.next().is_some() { EntryKind::Directory } else { EntryKind::File };
            Some(Entry { name, kind })
        };
        let mut entries: Vec<Entry> = below.filter_map(entry).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup();
        entries.reverse(); // any order is allowed
        Ok(entries)
    }

    fn open(&self, file: &Path) -> io::Result<Box<dyn Read + '_>> {
        let content = file.to_str().and_then(|path| self.0.get(path));
        let content = content.filter(|content| *content != "gone");
        let no_such_file = || io::Error::from_raw_os_error(2);
        content.map(|content| Box::new(content.as_bytes()) as Box<dyn Read>).ok_or_else(no_such_file)
    }
}
