//! Making the connection, greeting, and the tasks that read, write and watch it.

use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::frame::{self, Decoder};
use sandling_protocol::{Request, Response, ToGuest, ToHost, VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::outgoing::{self, NotQueued, Outgoing, Queue};
use super::table::Table;
use super::{LinkError, Stream};

/// Bytes of an earlier session that are thrown away while waiting for the greeting's answer.
const MAX_STALE: usize = 64 * 1024 * 1024;
/// A link with open streams that is silent so long is asked for a sign of life…
const ASK_AFTER: Duration = Duration::from_secs(10);
/// …and given up when none comes. Generous: a guest under emulation may be starved by its own code.
const GIVE_UP_AFTER: Duration = Duration::from_secs(45);

/// A session with a guest. Cheap to clone; ends when the last clone is dropped.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
    _guard: Arc<Guard>,
}

pub(super) struct Inner {
    pub(super) table: Table,
    outgoing: Outgoing,
}

/// Closes the link when the last [`Link`] goes, so that its tasks end.
struct Guard(Arc<Inner>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.table.close("it was let go");
    }
}

impl Inner {
    pub(super) fn post(&self, message: &ToGuest, body: &[u8]) -> Result<(), LinkError> {
        let bytes = frame::encode(message, body).map_err(|_| LinkError::TooLarge)?;
        self.outgoing.push(bytes).map_err(|reason| {
            if matches!(reason, NotQueued::Full) {
                self.table.close("the guest does not read what it is told");
            }
            LinkError::Closed(self.reason())
        })
    }

    pub(super) fn reason(&self) -> String {
        self.table.closed.borrow().clone().unwrap_or_else(|| "it was cut".to_owned())
    }
}

impl Link {
    /// Sends the greeting over a connection to a machine's control port. The guest may still be stopped: the
    /// greeting waits for it, and [`Greeting::answered`] for the answer.
    pub async fn greet(connection: UnixStream) -> std::io::Result<Greeting> {
        let (reader, mut writer) = connection.into_split();
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let hello = ToGuest::Hello { nonce: nonce.clone(), version: VERSION };
        let bytes = frame::encode(&hello, &[]).map_err(std::io::Error::other)?;
        writer.write_all(&bytes).await?;
        Ok(Greeting { reader, writer, nonce })
    }

    /// Opens a stream.
    pub fn open(&self, request: Request, body: &[u8]) -> Result<Stream, LinkError> {
        let (id, incoming, send_window) = self.inner.table.open().map_err(LinkError::Closed)?;
        let stream = Stream { id, link: self.inner.clone(), incoming, send_window, ended: false };
        self.inner.post(&ToGuest::Open { stream: id, request }, body)?;
        Ok(stream)
    }

    /// Asks for something that is answered by one response.
    pub async fn call(&self, request: Request) -> Result<Response, LinkError> {
        self.open(request, &[])?.drain(|_, _| {}).await
    }

    /// As [`Link::call`], within a time.
    pub async fn call_within(&self, limit: Duration, request: Request) -> Result<Response, LinkError> {
        tokio::time::timeout(limit, self.call(request)).await.unwrap_or(Err(LinkError::NoAnswer))
    }

    /// Says that the machine is stopped on purpose (or goes on), so that silence is no sign of death.
    pub fn hold(&self, held: bool) {
        self.inner.table.hold(held);
    }

    /// Tells when and why the link ended.
    pub fn closed(&self) -> watch::Receiver<Option<String>> {
        self.inner.table.closed.subscribe()
    }
}

/// A greeting that has been sent.
pub struct Greeting {
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    nonce: String,
}

impl Greeting {
    /// Waits for the guest's answer; whatever comes before it belongs to an earlier session.
    pub async fn answered(mut self, limit: Duration) -> Result<Link, LinkError> {
        let mut decoder = Decoder::new();
        let rest = tokio::time::timeout(limit, self.find_answer(&mut decoder));
        rest.await.map_err(|_| LinkError::NoAnswer)??;
        let (outgoing, queue) = outgoing::queue();
        let inner = Arc::new(Inner { table: Table::new(), outgoing });
        let link = Link { inner: inner.clone(), _guard: Arc::new(Guard(inner.clone())) };
        tokio::spawn(read(self.reader, decoder, inner.clone()));
        tokio::spawn(write(self.writer, queue, inner.clone()));
        tokio::spawn(watch_silence(inner));
        Ok(link)
    }

    async fn find_answer(&mut self, decoder: &mut Decoder) -> Result<(), LinkError> {
        let mut buffer = vec![0; 64 * 1024];
        let mut stale = 0;
        while stale < MAX_STALE {
            let read = self.reader.read(&mut buffer).await.map_err(|e| LinkError::Closed(e.to_string()))?;
            if read == 0 {
                return Err(LinkError::Closed("the machine ended".to_owned()));
            }
            stale += read;
            // Nothing follows the answer before we ask for something, so the rest of these bytes can be dropped.
            for frame in decoder.push::<ToHost>(&buffer[..read]).into_iter().flatten() {
                match frame.message {
                    ToHost::Hello { nonce, version } if nonce == self.nonce => {
                        return if version == VERSION { Ok(()) } else { Err(LinkError::Unexpected) };
                    }
                    _ => {}
                }
            }
        }
        Err(LinkError::Closed("the guest sent rubbish instead of a greeting".to_owned()))
    }
}

async fn read(mut reader: OwnedReadHalf, mut decoder: Decoder, inner: Arc<Inner>) {
    let mut closed = inner.table.closed.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    let reason = loop {
        let read = tokio::select! {
            read = reader.read(&mut buffer) => read,
            _ = closed.wait_for(Option::is_some) => return,
        };
        match read {
            Ok(0) => break "the machine ended".to_owned(),
            Err(error) => break error.to_string(),
            Ok(count) => {
                if let Err(violation) = deliver(&mut decoder, &buffer[..count], &inner) {
                    break violation;
                }
            }
        }
    };
    inner.table.close(&reason);
}

fn deliver(decoder: &mut Decoder, bytes: &[u8], inner: &Inner) -> Result<(), String> {
    for frame in decoder.push::<ToHost>(bytes) {
        let frame = frame.map_err(|error| format!("the guest broke the protocol: {error}"))?;
        inner.table.deliver(frame).map_err(|violation| format!("the guest broke the protocol: {violation}"))?;
    }
    Ok(())
}

async fn write(mut writer: OwnedWriteHalf, mut queue: Queue, inner: Arc<Inner>) {
    let mut closed = inner.table.closed.subscribe();
    loop {
        let bytes = tokio::select! {
            bytes = queue.next() => bytes,
            _ = closed.wait_for(Option::is_some) => return,
        };
        let Some(bytes) = bytes else { return };
        if let Err(error) = writer.write_all(&bytes).await {
            return inner.table.close(&error.to_string());
        }
    }
}

async fn watch_silence(inner: Arc<Inner>) {
    let mut closed = inner.table.closed.subscribe();
    loop {
        tokio::select! {
            () = tokio::time::sleep(ASK_AFTER / 2) => {}
            _ = closed.wait_for(Option::is_some) => return,
        }
        match inner.table.silent_for() {
            Some(silence) if silence > GIVE_UP_AFTER => return inner.table.close("the guest does not answer"),
            Some(silence) if silence > ASK_AFTER => ask(&inner),
            _ => {}
        }
    }
}

/// Opens a stream nobody reads; its answer is what counts.
fn ask(inner: &Inner) {
    if let Ok((stream, _, _)) = inner.table.open() {
        let _ = inner.post(&ToGuest::Open { stream, request: Request::Usage }, &[]);
    }
}
