//! A command on a server with this process before it: keys and stdin go in, output comes out, signals are passed on.

use std::io::{self, Read};
use std::time::Duration;

use sandling_wire::{SessionStart, WindowSize};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::client::{Client, ClientError, Ended, Heard, Input, Stream};
use crate::terminal::{self, Escape, Keys};

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGPIPE: i32 = 13;
const SIGTERM: i32 = 15;
/// A server that does not take a signal by then will not.
const SIGNAL_WITHIN: Duration = Duration::from_secs(5);
/// Pieces of stdin that may wait for the command before we stop reading.
const WAITING: usize = 4;
const PIECE: usize = 32 * 1024;

/// Where a command's stdin comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    Nothing,
    Stdin,
    /// Our terminal, with every key of it.
    Keys,
}

/// What SIGTERM to us means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTerminate {
    /// It is passed on.
    PassOn,
    /// We go.
    Leave,
}

/// How it came to an end.
#[derive(Debug)]
pub enum End {
    Ended(Ended),
    GuestDied(String),
    /// Nobody takes our output any more.
    OutputClosed,
    /// A signal made us go; the command may go on.
    Left(Caught),
    /// Somebody typed the way out.
    WalkedOut,
}

/// Signals to this process. From now on they no longer end it.
pub struct Signals {
    interrupts: Signal,
    terminations: Signal,
    resizes: Signal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caught {
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

    /// The next one that asks us to end.
    pub async fn end(&mut self) -> Caught {
        loop {
            match self.next().await {
                Caught::Resize => {}
                caught => return caught,
            }
        }
    }

    pub async fn next(&mut self) -> Caught {
        tokio::select! {
            _ = self.interrupts.recv() => Caught::Interrupt,
            _ = self.terminations.recv() => Caught::Terminate,
            _ = self.resizes.recv() => Caught::Resize,
        }
    }
}

/// A command to be followed.
pub struct Followed<'a> {
    pub client: &'a Client,
    pub sandbox: &'a str,
    pub feed: Feed,
    pub on_terminate: OnTerminate,
}

/// What goes to the command.
enum Fed {
    Bytes(Vec<u8>),
    Eof,
    Resize(WindowSize),
}

impl Followed<'_> {
    /// Starts the command and stays with it. `print` is given all that it prints.
    pub async fn run(
        &self,
        start: &SessionStart,
        signals: &mut Signals,
        print: impl FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> Result<End, ClientError> {
        let (mut session, input) = tokio::select! {
            opened = self.client.session(self.sandbox, start) => opened?,
            caught = signals.end() => return Ok(End::Left(caught)),
        };
        let (fed, feeding) = mpsc::channel(WAITING);
        let (leave, mut left) = mpsc::channel(1);
        // In a task of its own: a command that does not read its stdin must not keep us from reading its output.
        tokio::spawn(pass_on(input, feeding));
        if self.feed != Feed::Nothing {
            read_stdin(self.feed, fed.clone(), leave.clone());
        }
        let mut following = Following { followed: self, exec: None, owed: None, interrupts: 0, fed, print };
        loop {
            let end = tokio::select! {
                heard = session.next() => following.hear(heard).await?,
                caught = signals.next() => following.take(caught).await,
                Some(()) = left.recv() => Some(End::WalkedOut),
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    async fn signal(&self, exec: &str, number: i32) {
        let path = format!("/v1/sandboxes/{}/execs/{exec}/signal", self.sandbox);
        let body = serde_json::json!({ "signal": number });
        match tokio::time::timeout(SIGNAL_WITHIN, self.client.tell(&path, &body)).await {
            Ok(Ok(())) => {}
            // The command may just have ended.
            Ok(Err(error)) => tracing::debug!(%error, "the signal did not arrive"),
            Err(_) => tracing::warn!("the server does not take the signal"),
        }
    }
}

/// A command under way.
struct Following<'a, P> {
    followed: &'a Followed<'a>,
    /// Its id, once it runs.
    exec: Option<String>,
    /// A signal that came before it ran.
    owed: Option<i32>,
    interrupts: u32,
    fed: mpsc::Sender<Fed>,
    print: P,
}

impl<P: FnMut(Stream, &[u8]) -> io::Result<()>> Following<'_, P> {
    async fn hear(&mut self, heard: Result<Heard, ClientError>) -> Result<Option<End>, ClientError> {
        match heard {
            Ok(Heard::Started { id }) => {
                self.exec = Some(id);
                if let Some(number) = self.owed.take() {
                    self.signal(number).await;
                }
            }
            Ok(Heard::Bytes(stream, bytes)) => {
                if (self.print)(stream, &bytes).is_err() {
                    self.signal(SIGPIPE).await;
                    return Ok(Some(End::OutputClosed));
                }
            }
            Ok(Heard::Dropped(bytes)) => tracing::warn!(bytes, "output was lost"),
            Ok(Heard::Ended(ended)) => return Ok(Some(End::Ended(ended))),
            Err(error) if error.is_guest_death() => return Ok(Some(End::GuestDied(error.to_string()))),
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    async fn take(&mut self, caught: Caught) -> Option<End> {
        match caught {
            // One that does not fit the queue is followed by another, or was not worth it.
            Caught::Resize => drop(self.fed.try_send(Fed::Resize(terminal::size()))),
            Caught::Terminate if self.followed.on_terminate == OnTerminate::Leave => return Some(End::Left(caught)),
            Caught::Terminate => self.signal(SIGTERM).await,
            Caught::Interrupt => {
                self.interrupts += 1;
                match self.interrupts {
                    1 => self.signal(SIGINT).await,
                    // The second one does not ask.
                    2 => self.signal(SIGKILL).await,
                    _ => return Some(End::Left(caught)),
                }
            }
        }
        None
    }

    async fn signal(&mut self, number: i32) {
        match &self.exec {
            Some(exec) => self.followed.signal(exec, number).await,
            None => self.owed = Some(number),
        }
    }
}

/// Sends to the command what it is fed, until it is gone.
async fn pass_on(mut input: Input, mut feeding: mpsc::Receiver<Fed>) {
    while let Some(fed) = feeding.recv().await {
        let sent = match fed {
            Fed::Bytes(bytes) => input.bytes(bytes).await,
            Fed::Eof => input.eof().await,
            Fed::Resize(size) => input.resize(size).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Reads our stdin in a thread that nobody waits for.
fn read_stdin(feed: Feed, fed: mpsc::Sender<Fed>, leave: mpsc::Sender<()>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        let mut escape = Escape::new();
        loop {
            let read = match io::stdin().read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let keys = match feed {
                Feed::Keys => escape.watch(&buffer[..read]),
                Feed::Stdin | Feed::Nothing => Keys { bytes: buffer[..read].to_vec(), leave: false },
            };
            if keys.leave {
                let _ = leave.blocking_send(());
                return;
            }
            if !keys.bytes.is_empty() && fed.blocking_send(Fed::Bytes(keys.bytes)).is_err() {
                return;
            }
        }
        let _ = fed.blocking_send(Fed::Eof);
    });
}
