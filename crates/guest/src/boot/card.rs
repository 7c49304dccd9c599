//! The network card. It is set up once, before the machine is saved: every sandbox has the same address, on a network
//! that it shares with its gateway only.
//!
//! The gateway decides what the sandbox can reach, so a configured card grants no access by itself.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The kernel's name for the first card.
const CARD: &str = "eth0";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 83, 76, 2);
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 83, 76, 1);
/// The largest that the gateway accepts: fewer packets mean less emulation.
const MTU: i32 = 16_000;

const RESOLVERS: &str = "/etc/resolv.conf";

/// Brings the loopback interface up, and the card if there is one.
pub fn bring_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    raise(&socket, "lo")?;
    if !Path::new("/sys/class/net").join(CARD).exists() {
        return Ok(());
    }
    // No router will ever answer. Without this, every restore would begin with a router solicitation.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{CARD}/disable_ipv6"), "1");
    change(&socket, libc::SIOCSIFMTU, CARD, |request| request.ifr_ifru.ifru_mtu = MTU)?;
    change(&socket, libc::SIOCSIFADDR, CARD, |request| request.ifr_ifru.ifru_addr = plain(ADDRESS))?;
    change(&socket, libc::SIOCSIFNETMASK, CARD, |request| request.ifr_ifru.ifru_netmask = plain(MASK))?;
    raise(&socket, CARD)?;
    route(&socket)?;
    // It may be a link to the file of a service that does not run here.
    let _ = fs::remove_file(RESOLVERS);
    fs::write(RESOLVERS, format!("nameserver {GATEWAY}\n"))
}

fn raise(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    change(socket, libc::SIOCSIFFLAGS, name, |request| request.ifr_ifru.ifru_flags = up)
}

fn change(socket: &OwnedFd, what: libc::Ioctl, name: &str, set: impl FnOnce(&mut libc::ifreq)) -> io::Result<()> {
    // SAFETY: all bytes zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    set(&mut request);
    // SAFETY: the kernel reads and writes the request while it lives.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) })
}

/// Makes the gateway the default route.
fn route(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: all bytes zero is a valid `rtentry`.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = plain(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = plain(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = plain(GATEWAY);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    // SAFETY: the kernel reads the route while it lives.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT, &raw mut route) })
}

fn plain(address: Ipv4Addr) -> libc::sockaddr {
    let mut bytes = [0; 14];
    // The address follows the port.
    for (to, from) in bytes[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: bytes }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
