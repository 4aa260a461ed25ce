//! Paths of the files of the containers tools on this machine: `registries.conf`, `certs.d` and credentials.
//!
//! The paths are computed from the environment.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Largest configuration file, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Files and folders of docs/design/images.md#registry-configuration, docs/design/images.md#pull-secrets.
/// [`RegistryPaths::default`] names none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryPaths {
    /// Folders that may hold `registries.conf`, `registries.conf.d` and `certs.d`, highest precedence first.
    pub containers: Vec<PathBuf>,
    /// File read in place of every `registries.conf` and its drop-ins. Must exist.
    pub registries_conf: Option<PathBuf>,
    /// File read after all others. Must exist.
    pub registries_conf_override: Option<PathBuf>,
    /// Further folders like `certs.d`, after those in [`RegistryPaths::containers`].
    pub certs: Vec<PathBuf>,
    /// Credentials files. The first with an entry for the registry wins.
    pub auth_files: Vec<PathBuf>,
    /// User ID of this process, for per-user drop-ins.
    pub uid: u32,
}

impl RegistryPaths {
    /// Paths for the environment of this process.
    pub fn from_env() -> Self {
        Self::of(olm_os::variable, olm_os::user_id())
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>, uid: u32) -> Self {
        let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = path("HOME");
        let in_home = |name: &str| home.as_ref().map(|home| home.join(name));
        let own = path("XDG_CONFIG_HOME").or_else(|| in_home(".config")).map(|path| path.join("containers"));
        let default = || olm_os::system_paths([&format!("/run/containers/{uid}")]).pop();
        let run = path("XDG_RUNTIME_DIR").map(|path| path.join("containers")).or_else(default);
        let docker = path("DOCKER_CONFIG").or_else(|| in_home(".docker"));
        let system = olm_os::system_paths(["/etc/containers", "/usr/share/containers"]);
        Self {
            containers: own.clone().into_iter().chain(system).collect(),
            registries_conf: path("CONTAINERS_REGISTRIES_CONF"),
            registries_conf_override: path("CONTAINERS_REGISTRIES_CONF_OVERRIDE"),
            certs: olm_os::system_paths(["/etc/docker/certs.d"]),
            auth_files: [
                run.map(|path| path.join("auth.json")),
                own.map(|path| path.join("auth.json")),
                docker.map(|path| path.join("config.json")),
                in_home(".dockercfg"),
            ]
            .into_iter()
            .flatten()
            .collect(),
            uid,
        }
    }
}

/// Content of a configuration file.
///
/// # Errors
/// The file cannot be read, is a pipe, or has more than 4 MiB.
pub(crate) fn read_config(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    // Reading a pipe would block.
    if olm_os::is_pipe(metadata.file_type()) {
        return Err(io::Error::other("a pipe, not a file"));
    }
    if metadata.len() > MAX_FILE {
        return Err(io::Error::other(format!("the file is larger than {MAX_FILE} bytes")));
    }
    fs::read(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_environment_variables() {
        let paths = |environment: &[(&str, &str)]| {
            let find = |name: &str| environment.iter().find(|(known, _)| *known == name);
            RegistryPaths::of(|name| find(name).map(|(_, value)| value.into()), 7)
        };
        let bare = paths(&[("HOME", "")]);
        assert_eq!(bare.containers, ["/etc/containers", "/usr/share/containers"].map(PathBuf::from));
        assert_eq!(bare.auth_files, [PathBuf::from("/run/containers/7/auth.json")]);
        assert_eq!((bare.registries_conf, bare.registries_conf_override), (None, None));

        let home = paths(&[("HOME", "/h")]);
        assert_eq!(home.containers[0], PathBuf::from("/h/.config/containers"));
        let expected = [
            "/run/containers/7/auth.json",
            "/h/.config/containers/auth.json",
            "/h/.docker/config.json",
            "/h/.dockercfg",
        ];
        assert_eq!(home.auth_files, expected.map(PathBuf::from));

        let all = paths(&[
            ("HOME", "/h"),
            ("XDG_CONFIG_HOME", "/c"),
            ("XDG_RUNTIME_DIR", "/r"),
            ("DOCKER_CONFIG", "/d"),
            ("CONTAINERS_REGISTRIES_CONF", "/x.conf"),
            ("CONTAINERS_REGISTRIES_CONF_OVERRIDE", "/y.conf"),
        ]);
        assert_eq!(all.containers[0], PathBuf::from("/c/containers"));
        let expected =
            ["/r/containers/auth.json", "/c/containers/auth.json", "/d/config.json", "/h/.dockercfg"];
        assert_eq!(all.auth_files, expected.map(PathBuf::from));
        assert_eq!(all.registries_conf, Some("/x.conf".into()));
        assert_eq!(all.registries_conf_override, Some("/y.conf".into()));
    }
}
