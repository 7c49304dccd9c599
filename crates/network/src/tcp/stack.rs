//! The TCP stack of one connection with the guest.

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet, SocketStorage};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpListenEndpoint};

use crate::frame::{ETHERNET_HEADER, encapsulate};
use crate::link::Link;

/// The start of smoltcp's clock.
static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// The gateway's end of one connection with the guest.
pub struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl Stack {
    /// Listens as `address` on `port`, with a buffer of `buffer` bytes in each direction. It accepts the first SYN that
    /// it gets.
    pub fn listening(link: &Link, address: Ipv4Addr, port: u16, buffer: usize) -> Option<Stack> {
        let mut stack = Stack::new(link, address, buffer);
        let endpoint = IpListenEndpoint { addr: Some(IpAddress::Ipv4(address)), port };
        stack.socket().listen(endpoint).ok()?;
        Some(stack)
    }

    /// Connects to `port` of the guest, from the gateway's `from_port`.
    pub fn dialling(link: &Link, port: u16, from_port: u16, buffer: usize) -> Option<Stack> {
        let mut stack = Stack::new(link, link.ends.gateway_address, buffer);
        let guest = (IpAddress::Ipv4(link.ends.guest_address), port);
        let socket = stack.sockets.get_mut::<Socket<'_>>(stack.handle);
        socket.connect(stack.interface.context(), guest, from_port).ok()?;
        Some(stack)
    }

    fn new(link: &Link, address: Ipv4Addr, buffer: usize) -> Stack {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed();
        let mut interface = Interface::new(config, &mut Port { link, packet: None }, now());
        interface.update_ip_addrs(|addresses| {
            // One address fits, because smoltcp is built with room for one.
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(address), 32));
        });
        let mut socket = Socket::new(SocketBuffer::new(vec![0; buffer]), SocketBuffer::new(vec![0; buffer]));
        // The host's side has already split the data as its sender intended.
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(vec![SocketStorage::EMPTY]);
        let handle = sockets.add(socket);
        Stack { interface, sockets, handle }
    }

    /// The socket.
    pub fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Processes a packet of the guest, if there is one, and sends what can be sent.
    pub fn exchange(&mut self, link: &Link, packet: Option<&[u8]>) {
        self.interface.poll(now(), &mut Port { link, packet }, &mut self.sockets);
    }

    /// When `exchange` must be called again even if no packet arrives.
    pub fn due(&mut self) -> Option<std::time::Duration> {
        self.interface.poll_delay(now(), &self.sockets).map(Into::into)
    }
}

/// The current time of smoltcp's clock.
fn now() -> Instant {
    Instant::from_micros(START.elapsed().as_micros() as i64)
}

/// A random seed, so that the remote ends of other connections cannot guess sequence numbers.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(_) => u64::from_ne_bytes(bytes),
        Err(_) => START.elapsed().as_nanos() as u64,
    }
}

/// The device that smoltcp uses: at most one incoming packet, and the link for outgoing ones.
struct Port<'a> {
    link: &'a Link,
    packet: Option<&'a [u8]>,
}

struct Received<'a>(&'a [u8]);

struct Sent<'a>(&'a Link);

impl Device for Port<'_> {
    type RxToken<'b>
        = Received<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Sent<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sent<'_>)> {
        let packet = self.packet.take()?;
        Some((Received(packet), Sent(self.link)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sent<'_>> {
        (!self.link.is_full()).then_some(Sent(self.link))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = usize::from(self.link.ends.mtu);
        capabilities
    }
}

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut frame = vec![0; ETHERNET_HEADER + length];
        encapsulate(&self.0.ends, &mut frame);
        let result = fill(&mut frame[ETHERNET_HEADER..]);
        self.0.send(frame);
        result
    }
}
