//! Attaches this process to a command on a server: forwards stdin and signals, and prints the output.

use std::io::{self, Read};
use std::time::Duration;

use sandling_wire::{SessionStart, WindowSize};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::client::{Client, ClientError, Ended, Input, SessionEvent, Stream};
use crate::terminal::{self, Escape, Keys};

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGPIPE: i32 = 13;
const SIGTERM: i32 = 15;
/// How long to wait for the server to accept a signal.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Chunks of stdin to buffer before reading stops.
const QUEUED_CHUNKS: usize = 4;
const CHUNK_SIZE: usize = 32 * 1024;

/// Where a command's stdin comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinSource {
    Nothing,
    Stdin,
    /// Every key from our terminal in raw mode.
    Keys,
}

/// What to do when this process receives SIGTERM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTerminate {
    /// Forward the signal to the command.
    Forward,
    /// Exit; the command may keep running.
    Detach,
}

/// Why the attachment ended.
#[derive(Debug)]
pub enum End {
    Ended(Ended),
    GuestDied(String),
    /// The reader of our stdout is gone.
    OutputClosed,
    /// A signal made this process detach; the command may keep running.
    Detached(ReceivedSignal),
    /// The user typed the escape sequence.
    Escaped,
}

/// Signals to this process. While this value exists, they do not kill it.
pub struct Signals {
    interrupts: Signal,
    terminations: Signal,
    resizes: Signal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceivedSignal {
    Interrupt,
    Terminate,
    Resize,
}

impl Signals {
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
            resizes: signal(SignalKind::window_change())?,
        })
    }

    /// Waits for the next signal that asks this process to exit.
    pub async fn end(&mut self) -> ReceivedSignal {
        loop {
            match self.next().await {
                ReceivedSignal::Resize => {}
                caught => return caught,
            }
        }
    }

    pub async fn next(&mut self) -> ReceivedSignal {
        tokio::select! {
            _ = self.interrupts.recv() => ReceivedSignal::Interrupt,
            _ = self.terminations.recv() => ReceivedSignal::Terminate,
            _ = self.resizes.recv() => ReceivedSignal::Resize,
        }
    }
}

/// Where and how to run an attached command.
pub struct AttachedCommand<'a> {
    pub client: &'a Client,
    pub sandbox: &'a str,
    pub stdin: StdinSource,
    pub on_terminate: OnTerminate,
}

/// A message to the command.
enum InputMessage {
    Bytes(Vec<u8>),
    Eof,
    Resize(WindowSize),
}

impl AttachedCommand<'_> {
    /// Starts the command and stays attached until it ends. Its output goes to `print`.
    pub async fn run(
        &self,
        start: &SessionStart,
        signals: &mut Signals,
        print: impl FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> Result<End, ClientError> {
        let (mut session, input) = tokio::select! {
            opened = self.client.session(self.sandbox, start) => opened?,
            caught = signals.end() => return Ok(End::Detached(caught)),
        };
        let (input_queue, queue) = mpsc::channel(QUEUED_CHUNKS);
        let (leave, mut left) = mpsc::channel(1);
        // A separate task, because a command that does not read its stdin must not stop us from reading its output.
        tokio::spawn(forward_input(input, queue));
        if self.stdin != StdinSource::Nothing {
            read_stdin(self.stdin, input_queue.clone(), leave.clone());
        }
        let mut following =
            Attachment { command: self, exec: None, pending_signal: None, interrupts: 0, input_queue, print };
        loop {
            let end = tokio::select! {
                event = session.next() => following.handle_event(event).await?,
                caught = signals.next() => following.handle_signal(caught).await,
                Some(()) = left.recv() => Some(End::Escaped),
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    async fn signal(&self, exec: &str, number: i32) {
        let path = format!("/v1/sandboxes/{}/execs/{exec}/signal", self.sandbox);
        let body = serde_json::json!({ "signal": number });
        match tokio::time::timeout(SIGNAL_TIMEOUT, self.client.tell(&path, &body)).await {
            Ok(Ok(())) => {}
            // The command may have ended in the meantime.
            Ok(Err(error)) => tracing::debug!(%error, "the server did not deliver the signal"),
            Err(_) => tracing::warn!("the server did not accept the signal in time"),
        }
    }
}

/// The state of a running command.
struct Attachment<'a, P> {
    command: &'a AttachedCommand<'a>,
    /// The command's ID, once it has started.
    exec: Option<String>,
    /// A signal that arrived before the command started.
    pending_signal: Option<i32>,
    interrupts: u32,
    input_queue: mpsc::Sender<InputMessage>,
    print: P,
}

impl<P: FnMut(Stream, &[u8]) -> io::Result<()>> Attachment<'_, P> {
    async fn handle_event(&mut self, event: Result<SessionEvent, ClientError>) -> Result<Option<End>, ClientError> {
        match event {
            Ok(SessionEvent::Started { id }) => {
                self.exec = Some(id);
                if let Some(number) = self.pending_signal.take() {
                    self.signal(number).await;
                }
            }
            Ok(SessionEvent::Bytes(stream, bytes)) => {
                if (self.print)(stream, &bytes).is_err() {
                    self.signal(SIGPIPE).await;
                    return Ok(Some(End::OutputClosed));
                }
            }
            Ok(SessionEvent::Dropped(bytes)) => tracing::warn!(bytes, "the server dropped part of the output"),
            Ok(SessionEvent::Ended(ended)) => return Ok(Some(End::Ended(ended))),
            Err(error) if error.is_guest_death() => return Ok(Some(End::GuestDied(error.to_string()))),
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    async fn handle_signal(&mut self, caught: ReceivedSignal) -> Option<End> {
        match caught {
            // A resize may be dropped when the queue is full: the next one carries the current size.
            ReceivedSignal::Resize => drop(self.input_queue.try_send(InputMessage::Resize(terminal::size()))),
            ReceivedSignal::Terminate if self.command.on_terminate == OnTerminate::Detach => {
                return Some(End::Detached(caught));
            }
            ReceivedSignal::Terminate => self.signal(SIGTERM).await,
            ReceivedSignal::Interrupt => {
                self.interrupts += 1;
                match self.interrupts {
                    1 => self.signal(SIGINT).await,
                    // A second Ctrl-C kills the command.
                    2 => self.signal(SIGKILL).await,
                    _ => return Some(End::Detached(caught)),
                }
            }
        }
        None
    }

    async fn signal(&mut self, number: i32) {
        match &self.exec {
            Some(exec) => self.command.signal(exec, number).await,
            None => self.pending_signal = Some(number),
        }
    }
}

/// Sends messages to the command until the connection closes.
async fn forward_input(mut input: Input, mut queue: mpsc::Receiver<InputMessage>) {
    while let Some(message) = queue.recv().await {
        let sent = match message {
            InputMessage::Bytes(bytes) => input.bytes(bytes).await,
            InputMessage::Eof => input.eof().await,
            InputMessage::Resize(size) => input.resize(size).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Reads our stdin in a detached thread, because a blocking read cannot be cancelled.
fn read_stdin(stdin: StdinSource, input_queue: mpsc::Sender<InputMessage>, leave: mpsc::Sender<()>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; CHUNK_SIZE];
        let mut escape = Escape::new();
        loop {
            let read = match io::stdin().read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let keys = match stdin {
                StdinSource::Keys => escape.watch(&buffer[..read]),
                StdinSource::Stdin | StdinSource::Nothing => Keys { bytes: buffer[..read].to_vec(), leave: false },
            };
            if keys.leave {
                let _ = leave.blocking_send(());
                return;
            }
            if !keys.bytes.is_empty() && input_queue.blocking_send(InputMessage::Bytes(keys.bytes)).is_err() {
                return;
            }
        }
        let _ = input_queue.blocking_send(InputMessage::Eof);
    });
}
