//! One command on a server, with live input: its messages, as the CLI thinks of them.

use hyper::body::Bytes;
use sandling_wire::{SessionInput, SessionStart, WindowSize};
use serde::Deserialize;
use tokio_tungstenite::tungstenite::Message;

use super::error::ClientError;
use super::http::Client;
use super::socket::{SocketReader, SocketWriter};

/// The first byte of a binary message that holds stderr.
const STDERR: u8 = 2;

/// The way back from a command.
pub struct Session {
    reader: SocketReader,
}

/// The way to a command.
pub struct Input {
    writer: SocketWriter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// What comes from a command, in order.
#[derive(Debug)]
pub enum Heard {
    Started {
        id: String,
    },
    Bytes(Stream, Bytes),
    /// So many bytes before the next ones are lost.
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
enum Said {
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
        input.say(start).await?;
        Ok((Session { reader }, input))
    }
}

impl Session {
    pub async fn next(&mut self) -> Result<Heard, ClientError> {
        loop {
            match self.reader.next().await? {
                Some(Message::Binary(bytes)) if !bytes.is_empty() => {
                    let stream = if bytes[0] == STDERR { Stream::Stderr } else { Stream::Stdout };
                    return Ok(Heard::Bytes(stream, bytes.slice(1..)));
                }
                Some(Message::Text(text)) => return heard(&text),
                Some(_) => {}
                None => return Err(ClientError::broken("it was closed while the command ran")),
            }
        }
    }
}

fn heard(text: &str) -> Result<Heard, ClientError> {
    match serde_json::from_str(text).map_err(|error| ClientError::Strange(error.to_string()))? {
        Said::Start { id } => Ok(Heard::Started { id }),
        Said::Dropped(bytes) => Ok(Heard::Dropped(bytes)),
        Said::Exit(ended) => Ok(Heard::Ended(ended)),
        Said::Error { error, code, status } => Err(ClientError::said(status, code, error)),
    }
}

impl Input {
    pub async fn bytes(&mut self, bytes: Vec<u8>) -> Result<(), ClientError> {
        self.writer.send(Message::Binary(bytes.into())).await
    }

    pub async fn eof(&mut self) -> Result<(), ClientError> {
        self.say(&SessionInput { eof: Some(true), ..Default::default() }).await
    }

    pub async fn resize(&mut self, size: WindowSize) -> Result<(), ClientError> {
        self.say(&SessionInput { resize: Some(size), ..Default::default() }).await
    }

    async fn say(&mut self, what: &impl serde::Serialize) -> Result<(), ClientError> {
        let text = serde_json::to_string(what).expect("what is sent has string keys and no failing serializer");
        self.writer.send(Message::Text(text.into())).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_words_are_understood() {
        assert!(
            matches!(heard(r#"{"start":{"id":"a","pid":3,"existing":false}}"#), Ok(Heard::Started { id }) if id == "a")
        );
        assert!(matches!(heard(r#"{"dropped":5}"#), Ok(Heard::Dropped(5))));
        let exit =
            r#"{"exit":{"exit_code":137,"signal":9,"reason":"out_of_memory","duration_ms":1,"dropped_bytes":0}}"#;
        assert!(matches!(heard(exit), Ok(Heard::Ended(ended)) if ended.reason == "out_of_memory"));
        let died = heard(r#"{"error":"guest died: x","code":"guest_died","status":502}"#).unwrap_err();
        assert!(died.is_guest_death());
        assert!(matches!(heard(r#"{"other":1}"#), Err(ClientError::Strange(_))));
    }
}
