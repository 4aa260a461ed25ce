//! Functions of Linux that have no equivalent elsewhere.

use std::fs::File;
use std::io::{self, IoSliceMut};

use rustix::io::{ReadWriteFlags, preadv2};
use rustls_pki_types::CertificateDer;
use socket2::SockRef;
use tokio::net::TcpStream;

/// Fills `buffer` from `offset` without waiting for the disk.
///
/// # Errors
/// Not all bytes are in the page cache, or cannot be read.
pub fn read_cached(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let length = buffer.len();
    let read = preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT)?;
    if read == length { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

/// Limits the unsent bytes of a connection in the kernel to about `bytes`.
///
/// # Errors
/// Those of the system.
pub fn limit_unsent(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    SockRef::from(stream).set_tcp_notsent_lowat(bytes)
}

/// CA certificates that the system keeps elsewhere than in files: none.
pub fn trusted_certificates() -> Vec<CertificateDer<'static>> {
    Vec::new()
}
