//! Shared helpers of the WebSocket routes.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::http::request::Parts;
use futures_util::{Stream, StreamExt};
use serde::Serialize;

use crate::error::ApiError;

/// The largest message a client may send.
const MAX_MESSAGE: usize = 1024 * 1024;
/// How long to wait for the client to close after the server has closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// A request that can become a WebSocket.
pub(crate) struct Upgrade(pub(crate) WebSocketUpgrade);

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, state).await;
        let message = "this is a WebSocket";
        let refused = |_| ApiError::new(StatusCode::UPGRADE_REQUIRED, "websocket_required", message);
        Ok(Self(upgrade.map_err(refused)?.max_message_size(MAX_MESSAGE)))
    }
}

/// Formats a message as JSON.
pub(crate) fn json(value: &impl Serialize) -> Message {
    Message::Text(crate::text::ascii_json(value).into())
}

/// Sends a message and closes. Errors are ignored: the client may have disconnected.
pub(crate) async fn send_and_close(socket: &mut WebSocket, value: &impl Serialize) {
    if socket.send(json(value)).await.is_ok() {
        let _ = socket.send(Message::Close(None)).await;
        wait_for_close(socket).await;
    }
}

/// Reads until the client has closed as well. A socket that is closed with unread bytes is reset, and the client would
/// lose the last message.
pub(crate) async fn wait_for_close(messages: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin)) {
    let closed = async { while let Some(Ok(_)) = messages.next().await {} };
    let _ = tokio::time::timeout(CLOSED_WITHIN, closed).await;
}
