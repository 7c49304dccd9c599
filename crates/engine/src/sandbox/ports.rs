//! Ports of a sandbox: which are open, and a way to them through the control channel.

use std::sync::Arc;

use sandling_protocol::{Event, Outcome, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::activity::InUse;
use super::error::UseError;
use super::handle::Sandbox;
use crate::link::{Incoming, LinkError, Stream};

const TUNNEL_BUFFER: usize = 64 * 1024;

impl Sandbox {
    /// TCP ports on which programs in the sandbox listen.
    pub async fn ports(&self) -> Result<Vec<u16>, UseError> {
        match self.ask(Request::ListPorts).await? {
            Response::Ports { ports } => Ok(ports),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// A TCP connection to a port on the sandbox's loopback.
    pub async fn connect_port(self: &Arc<Self>, port: u16) -> Result<DuplexStream, UseError> {
        let (live, in_use) = self.live()?;
        let mut stream = live.link.open(Request::Connect { port }, &[])?;
        match stream.next().await? {
            Incoming::Event(Event::Connected) => {}
            Incoming::End(Outcome::Failed(failure)) => return Err(LinkError::Failed(failure).into()),
            _ => return Err(LinkError::Unexpected.into()),
        }
        let (ours, theirs) = tokio::io::duplex(TUNNEL_BUFFER);
        tokio::spawn(carry(stream, theirs, in_use.lasting()));
        Ok(ours)
    }
}

/// Moves bytes between a stream and our end of the tunnel until the guest ends it or the other end is dropped.
async fn carry(mut stream: Stream, tunnel: DuplexStream, _in_use: InUse) {
    let (mut from_host, mut to_host) = tokio::io::split(tunnel);
    let sender = stream.sender();
    let outbound = async {
        let mut buffer = vec![0; TUNNEL_BUFFER];
        while let Ok(read @ 1..) = from_host.read(&mut buffer).await {
            if sender.send(&buffer[..read]).await.is_err() {
                return;
            }
        }
        let _ = sender.finish();
    };
    let inbound = async {
        while let Ok(Incoming::Data { bytes, .. }) = stream.next().await {
            if to_host.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to_host.shutdown().await;
    };
    // The guest's end decides: what it still sends after our end of file must arrive.
    tokio::select! {
        () = inbound => {}
        () = async { outbound.await; std::future::pending::<()>().await } => {}
    }
}
