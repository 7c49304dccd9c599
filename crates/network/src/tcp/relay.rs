//! Relays bytes between the guest and the host's side, until both sides have ended or one has failed.
//!
//! There is no buffer in between: the kernel reads from and writes to the connection's own ring buffers. A side that
//! does not read stops the other from sending.

use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::connection::Connection;
use super::stream::GuestStream;
use crate::policy::Refusal;
use crate::traffic::Traffic;

/// Relays both directions. `first` has already been read from the guest.
pub(crate) async fn relay(
    connection: &Connection,
    upstream: &TcpStream,
    traffic: &Traffic,
    first: &[u8],
) -> io::Result<()> {
    let outward = async {
        write_all(upstream, first).await?;
        outward(connection, upstream, traffic).await
    };
    tokio::try_join!(outward, inward(connection, upstream, traffic)).map(drop)
}

async fn write_all(upstream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        upstream.writable().await?;
        match upstream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn outward(connection: &Connection, upstream: &TcpStream, traffic: &Traffic) -> io::Result<()> {
    loop {
        connection.readable().await;
        upstream.writable().await?;
        match connection.receive(|bytes| if bytes.is_empty() { Ok(0) } else { upstream.try_write(bytes) }) {
            Ok(0) => return shut_down(upstream),
            Ok(count) => rest(traffic.outward(count).map_err(io::Error::other)?).await,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn inward(connection: &Connection, upstream: &TcpStream, traffic: &Traffic) -> io::Result<()> {
    loop {
        connection.writable().await;
        tokio::select! {
            ready = upstream.readable() => ready?,
            () = connection.lost() => return Err(ErrorKind::ConnectionReset.into()),
        }
        match connection.send(|room| upstream.try_read(room)) {
            Ok(0) => {
                connection.finish();
                return Ok(());
            }
            Ok(count) => rest(traffic.inward(count)).await,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

fn shut_down(upstream: &TcpStream) -> io::Result<()> {
    match rustix::net::shutdown(upstream, rustix::net::Shutdown::Write) {
        Err(rustix::io::Errno::NOTCONN) => Ok(()),
        done => Ok(done?),
    }
}

async fn rest(wait: Duration) {
    if wait > Duration::ZERO {
        tokio::time::sleep(wait).await;
    }
}

/// Relays both directions between the guest and any stream.
pub(crate) async fn relay_stream<S>(guest: GuestStream, upstream: S) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite,
{
    let (from_guest, to_guest) = tokio::io::split(guest);
    let (from_host, to_host) = tokio::io::split(upstream);
    tokio::try_join!(copy(from_guest, to_host, unchanged), copy(from_host, to_guest, unchanged)).map(drop)
}

fn unchanged(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Refusal> {
    Ok(Cow::Borrowed(bytes))
}

/// Copies bytes through `transform`, up to the end of the stream.
pub(crate) async fn copy<R, W, F>(mut from: R, mut to: W, mut transform: F) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    F: FnMut(&[u8]) -> Result<Cow<'_, [u8]>, Refusal>,
{
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&transform(&buffer[..count]).map_err(io::Error::other)?).await?;
        to.flush().await?;
    }
}
