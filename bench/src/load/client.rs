//! A minimal HTTP client: one persistent connection, one request after another.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// The timeout of every request, also on a busy host.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);

pub struct Client {
    address: SocketAddr,
    token: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: Bytes,
}

impl Client {
    pub fn new(address: SocketAddr, token: &str) -> Self {
        Self { address, token: token.to_owned(), connection: None }
    }

    pub async fn call(&mut self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let answer = tokio::time::timeout(ANSWER_WITHIN, self.converse(method, path, body)).await;
        answer.with_context(|| format!("no answer to {path} within {ANSWER_WITHIN:?}"))?
    }

    async fn converse(&mut self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let response = self.connection().await?.send_request(request.body(Full::from(body))?).await?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
        Ok(Answer { status, retry_after, body: response.into_body().collect().await?.to_bytes() })
    }

    async fn connection(&mut self) -> anyhow::Result<&mut SendRequest<Full<Bytes>>> {
        let mut usable = self.connection.take();
        if let Some(connection) = &mut usable
            && connection.ready().await.is_err()
        {
            usable = None;
        }
        let usable = match usable {
            Some(connection) => connection,
            None => connect(self.address).await?,
        };
        Ok(self.connection.insert(usable))
    }
}

async fn connect(address: SocketAddr) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // It ends with its sender. The request reports errors.
    tokio::spawn(connection);
    Ok(sender)
}
