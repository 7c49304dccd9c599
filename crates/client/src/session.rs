//! The WebSocket session of one command with live input.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::body::Bytes;
use sandling_wire::{SessionInput, SessionStart, WindowSize};
use serde::Deserialize;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use super::answers::{parse, read};
use super::error::ClientError;
use super::http::Client;
use super::socket::Socket;

/// The first byte of a binary message that holds stderr.
const STDERR: u8 = 2;

/// Maximum time without a message. The server pings every twenty seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(90);

/// Receives the events of a command.
pub struct Session(SplitStream<Socket>);

/// Sends input to a command.
pub struct Input(SplitSink<Socket, Message>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// An event of a command.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEvent {
    #[serde(rename = "start")]
    Started { id: String },
    #[serde(skip)]
    Bytes(Stream, Bytes),
    /// The server dropped this many bytes before the next output.
    Dropped(u64),
    #[serde(rename = "exit")]
    Ended(Ended),
}

/// How a command ended.
#[derive(Debug, Clone, Deserialize)]
pub struct Ended {
    pub exit_code: i32,
    /// `exited`, `signalled`, `timeout`, `out_of_memory` or `output_limit`.
    pub reason: String,
}

impl Client {
    pub async fn session(&self, sandbox: &str, start: &SessionStart) -> Result<(Session, Input), ClientError> {
        let (writer, reader) = self.socket(&format!("/v1/sandboxes/{sandbox}/exec/session")).await?.split();
        let mut input = Input(writer);
        input.send_json(start).await?;
        Ok((Session(reader), input))
    }
}

impl Session {
    pub async fn next(&mut self) -> Result<SessionEvent, ClientError> {
        loop {
            let message = tokio::time::timeout(SILENCE_TIMEOUT, self.0.next()).await;
            match message.map_err(|_| ClientError::Unresponsive { seconds: SILENCE_TIMEOUT.as_secs() })? {
                Some(Ok(Message::Binary(bytes))) if !bytes.is_empty() => {
                    let stream = if bytes[0] == STDERR { Stream::Stderr } else { Stream::Stdout };
                    return Ok(SessionEvent::Bytes(stream, bytes.slice(1..)));
                }
                Some(Ok(Message::Text(text))) => return parse_event(&text),
                Some(Ok(Message::Close(_))) | None => {
                    return Err(ClientError::broken("the server closed it while the command ran"));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(ClientError::broken(error)),
            }
        }
    }
}

fn parse_event(text: &str) -> Result<SessionEvent, ClientError> {
    let message: Value = parse(text)?;
    if message["error"].is_string() { Err(ClientError::from_body(message)) } else { read(message) }
}

impl Input {
    pub async fn bytes(&mut self, bytes: Vec<u8>) -> Result<(), ClientError> {
        self.send(Message::Binary(bytes.into())).await
    }

    pub async fn eof(&mut self) -> Result<(), ClientError> {
        self.send_json(&SessionInput { eof: Some(true), ..Default::default() }).await
    }

    pub async fn resize(&mut self, size: WindowSize) -> Result<(), ClientError> {
        self.send_json(&SessionInput { resize: Some(size), ..Default::default() }).await
    }

    async fn send_json(&mut self, what: &impl serde::Serialize) -> Result<(), ClientError> {
        let text = serde_json::to_string(what).expect("request types have string keys and infallible serializers");
        self.send(Message::Text(text.into())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), ClientError> {
        self.0.send(message).await.map_err(ClientError::broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_messages_are_parsed() {
        assert!(
            matches!(parse_event(r#"{"start":{"id":"a","pid":3,"existing":false}}"#), Ok(SessionEvent::Started { id }) if id == "a")
        );
        assert!(matches!(parse_event(r#"{"dropped":5}"#), Ok(SessionEvent::Dropped(5))));
        let exit =
            r#"{"exit":{"exit_code":137,"signal":9,"reason":"out_of_memory","duration_ms":1,"dropped_bytes":0}}"#;
        assert!(matches!(parse_event(exit), Ok(SessionEvent::Ended(ended)) if ended.reason == "out_of_memory"));
        let died = parse_event(r#"{"error":"guest died: x","code":"guest_died","status":502}"#).unwrap_err();
        assert!(died.is_guest_death());
        assert!(matches!(parse_event(r#"{"other":1}"#), Err(ClientError::UnexpectedResponse(_))));
    }
}
