//! A guest: smoltcp at the end of the cable, with streams, DNS queries and raw frames.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RData, RecordType};
use sandling_network::Ends;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpEndpoint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::cable::{Cable, Queues};

/// How long a guest waits for something that should happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A guest with a network card, an address and a route.
pub struct Guest {
    pub ends: Ends,
    shared: Arc<Shared>,
    frames: mpsc::UnboundedReceiver<Vec<u8>>,
    driver: AbortHandle,
}

struct Shared {
    stack: Mutex<Stack>,
    cable: Cable,
    kick: Notify,
}

struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    queues: Queues,
    next_port: u16,
    /// A stopped guest receives nothing.
    stopped: bool,
}

/// A UDP socket of the guest.
pub struct Datagrams {
    shared: Arc<Shared>,
    handle: SocketHandle,
    pub port: u16,
}

/// A TCP connection of the guest.
pub struct Stream {
    shared: Arc<Shared>,
    handle: SocketHandle,
}

fn now() -> Instant {
    Instant::now()
}

impl Guest {
    pub fn start(own: PathBuf, gateway: PathBuf, ends: Ends, mtu: usize) -> Guest {
        let mut queues = Queues { mtu, ..Queues::default() };
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(ends.guest_mac.0)));
        let mut interface = Interface::new(config, &mut queues, now());
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::Ipv4(ends.guest_address), ends.prefix_length)).unwrap();
        });
        interface.routes_mut().add_default_ipv4_route(ends.gateway_address).unwrap();
        let sockets = SocketSet::new(Vec::new());
        let stack = Stack { interface, sockets, queues, next_port: 40_000, stopped: false };
        let cable = Cable::bind(own, gateway);
        let shared = Arc::new(Shared { stack: Mutex::new(stack), cable, kick: Notify::new() });
        let (tell, frames) = mpsc::unbounded_channel();
        let driver = tokio::spawn(drive(shared.clone(), tell)).abort_handle();
        Guest { ends, shared, frames, driver }
    }

    /// Stops receiving frames, or resumes.
    pub fn set_stopped(&self, stopped: bool) {
        self.shared.stack.lock().unwrap().stopped = stopped;
        self.shared.kick.notify_one();
    }

    /// Starts a connection.
    pub fn dial(&self, address: impl Into<Ipv4Addr>, port: u16) -> Stream {
        self.dial_with(address, port, 128 * 1024)
    }

    /// Starts a connection with a receive buffer of this size.
    pub fn dial_with(&self, address: impl Into<Ipv4Addr>, port: u16, room: usize) -> Stream {
        let mut stack = self.shared.stack.lock().unwrap();
        let Stack { interface, sockets, next_port, .. } = &mut *stack;
        let buffer = |size| tcp::SocketBuffer::new(vec![0; size]);
        let mut socket = tcp::Socket::new(buffer(room), buffer(room));
        *next_port += 1;
        let to = IpEndpoint::new(IpAddress::Ipv4(address.into()), port);
        socket.connect(interface.context(), to, *next_port).unwrap();
        let handle = sockets.add(socket);
        drop(stack);
        self.shared.kick.notify_one();
        Stream { shared: self.shared.clone(), handle }
    }

    /// Connects, or returns how that failed.
    pub async fn connect(&self, address: impl Into<Ipv4Addr>, port: u16) -> io::Result<Stream> {
        let stream = self.dial(address, port);
        stream.established().await?;
        Ok(stream)
    }

    /// Waits for a connection on `port`.
    pub async fn accept(&self, port: u16) -> io::Result<Stream> {
        let mut socket =
            tcp::Socket::new(tcp::SocketBuffer::new(vec![0; 65536]), tcp::SocketBuffer::new(vec![0; 65536]));
        socket.listen(port).unwrap();
        let handle = self.shared.stack.lock().unwrap().sockets.add(socket);
        let stream = Stream { shared: self.shared.clone(), handle };
        stream.established().await?;
        Ok(stream)
    }

    /// Opens a UDP socket.
    pub fn datagrams(&self) -> Datagrams {
        let mut stack = self.shared.stack.lock().unwrap();
        stack.next_port += 1;
        let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 64], vec![0; 65536]);
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket.bind(stack.next_port).unwrap();
        Datagrams { shared: self.shared.clone(), port: stack.next_port, handle: stack.sockets.add(socket) }
    }

    /// Sends a message to a UDP port and waits for a reply.
    pub async fn ask_udp(
        &self,
        address: impl Into<Ipv4Addr>,
        port: u16,
        bytes: &[u8],
        wait: Duration,
    ) -> Option<Vec<u8>> {
        let datagrams = self.datagrams();
        datagrams.send(address, port, bytes);
        datagrams.receive(wait).await
    }

    /// Queries the gateway for a record.
    pub async fn query(&self, name: &str, kind: RecordType) -> Message {
        let answer = self.ask_udp(self.ends.gateway_address, 53, &question(name, kind), PATIENCE).await;
        Message::from_vec(&answer.expect("no answer to a DNS query")).unwrap()
    }

    /// The addresses of a name.
    pub async fn resolve(&self, name: &str) -> Vec<Ipv4Addr> {
        let answers = self.query(name, RecordType::A).await.answers;
        answers
            .iter()
            .filter_map(|record| if let RData::A(address) = &record.data { Some(address.0) } else { None })
            .collect()
    }

    /// Sends a raw frame.
    pub async fn inject(&self, frame: &[u8]) {
        self.shared.cable.send(frame).await;
    }

    /// The next frame from the gateway that matches `wanted`.
    pub async fn frame<T>(&mut self, wanted: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        self.frame_within(Duration::from_secs(5), wanted).await
    }

    /// The next frame that matches `wanted`, within a given time.
    pub async fn frame_within<T>(&mut self, wait: Duration, wanted: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        let found = async {
            loop {
                let frame = self.frames.recv().await?;
                if let Some(found) = wanted(&frame) {
                    return Some(found);
                }
            }
        };
        timeout(wait, found).await.ok().flatten()
    }

    /// Stops recording frames.
    pub fn look_away(&mut self) {
        self.frames.close();
        self.forget_frames();
    }

    /// Discards the recorded frames.
    pub fn forget_frames(&mut self) {
        while self.frames.try_recv().is_ok() {}
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A DNS query message.
pub fn question(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.metadata.recursion_desired = true;
    message.to_vec().unwrap()
}

async fn drive(shared: Arc<Shared>, tell: mpsc::UnboundedSender<Vec<u8>>) {
    let mut room = vec![0; 70_000];
    loop {
        let (outgoing, wait) = {
            let mut stack = shared.stack.lock().unwrap();
            let Stack { interface, sockets, queues, stopped, .. } = &mut *stack;
            if !*stopped {
                interface.poll(now(), queues, sockets);
            }
            let wait = interface.poll_delay(now(), sockets).map_or(Duration::from_secs(1), Into::into);
            (std::mem::take(&mut queues.outgoing), if *stopped { Duration::from_secs(1) } else { wait })
        };
        let moved = !outgoing.is_empty();
        for frame in outgoing {
            shared.cable.send(&frame).await;
        }
        let stopped = shared.stack.lock().unwrap().stopped;
        tokio::select! {
            received = shared.cable.socket.recv(&mut room), if !stopped => {
                let mut length = Some(received.unwrap());
                while let Some(count) = length {
                    if !tell.is_closed() {
                        let _ = tell.send(room[..count].to_vec());
                    }
                    shared.stack.lock().unwrap().queues.incoming.push_back(room[..count].to_vec());
                    length = shared.cable.socket.try_recv(&mut room).ok();
                }
            }
            () = shared.kick.notified() => {}
            () = tokio::time::sleep(if moved { Duration::ZERO } else { wait }) => {}
        }
    }
}

impl Datagrams {
    /// Sends a datagram.
    pub fn send(&self, address: impl Into<Ipv4Addr>, port: u16, bytes: &[u8]) {
        let to = IpEndpoint::new(IpAddress::Ipv4(address.into()), port);
        self.shared
            .stack
            .lock()
            .unwrap()
            .sockets
            .get_mut::<udp::Socket<'_>>(self.handle)
            .send_slice(bytes, to)
            .unwrap();
        self.shared.kick.notify_one();
    }

    /// The next datagram that arrives in time.
    pub async fn receive(&self, wait: Duration) -> Option<Vec<u8>> {
        self.receive_from(wait).await.map(|(bytes, _)| bytes)
    }

    /// The next datagram that arrives in time, and its sender.
    pub async fn receive_from(&self, wait: Duration) -> Option<(Vec<u8>, IpEndpoint)> {
        let coming = std::future::poll_fn(|context| {
            let mut stack = self.shared.stack.lock().unwrap();
            let socket = stack.sockets.get_mut::<udp::Socket<'_>>(self.handle);
            match socket.recv() {
                Ok((bytes, from)) => Poll::Ready((bytes.to_vec(), from.endpoint)),
                Err(_) => {
                    socket.register_recv_waker(context.waker());
                    Poll::Pending
                }
            }
        });
        timeout(wait, coming).await.ok()
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.shared.stack.lock().unwrap().sockets.remove(self.handle);
    }
}

impl Stream {
    fn with<R>(&self, act: impl FnOnce(&mut tcp::Socket<'static>) -> R) -> R {
        let result = act(self.shared.stack.lock().unwrap().sockets.get_mut(self.handle));
        self.shared.kick.notify_one();
        result
    }

    /// Waits until the connection is established or refused.
    pub async fn established(&self) -> io::Result<()> {
        let waiting = std::future::poll_fn(|context| {
            self.with(|socket| match socket.state() {
                tcp::State::SynSent | tcp::State::SynReceived | tcp::State::Listen => {
                    socket.register_send_waker(context.waker());
                    Poll::Pending
                }
                tcp::State::Closed => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
                _ => Poll::Ready(Ok(())),
            })
        });
        timeout(PATIENCE, waiting).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// The guest's port.
    pub fn port(&self) -> u16 {
        self.with(|socket| socket.local_endpoint().unwrap().port)
    }

    /// Ends the connection with a reset.
    pub fn abort(&self) {
        self.with(tcp::Socket::abort);
    }

    /// Waits until the other side has reset the connection.
    pub async fn reset(&self) -> bool {
        let gone = std::future::poll_fn(|context| {
            self.with(|socket| {
                if socket.state() == tcp::State::Closed {
                    return Poll::Ready(());
                }
                socket.register_recv_waker(context.waker());
                Poll::Pending
            })
        });
        timeout(PATIENCE, gone).await.is_ok()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut stack = self.shared.stack.lock().unwrap();
        stack.sockets.get_mut::<tcp::Socket<'_>>(self.handle).close();
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|socket| {
            if socket.can_recv() {
                let taken = socket.recv(|bytes| {
                    let count = bytes.len().min(room.remaining());
                    room.put_slice(&bytes[..count]);
                    (count, ())
                });
                return Poll::Ready(taken.map_err(|_| io::ErrorKind::ConnectionReset.into()));
            }
            match socket.recv(|_| (0, ())) {
                Ok(()) => {
                    socket.register_recv_waker(context.waker());
                    Poll::Pending
                }
                Err(tcp::RecvError::Finished) => Poll::Ready(Ok(())),
                Err(tcp::RecvError::InvalidState) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            }
        })
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|socket| {
            if !socket.may_send() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            match socket.send_slice(bytes) {
                Ok(0) => {
                    socket.register_send_waker(context.waker());
                    Poll::Pending
                }
                Ok(count) => Poll::Ready(Ok(count)),
                Err(_) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(tcp::Socket::close);
        Poll::Ready(Ok(()))
    }
}
