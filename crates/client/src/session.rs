//! The WebSocket session of one command with live input.

use hyper::body::Bytes;
use sandling_wire::{SessionInput, SessionStart, WindowSize};
use serde::Deserialize;
use tokio_tungstenite::tungstenite::Message;

use super::error::ClientError;
use super::http::Client;
use super::socket::{SocketReader, SocketWriter};

/// The first byte of a binary message that holds stderr.
const STDERR: u8 = 2;

/// Receives the events of a command.
pub struct Session {
    reader: SocketReader,
}

/// Sends input to a command.
pub struct Input {
    writer: SocketWriter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// An event of a command.
#[derive(Debug)]
pub enum SessionEvent {
    Started {
        id: String,
    },
    Bytes(Stream, Bytes),
    /// The server dropped this many bytes before the next output.
    Dropped(u64),
    Ended(Ended),
}

/// How a command ended.
#[derive(Debug, Clone, Deserialize)]
pub struct Ended {
    pub exit_code: i32,
    /// `exited`, `signalled`, `timeout`, `out_of_memory` or `output_limit`.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServerMessage {
    Start {
        id: String,
    },
    Dropped(u64),
    Exit(Ended),
    #[serde(untagged)]
    Error {
        error: String,
        #[serde(default)]
        code: String,
        status: Option<u16>,
    },
}

impl Client {
    pub async fn session(&self, sandbox: &str, start: &SessionStart) -> Result<(Session, Input), ClientError> {
        let (reader, writer) = self.socket(&format!("/v1/sandboxes/{sandbox}/exec/session")).await?;
        let mut input = Input { writer };
        input.send_json(start).await?;
        Ok((Session { reader }, input))
    }
}

impl Session {
    pub async fn next(&mut self) -> Result<SessionEvent, ClientError> {
        loop {
            match self.reader.next().await? {
                Some(Message::Binary(bytes)) if !bytes.is_empty() => {
                    let stream = if bytes[0] == STDERR { Stream::Stderr } else { Stream::Stdout };
                    return Ok(SessionEvent::Bytes(stream, bytes.slice(1..)));
                }
                Some(Message::Text(text)) => return parse_event(&text),
                Some(_) => {}
                None => return Err(ClientError::broken("the server closed it while the command ran")),
            }
        }
    }
}

fn parse_event(text: &str) -> Result<SessionEvent, ClientError> {
    match serde_json::from_str(text).map_err(|error| ClientError::UnexpectedResponse(error.to_string()))? {
        ServerMessage::Start { id } => Ok(SessionEvent::Started { id }),
        ServerMessage::Dropped(bytes) => Ok(SessionEvent::Dropped(bytes)),
        ServerMessage::Exit(ended) => Ok(SessionEvent::Ended(ended)),
        ServerMessage::Error { error, code, status } => Err(ClientError::from_server(status, code, error)),
    }
}

impl Input {
    pub async fn bytes(&mut self, bytes: Vec<u8>) -> Result<(), ClientError> {
        self.writer.send(Message::Binary(bytes.into())).await
    }

    pub async fn eof(&mut self) -> Result<(), ClientError> {
        self.send_json(&SessionInput { eof: Some(true), ..Default::default() }).await
    }

    pub async fn resize(&mut self, size: WindowSize) -> Result<(), ClientError> {
        self.send_json(&SessionInput { resize: Some(size), ..Default::default() }).await
    }

    async fn send_json(&mut self, what: &impl serde::Serialize) -> Result<(), ClientError> {
        let text = serde_json::to_string(what).expect("request types have string keys and infallible serializers");
        self.writer.send(Message::Text(text.into())).await
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
