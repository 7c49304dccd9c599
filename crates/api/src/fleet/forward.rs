//! Passes requests on to other nodes. WebSockets and streams pass, too. Connections are used again, but not those that have
//! become sockets.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::{HeaderValue, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use sandling_fleet::{Member, NodeRecord};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::member::{Fleet, unreachable};
use super::protocol;
use super::settings::server_name;
use crate::app::App;
use crate::error::ApiError;
use crate::passed_on;
use crate::peer::Peer;
use crate::preview::proxy;
use crate::tls::machine_of;

pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// A node that lost its power or its network says nothing, however long its answer may take. It is asked for a sign of life
/// when nothing arrived for so long, then every few seconds, and is given up when so many of these questions had no answer.
const SIGN_OF_LIFE_AFTER: Duration = Duration::from_secs(20);
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(10);
const SIGNS_MISSED: u32 = 6;
const UNHEARD_FOR: Duration = Duration::from_secs(90);
/// Longer than an etcd may take to start.
const ANSWER_WITHIN: Duration = Duration::from_secs(45);

impl Fleet {
    pub(super) async fn forward(&self, app: &App, to: &Member, mut request: Request) -> Result<Response, ApiError> {
        to.record.protocol.check(&to.name).map_err(|error| protocol::refused(&error))?;
        let wants_upgrade = proxy::is_upgrade(request.headers());
        proxy::prepare_connection(request.headers_mut(), wants_upgrade);
        let peer = request.extensions().get::<Peer>().cloned();
        if let Some(peer) = &peer {
            passed_on::describe_client(peer.route(), request.headers_mut());
        }
        protocol::announce(request.headers_mut());
        *request.version_mut() = Version::HTTP_11;
        let mut response = if wants_upgrade {
            let stream = self.connect(to).await.map_err(|error| unreachable(&to.name, &error))?;
            let failed = |error: hyper::Error| unreachable(&to.name, &error.to_string());
            proxy::exchange(app, stream, request, failed).await?
        } else {
            self.send(to, request).await.map_err(|error| unreachable(&to.name, &error))?
        };
        if let Some(peer) = peer.filter(|_| passed_on::take_authenticated(response.headers_mut())) {
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

    async fn send(&self, to: &Member, mut request: Request) -> Result<Response, String> {
        let machine = &to.record.fingerprint;
        // A connection that the other node has just closed returns the request that it did not send.
        let (connection, mut answer) = loop {
            let (mut connection, is_new) = match self.connections.take(machine) {
                Some(connection) => (connection, false),
                None => (self.open(to).await?, true),
            };
            match connection.try_send_request(request).await {
                Ok(answer) => break (connection, answer),
                Err(mut failed) => match failed.take_message().filter(|_| !is_new) {
                    Some(unsent) => request = unsent,
                    None => return Err(failed.into_error().to_string()),
                },
            }
        };
        self.connections.keep(machine, connection);
        proxy::strip(answer.headers_mut());
        Ok(answer.map(Body::new).into_response())
    }

    async fn open(&self, to: &Member) -> Result<SendRequest<Body>, String> {
        let stream = TokioIo::new(self.connect(to).await?);
        let (sender, connection) = http1::handshake(stream).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn connect(&self, to: &Member) -> Result<TlsStream<TcpStream>, String> {
        connect(&self.connector, &to.name, &to.record).await
    }
}

/// Asks a node that may be no member, over a connection of its own.
pub(super) async fn ask_node(
    connector: &TlsConnector,
    node: &str,
    record: &NodeRecord,
    mut request: Request,
) -> Result<(StatusCode, Bytes), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    protocol::announce(request.headers_mut());
    request.headers_mut().insert(HOST, HeaderValue::from_static("fleet"));
    let stream = TokioIo::new(connect(connector, node, record).await?);
    let ask = async {
        let (mut sender, connection) = http1::handshake(stream).await.map_err(|error| text(&error))?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(|error| text(&error))?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| text(&error))?.to_bytes();
        Ok((status, body))
    };
    tokio::time::timeout(ANSWER_WITHIN, ask).await.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
}

pub(super) async fn connect(
    connector: &TlsConnector,
    node: &str,
    record: &NodeRecord,
) -> Result<TlsStream<TcpStream>, String> {
    let connect = async {
        let stream = TcpStream::connect(&record.address).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        let _ = expect_signs_of_life(&stream);
        let name = ServerName::try_from(server_name(node)).map_err(|error| error.to_string())?;
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        // A removed machine may still answer where its successor should.
        match machine_of(stream.get_ref().1.peer_certificates()) {
            Some(machine) if machine == record.fingerprint => Ok(stream),
            _ => Err("another machine answers at its address".to_owned()),
        }
    };
    let connected = tokio::time::timeout(CONNECT_WITHIN, connect).await;
    connected.unwrap_or_else(|_| Err("the connection timed out".to_owned()))
}

fn expect_signs_of_life(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SIGN_OF_LIFE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, SIGN_OF_LIFE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, SIGNS_MISSED)?;
    sockopt::set_tcp_user_timeout(stream, UNHEARD_FOR.as_millis() as u32)
}
