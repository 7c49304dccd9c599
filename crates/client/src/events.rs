//! Server-sent event streams.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, HeaderValue};
use hyper::{Method, Response};
use serde::Serialize;

use super::error::ClientError;
use super::http::{Client, empty};

/// Maximum time without data. The server sends a ping every ten seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Wait this long before reopening a stream.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// One event. An event without a name has an empty one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub name: String,
    pub data: String,
}

pub struct Events {
    body: Incoming,
    reader: EventReader,
}

impl Client {
    /// Opens an event stream. `after` is the ID of the last event that was received.
    pub async fn events(&self, path: &str, after: Option<&str>) -> Result<Events, ClientError> {
        let mut request = self.request(Method::GET, path, empty())?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(Ok(after)) = after.map(HeaderValue::from_str) {
            request.headers_mut().insert("last-event-id", after);
        }
        self.answer(request).await.map(Events::new)
    }

    /// Passes events to `handle` until it stops, or until the object is gone. After a broken connection, the stream
    /// resumes after the last event, or after `start` if none has arrived yet.
    pub async fn follow<E: From<ClientError>>(
        &self,
        path: &str,
        start: Option<&str>,
        mut handle: impl FnMut(&Event) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let (mut events, mut last) = (self.events(path, None).await?, start.map(str::to_owned));
        loop {
            match events.next().await {
                Ok(Some(event)) => {
                    if handle(&event)?.is_break() {
                        return Ok(());
                    }
                    last = event.id.or(last);
                }
                Ok(None) | Err(ClientError::Broken(_)) => {
                    tokio::time::sleep(RECONNECT_DELAY).await;
                    events = match self.events(path, last.as_deref()).await {
                        Err(error) if error.is_missing() => return Ok(()),
                        opened => opened?,
                    };
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a POST request whose response is an event stream.
    pub async fn post_events(&self, path: &str, body: &impl Serialize) -> Result<Events, ClientError> {
        self.send_json(Method::POST, path, body).await.map(Events::new)
    }
}

impl Events {
    fn new(response: Response<Incoming>) -> Self {
        Self { body: response.into_body(), reader: EventReader::default() }
    }

    /// The next event, or `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.reader.pop() {
                return Ok(Some(event));
            }
            let frame = tokio::time::timeout(SILENCE_TIMEOUT, self.body.frame()).await;
            match frame.map_err(|_| ClientError::Unresponsive { seconds: SILENCE_TIMEOUT.as_secs() })? {
                None => return Ok(None),
                Some(Ok(frame)) => frame.data_ref().into_iter().for_each(|bytes| self.reader.push(bytes)),
                Some(Err(error)) => return Err(ClientError::broken(error)),
            }
        }
    }
}

/// Parses events from chunks of any size.
#[derive(Default)]
pub struct EventReader {
    line: Vec<u8>,
    event: Event,
    ready: VecDeque<Event>,
}

impl EventReader {
    pub fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_of_line(),
                byte => self.line.push(*byte),
            }
        }
    }

    /// The next complete event.
    pub fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    fn end_of_line(&mut self) {
        let bytes = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            // Pings are comments and produce no event.
            if event != Event::default() {
                self.ready.push_back(event);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.to_owned(),
            "id" => self.event.id = Some(value.to_owned()),
            "data" if self.event.data.is_empty() => self.event.data = value.to_owned(),
            "data" => self.event.data += &format!("\n{value}"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed_from_chunks_of_any_size() {
        let text = ": ping\n\nid: 7\nevent: stdout\ndata: {\"chunk\":\"ü\"}\n\ndata: a\r\ndata: b\r\n\r\nevent: half";
        for size in 1..12 {
            let mut reader = EventReader::default();
            text.as_bytes().chunks(size).for_each(|piece| reader.push(piece));
            let first =
                Event { id: Some("7".to_owned()), name: "stdout".to_owned(), data: r#"{"chunk":"ü"}"#.to_owned() };
            let second = Event { data: "a\nb".to_owned(), ..Event::default() };
            assert_eq!(Vec::from(reader.ready), [first, second], "pieces of {size}");
        }
    }
}
