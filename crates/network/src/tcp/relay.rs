//! Relays bytes between the guest and the host's side, until both sides have ended or one has failed.
//!
//! There is no buffer in between: the kernel reads from and writes to the connection's own ring buffers. A side that
//! does not read stops the other from sending.

use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::connection::Connection;
use super::stream::GuestStream;
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
    let (mut from_guest, mut to_guest) = tokio::io::split(guest);
    let (mut from_host, mut to_host) = tokio::io::split(upstream);
    tokio::try_join!(copy(&mut from_guest, &mut to_host), copy(&mut from_host, &mut to_guest)).map(drop)
}

async fn copy<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(from: &mut R, to: &mut W) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
    }
}
