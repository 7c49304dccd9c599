//! Passes one request to the router, and keeps its connection busy until the response has ended.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Uri, Version, header};
use axum::response::Response;
use hyper::body::{Frame, Incoming, SizeHint};
use sandling_service::RequestPermit;
use tower::ServiceExt;

use super::heartbeat::Heartbeat;
use super::socket::TcpPlace;
use crate::forwarded::TrustedProxies;
use crate::live_requests::UpgradedBy;
use crate::passed_on;
use crate::peer::{Peer, Route, Sender};
use crate::router;

/// A connection, as its requests need it.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) router: Router,
    pub(super) place: Arc<TcpPlace>,
    pub(super) route: Route,
    pub(super) proxies: TrustedProxies,
    pub(super) upgraded_by: UpgradedBy,
    pub(super) heartbeat: Heartbeat,
}

impl Client {
    pub(super) async fn answer(self, request: hyper::Request<Incoming>) -> Result<Response, Infallible> {
        let version = request.version();
        let busy = Busy::new(self.place.clone(), version);
        let mut request: Request = request.map(Body::new);
        if version == Version::HTTP_2 {
            name_host(&mut request);
        }
        let from_node = self.route.sender.is_node();
        let route = match self.route.sender {
            Sender::Node(_) => passed_on::take_route(self.route, request.headers_mut()),
            Sender::Proxy => self.proxies.take_route(self.route, request.headers_mut()),
            Sender::Client | Sender::Stranger => self.route,
        };
        let peer = Peer::new(route, self.place.trusted.clone());
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(self.upgraded_by.clone());
        let wants_beats = version != Version::HTTP_2 && router::wants_interim_responses(request.headers());
        let work = self.router.oneshot(request);
        let mut response = if wants_beats { self.heartbeat.beside(work).await? } else { work.await? };
        if from_node {
            passed_on::tell_authenticated(&peer, response.headers_mut());
        }
        let permits = peer.answered();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            busy.keep(permits);
            return Ok(response);
        }
        Ok(response.map(|body| Body::new(Tracked { body, _busy: busy, _permits: permits })))
    }
}

/// HTTP/2 names the host in the URI. The routes look for it in the header, as HTTP/1.1 has it.
fn name_host(request: &mut Request) {
    let authority = request.uri().authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    if let Some(authority) = authority {
        request.headers_mut().insert(header::HOST, authority);
    }
    if let Some(path) = request.uri().path_and_query() {
        *request.uri_mut() = Uri::from(path.clone());
    }
}

/// A request in progress.
struct Busy {
    place: Option<Arc<TcpPlace>>,
}

impl Busy {
    fn new(place: Arc<TcpPlace>, version: Version) -> Self {
        place.phase.begin(version == Version::HTTP_2);
        Self { place: Some(place) }
    }

    /// The connection becomes a socket, so it stays busy and keeps the permits until it closes.
    fn keep(mut self, permits: Vec<RequestPermit>) {
        if let Some(place) = self.place.take() {
            place.keep(permits);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            place.phase.end(Instant::now());
        }
    }
}

/// A response's body. What it holds is dropped when the last byte was handed over, or the client is gone.
struct Tracked {
    body: Body,
    _busy: Busy,
    _permits: Vec<RequestPermit>,
}

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
