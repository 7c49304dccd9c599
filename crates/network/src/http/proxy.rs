//! The HTTP proxy of one connection. It forwards the guest's requests to the server, one after another.

use std::borrow::Cow;
use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::ext::ReasonPhrase;
use hyper::header::{
    ACCEPT_RANGES, CONNECTION, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION,
    SEC_WEBSOCKET_EXTENSIONS, TE, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use sandling_proxy::UpstreamProxy;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::guest_frames::GuestFrames;
use super::host::{self, Host};
use super::pattern::Pattern;
use super::placeholders::{Denied, Placed, mentions, place};
use super::scrub::{Scrubbed, Scrubber};
use super::search::{Search, Searched};
use super::server_frames::ServerFrames;
use crate::destination::End;
use crate::event::{EventKind, Failure, Verdict};
use crate::name::HostName;
use crate::policy::{Refusal, Shown};
use crate::secret::SecretSet;
use crate::session::Session;
use crate::tcp::{GuestStream, Prefixed, copy};

const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// The longest head of a request or a response.
const LONGEST_HEAD: usize = 64 * 1024;
/// Headers that apply to one connection only, and not to the whole path from guest to server.
const HOP_BY_HOP: [&str; 4] = ["keep-alive", "proxy-connection", "proxy-authenticate", "trailer"];

type Answer = Response<Either<Scrubbed, Full<Bytes>>>;

/// The HTTP proxy of one connection.
struct Proxy<'a> {
    session: &'a Session,
    /// The name of the intercepted TLS connection. None for plain HTTP.
    opened: Option<HostName>,
    /// The proxy at the other end of `server`, if it is not the server itself.
    upstream: Option<&'a UpstreamProxy>,
    server: tokio::sync::Mutex<SendRequest<Searched>>,
    /// A connection that switches to WebSocket.
    upgrade: Mutex<Option<Upgrade>>,
    refused: Mutex<Option<Denied>>,
    /// The host of the latest request, for events.
    asked: Mutex<Option<HostName>>,
    /// Set when a request's body contains a placeholder.
    found: Arc<AtomicBool>,
}

/// Both sides of a connection that switches to WebSocket.
struct Upgrade {
    guest: OnUpgrade,
    server: OnUpgrade,
    /// Present if the sandbox has secrets.
    sent: Option<GuestFrames>,
    /// Present if the server may have received secrets.
    frames: Option<ServerFrames>,
}

/// Relays plain HTTP whose first bytes have already been read. `stream` goes to the server, or to the `upstream` proxy.
pub(crate) async fn relay_plain(
    session: &Session,
    stream: TcpStream,
    first: Vec<u8>,
    upstream: Option<&UpstreamProxy>,
) -> Result<End, End> {
    let guest = GuestStream::metered(session.connection.clone(), session.traffic.clone());
    relay(session, None, upstream, Prefixed::new(first, guest), stream).await
}

/// Relays HTTP. `opened` is the name of an intercepted TLS connection.
pub(crate) async fn relay<G, S>(
    session: &Session,
    opened: Option<HostName>,
    upstream: Option<&UpstreamProxy>,
    guest: G,
    server: S,
) -> Result<End, End>
where
    G: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut client = hyper::client::conn::http1::Builder::new();
    client.preserve_header_case(true).max_header_size(LONGEST_HEAD).max_buf_size(LONGEST_HEAD);
    let (sender, driver) = client.handshake(TokioIo::new(server)).await.map_err(failed)?;
    let mut driver = tokio::spawn(driver.with_upgrades());
    let _ended = AbortOnDrop(driver.abort_handle());

    let server = tokio::sync::Mutex::new(sender);
    let (upgrade, refused, asked) = (Mutex::default(), Mutex::default(), Mutex::default());
    let proxy = Proxy { session, opened, upstream, server, upgrade, refused, asked, found: Arc::default() };
    let mut http = hyper::server::conn::http1::Builder::new();
    http.preserve_header_case(true).half_close(true).auto_date_header(false);
    http.max_header_size(LONGEST_HEAD).max_buf_size(LONGEST_HEAD);
    http.timer(TokioTimer::new()).header_read_timeout(session.shared.meters.limits().idle);
    let serving = http.serve_connection(TokioIo::new(guest), service_fn(|request| proxy.answer(request)));
    let mut serving = std::pin::pin!(serving.with_upgrades());
    let served = tokio::select! {
        served = &mut serving => served,
        // The server accepts no more requests, so the gateway does not either.
        _ = &mut driver => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };

    proxy.end(served).await
}

/// Ends the server's side when the guest's side is over.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn failed(error: hyper::Error) -> End {
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let refusal = cause.and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref::<Refusal>());
    refusal.map_or(End::Failed(Failure::Reset), |refusal| End::Refused(*refusal))
}

/// Relays a connection that has switched to WebSocket.
async fn relay_upgraded(upgrade: Upgrade) -> Result<End, End> {
    let (guest, server) = tokio::try_join!(upgrade.guest, upgrade.server).map_err(failed)?;
    let (mut guest, mut server) = (TokioIo::new(guest), TokioIo::new(server));
    let (mut sent, mut frames) = (upgrade.sent, upgrade.frames);
    if sent.is_none() && frames.is_none() {
        tokio::io::copy_bidirectional(&mut guest, &mut server).await?;
        return Ok(End::Done);
    }
    let (from_guest, to_guest) = tokio::io::split(guest);
    let (from_server, to_server) = tokio::io::split(server);
    let outward = copy(from_guest, to_server, |bytes| {
        sent.as_mut().map_or(Ok(()), |sent| sent.push(bytes))?;
        Ok(Cow::Borrowed(bytes))
    });
    let inward = copy(from_server, to_guest, |bytes| match &mut frames {
        Some(frames) => frames.push(bytes).map(Cow::Owned),
        None => Ok(Cow::Borrowed(bytes)),
    });
    tokio::try_join!(outward, inward)?;
    Ok(End::Done)
}

impl Proxy<'_> {
    /// Determines how the connection ended, after the guest's side is over.
    async fn end(&self, served: hyper::Result<()>) -> Result<End, End> {
        if let Some(Denied { why, detail }) = take(&self.refused) {
            // The guest got the reason as a response. The connection ends normally, so that the guest can read it.
            let mut event = self.session.event(EventKind::Request, Verdict::Refused(why), take(&self.asked));
            event.detail = detail;
            self.session.shared.journal.write(event);
            return Ok(End::Done);
        }
        if self.found.load(Ordering::Relaxed) {
            // The server responded before the placeholder was found.
            let asked = take(&self.asked);
            self.session.note(EventKind::Request, Verdict::Refused(Refusal::SecretMisplaced), asked);
            return Err(End::Refused(Refusal::SecretMisplaced));
        }
        if let Some(upgrade) = take(&self.upgrade) {
            return relay_upgraded(upgrade).await;
        }
        match served {
            Ok(()) => Ok(End::Done),
            Err(error) if error.is_parse() => {
                self.session.note(EventKind::Request, Verdict::Refused(Refusal::HttpMalformed), None);
                Err(End::Refused(Refusal::HttpMalformed))
            }
            Err(error) => Err(failed(error)),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Answer, hyper::Error> {
        let (mut parts, body) = request.into_parts();
        let secrets = self.session.shared.secrets.borrow().clone();
        match self.admit(&mut parts, &secrets) {
            Ok((placed, upgrades)) => {
                let search = Search::new(&secrets);
                let sent = Some(search.clone()).filter(|search| upgrades && !search.is_idle()).map(GuestFrames::new);
                let body = Searched::new(body, search, self.found.clone());
                let hidden = self.hidden(&secrets, placed);
                self.forward(Request::from_parts(parts, body), hidden, upgrades, sent).await
            }
            Err(denied) => Ok(self.refuse(denied)),
        }
    }

    /// Judges a request, and rewrites it for the server.
    fn admit(&self, parts: &mut Parts, secrets: &SecretSet) -> Result<(Placed, bool), Denied> {
        let session = self.session;
        let port = session.destination.port;
        let usual = if self.opened.is_some() { HTTPS } else { HTTP };
        take(&self.asked);
        let host = host::read(parts, port, usual)?;
        if let Host::Name(name) = &host {
            *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.clone());
        }
        let name = self.judge(host)?;
        let upgrades = host::upgrades(parts)?;
        let placed = match (&self.opened, &name) {
            (Some(_), Some(name)) => place(secrets, name, port, parts)?,
            _ if secrets.iter().any(|secret| mentions(secret, parts)) => return Err(Refusal::SecretMisplaced.into()),
            _ => Placed::default(),
        };
        if upgrades && !secrets.is_empty() {
            // Messages in both directions are searched, so they must not be compressed.
            parts.headers.remove(SEC_WEBSOCKET_EXTENSIONS);
        }
        remove_hop_headers(&mut parts.headers, upgrades);
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let target = match self.upstream {
            None => target.to_owned(),
            Some(upstream) => {
                if let Some(value) = upstream.authorization().and_then(|text| HeaderValue::from_str(text).ok()) {
                    parts.headers.insert(PROXY_AUTHORIZATION, value);
                }
                let host = name.as_ref().map_or_else(|| session.destination.address.to_string(), HostName::to_string);
                format!("http://{host}{target}")
            }
        };
        parts.uri = target.parse::<Uri>().map_err(|_| Refusal::HttpMalformed)?;
        let mut event = session.event(EventKind::Request, Verdict::Allowed, name);
        event.secrets = placed.names.clone();
        session.shared.journal.write(event);
        Ok((placed, upgrades))
    }

    /// The patterns to mask in the response, whichever request the server knows them from.
    fn hidden(&self, secrets: &SecretSet, placed: Placed) -> Vec<Pattern> {
        let Some(name) = &self.opened else { return Vec::new() };
        let bound = secrets.bound_to(name, self.session.destination.port).into_iter();
        // A short value may appear by chance, so it is removed only from the response to the request that carried it.
        let told =
            bound.filter(|secret| secret.is_unmistakable() || placed.names.iter().any(|name| name == secret.name()));
        told.flat_map(Pattern::all).chain(placed.patterns).collect()
    }

    fn judge(&self, host: Host) -> Result<Option<HostName>, Refusal> {
        let session = self.session;
        match (&self.opened, host) {
            (Some(opened), Host::Name(name)) if name == *opened => Ok(Some(name)),
            (Some(_), _) => Err(Refusal::HostDiffers),
            (None, Host::Name(name)) => {
                session.judge_quietly(Shown::Name(&name))?;
                session.shared.learn(&session.destination, Shown::Name(&name));
                session.shows(name.clone());
                Ok(Some(name))
            }
            (None, Host::Address(address)) if address != session.destination.address => Err(Refusal::HostDiffers),
            (None, Host::Address(_) | Host::Unsaid) => {
                session.judge_quietly(Shown::Nameless)?;
                session.shared.learn(&session.destination, Shown::Nameless);
                Ok(None)
            }
        }
    }

    async fn forward(
        &self,
        mut request: Request<Searched>,
        hidden: Vec<Pattern>,
        upgrades: bool,
        sent: Option<GuestFrames>,
    ) -> Result<Answer, hyper::Error> {
        let guest = upgrades.then(|| hyper::upgrade::on(&mut request));
        let mut server = self.server.lock().await;
        server.ready().await?;
        let mut response = match server.send_request(request).await {
            Err(_) if self.found.load(Ordering::Relaxed) => return Ok(self.refuse(Refusal::SecretMisplaced)),
            answered => answered?,
        };
        let scrubber = (!hidden.is_empty()).then(|| Scrubber::new(hidden));
        if let Some(scrubber) = &scrubber {
            if response.status() == StatusCode::PARTIAL_CONTENT || !readable(response.headers()) {
                return Ok(self.refuse(Refusal::AnswerEncoded));
            }
            scrubber.headers(response.headers_mut());
            response.extensions_mut().remove::<ReasonPhrase>();
            // The gateway removes ranges from requests, so clients must not wait for them.
            response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("none"));
        }
        let switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        match (guest, switching) {
            (Some(guest), true) => {
                if !host::names_websocket(response.headers()) {
                    return Ok(self.refuse(Refusal::OtherProtocol));
                }
                let frames = scrubber.clone().map(ServerFrames::new);
                if frames.is_some() && response.headers().contains_key(SEC_WEBSOCKET_EXTENSIONS) {
                    return Ok(self.refuse(Refusal::AnswerEncoded));
                }
                let upgrade = Upgrade { guest, server: hyper::upgrade::on(&mut response), sent, frames };
                remove_hop_headers(response.headers_mut(), true);
                *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
            }
            // The guest did not ask for a switch.
            (None, true) => return Ok(self.refuse(Refusal::OtherProtocol)),
            (_, false) => remove_hop_headers(response.headers_mut(), false),
        }
        Ok(response.map(|body| Either::Left(Scrubbed::new(body, scrubber))))
    }

    /// Responds with the reason, and ends the connection.
    fn refuse(&self, denied: impl Into<Denied>) -> Answer {
        let denied = denied.into();
        let reason = denied.detail.clone().unwrap_or_else(|| denied.why.to_string());
        let text = format!("sandling refused this request: {reason}\n");
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(denied);
        let mut response = Response::new(Either::Right(Full::from(text)));
        *response.status_mut() = StatusCode::FORBIDDEN;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(hyper::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        response
    }
}

/// Whether a response's body can be searched.
fn readable(headers: &HeaderMap) -> bool {
    let only = |name: HeaderName, coding: &[u8]| {
        headers.get_all(name).iter().all(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(coding))
    };
    only(CONTENT_ENCODING, b"identity") && only(TRANSFER_ENCODING, b"chunked")
}

/// Removes the headers that apply to one connection only. Keeps `close` and the upgrade to WebSocket.
fn remove_hop_headers(headers: &mut HeaderMap, upgrades: bool) {
    let connection: Vec<HeaderValue> = headers.get_all(CONNECTION).iter().cloned().collect();
    for named in connection.iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(',')) {
        if let Ok(name) = HeaderName::try_from(named.trim()) {
            headers.remove(name);
        }
    }
    for name in [CONNECTION, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    if upgrades {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    } else if connection.iter().any(|value| host::contains_token(value, "close")) {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}
