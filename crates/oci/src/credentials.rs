//! Registry credentials: in memory, or from a `.dockerconfigjson`, `.dockercfg` or `auth.json` file.
//!
//! Neither `Debug` nor an error shows any content of a file besides registry names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::paths::read_config;

/// Source of the credentials of a [`crate::Puller`], read at each use.
#[derive(Debug, Clone, Default)]
pub enum CredentialSource {
    /// Files in [`crate::RegistryPaths::auth_files`].
    #[default]
    AuthFiles,
    /// File that replaces those files while it exists.
    File(PathBuf),
    /// Credentials that replace those files while there are any.
    Memory(watch::Receiver<Credentials>),
}

/// Login for a registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// User name. May be empty with an identity token.
    pub username: String,
    /// Password. May be empty with an identity token.
    pub password: String,
    /// Refresh token, exchanged for an access token in place of a password.
    pub identity_token: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Fault of a credentials file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// Not a JSON object of the expected shape. The text of the parser is dropped, since it quotes values.
    #[error("line {line} column {column}: expected a JSON object of registries, alone or under \"auths\"")]
    Shape {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// An `auth` value that is not base64 of `user:password`.
    #[error("entry \"{0}\": \"auth\" must be the base64 form of user:password")]
    Auth(String),
}

/// Login, none for an entry without one, or the fault of the entry. A faulty entry affects only its own registry.
type ParsedLogin = Result<Option<Login>, CredentialsError>;

/// Logins by registry, or by a part of a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Keys as written: `host[:port][/path]`.
    exact: BTreeMap<String, ParsedLogin>,
    /// Hosts of all keys, without URL scheme and path, Docker's aliases resolved.
    hosts: BTreeMap<String, ParsedLogin>,
    /// Registries with a credential helper, which is never run.
    helpers: BTreeSet<String>,
}

/// All fields are optional, since some programs write `null` for an absent value.
#[derive(Deserialize)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

impl Credentials {
    /// Parses `{"auths": {registry: entry}}` or the older `{registry: entry}`. An entry has `auth` (base64 of
    /// `user:password`) or `username` and `password`, and possibly `identitytoken`. An entry without any of them means
    /// no login. Credential helpers are never run. An invalid `auth` is reported by [`Credentials::lookup`].
    ///
    /// # Errors
    /// The text is not such JSON.
    pub fn parse(text: &[u8]) -> Result<Self, CredentialsError> {
        let shape =
            |error: serde_json::Error| CredentialsError::Shape { line: error.line(), column: error.column() };
        let mut file: BTreeMap<String, Value> = serde_json::from_slice(text).map_err(shape)?;
        let mut credentials = Self::default();
        if let Some(Value::Object(helpers)) = file.remove("credHelpers") {
            credentials.helpers = helpers.into_iter().map(|(host, _)| host).collect();
        }
        let auths = match file.remove("auths") {
            Some(auths) => serde_json::from_value(auths).map_err(shape)?,
            None => file,
        };
        for (key, entry) in auths {
            if let Some(login) = parsed_login(&key, entry) {
                credentials.add(key, login);
            }
        }
        Ok(credentials)
    }

    /// Adds an entry, replacing an earlier one of the same key. An entry without a login replaces none.
    ///
    /// # Errors
    /// The `auth` of the entry is invalid. The earlier entry is retained.
    pub fn insert(&mut self, key: String, entry: Value) -> Result<(), CredentialsError> {
        if let Some(login) = parsed_login(&key, entry).transpose()?
            && (login.is_some() || !self.exact.contains_key(&key))
        {
            self.add(key, Ok(login));
        }
        Ok(())
    }

    fn add(&mut self, key: String, login: ParsedLogin) {
        if let Some(host) = host_of(&key) {
            self.hosts.insert(host.to_owned(), login.clone());
        }
        self.exact.insert(key, login);
    }

    /// Number of keys with a login.
    pub fn count(&self) -> usize {
        self.exact.values().filter(|login| !matches!(login, Ok(None))).count()
    }

    /// Login for repository `path` of registry `host`: that of the longest matching key of `host/path`, its parents
    /// and `host`, as in containers/image.
    ///
    /// # Errors
    /// The entry of this key has an invalid `auth`.
    pub fn lookup(&self, host: &str, path: &str) -> Result<Option<&Login>, CredentialsError> {
        let full = format!("{host}/{path}");
        let parents =
            std::iter::successors(Some(full.as_str()), |key| key.rsplit_once('/').map(|(parent, _)| parent));
        let exact = parents.into_iter().find_map(|key| self.exact.get(key));
        let login = exact.or_else(|| self.hosts.get(unalias(host)));
        login.map_or(Ok(None), |login| login.as_ref().map(Option::as_ref).map_err(Clone::clone))
    }

    /// Reads a file in a format that [`Credentials::parse`] accepts. `None` if the file does not exist.
    ///
    /// # Errors
    /// The file cannot be read or parsed. The text matches containers/image and names the file.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, String> {
        let reading = |cause: String| in_file(path, &cause);
        let text = match read_config(path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            read => read.map_err(|error| reading(error.to_string()))?,
        };
        let credentials = Self::parse(&text);
        credentials
            .map(Some)
            .map_err(|error| reading(format!("unmarshaling JSON at \"{}\": {error}", path.display())))
    }

    /// `true` if a credential helper is configured for `host`.
    pub(crate) fn names_helper(&self, host: &str) -> bool {
        self.helpers.contains(host)
    }
}

/// Error text about a credentials file, as in containers/image.
pub(crate) fn in_file(path: &Path, cause: &dyn fmt::Display) -> String {
    format!("getting username and password: reading JSON file \"{}\": {cause}", path.display())
}

fn parsed_login(key: &str, entry: Value) -> Option<ParsedLogin> {
    // In the older form, other settings may stand next to the entries.
    Some(login(key, Entry::deserialize(entry).ok()?))
}

fn login(key: &str, entry: Entry) -> Result<Option<Login>, CredentialsError> {
    let identity_token = entry.identitytoken.filter(|token| !token.is_empty());
    let auth = entry.auth.unwrap_or_default();
    let (username, password) = if auth.is_empty() {
        (entry.username.unwrap_or_default(), entry.password.unwrap_or_default())
    } else {
        let malformed = || CredentialsError::Auth(key.to_owned());
        let bytes = BASE64_STANDARD.decode(auth.trim()).map_err(|_| malformed())?;
        let text = String::from_utf8(bytes).map_err(|_| malformed())?;
        let (username, password) = text.split_once(':').ok_or_else(malformed)?;
        (username.to_owned(), password.trim_matches('\0').to_owned())
    };
    let empty = username.is_empty() && identity_token.is_none();
    Ok((!empty).then_some(Login { username, password, identity_token }))
}

/// Host that a key applies to as a whole. `None` for a key with a path.
fn host_of(key: &str) -> Option<&str> {
    let stripped = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://"));
    match stripped {
        Some(url) => url.split('/').next().map(unalias),
        None => (!key.contains('/')).then(|| unalias(key)),
    }
}

fn unalias(host: &str) -> &str {
    match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn parse(text: &str) -> Credentials {
        Credentials::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn missing_file_is_none_and_folder_is_an_error() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("auth.json");
        assert_eq!(Credentials::read(&path), Ok(None));
        fs::write(&path, r#"{"r.io":{"auth":"dTpw"}}"#).unwrap();
        assert_eq!(Credentials::read(&path.join("below")), Ok(None));
        assert!(Credentials::read(&path).unwrap().unwrap().lookup("r.io", "x").unwrap().is_some());
        let error = Credentials::read(folder.path()).unwrap_err();
        let shown = folder.path().display();
        let expected =
            format!("getting username and password: reading JSON file \"{shown}\": Is a directory");
        assert!(error.starts_with(&expected), "{error}");
    }

    fn user<'a>(credentials: &'a Credentials, host: &str, path: &str) -> Option<&'a str> {
        credentials.lookup(host, path).unwrap().map(|login| login.username.as_str())
    }

    #[test]
    fn most_specific_key_wins() {
        // aG9zdDpw = host:p, bnM6cA== = ns:p, cmVwbzpw = repo:p
        let credentials = parse(
            r#"{"auths":{"r.io:5000":{"auth":"aG9zdDpw"},"r.io:5000/ns":{"auth":"bnM6cA=="},"r.io:5000/ns/repo":{"auth":"cmVwbzpw"}}}"#,
        );
        for (host, path, expected) in [
            ("r.io:5000", "ns/repo", Some("repo")),
            ("r.io:5000", "ns/repo/deeper", Some("repo")),
            ("r.io:5000", "ns/repository", Some("ns")),
            ("r.io:5000", "ns", Some("ns")),
            ("r.io:5000", "other/repo", Some("host")),
            ("r.io", "ns/repo", None),
        ] {
            assert_eq!(user(&credentials, host, path), expected, "{host}/{path}");
        }
        // An entry without a login keeps that of the host from the repository.
        let credentials = parse(
            r#"{"auths":{"r.io":{"auth":"aG9zdDpw"},"r.io/public":{},"r.io/public/ns":{"auth":"bnM6cA=="},"https://s.io":{"auth":"aG9zdDpw"},"s.io":{}}}"#,
        );
        for (host, path, expected) in [
            ("r.io", "public", None),
            ("r.io", "public/app", None),
            ("r.io", "public/ns/app", Some("ns")),
            ("r.io", "publication", Some("host")),
            ("s.io", "app", None),
        ] {
            assert_eq!(user(&credentials, host, path), expected, "{host}/{path}");
        }
        assert_eq!(credentials.count(), 3);
    }

    #[test]
    fn docker_urls_and_aliases_match_host() {
        let credentials =
            parse(r#"{"auths":{"https://index.docker.io/v1/":{"username":"u","password":"p"}}}"#);
        assert_eq!(user(&credentials, "docker.io", "library/busybox"), Some("u"));
        assert_eq!(user(&credentials, "index.docker.io", "a/b"), Some("u"));
        assert_eq!(user(&parse(r#"{"https://r.io/x/y":{"auth":"dTpw"}}"#), "r.io", "z"), Some("u"));
        assert_eq!(user(&parse(r#"{"r.io/x":{"auth":"dTpw"}}"#), "r.io", "z"), None);
    }

    #[test]
    fn all_entry_formats_are_parsed() {
        let credentials = parse(
            r#"{"auths":{"a":{"auth":"dTpwOnE=","email":"e"},"b":{"identitytoken":"t"},"c":{},"d":{"username":"u","auth":null,"identitytoken":null}},
               "credHelpers":{"e":"x"}}"#,
        );
        let login = credentials.lookup("a", "x").unwrap().unwrap();
        assert_eq!((login.username.as_str(), login.password.as_str()), ("u", "p:q"));
        let token = credentials.lookup("b", "x").unwrap().unwrap().identity_token.as_deref();
        assert_eq!(token, Some("t"));
        assert_eq!(credentials.lookup("c", "x"), Ok(None));
        assert_eq!(user(&credentials, "d", "x"), Some("u"));
        assert_eq!(user(&parse(r#"{"old":{"auth":"dTpw"},"flag":true}"#), "old", "x"), Some("u"));
        assert!(credentials.names_helper("e") && !credentials.names_helper("a"));
        assert_eq!(credentials.lookup("e", "x"), Ok(None));
    }

    #[test]
    fn errors_and_debug_contain_no_secret() {
        let error = |text: &str| Credentials::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            error(r#"["s3cret"]"#),
            "line 1 column 0: expected a JSON object of registries, alone or under \"auths\""
        );
        // An invalid entry, without base64 or without a colon, affects only its own registry.
        let credentials = parse(
            r#"{"auths":{"r.io":{"auth":"s3cret"},"https://s.io/v1":{"auth":"dQ=="},"t.io":{"auth":"dTpw"}}}"#,
        );
        for (host, key) in [("r.io", "r.io"), ("s.io", "https://s.io/v1")] {
            let expect = format!("entry \"{key}\": \"auth\" must be the base64 form of user:password");
            assert_eq!(credentials.lookup(host, "x").unwrap_err().to_string(), expect);
        }
        assert_eq!(user(&credentials, "t.io", "x"), Some("u"));
        let credentials = parse(r#"{"r.io":{"username":"u","password":"s3cret","identitytoken":"s3cret"}}"#);
        assert!(!format!("{credentials:?}").contains("s3cret"));
    }
}
