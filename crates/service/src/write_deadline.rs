//! Connections that do not wait for ever for a client to read (spec 02 §D9).

use std::future::{Future, Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Longest time in which a client takes nothing of what it asked for.
const WRITE_TIMEOUT: Duration = Duration::from_secs(300);

/// Gives every accepted connection the deadline, and sends small answers without delay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadlineAcceptor;

impl<S> Accept<TcpStream, S> for DeadlineAcceptor {
    type Stream = WriteDeadline<TcpStream>;
    type Service = S;
    type Future = Ready<io::Result<(Self::Stream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        ready(stream.set_nodelay(true).map(|()| (WriteDeadline::new(stream, WRITE_TIMEOUT), service)))
    }
}

/// A stream whose writes fail when none makes progress for a time.
#[derive(Debug)]
pub(crate) struct WriteDeadline<T> {
    stream: T,
    limit: Duration,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> WriteDeadline<T> {
    fn new(stream: T, limit: Duration) -> Self {
        Self { stream, limit, stalled: None }
    }

    fn watch<R>(&mut self, progress: Poll<io::Result<R>>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn only_a_stall_ends_the_connection() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut stream = WriteDeadline::new(near, Duration::from_secs(10));
        let reader = tokio::spawn(async move {
            let mut text = [0; 12];
            for part in text.chunks_mut(4) {
                tokio::time::sleep(Duration::from_secs(9)).await;
                far.read_exact(part).await.unwrap();
            }
            (text, far)
        });
        stream.write_all(b"slow but sure").await.unwrap();
        let (text, _far) = reader.await.unwrap();
        assert_eq!(&text, b"slow but sur");
        let stalled = stream.write_all(b"never read").await;
        assert_eq!(stalled.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
    }
}
