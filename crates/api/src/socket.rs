//! What WebSocket routes share.

use axum::extract::FromRequestParts;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Serialize;

use crate::error::ApiError;

/// The largest message a client may send.
const MAX_MESSAGE: usize = 1024 * 1024;

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

/// A message as JSON.
pub(crate) fn json(value: &impl Serialize) -> Message {
    Message::Text(crate::text::ascii_json(value).into())
}

/// Sends a message and closes. A client that is gone already needs neither.
pub(crate) async fn last_words(socket: &mut WebSocket, value: &impl Serialize) {
    if socket.send(json(value)).await.is_ok() {
        let _ = socket.send(Message::Close(None)).await;
    }
}
