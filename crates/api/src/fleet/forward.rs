//! Passes requests on to other nodes. WebSockets and streams pass, too.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Version};
use axum::response::Response;
use rustls::pki_types::ServerName;
use sandling_fleet::Member;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::member::{Fleet, unreachable};
use super::settings::server_name;
use crate::app::App;
use crate::error::ApiError;
use crate::peer::{Peer, Route};
use crate::preview::proxy;

const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// How the client reached the node that passes its request on.
const SCHEME: HeaderName = HeaderName::from_static("sandling-client-scheme");
const ADDRESS: HeaderName = HeaderName::from_static("sandling-client-address");
const DOMAIN: HeaderName = HeaderName::from_static("sandling-client-domain");
/// Tells the node that passed a request on that its token was valid.
const AUTHENTICATED: HeaderName = HeaderName::from_static("sandling-client-authenticated");

/// The client's route, as the node that passes the request on describes it. The headers are removed, so that a server in
/// a sandbox does not see them.
pub(crate) fn take_route_of_client(node: Route, headers: &mut HeaderMap) -> Route {
    let mut take = |name| headers.remove(name).and_then(|value: HeaderValue| value.to_str().ok().map(str::to_owned));
    Route {
        address: take(ADDRESS).and_then(|address| address.parse().ok()).unwrap_or(node.address),
        scheme: if take(SCHEME).as_deref() == Some("http") { "http" } else { "https" },
        domain: take(DOMAIN).map(Into::into),
        sender: node.sender,
    }
}

/// Says in the response to a node whether the client's token was valid. What a server in a sandbox says does not count.
pub(crate) fn tell_authenticated(peer: &Peer, headers: &mut HeaderMap) {
    headers.remove(AUTHENTICATED);
    if peer.is_authenticated() {
        headers.insert(AUTHENTICATED, HeaderValue::from_static("yes"));
    }
}

impl Fleet {
    pub(super) async fn forward(&self, app: &App, to: &Member, mut request: Request) -> Result<Response, ApiError> {
        let stream = self.connect(to).await.map_err(|error| unreachable(&to.name, &error))?;
        let wants_upgrade = proxy::is_upgrade(request.headers());
        proxy::prepare_connection(request.headers_mut(), wants_upgrade);
        let peer = request.extensions().get::<Peer>().cloned();
        if let Some(route) = peer.as_ref().map(Peer::route) {
            let address = route.address.to_string();
            let facts = [(SCHEME, Some(route.scheme)), (ADDRESS, Some(&*address)), (DOMAIN, route.domain.as_deref())];
            for (name, value) in facts {
                request.headers_mut().remove(&name);
                if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                    request.headers_mut().insert(name, value);
                }
            }
        }
        *request.version_mut() = Version::HTTP_11;
        let failed = |error: hyper::Error| unreachable(&to.name, &error.to_string());
        let mut response = proxy::exchange(app, stream, request, failed).await?;
        let authenticated = response.headers_mut().remove(AUTHENTICATED).is_some();
        if let Some(peer) = peer.filter(|_| authenticated) {
            peer.authenticate();
        }
        Ok(response)
    }

    /// A request of this node itself.
    pub(super) async fn ask(&self, app: &App, to: &Member, path: &str) -> Result<Response, ApiError> {
        let request = Request::get(path).header("host", "fleet").body(Body::empty());
        let request = request.map_err(|error| unreachable(&to.name, &error.to_string()))?;
        self.forward(app, to, request).await
    }

    async fn connect(&self, to: &Member) -> Result<TlsStream<TcpStream>, String> {
        let connect = async {
            let stream = TcpStream::connect(&to.record.address).await.map_err(|error| error.to_string())?;
            let _ = stream.set_nodelay(true);
            let name = ServerName::try_from(server_name(&to.name)).map_err(|error| error.to_string())?;
            self.connector.connect(name, stream).await.map_err(|error| error.to_string())
        };
        let connected = tokio::time::timeout(CONNECT_WITHIN, connect).await;
        connected.unwrap_or_else(|_| Err("the connection timed out".to_owned()))
    }
}
