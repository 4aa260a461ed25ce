//! Loopback ports for programs that need a port number at their start.
//!
//! A port that was bound and released may be reused by the kernel at once, even for an outgoing connection. The ports
//! of this module are below the kernel's ephemeral range, and each is reserved for one test process until its end.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Linux assigns ephemeral ports from 32768, and clusters use 30000 to 32767 for node ports.
const FIRST: u16 = 20_000;
const COUNT: u16 = 8_000;

/// Abstract sockets whose names reserve the ports. The kernel releases them with the process.
static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Ports without a listener, reserved for this process.
///
/// # Errors
/// All ports are reserved.
pub fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut ports = [0; N];
    for port in &mut ports {
        *port = free_port()?;
    }
    Ok(ports)
}

/// Returns one port like [`free_ports`].
///
/// # Errors
/// All ports are reserved.
pub fn free_port() -> io::Result<u16> {
    // Processes start at different ports, so that they rarely conflict.
    let start = std::process::id().wrapping_mul(61);
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let used = u32::try_from(taken.len()).unwrap_or_default();
    for step in 0..u32::from(COUNT) {
        let offset = start.wrapping_add(used).wrapping_add(step) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).unwrap_or_default();
        let name = SocketAddr::from_abstract_name(format!("olm-test-port-{port}"))?;
        let Ok(mark) = UnixListener::bind_addr(&name) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            taken.push(mark);
            return Ok(port);
        }
    }
    Err(io::Error::other(format!("all ports from {FIRST} to {} are taken", FIRST + COUNT - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn free_ports_never_repeats_a_port() {
        let ports: HashSet<u16> = free_ports::<200>().unwrap().into();
        assert_eq!(ports.len(), 200);
        assert!(ports.iter().all(|port| (FIRST..FIRST + COUNT).contains(port)));
    }
}
