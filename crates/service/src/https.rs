//! HTTP/1.1 servers with timeouts and an orderly end, with or without TLS.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use hyper_util::rt::TokioTimer;
use rustls::ServerConfig;
use tokio::task::JoinHandle;

use crate::write_deadline::DeadlineAcceptor;

/// A client must send its request head within this time; also the longest idle time of a connection.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A server that accepts connections until it is told to end.
#[derive(Debug)]
pub struct HttpServer {
    /// The address it listens on, with the port that was chosen where 0 was asked for.
    pub address: SocketAddr,
    handle: Handle<SocketAddr>,
    task: JoinHandle<std::io::Result<()>>,
}

impl HttpServer {
    /// Starts serving `router` at `address`.
    ///
    /// # Errors
    /// The address cannot be bound; the text names it.
    pub fn start(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        router: Router,
    ) -> std::io::Result<Self> {
        let listener = bind(address)
            .map_err(|error| std::io::Error::new(error.kind(), format!("listen on {address}: {error}")))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let handle = Handle::new();
        let mut server = axum_server::from_tcp(listener)?.handle(handle.clone());
        server.http_builder().http1().timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
        let service = router.into_make_service();
        let task = match tls {
            Some(config) => {
                let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(config))
                    .handshake_timeout(HANDSHAKE_TIMEOUT)
                    .acceptor(DeadlineAcceptor);
                tokio::spawn(server.acceptor(acceptor).http1_only().serve(service))
            }
            None => tokio::spawn(server.acceptor(DeadlineAcceptor).http1_only().serve(service)),
        };
        Ok(Self { address, handle, task })
    }

    /// Stops accepting, lets open requests end for at most `grace`, and returns when all is closed.
    pub async fn drain(self, grace: Duration) {
        self.handle.graceful_shutdown(Some(grace));
        match self.task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(address = %self.address, %error, "server ended badly"),
            Err(error) => tracing::error!(address = %self.address, %error, "server task failed"),
        }
    }
}

/// Binds every interface over IPv4 alone where the kernel has no IPv6.
fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).or_else(|error| {
        if address.ip().is_unspecified() && error.kind() != std::io::ErrorKind::AddrInUse {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))
        } else {
            Err(error)
        }
    })
}
