//! Watcher of the files that configure registries and the signature policy. Pulls read them at each use. A change
//! retries failed pulls at once and verifies cached content again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Config;
use crate::certificates::paths_in;
use crate::policy::PolicySource;

/// Interval between two checks.
const POLL: Duration = Duration::from_secs(5);
/// Limits of nesting and number of watched files, since a configured folder may be large.
const DEPTH: usize = 4;
const FILES: usize = 10_000;

/// Inode, size and modification time of each file.
pub(crate) type Fingerprint = BTreeMap<PathBuf, (u64, u64, Option<SystemTime>)>;

/// Watched files and policy.
#[derive(Clone, Debug)]
pub struct RegistrySettings {
    files: Vec<PathBuf>,
    policy: PolicySource,
}

impl RegistrySettings {
    /// All files that affect pulls with `config`, except for credentials.
    pub fn of(config: &Config) -> Self {
        let paths = &config.paths;
        let mut files = paths.containers.clone();
        files.extend(paths.registries_conf.iter().chain(&paths.registries_conf_override).cloned());
        files.extend(paths.certs.iter().chain(&config.cas_dir).cloned());
        files.extend(["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().flat_map(paths_in));
        Self { files, policy: config.policy.clone() }
    }

    /// Calls `changed` after each change. Never returns.
    pub async fn follow(self, changed: impl Fn() + Send) {
        let look = async || {
            let settings = self.clone();
            let look = move || (fingerprint(&settings.files), settings.policy.fingerprint());
            tokio::task::spawn_blocking(look).await.ok()
        };
        let mut before = look().await;
        loop {
            tokio::time::sleep(POLL).await;
            let now = look().await;
            if now != before {
                tracing::info!("registry settings changed");
                changed();
                before = now;
            }
        }
    }
}

pub(crate) fn fingerprint(files: &[PathBuf]) -> Fingerprint {
    let mut found = Fingerprint::new();
    for path in files {
        add(&mut found, path, DEPTH);
    }
    found
}

fn add(found: &mut Fingerprint, path: &Path, depth: usize) {
    // Follows links, since a mounted ConfigMap consists of them.
    let Ok(metadata) = std::fs::metadata(path) else {
        return;
    };
    if !metadata.is_dir() {
        if found.len() < FILES {
            let identity = (olm_os::inode(&metadata), metadata.len(), metadata.modified().ok());
            found.insert(path.to_owned(), identity);
        }
        return;
    }
    if depth == 0 {
        return;
    }
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        add(found, &entry.path(), depth - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_changes_with_any_watched_file() {
        let folder = tempfile::tempdir().unwrap();
        let of = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(of("certs.d/registry.example")).unwrap();
        let files = [of("certs.d"), of("registries.conf")];
        let mut seen = vec![fingerprint(&files)];
        let mut look = || {
            let now = fingerprint(&files);
            assert_ne!(seen.last(), Some(&now));
            seen.push(now);
        };
        std::fs::write(of("registries.conf"), "").unwrap();
        look();
        std::fs::write(of("certs.d/registry.example/ca.crt"), "1").unwrap();
        look();
        std::fs::write(of("new"), "2").unwrap();
        std::fs::rename(of("new"), of("certs.d/registry.example/ca.crt")).unwrap();
        look();
        std::fs::remove_dir_all(of("certs.d")).unwrap();
        look();
        assert_eq!(fingerprint(&files), *seen.last().unwrap());
    }
}
