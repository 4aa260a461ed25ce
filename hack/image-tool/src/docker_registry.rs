//! Registry of Debian's package `docker-registry` on loopback, for tests that need a real registry. It stores pushed
//! content in a folder of the test and stops on drop.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use olm_require::Need;
use serde_json::json;

use crate::registry::certificates;

const PROGRAM: &str = "docker-registry";
const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Certificates and authentication. The default is plain HTTP without authentication.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Files with certificate and key of the server, PEM.
    pub certificate: Option<[PathBuf; 2]>,
    /// File with users and bcrypt hashes for basic authentication.
    pub htpasswd: Option<PathBuf>,
    /// File with the CA of client certificates, PEM. Requires client certificates.
    pub client_ca: Option<PathBuf>,
}

/// Running registry.
#[derive(Debug)]
pub struct DockerRegistry {
    process: Child,
    host: String,
}

impl DockerRegistry {
    /// Starts the registry on a free port of 127.0.0.1 and waits until it accepts connections. Its files are in
    /// `folder`. Registries with the same folder share their content.
    ///
    /// # Errors
    /// The program is missing, and the test cannot be skipped, or exits. The error contains its log.
    pub fn start(folder: &Path, settings: &Settings) -> Result<Self> {
        if olm_require::find(PROGRAM).is_none() {
            let reason = format!("there is no {PROGRAM}: install the Debian package of that name");
            olm_require::skip(Need::Tools, &reason);
            bail!("{reason}");
        }
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let host = format!("127.0.0.1:{port}");
        let mut config = json!({
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": folder.join("storage")}},
            "http": {"addr": host, "secret": "test"},
        });
        if let Some([certificate, key]) = &settings.certificate {
            config["http"]["tls"] = json!({"certificate": certificate, "key": key});
        }
        if let Some(client_ca) = &settings.client_ca {
            config["http"]["tls"]["clientcas"] = json!([client_ca]);
        }
        if let Some(htpasswd) = &settings.htpasswd {
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": htpasswd}});
        }
        let (file, log) = (folder.join(format!("{port}.yaml")), folder.join(format!("{port}.log")));
        fs::write(&file, config.to_string())?;
        let process = Command::new(PROGRAM)
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .context(PROGRAM)?;
        let mut registry = Self { process, host };
        let end = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(&registry.host).is_err() {
            if registry.process.try_wait()?.is_some() || Instant::now() > end {
                bail!("{PROGRAM} does not answer: {}", fs::read_to_string(&log)?);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(registry)
    }

    /// Starts the registry like [`DockerRegistry::start`], over TLS with a certificate from a new CA. Returns the
    /// CA's certificate, PEM.
    ///
    /// # Errors
    /// See [`DockerRegistry::start`].
    pub fn start_with_tls(folder: &Path) -> Result<(Self, String)> {
        let (ca_pem, certificate, key) = certificates()?;
        let files = [folder.join("server.cert"), folder.join("server.key")];
        fs::write(&files[0], certificate)?;
        fs::write(&files[1], key)?;
        let settings = Settings { certificate: Some(files), ..Settings::default() };
        Ok((Self::start(folder, &settings)?, ca_pem))
    }

    /// `127.0.0.1:<port>`, the registry part of references.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        // The process may have exited.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
