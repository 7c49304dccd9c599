//! Runs one allowed connection from its first byte to its last. It judges what the connection shows, relays the bytes,
//! and ends the connection as soon as the policy no longer allows it.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::intercept::intercept;
use crate::destination::End;
use crate::event::{EventKind, Failure, Verdict};
use crate::http;
use crate::peers::PeerStream;
use crate::policy::{Refusal, Shown};
use crate::session::{Protocol, Session};
use crate::tcp::{Greeting, GuestStream, classify, relay, relay_stream};
use crate::tls::Hello;

/// How long the last bytes may take to reach the guest.
const LINGER: Duration = Duration::from_secs(30);

/// The host's side of a connection.
pub(crate) enum Upstream {
    Tcp(TcpStream),
    /// A connection to the upstream proxy, which has not been asked for anything.
    Proxy(TcpStream),
    Peer(PeerStream),
}

/// Runs the connection to its end.
pub(crate) async fn run(session: Session, upstream: Upstream) {
    session.note(EventKind::Connect, Verdict::Allowed, session.destination.only_name());
    let end = tokio::select! {
        end = talk(&session, upstream) => end.unwrap_or_else(|end| end),
        why = session.revoked() => End::Refused(why),
        () = session.traffic.idle(Duration::MAX) => End::Failed(Failure::Idle),
        () = over(&session) => End::Failed(Failure::Reset),
    };
    if end == End::Done {
        session.connection.finish();
        session.connection.over(LINGER).await;
    }
    session.connection.abort();
    session.closed(end);
}

/// Runs the connection's timers until it is closed, then waits until the host has taken the remaining bytes. A
/// connection that was replaced is not counted any more, so it does not wait.
async fn over(session: &Session) {
    session.connection.drive().await;
    let mut passed = None;
    while !session.connection.has_vanished() && passed != Some(session.traffic.counted()) {
        passed = Some(session.traffic.counted());
        tokio::time::sleep(LINGER).await;
    }
}

async fn talk(session: &Session, upstream: Upstream) -> Result<End, End> {
    let (mut stream, is_proxy) = match upstream {
        Upstream::Tcp(stream) => (stream, false),
        Upstream::Proxy(stream) => (stream, true),
        Upstream::Peer(peer) => {
            let guest = GuestStream::metered(session.connection.clone(), session.traffic.clone());
            relay_stream(guest, peer).await?;
            return Ok(End::Done);
        }
    };
    let (greeting, first) = greeting(session, &stream).await?;
    let proxy = session.shared.proxy_to(&session.destination).filter(|_| is_proxy);
    if let (Some((proxy, host)), false) = (&proxy, greeting == Greeting::Http) {
        proxy.open_tunnel(&mut stream, host, session.destination.port).await?;
    }
    match greeting {
        Greeting::Tls => tls(session, stream, first).await,
        Greeting::Http => {
            session.set_seen(None, Protocol::Http);
            http::relay_plain(session, stream, first, proxy.map(|(proxy, _)| proxy)).await
        }
        Greeting::Other | Greeting::Unsure => {
            session.judge(Shown::OtherProtocol)?;
            session.set_seen(None, Protocol::Other);
            session.shared.learn(&session.destination, Shown::OtherProtocol);
            pass_on(session, stream, &first).await
        }
    }
}

async fn pass_on(session: &Session, stream: TcpStream, first: &[u8]) -> Result<End, End> {
    // Only a connection that both sides have ended may end normally. Otherwise the server could mistake half of the
    // data for all of it.
    let _ = stream.set_zero_linger();
    relay(&session.connection, &stream, &session.traffic, first).await?;
    let _ = rustix::net::sockopt::set_socket_linger(&stream, None);
    Ok(End::Done)
}

/// Reads from the guest until the protocol is known. No byte that could still become TLS or HTTP is forwarded, however
/// long that takes. If the policy allows other protocols, the server may speak first to a silent guest.
async fn greeting(session: &Session, stream: &TcpStream) -> Result<(Greeting, Vec<u8>), End> {
    let mut first = Vec::new();
    let others_may = session.judge_quietly(Shown::OtherProtocol).is_ok();
    if others_may {
        tokio::select! {
            biased;
            () = session.connection.readable() => {}
            ready = stream.readable() => {
                ready.map_err(End::from)?;
                return Ok((Greeting::Other, first));
            }
        }
    }
    let reading = async {
        loop {
            match classify(&first) {
                // The guest has ended its side, so the protocol cannot become TLS or HTTP any more.
                Greeting::Unsure if !read_more(session, &mut first).await? => {
                    return Ok::<Greeting, End>(Greeting::Other);
                }
                Greeting::Unsure => {}
                known => return Ok(known),
            }
        }
    };
    let greeting = match timeout(session.shared.meters.limits().greeting, reading).await {
        Ok(greeting) => greeting?,
        Err(_) => return Err(session.refuse(Refusal::SilentTooLong, None)),
    };
    // The guest left without sending anything, so there is nothing to judge.
    if first.is_empty() && !others_may {
        return Err(End::Done);
    }
    Ok((greeting, first))
}

/// Appends what the guest sent. Returns false at the end of the stream.
async fn read_more(session: &Session, first: &mut Vec<u8>) -> Result<bool, End> {
    session.connection.readable().await;
    let count = session.connection.receive(|bytes| {
        first.extend_from_slice(bytes);
        Ok(bytes.len())
    })?;
    session.traffic.outward(count).map_err(End::Refused)?;
    Ok(count > 0)
}

async fn tls(session: &Session, stream: TcpStream, mut first: Vec<u8>) -> Result<End, End> {
    let reading = async {
        loop {
            match Hello::read(&first) {
                Ok(Some(hello)) => return Ok(hello),
                Ok(None) if read_more(session, &mut first).await? => {}
                Ok(None) => return Err(session.refuse(Refusal::TlsMalformed, None)),
                Err(why) => return Err(session.refuse(why, None)),
            }
        }
    };
    let hello = match timeout(session.shared.meters.limits().greeting, reading).await {
        Ok(hello) => hello?,
        Err(_) => return Err(session.refuse(Refusal::SilentTooLong, None)),
    };
    if hello.encrypted_name && !session.may_hide_name() {
        return Err(session.refuse(Refusal::EncryptedName, hello.name));
    }
    session.set_hides_name(hello.encrypted_name);
    let Some(name) = hello.name else {
        session.judge(Shown::Nameless)?;
        if session.shared.rules().inspects() {
            // TLS cannot be intercepted without a name.
            return Err(session.refuse(Refusal::NameMissing, None));
        }
        session.set_seen(None, Protocol::SealedTls);
        session.shared.learn(&session.destination, Shown::Nameless);
        return pass_on(session, stream, &first).await;
    };
    session.judge(Shown::Name(&name))?;
    session.shared.learn(&session.destination, Shown::Name(&name));
    match (session.must_open(&name), session.shared.interceptor()) {
        (false, _) => {
            session.set_seen(Some(name), Protocol::SealedTls);
            pass_on(session, stream, &first).await
        }
        (true, Some(interceptor)) => {
            session.set_seen(Some(name.clone()), Protocol::OpenedTls);
            intercept(session, &interceptor, name, stream, first).await
        }
        (true, None) => Err(session.refuse(Refusal::NoAuthority, Some(name))),
    }
}
