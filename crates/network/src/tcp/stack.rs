//! The TCP of one connection with the guest.

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet, SocketStorage};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpListenEndpoint};

use crate::event::Counters;
use crate::frame::{ETHERNET_HEADER, Ends, encapsulate};
use crate::link::Link;

/// The moment from which smoltcp's clock counts.
static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// One connection's end towards the guest.
pub struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

/// Where frames go, and whom they are between.
#[derive(Clone, Copy)]
pub struct Cable<'a> {
    pub ends: &'a Ends,
    pub link: &'a Link,
    pub counters: &'a Counters,
}

impl Stack {
    /// Answers as `address` on `port`, with a buffer of so many bytes each way. Fed with a SYN it accepts it.
    pub fn listening(cable: Cable<'_>, address: Ipv4Addr, port: u16, buffer: usize) -> Option<Stack> {
        let mut stack = Stack::new(cable, address, buffer);
        let endpoint = IpListenEndpoint { addr: Some(IpAddress::Ipv4(address)), port };
        stack.socket().listen(endpoint).ok()?;
        Some(stack)
    }

    /// Connects to `port` of the guest, as the gateway's `from_port`.
    pub fn dialling(cable: Cable<'_>, port: u16, from_port: u16, buffer: usize) -> Option<Stack> {
        let mut stack = Stack::new(cable, cable.ends.gateway_address, buffer);
        let guest = (IpAddress::Ipv4(cable.ends.guest_address), port);
        let socket = stack.sockets.get_mut::<Socket<'_>>(stack.handle);
        socket.connect(stack.interface.context(), guest, from_port).ok()?;
        Some(stack)
    }

    fn new(cable: Cable<'_>, address: Ipv4Addr, buffer: usize) -> Stack {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed();
        let mut interface = Interface::new(config, &mut Port { cable, packet: None }, now());
        interface.update_ip_addrs(|addresses| {
            // One address fits: the crate is built with room for just that.
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(address), 32));
        });
        let mut socket = Socket::new(SocketBuffer::new(vec![0; buffer]), SocketBuffer::new(vec![0; buffer]));
        // What the host's side sends is already cut as its sender meant it.
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(vec![SocketStorage::EMPTY]);
        let handle = sockets.add(socket);
        Stack { interface, sockets, handle }
    }

    /// The socket.
    pub fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Takes in a packet of the guest's, and sends whatever can be sent.
    pub fn exchange(&mut self, cable: Cable<'_>, packet: Option<&[u8]>) {
        self.interface.poll(now(), &mut Port { cable, packet }, &mut self.sockets);
    }

    /// When `exchange` must be called again even if nothing happens.
    pub fn due(&mut self) -> Option<std::time::Duration> {
        self.interface.poll_delay(now(), &self.sockets).map(Into::into)
    }
}

/// smoltcp's time of now.
fn now() -> Instant {
    Instant::from_micros(START.elapsed().as_micros() as i64)
}

/// Sequence numbers must not be guessed by whoever is behind the guest's other connections.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(_) => u64::from_ne_bytes(bytes),
        Err(_) => START.elapsed().as_nanos() as u64,
    }
}

/// The device smoltcp sees: at most one packet in, and the link for packets out.
struct Port<'a> {
    cable: Cable<'a>,
    packet: Option<&'a [u8]>,
}

struct Received<'a>(&'a [u8]);

struct Sent<'a>(Cable<'a>);

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
        Some((Received(packet), Sent(self.cable)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sent<'_>> {
        (!self.cable.link.is_full()).then_some(Sent(self.cable))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = usize::from(self.cable.ends.mtu);
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
        encapsulate(self.0.ends, &mut frame);
        let result = fill(&mut frame[ETHERNET_HEADER..]);
        self.0.link.send(frame, self.0.counters);
        result
    }
}
