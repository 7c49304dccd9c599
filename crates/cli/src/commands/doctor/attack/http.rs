//! Requests with exactly the headers that an attack needs.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// How long the server may take to accept a connection and to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(150);
const LARGEST_BODY: usize = 16 << 20;

/// A complete response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The status and the error of the body, for a report.
    pub fn brief(&self) -> String {
        match self.json()["code"].as_str().or(self.json()["message"].as_str()) {
            Some(code) => format!("status {} ({code})", self.status),
            None => format!("status {}", self.status),
        }
    }
}

/// A request to build with `.header` and `.json`.
pub struct Call {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Call {
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    pub fn json(self, body: &Value) -> Self {
        Self { body: body.to_string().into_bytes(), ..self.header("content-type", "application/json") }
    }

    pub fn bytes(self, body: Vec<u8>) -> Self {
        Self { body, ..self }
    }

    /// Sends the request on its own connection and reads the whole response.
    pub async fn send(self, to: SocketAddr) -> anyhow::Result<Answer> {
        let path = self.path.clone();
        let exchange = async {
            let (status, body) = {
                let response = self.open(to).await?;
                (response.status().as_u16(), response.into_body())
            };
            let read = Limited::new(body, LARGEST_BODY).collect().await.map_err(anyhow::Error::from_boxed)?;
            Ok(Answer { status, body: read.to_bytes() })
        };
        let in_time = tokio::time::timeout(ANSWER_LIMIT, exchange).await;
        in_time.unwrap_or_else(|_| anyhow::bail!("no answer within {} s", ANSWER_LIMIT.as_secs())).context(path)
    }

    /// Sends the request and returns the response as soon as its head is there.
    pub async fn open(self, to: SocketAddr) -> anyhow::Result<Response<Incoming>> {
        let stream = TcpStream::connect(to).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder().method(self.method).uri(self.path);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", to.to_string());
        }
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        Ok(sender.send_request(request.body(Full::new(Bytes::from(self.body)))?).await?)
    }
}
