//! The host's own IPv4 addresses. A guest that reaches one of them would reach the host.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The addresses are read again after this time, so a new interface is noticed within it.
const KNOWN_FOR: Duration = Duration::from_secs(1);

static KNOWN: Mutex<Option<(Instant, Arc<[Ipv4Addr]>)>> = Mutex::new(None);

/// The addresses of all interfaces. If reading fails, the addresses that were read last.
pub fn addresses() -> io::Result<Arc<[Ipv4Addr]>> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some((at, addresses)) if at.elapsed() < KNOWN_FOR => return Ok(addresses.clone()),
        _ => {}
    }
    let addresses = match (read(), &*known) {
        (Err(error), None) => return Err(error),
        (Ok(found), Some((_, before))) if found != **before => found.into(),
        (_, Some((_, before))) => before.clone(),
        (Ok(found), None) => found.into(),
    };
    *known = Some((Instant::now(), addresses.clone()));
    Ok(addresses)
}

fn read() -> io::Result<Vec<Ipv4Addr>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `getifaddrs` sets `first` to a list, or fails.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut found, mut next) = (Vec::new(), first);
    // SAFETY: each entry points to the next, and the last one to null. The list is freed below.
    while let Some(interface) = unsafe { next.as_ref() } {
        next = interface.ifa_next;
        // SAFETY: a non-null address starts with its family.
        let family = unsafe { interface.ifa_addr.as_ref() }.map(|address| i32::from(address.sa_family));
        if family == Some(libc::AF_INET) {
            // SAFETY: an AF_INET address is a `sockaddr_in`.
            let address = unsafe { interface.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            found.push(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)));
        }
    }
    // SAFETY: `first` came from `getifaddrs`, and nothing in the list is used afterwards.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_cached_for_a_moment() {
        let first = addresses().unwrap();
        assert!(Arc::ptr_eq(&first, &addresses().unwrap()));
        assert!(first.iter().all(|address| !address.is_unspecified()), "{first:?}");
    }
}
