//! WebSockets, on connections of the HTTP client.

use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::error::ClientError;
use super::http::{Client, empty};

pub type Socket = WebSocketStream<TokioIo<Upgraded>>;

impl Client {
    pub(super) async fn socket(&self, path: &str) -> Result<Socket, ClientError> {
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
        Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await)
    }
}
