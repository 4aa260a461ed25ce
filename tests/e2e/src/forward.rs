//! Port forwarding from this machine to a pod, for any cluster.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// `kubectl port-forward`. Stopped on drop.
pub struct Forward {
    address: SocketAddr,
    _kubectl: Child,
    /// Output of kubectl, which prints a line per connection and exits if it cannot.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Forward {
    /// Forwards to a port of one pod of the Service.
    pub async fn to_service(namespace: &str, service: &str, port: u16) -> Result<Self> {
        Self::to(namespace, &format!("service/{service}"), port).await
    }

    /// Forwards to a port of a target of `kubectl port-forward`, such as `pod/NAME`.
    pub async fn to(namespace: &str, target: &str, port: u16) -> Result<Self> {
        let mut kubectl = Command::new("kubectl")
            .args(["--namespace", namespace, "port-forward", "--address", "127.0.0.1"])
            .args([target, &format!(":{port}")])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("kubectl")?;
        let output = kubectl.stdout.take().context("kubectl's output")?;
        let mut output = BufReader::new(output).lines();
        let line = output.next_line().await?.context("kubectl ended")?;
        // "Forwarding from 127.0.0.1:40123 -> 9443"
        let address = line.split_whitespace().nth(2).and_then(|word| word.parse().ok());
        let address = address.with_context(|| format!("kubectl port-forward says {line:?}"))?;
        Ok(Self { address, _kubectl: kubectl, _output: output })
    }

    /// Server certificate for a TLS client that requests `name` and trusts only `roots`, as the API server does with
    /// a webhook's `caBundle`.
    ///
    /// # Errors
    /// The certificate is not trusted, among others.
    pub async fn certificate(
        &self,
        name: &str,
        roots: &[CertificateDer<'static>],
    ) -> Result<CertificateDer<'static>> {
        let mut trusted = RootCertStore::empty();
        for root in roots {
            trusted.add(root.clone())?;
        }
        let config = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
        let (connection, _) = self.connect(name, config).await?;
        let leaf = connection.peer_certificates().and_then(|chain| chain.first());
        Ok(leaf.context("the server sent no certificate")?.clone().into_owned())
    }

    /// Sends an HTTP/1.0 request over TLS. Returns head and body of the response as text.
    ///
    /// # Errors
    /// The certificate is not trusted, among others.
    pub async fn ask(&self, name: &str, config: ClientConfig, request: &str) -> Result<String> {
        let (connection, stream) = self.connect(name, config).await?;
        let request = request.to_owned();
        let ask = move || {
            let mut tls = StreamOwned::new(connection, stream);
            tls.write_all(request.as_bytes())?;
            let mut answer = Vec::new();
            // Some servers close the connection without a TLS close_notify.
            match tls.read_to_end(&mut answer) {
                Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => return Err(error.into()),
                _ => {}
            }
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        tokio::task::spawn_blocking(ask).await?
    }

    /// Connects and completes the TLS handshake.
    ///
    /// # Errors
    /// The handshake fails.
    pub async fn connect(&self, name: &str, config: ClientConfig) -> Result<(ClientConnection, TcpStream)> {
        let name = ServerName::try_from(name.to_owned())?;
        let address = self.address;
        let shake = move || {
            let mut connection = ClientConnection::new(Arc::new(config), name)?;
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            while connection.is_handshaking() {
                connection.complete_io(&mut stream)?;
            }
            Ok((connection, stream))
        };
        tokio::task::spawn_blocking(shake).await?
    }

    /// Local address of the forwarding.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
