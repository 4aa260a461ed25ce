//! Limits on accepted connections: their number in total and per client address, the time to send a request head,
//! and the time to receive a response.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::Accept;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tower::Service;

/// Maximum time from the first byte of a request head to its end.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time from a request to the end of its response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum number of connections of a server. Each may hold some hundred kilobytes.
const CONNECTIONS: usize = 1000;
/// Approximate number of unsent bytes in the kernel for a slow client. The default may be megabytes, which count
/// toward the container's memory.
const UNSENT_BYTES: u32 = 64 << 10;
/// Maximum wait of a further connection for another one to end.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of connections of one address. Further ones are closed. High, because many clients may share the
/// address of a node, a proxy or a port-forward: they compete with each other long before they exclude others.
const CONNECTIONS_PER_ADDRESS: usize = CONNECTIONS / 2;

/// Acceptor that enforces the limits, sets deadlines and enables `TCP_NODELAY`.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionAcceptor {
    permits: Arc<Semaphore>,
    clients: Arc<ConnectionCounts>,
    initial_read: ReadState,
}

impl ConnectionAcceptor {
    pub(crate) fn new() -> Self {
        Self::limited(CONNECTIONS, CONNECTIONS_PER_ADDRESS)
    }

    /// Limits the number of connections, in total and per address.
    pub(crate) fn limited(connections: usize, per_address: usize) -> Self {
        let clients = Arc::new(ConnectionCounts { limit: per_address, connected: Mutex::default() });
        Self { permits: Arc::new(Semaphore::new(connections)), clients, initial_read: ReadState::Idle }
    }

    /// Prepares for connections that begin with a TLS handshake, which ends with [`TimedService::expect_head`].
    pub(crate) fn before_handshake(self) -> Self {
        Self { initial_read: ReadState::Unlimited, ..self }
    }
}

/// Number of connections by address, including those that wait for a permit.
#[derive(Debug)]
struct ConnectionCounts {
    limit: usize,
    connected: Mutex<HashMap<IpAddr, usize>>,
}

impl ConnectionCounts {
    /// Counts one more connection of `address` until the result is dropped. `None` if it has too many.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<CountedConnection> {
        let mut connected = self.connected.lock();
        let of_address = connected.entry(address).or_default();
        if *of_address >= self.limit {
            return None;
        }
        *of_address += 1;
        Some(CountedConnection { clients: Arc::clone(self), address })
    }
}

#[derive(Debug)]
struct CountedConnection {
    clients: Arc<ConnectionCounts>,
    address: IpAddr,
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut connected = self.clients.connected.lock();
        if let Some(of_address) = connected.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                connected.remove(&self.address);
            }
        }
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for ConnectionAcceptor {
    type Stream = TimedStream<TcpStream>;
    type Service = TimedService<S>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let Self { permits, clients, initial_read } = self.clone();
        Box::pin(async move {
            let address = stream.peer_addr()?.ip().to_canonical();
            let client = clients.admit(address).ok_or(io::ErrorKind::QuotaExceeded)?;
            let permit = tokio::time::timeout(PERMIT_TIMEOUT, permits.acquire_owned()).await?;
            stream.set_nodelay(true)?;
            olm_os::limit_unsent(&stream, UNSENT_BYTES)?;
            let state = ConnectionState::shared(initial_read);
            let admission = (client, permit.map_err(io::Error::other)?);
            let stream = TimedStream {
                stream,
                state: Arc::clone(&state),
                read_timer: None,
                write_timer: None,
                _admission: Some(admission),
            };
            Ok((stream, TimedService { service, state }))
        })
    }
}

/// State of reading from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    /// Before the first byte of a request.
    Idle,
    /// Within a request head, which must be complete by this time.
    Head(Instant),
    /// Within a handshake or a request body, which have limits elsewhere.
    Unlimited,
}

/// State of reading, and the deadline of the current response.
#[derive(Debug)]
struct ConnectionState {
    reading: ReadState,
    write_by: Instant,
}

impl ConnectionState {
    fn shared(reading: ReadState) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { reading, write_by: Instant::now() + WRITE_TIMEOUT }))
    }
}

/// A connection's service. Each request ends the deadline of its head and starts that of its response.
#[derive(Clone, Debug)]
pub(crate) struct TimedService<S> {
    service: S,
    state: Arc<Mutex<ConnectionState>>,
}

impl<S> TimedService<S> {
    /// Expects the first byte of a request head next.
    pub(crate) fn expect_head(&self) {
        self.state.lock().reading = ReadState::Idle;
    }
}

impl<S: Service<R, Future: Send + 'static>, R> Service<R> for TimedService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let write_by = Instant::now() + WRITE_TIMEOUT;
        *self.state.lock() = ConnectionState { reading: ReadState::Unlimited, write_by };
        let response = self.service.call(request);
        let state = Arc::clone(&self.state);
        Box::pin(async move {
            let response = response.await;
            state.lock().reading = ReadState::Idle;
            response
        })
    }
}

/// A stream whose reads fail after the deadline of a request head, and whose writes fail after that of a response.
#[derive(Debug)]
pub(crate) struct TimedStream<T> {
    stream: T,
    state: Arc<Mutex<ConnectionState>>,
    read_timer: Timer,
    write_timer: Timer,
    /// Counters that an open connection holds.
    _admission: Option<(CountedConnection, OwnedSemaphorePermit)>,
}

/// Created when a connection waits for the first time.
type Timer = Option<Pin<Box<Sleep>>>;

/// Returns an error at `deadline`, pending before.
fn expire<R>(timer: &mut Timer, deadline: Instant, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
    if timer.deadline() != deadline {
        timer.as_mut().reset(deadline);
    }
    timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
}

impl<T> TimedStream<T> {
    fn watch<R>(&mut self, progress: Poll<io::Result<R>>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        if progress.is_ready() {
            return progress;
        }
        let deadline = self.state.lock().write_by;
        expire(&mut self.write_timer, deadline, cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let progress = Pin::new(&mut self.stream).poll_read(cx, buf);
        let mut exchange = self.state.lock();
        if exchange.reading == ReadState::Idle && buf.filled().len() > before {
            exchange.reading = ReadState::Head(Instant::now() + HEAD_TIMEOUT);
        }
        let reading = exchange.reading;
        drop(exchange);
        match reading {
            ReadState::Head(deadline) if progress.is_pending() => expire(&mut self.read_timer, deadline, cx),
            _ => progress,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimedStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(progress, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(progress, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(progress, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(progress, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::pin::pin;

    use socket2::SockRef;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};

    fn connected() -> (TimedStream<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let (near, far) = tokio::io::duplex(4);
        let state = ConnectionState::shared(ReadState::Unlimited);
        let stream =
            TimedStream { stream: near, state, read_timer: None, write_timer: None, _admission: None };
        (stream, far)
    }

    #[tokio::test(start_paused = true)]
    async fn response_that_is_not_read_in_time_fails() {
        let (mut stream, mut far) = connected();
        let mut service = TimedService {
            service: tower::service_fn(async |()| Ok::<_, ()>(())),
            state: Arc::clone(&stream.state),
        };
        let reader = tokio::spawn(async move {
            let mut text = [0; 12];
            for part in text.chunks_mut(4) {
                tokio::time::sleep(WRITE_TIMEOUT * 2 / 5).await;
                far.read_exact(part).await.unwrap();
            }
            (text, far)
        });
        // Each request restarts the timeout. Reading slowly within it succeeds, dripping beyond it fails.
        stream.write_all(b"slow bu").await.unwrap();
        service.call(()).await.unwrap();
        stream.write_all(b"t sure...").await.unwrap();
        let (text, mut far) = reader.await.unwrap();
        assert_eq!(&text, b"slow but sur");
        let dripping = tokio::spawn(async move {
            let mut byte = [0];
            while far.read_exact(&mut byte).await.is_ok() {
                tokio::time::sleep(WRITE_TIMEOUT * 3 / 10).await;
            }
        });
        let late = stream.write_all(&[0; 100]).await;
        assert_eq!(late.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        drop(stream);
        dripping.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn head_timeout_starts_with_first_byte_after_handshake() {
        let (mut stream, mut far) = connected();
        let timed = TimedService { service: (), state: Arc::clone(&stream.state) };
        let client = tokio::spawn(async move {
            far.write_all(b"h").await.unwrap();
            tokio::time::sleep(2 * HEAD_TIMEOUT).await;
            far.write_all(b"i").await.unwrap();
            tokio::time::sleep(20 * HEAD_TIMEOUT).await;
            far.write_all(b"G").await.unwrap();
            far
        });
        let mut handshake = [0; 2];
        stream.read_exact(&mut handshake).await.unwrap();
        timed.expect_head();
        let began = Instant::now();
        let mut head = [0; 2];
        let late = stream.read_exact(&mut head).await;
        assert_eq!((head[0], late.map_err(|error| error.kind())), (b'G', Err(io::ErrorKind::TimedOut)));
        assert_eq!(began.elapsed(), 21 * HEAD_TIMEOUT);
        client.await.unwrap();
    }

    #[tokio::test]
    async fn unsent_bytes_in_kernel_are_limited() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let client = TcpSocket::new_v4().unwrap();
        client.set_recv_buffer_size(4096).unwrap();
        let _connection = client.connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = listener.accept().await.unwrap().0;
        // Much more than the limit, and fixed: by default the kernel adapts it.
        SockRef::from(&stream).set_send_buffer_size(4 << 20).unwrap();
        let (mut stream, _) = ConnectionAcceptor::new().accept(stream, ()).await.unwrap();
        let mut taken = 0;
        while let Poll::Ready(written) = futures::poll!(pin!(stream.write(&[0; 4096]))) {
            taken += written.unwrap();
        }
        assert!(taken < 3 * UNSENT_BYTES as usize, "{taken} bytes");
    }

    #[tokio::test]
    async fn connection_above_limit_waits_then_times_out() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let acceptor = ConnectionAcceptor::limited(1, 3);
        let accept = async || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            (client, acceptor.accept(listener.accept().await.unwrap().0, ()))
        };
        let (_first_client, first) = accept().await;
        let first = first.await.unwrap();
        let (_second_client, second) = accept().await;
        let (_third_client, third) = accept().await;
        let mut second = tokio::spawn(second);
        tokio::select! {
            biased;
            _ = &mut second => panic!("accepted above the limit"),
            () = tokio::task::yield_now() => {}
        }
        drop(first);
        let _second = second.await.unwrap().unwrap();
        tokio::time::pause();
        assert_eq!(third.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
