//! WebSockets, on connections of the HTTP client.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::error::ClientError;
use super::http::{Client, empty};

/// Maximum time without a message. The server pings every twenty seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(90);

type Socket = WebSocketStream<TokioIo<Upgraded>>;

pub struct SocketReader(SplitStream<Socket>);

pub struct SocketWriter(SplitSink<Socket, Message>);

impl Client {
    pub(super) async fn socket(&self, path: &str) -> Result<(SocketReader, SocketWriter), ClientError> {
        let key = generate_key();
        let mut request = self.request(Method::GET, path, empty())?;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_str(&key).expect("a key is base64"));
        let response = self.answer(request).await?;
        let accepted = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
        if response.status() != StatusCode::SWITCHING_PROTOCOLS
            || accepted != Some(derive_accept_key(key.as_bytes()).as_bytes())
        {
            return Err(ClientError::UnexpectedResponse("no WebSocket was opened".to_owned()));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(ClientError::broken)?;
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await;
        let (writer, reader) = socket.split();
        Ok((SocketReader(reader), SocketWriter(writer)))
    }
}

impl SocketReader {
    /// The next text or binary message, or `None` after the socket was closed.
    pub async fn next(&mut self) -> Result<Option<Message>, ClientError> {
        loop {
            let message = tokio::time::timeout(SILENCE_TIMEOUT, self.0.next()).await;
            match message.map_err(|_| ClientError::Unresponsive { seconds: SILENCE_TIMEOUT.as_secs() })? {
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => return Ok(Some(message)),
                Some(Ok(Message::Close(_))) | None => return Ok(None),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(ClientError::broken(error)),
            }
        }
    }
}

impl SocketWriter {
    pub async fn send(&mut self, message: Message) -> Result<(), ClientError> {
        self.0.send(message).await.map_err(ClientError::broken)
    }
}
