//! Ports of loopback for programs that are told where to listen.
//!
//! A port that the kernel handed out and got back is soon handed out again, be it to an outgoing connection. These lie below
//! the range that it hands out, and each belongs to one test process as long as that lives.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Linux hands out 32768 and above, clusters use 30000 to 32767 for node ports.
const FIRST: u16 = 20_000;
const COUNT: u16 = 8_000;

/// The names that say that a port is taken. The kernel forgets them with the process.
static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Ports that nobody listens on, and that no other process gets from here while this one lives.
///
/// # Errors
/// All are taken.
pub fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut ports = [0; N];
    for port in &mut ports {
        *port = free_port()?;
    }
    Ok(ports)
}

/// As [`free_ports`], one of them.
///
/// # Errors
/// All are taken.
pub fn free_port() -> io::Result<u16> {
    // Processes begin at different places, so that they seldom meet.
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
    fn no_port_is_given_twice() {
        let ports: HashSet<u16> = free_ports::<200>().unwrap().into();
        assert_eq!(ports.len(), 200);
        assert!(ports.iter().all(|port| (FIRST..FIRST + COUNT).contains(port)));
    }
}
