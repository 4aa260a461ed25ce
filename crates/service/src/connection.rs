//! Accepted connections: not too many at once, not all of them of one client, and none that waits for ever for it
//! (spec 02 §D9, spec 06 §10.2).

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tower::Service;

/// A response must be taken whole within this time from its request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(300);
/// Connections of a server at once; each may hold some hundred kilobytes.
const CONNECTIONS: usize = 1000;
/// A connection beyond these waits so long for another one to end.
const PLACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections of one address at once; those beyond are closed. Generous, because behind the address of a node, a proxy
/// or a port-forward there may be many clients: they keep each other out long before they keep out everybody else.
const CONNECTIONS_PER_ADDRESS: usize = CONNECTIONS / 2;

/// Gives an accepted connection its place and its deadline, and sends small answers without delay.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionAcceptor {
    places: Arc<Semaphore>,
    clients: Arc<Clients>,
}

impl ConnectionAcceptor {
    pub(crate) fn new() -> Self {
        Self::limited(CONNECTIONS, CONNECTIONS_PER_ADDRESS)
    }

    /// At most so many connections at once, in all and of one address.
    pub(crate) fn limited(connections: usize, per_address: usize) -> Self {
        let clients = Arc::new(Clients { most: per_address, connected: Mutex::default() });
        Self { places: Arc::new(Semaphore::new(connections)), clients }
    }
}

/// How many connections each address has, of those that wait for a place as well.
#[derive(Debug)]
struct Clients {
    most: usize,
    connected: Mutex<HashMap<IpAddr, usize>>,
}

impl Clients {
    /// One more connection of `address`, until what is returned is dropped; `None` where it has too many.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Client> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = connected.entry(address).or_default();
        if *of_address >= self.most {
            return None;
        }
        *of_address += 1;
        Some(Client { clients: Arc::clone(self), address })
    }
}

/// A connection of an address.
#[derive(Debug)]
struct Client {
    clients: Arc<Clients>,
    address: IpAddr,
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut connected = self.clients.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_address) = connected.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                connected.remove(&self.address);
            }
        }
    }
}

/// What an accepted connection counts for, as long as it is open.
#[derive(Debug)]
struct Admission {
    _client: Client,
    _place: OwnedSemaphorePermit,
}

impl<S: Send + 'static> Accept<TcpStream, S> for ConnectionAcceptor {
    type Stream = WriteDeadline<TcpStream>;
    type Service = Timed<S>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let (places, clients) = (Arc::clone(&self.places), Arc::clone(&self.clients));
        Box::pin(async move {
            let address = stream.peer_addr()?.ip().to_canonical();
            let client = clients.admit(address).ok_or(io::ErrorKind::QuotaExceeded)?;
            let place = tokio::time::timeout(PLACE_TIMEOUT, places.acquire_owned()).await?;
            stream.set_nodelay(true)?;
            let deadline = Deadline::new(WRITE_TIMEOUT);
            let admission = Admission { _client: client, _place: place.map_err(io::Error::other)? };
            let stream = WriteDeadline {
                stream,
                deadline: deadline.clone(),
                waiting: None,
                _admission: Some(admission),
            };
            Ok((stream, Timed { service, deadline }))
        })
    }
}

/// When the response that a connection is sending must be gone.
#[derive(Clone, Debug)]
struct Deadline {
    at: Arc<Mutex<Instant>>,
    limit: Duration,
}

impl Deadline {
    fn new(limit: Duration) -> Self {
        Self { at: Arc::new(Mutex::new(Instant::now() + limit)), limit }
    }

    fn get(&self) -> Instant {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + self.limit;
    }
}

/// A connection's service: each request begins the time of its response.
#[derive(Clone, Debug)]
pub(crate) struct Timed<S> {
    service: S,
    deadline: Deadline,
}

impl<S: Service<R>, R> Service<R> for Timed<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.deadline.begin();
        self.service.call(request)
    }
}

/// A stream whose writes fail when they wait beyond the deadline.
#[derive(Debug)]
pub(crate) struct WriteDeadline<T> {
    stream: T,
    deadline: Deadline,
    /// Made when a write waits for the first time.
    waiting: Option<Pin<Box<Sleep>>>,
    _admission: Option<Admission>,
}

impl<T> WriteDeadline<T> {
    fn watch<R>(&mut self, progress: Poll<io::Result<R>>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        if progress.is_ready() {
            return progress;
        }
        let at = self.deadline.get();
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if waiting.deadline() != at {
            waiting.as_mut().reset(at);
        }
        waiting.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteDeadline<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<T> {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn limited(limit: Duration) -> (WriteDeadline<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let (near, far) = tokio::io::duplex(4);
        let deadline = Deadline::new(limit);
        (WriteDeadline { stream: near, deadline, waiting: None, _admission: None }, far)
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_must_be_taken_in_time() {
        let (mut stream, mut far) = limited(Duration::from_secs(10));
        let mut service = Timed {
            service: tower::service_fn(async |()| Ok::<_, ()>(())),
            deadline: stream.deadline.clone(),
        };
        let reader = tokio::spawn(async move {
            let mut text = [0; 12];
            for part in text.chunks_mut(4) {
                tokio::time::sleep(Duration::from_secs(4)).await;
                far.read_exact(part).await.unwrap();
            }
            (text, far)
        });
        // Each request begins the time anew; reading slowly within it is fine, dripping beyond it is not.
        stream.write_all(b"slow bu").await.unwrap();
        service.call(()).await.unwrap();
        stream.write_all(b"t sure...").await.unwrap();
        let (text, mut far) = reader.await.unwrap();
        assert_eq!(&text, b"slow but sur");
        let dripping = tokio::spawn(async move {
            let mut byte = [0];
            while far.read_exact(&mut byte).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        });
        let late = stream.write_all(&[0; 100]).await;
        assert_eq!(late.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        drop(stream);
        dripping.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_too_many_waits_for_a_place() {
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
            _ = &mut second => panic!("there was no place"),
            () = tokio::task::yield_now() => {}
        }
        drop(first);
        let _second = second.await.unwrap().unwrap();
        tokio::time::pause();
        assert_eq!(third.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
