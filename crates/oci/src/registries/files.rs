//! Lookup of `registries.conf` and its drop-ins. They are read for every pull, so that a change takes effect at
//! once and a broken file fails pulls until it is fixed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::RegistryPaths;
use crate::paths::read_config;
use crate::registries::Registries;

impl Registries {
    /// Reads the files of `paths`. All are optional. Blocks briefly on small local files.
    ///
    /// # Errors
    /// A file cannot be read or parsed. The text names it.
    pub(crate) fn load(paths: &RegistryPaths) -> Result<Self, String> {
        let mut registries = Self::default();
        for path in config_files(paths)? {
            let failed =
                |cause: String| format!("loading registries configuration: {}: {cause}", path.display());
            let text = read_config(&path).and_then(|text| io::read_to_string(text.as_slice()));
            let text = text.map_err(|error| failed(error.to_string()))?;
            registries.add(&path, &text).map_err(failed)?;
        }
        Ok(registries)
    }
}

/// Every file to read, in order.
fn config_files(paths: &RegistryPaths) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    match &paths.registries_conf {
        Some(path) => files.push(path.clone()),
        None => {
            let main = paths.containers.iter().map(|folder| folder.join("registries.conf"));
            files.extend(main.into_iter().find(|path| path.exists()));
            files.extend(drop_ins(paths)?);
        }
    }
    files.extend(paths.registries_conf_override.clone());
    Ok(files)
}

/// Drop-ins sorted by name. Of equal names the one in the folder of highest precedence wins.
fn drop_ins(paths: &RegistryPaths) -> Result<Vec<PathBuf>, String> {
    let own = match paths.uid {
        0 => vec!["registries.rootful.conf.d".to_owned()],
        uid => vec![format!("registries.rootless.conf.d/{uid}"), "registries.rootless.conf.d".to_owned()],
    };
    let mut by_name: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for folder in &paths.containers {
        for drop_in in own.iter().map(String::as_str).chain(["registries.conf.d"]) {
            let folder = folder.join(drop_in);
            let files = list(&folder).map_err(|error| {
                format!("loading registries configuration: {}: {error}", folder.display())
            })?;
            for (name, path) in files {
                by_name.entry(name).or_insert(path);
            }
        }
    }
    Ok(by_name.into_values().collect())
}

/// The `*.conf` files of a folder. Empty if the folder does not exist.
fn list(folder: &Path) -> io::Result<Vec<(OsString, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "conf") && !path.is_dir() {
            files.push((entry.file_name(), path));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn write(root: &TempDir, path: &str, location: &str) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("[[registry]]\nprefix = \"r.test\"\nlocation = \"{location}\"\n")).unwrap();
    }

    fn found(root: &TempDir, paths: &RegistryPaths) -> Vec<String> {
        let files = config_files(paths).unwrap();
        files.iter().map(|path| path.strip_prefix(root.path()).unwrap().display().to_string()).collect()
    }

    #[test]
    fn registries_files_are_found_in_order_of_precedence() {
        let root = TempDir::new().unwrap();
        let folders = ["own", "etc"].map(|name| root.path().join(name));
        let mut paths = RegistryPaths { containers: folders.to_vec(), uid: 7, ..RegistryPaths::default() };
        assert_eq!(found(&root, &paths), [""; 0]);
        assert_eq!(Registries::load(&paths), Ok(Registries::default()));

        for (path, location) in [
            ("etc/registries.conf", "etc.test"),
            ("etc/registries.conf.d/b.conf", "etc-b.test"),
            ("etc/registries.conf.d/a.conf", "etc-a.test"),
            ("etc/registries.conf.d/note.txt", "no.test"),
            ("etc/registries.rootful.conf.d/r.conf", "no.test"),
            ("etc/registries.rootless.conf.d/7/a.conf", "etc-7.test"),
            ("own/registries.conf.d/b.conf", "own-b.test"),
        ] {
            write(&root, path, location);
        }
        let expected = [
            "etc/registries.conf",
            "etc/registries.rootless.conf.d/7/a.conf",
            "own/registries.conf.d/b.conf",
        ];
        assert_eq!(found(&root, &paths), expected);
        let sources = Registries::load(&paths).unwrap().sources(&"r.test/a:v1".parse().unwrap()).unwrap();
        assert_eq!(sources[0].reference.host(), "own-b.test");

        write(&root, "own/registries.conf", "own.test");
        assert_eq!(found(&root, &paths)[0], "own/registries.conf");
        paths.uid = 0;
        assert_eq!(
            found(&root, &paths),
            [
                "own/registries.conf",
                "etc/registries.conf.d/a.conf",
                "own/registries.conf.d/b.conf",
                "etc/registries.rootful.conf.d/r.conf"
            ]
        );
    }

    #[test]
    fn named_registries_files_are_the_only_ones_and_required() {
        let root = TempDir::new().unwrap();
        let mut paths = RegistryPaths::default();
        write(&root, "only.conf", "only.test");
        write(&root, "last.conf", "last.test");
        paths.registries_conf = Some(root.path().join("only.conf"));
        paths.registries_conf_override = Some(root.path().join("last.conf"));
        assert_eq!(found(&root, &paths), ["only.conf", "last.conf"]);
        fs::remove_file(root.path().join("last.conf")).unwrap();
        let last = root.path().join("last.conf");
        assert_eq!(
            Registries::load(&paths).unwrap_err(),
            format!(
                "loading registries configuration: {}: No such file or directory (os error 2)",
                last.display()
            )
        );
        fs::write(&last, "[registries.search]\n").unwrap();
        assert_eq!(
            Registries::load(&paths).unwrap_err(),
            format!(
                "loading registries configuration: {}: registries.conf must be in v2 format but is in v1",
                last.display()
            )
        );
    }
}
