//! HTTP/1.1 servers with timeouts and graceful shutdown, with or without TLS.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use axum::middleware::AddExtension;
use axum::{Extension, Router};
use axum_server::Handle;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsAcceptor;
pub use axum_server::tls_rustls::RustlsConfig;
use futures::future::BoxFuture;
use hyper_util::rt::TokioTimer;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tower::Layer;

use crate::connection::{ConnectionAcceptor, TimedService};

/// Idle timeout of a connection. client-go and other Go clients close theirs after 90 s: a server that closes first
/// races with their next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a request head in bytes. Larger ones get status 431.
const HEAD_LIMIT: usize = 64 << 10;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The verified certificate of the client, if any. An extension of each request over TLS.
#[derive(Clone, Debug, Default)]
pub struct ClientCertificate(pub Option<CertificateDer<'static>>);

/// Acceptor that adds the client's certificate to its requests.
#[derive(Clone, Debug)]
struct ClientCertificateAcceptor(RustlsAcceptor<ConnectionAcceptor>);

impl<S: Send + 'static> Accept<TcpStream, S> for ClientCertificateAcceptor {
    type Stream = <RustlsAcceptor<ConnectionAcceptor> as Accept<TcpStream, S>>::Stream;
    type Service = AddExtension<TimedService<S>, ClientCertificate>;
    type Future = BoxFuture<'static, std::io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let accepted = self.0.accept(stream, service);
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            service.expect_head();
            let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let certificate = ClientCertificate(shown.cloned().map(CertificateDer::into_owned));
            Ok((stream, Extension(certificate).layer(service)))
        })
    }
}

/// A running server.
#[derive(Debug)]
pub struct HttpServer {
    /// The listen address, with the port that the kernel chose if 0 was requested.
    pub address: SocketAddr,
    handle: Handle<SocketAddr>,
    task: JoinHandle<std::io::Result<()>>,
}

impl HttpServer {
    /// Starts serving `router` at `address`.
    ///
    /// # Errors
    /// The address cannot be bound. The text names it.
    pub fn start(address: SocketAddr, tls: Option<RustlsConfig>, router: Router) -> std::io::Result<Self> {
        Self::start_with(ConnectionAcceptor::new(), address, tls, router)
    }

    fn start_with(
        connections: ConnectionAcceptor,
        address: SocketAddr,
        tls: Option<RustlsConfig>,
        router: Router,
    ) -> std::io::Result<Self> {
        let listener = bind(address)
            .map_err(|error| std::io::Error::new(error.kind(), format!("listen on {address}: {error}")))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let handle = Handle::new();
        let mut server = axum_server::from_tcp(listener)?.handle(handle.clone());
        let mut http = server.http_builder().http1();
        // Counts from the end of the last response. The timeout of the head itself starts with its first byte.
        http.timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT).max_buf_size(HEAD_LIMIT);
        let service = router.into_make_service();
        let task = match tls {
            Some(config) => {
                let acceptor = RustlsAcceptor::new(config)
                    .handshake_timeout(HANDSHAKE_TIMEOUT)
                    .acceptor(connections.before_handshake());
                tokio::spawn(server.acceptor(ClientCertificateAcceptor(acceptor)).http1_only().serve(service))
            }
            None => tokio::spawn(server.acceptor(connections).http1_only().serve(service)),
        };
        Ok(Self { address, handle, task })
    }

    /// Stops accepting, waits at most `grace` for open requests, and returns when all connections are closed.
    pub async fn drain(self, grace: Duration) {
        self.handle.graceful_shutdown(Some(grace));
        match self.task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(address = %self.address, %error, "server failed"),
            Err(error) => tracing::error!(address = %self.address, %error, "server task failed"),
        }
    }
}

/// Binds to the IPv4 wildcard address if the kernel has no IPv6.
fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).or_else(|error| {
        if address.ip().is_unspecified() && error.kind() != std::io::ErrorKind::AddrInUse {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))
        } else {
            Err(error)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;

    /// The answer to `request` until the server closes the connection. Paused time advances when all tasks wait.
    async fn response_to(request: &[u8]) -> String {
        let router = Router::new().fallback(async || "here");
        let server = HttpServer::start((Ipv4Addr::LOCALHOST, 0).into(), None, router).unwrap();
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        connection.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        // A server that rejects a request may reset the connection before reading all of it.
        let _ = connection.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    // docs/design/catalogd.md#server-limits: read timeout, keep-alive, limits
    #[tokio::test(start_paused = true)]
    async fn incomplete_or_oversized_requests_are_closed() {
        let complete = response_to(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(complete.starts_with("HTTP/1.1 200 OK") && complete.ends_with("here"), "{complete}");
        assert_eq!(response_to(b"").await, "");
        assert_eq!(response_to(b"GET / HTTP/1.1\r\nhost: ").await, "");
        let long = format!("GET / HTTP/1.1\r\nhost: x\r\nlong: {}", "x".repeat(HEAD_LIMIT));
        assert!(response_to(long.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    }

    /// A connection to a server that answers with the body of the request, or `here` if it is empty.
    async fn connected() -> TcpStream {
        let router = Router::new()
            .fallback(async |body: String| if body.is_empty() { "here".to_owned() } else { body });
        let server = HttpServer::start((Ipv4Addr::LOCALHOST, 0).into(), None, router).unwrap();
        TcpStream::connect(server.address).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn connection_idle_for_90_seconds_serves_next_request() {
        let mut connection = connected().await;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(100)).await;
            connection.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"here") {
                assert_ne!(connection.read_buf(&mut answer).await.unwrap(), 0, "closed");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dribbled_head_ends_connection_after_5_seconds_but_slow_body_does_not() {
        let second = Duration::from_secs(1);
        let mut connection = connected().await;
        connection.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n").await.unwrap();
        for byte in b"slow body" {
            tokio::time::sleep(second).await;
            connection.write_all(&[*byte]).await.unwrap();
        }
        let mut answer = Vec::new();
        while !answer.ends_with(b"slow body") {
            assert_ne!(connection.read_buf(&mut answer).await.unwrap(), 0, "closed");
        }
        tokio::time::sleep(60 * second).await;
        let began = tokio::time::Instant::now();
        let (mut reader, mut writer) = connection.split();
        let dribble = async {
            while writer.write_all(b"G").await.is_ok() {
                tokio::time::sleep(second).await;
            }
        };
        let mut byte = [0];
        tokio::select! {
            _ = reader.read(&mut byte) => {}
            () = dribble => {}
        }
        assert!((5 * second..8 * second).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    /// A connection from this loopback address, and whether it was answered rather than closed.
    async fn request_from(server: SocketAddr, from: [u8; 4]) -> (TcpStream, bool) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut connection = socket.connect(server).await.unwrap();
        // Fails if the connection is closed already.
        let _ = connection.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut begin = [0; 12];
        let is_answered = connection.read_exact(&mut begin).await.is_ok();
        (connection, is_answered)
    }

    // docs/design/operations.md#hardening: many clients
    #[tokio::test]
    async fn connections_per_address_are_limited() {
        const GREEDY: [u8; 4] = [127, 0, 0, 1];
        const MODEST: [u8; 4] = [127, 0, 0, 2];
        let router = Router::new().fallback(async || "here");
        let limits = ConnectionAcceptor::limited(3, 2);
        let server = HttpServer::start_with(limits, (Ipv4Addr::LOCALHOST, 0).into(), None, router).unwrap();
        let (first, is_answered) = request_from(server.address, GREEDY).await;
        assert!(is_answered);
        let (_second, is_answered) = request_from(server.address, GREEDY).await;
        assert!(is_answered);
        assert!(!request_from(server.address, GREEDY).await.1, "connection above the limit per address");
        assert!(request_from(server.address, MODEST).await.1);
        drop(first);
        // The server detects the closed connection asynchronously.
        while !request_from(server.address, GREEDY).await.1 {
            tokio::task::yield_now().await;
        }
    }
}
