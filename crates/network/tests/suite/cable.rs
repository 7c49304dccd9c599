//! The virtual machine's end of the cable, without QEMU.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use tokio::net::UnixDatagram;

/// A socket in the place of QEMU's.
pub struct Cable {
    pub socket: UnixDatagram,
    gateway: PathBuf,
    /// Connected, so that a send waits while the gateway does not read, without polling.
    sending: Mutex<Option<Arc<UnixDatagram>>>,
}

impl Cable {
    pub fn bind(own: PathBuf, gateway: PathBuf) -> Cable {
        let _ = std::fs::remove_file(&own);
        Cable { socket: UnixDatagram::bind(own).unwrap(), gateway, sending: Mutex::default() }
    }

    /// Sends a frame. Waits while the gateway does not read, and drops the frame if there is no gateway.
    pub async fn send(&self, frame: &[u8]) {
        for _ in 0..2 {
            let known = self.sending.lock().unwrap().clone();
            let Some(socket) = known.or_else(|| self.connect()) else { return };
            match socket.send(frame).await {
                Ok(_) => return,
                Err(_) => *self.sending.lock().unwrap() = None,
            }
        }
    }

    fn connect(&self) -> Option<Arc<UnixDatagram>> {
        let socket = UnixDatagram::unbound().unwrap();
        socket.connect(&self.gateway).ok()?;
        let socket = Arc::new(socket);
        *self.sending.lock().unwrap() = Some(socket.clone());
        Some(socket)
    }
}

/// Frames in memory, as a smoltcp device.
#[derive(Default)]
pub struct Queues {
    pub incoming: VecDeque<Vec<u8>>,
    pub outgoing: VecDeque<Vec<u8>>,
    pub mtu: usize,
}

pub struct Received(Vec<u8>);
pub struct Sent<'a>(&'a mut VecDeque<Vec<u8>>);

impl Device for Queues {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sent<'_>)> {
        let frame = self.incoming.pop_front()?;
        Some((Received(frame), Sent(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sent<'_>> {
        (self.outgoing.len() < 64).then_some(Sent(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities
    }
}

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut frame = vec![0; length];
        let result = fill(&mut frame);
        self.0.push_back(frame);
        result
    }
}
