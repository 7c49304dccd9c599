//! A client of QEMU's machine protocol (QMP) over a Unix socket: commands with a deadline, and events for subscribers.
//!
//! Written by hand for two reasons. The `qapi` crate has generated types for thousands of commands of one QEMU version,
//! and this crate sends a dozen. And the peer is not trusted: a compromised QEMU may send anything. Lines are bounded,
//! malformed input ends the connection, and nothing waits forever.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::SendFlags;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;

use crate::pass_fd;

/// The longest line that QEMU may send; its largest legitimate answers (the block graph) are far smaller.
const MAX_LINE: u64 = 1024 * 1024;
const BUFFERED_EVENTS: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    #[error("the connection to QEMU failed")]
    Io(#[source] io::Error),
    #[error("QEMU did not answer {command} within {} ms", .limit.as_millis())]
    TimedOut { command: String, limit: Duration },
    #[error("QEMU closed the connection, or broke the protocol, before it answered {command}")]
    Closed { command: String },
    #[error("QEMU refused {command}: {description}")]
    Refused { command: String, class: String, description: String },
}

/// A message that QEMU sends on its own.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Event {
    #[serde(rename = "event")]
    pub name: String,
    #[serde(default)]
    pub data: Value,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    #[serde(default)]
    class: String,
    #[serde(default)]
    desc: String,
}

type Answer = Result<Value, Refusal>;
type Pending = Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>;

/// One connection to one QEMU. QEMU serves one client at a time; dropping this lets the next one connect.
#[derive(Debug)]
pub struct Qmp {
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    pending: Pending,
    next_id: AtomicU64,
    events: broadcast::Sender<Event>,
    reader: JoinHandle<()>,
}

impl Qmp {
    /// Waits for the greeting, and ends negotiation mode.
    pub async fn negotiate(stream: UnixStream, limit: Duration) -> Result<Self, QmpError> {
        let (read, write) = stream.into_split();
        let mut lines = Lines { reader: BufReader::new(read), line: Vec::new() };
        let greeting = tokio::time::timeout(limit, lines.next())
            .await
            .map_err(|_| QmpError::TimedOut { command: "the greeting".to_owned(), limit })?
            .map_err(QmpError::Io)?;
        if greeting.is_none_or(|line| line.get("QMP").is_none()) {
            return Err(QmpError::Closed { command: "the greeting".to_owned() });
        }
        let pending = Pending::default();
        let events = broadcast::Sender::new(BUFFERED_EVENTS);
        let reader = tokio::spawn(read_answers(lines, pending.clone(), events.clone()));
        let qmp = Self { writer: tokio::sync::Mutex::new(write), pending, next_id: AtomicU64::new(1), events, reader };
        qmp.execute("qmp_capabilities", json!({}), limit).await?;
        Ok(qmp)
    }

    /// Subscribes to events from now on. A subscriber that is too slow misses the oldest.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Sends a command and waits for its answer, at most `limit`. Commands may overlap.
    pub async fn execute(&self, command: &str, arguments: Value, limit: Duration) -> Result<Value, QmpError> {
        self.execute_with(command, arguments, None, limit).await
    }

    /// Sends a command with a descriptor, which QEMU duplicates.
    pub async fn execute_with(
        &self,
        command: &str,
        arguments: Value,
        fd: Option<BorrowedFd<'_>>,
        limit: Duration,
    ) -> Result<Value, QmpError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (tell, answer) = oneshot::channel();
        locked(&self.pending).insert(id, tell);
        let result = tokio::time::timeout(limit, self.send_and_wait(id, command, arguments, fd, answer)).await;
        locked(&self.pending).remove(&id);
        result.unwrap_or_else(|_| Err(QmpError::TimedOut { command: command.to_owned(), limit }))
    }

    async fn send_and_wait(
        &self,
        id: u64,
        command: &str,
        arguments: Value,
        fd: Option<BorrowedFd<'_>>,
        answer: oneshot::Receiver<Answer>,
    ) -> Result<Value, QmpError> {
        let mut line = json!({ "execute": command, "arguments": arguments, "id": id }).to_string();
        line.push('\n');
        let mut writer = self.writer.lock().await;
        let sent = match fd {
            Some(fd) => send_with(&writer, line.as_bytes(), fd).await.map_err(QmpError::Io)?,
            None => 0,
        };
        writer.write_all(&line.as_bytes()[sent..]).await.map_err(QmpError::Io)?;
        drop(writer);
        // Checked after the entry was inserted: a reader that ended before that cannot remove it.
        if self.reader.is_finished() {
            locked(&self.pending).remove(&id);
        }
        match answer.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Refusal { class, desc })) => {
                Err(QmpError::Refused { command: command.to_owned(), class, description: desc })
            }
            Err(_) => Err(QmpError::Closed { command: command.to_owned() }),
        }
    }
}

impl Drop for Qmp {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Waits for an event of which `find` makes something. `None` if QEMU closed the connection.
pub(crate) async fn find_event<T>(
    mut events: broadcast::Receiver<Event>,
    mut find: impl FnMut(&Event) -> Option<T>,
) -> Option<T> {
    loop {
        match events.recv().await.as_ref().map(&mut find) {
            Ok(None) | Err(RecvError::Lagged(_)) => {}
            Ok(found) => return found,
            Err(RecvError::Closed) => return None,
        }
    }
}

/// Sends as much of the bytes as the socket takes, and the descriptor with the first of them.
async fn send_with(writer: &OwnedWriteHalf, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<usize> {
    let stream: &UnixStream = writer.as_ref();
    loop {
        stream.writable().await?;
        let send = || Ok(pass_fd::send(stream, bytes, Some(fd), SendFlags::empty())?);
        let sent = stream.try_io(Interest::WRITABLE, send);
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

fn locked(pending: &Pending) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read_answers(mut lines: Lines, pending: Pending, events: broadcast::Sender<Event>) {
    while let Ok(Some(line)) = lines.next().await {
        dispatch(line, &pending, &events);
    }
    // Dropping the senders tells the callers that still wait that no answer will come.
    locked(&pending).clear();
}

fn dispatch(mut line: Value, pending: &Pending, events: &broadcast::Sender<Event>) {
    if line.get("event").is_some() {
        if let Ok(event) = serde_json::from_value(line) {
            // This fails if there is no subscriber.
            let _ = events.send(event);
        }
        return;
    }
    let Some(waiting) = line.get("id").and_then(Value::as_u64).and_then(|id| locked(pending).remove(&id)) else {
        return;
    };
    let answer = match line.get_mut("return").map(Value::take) {
        Some(value) => Ok(value),
        None => Err(serde_json::from_value(line["error"].take())
            .unwrap_or(Refusal { class: String::new(), desc: "no reason given".to_owned() })),
    };
    // This fails if the caller's deadline has passed.
    let _ = waiting.send(answer);
}

struct Lines {
    reader: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
}

impl Lines {
    /// The next line as JSON, or `None` at the end. A line that is too long or not a JSON object is an error.
    async fn next(&mut self) -> io::Result<Option<Value>> {
        self.line.clear();
        let read = (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut self.line).await?;
        if read == 0 {
            return Ok(None);
        }
        if self.line.last() != Some(&b'\n') {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "QEMU sent a line that is too long or incomplete"));
        }
        let value: Value = serde_json::from_slice(&self.line)?;
        if !value.is_object() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "QEMU sent a line that is not a JSON object"));
        }
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests;
