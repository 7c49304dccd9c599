//! Opening a link: the greeting, and the tasks that read, write and watch the connection.

use std::sync::Arc;
use std::time::Duration;

use sandling_protocol::frame::{self, Decoder};
use sandling_protocol::{Failure, Request, Response, ToGuest, ToHost, generation};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::outgoing::{self, NotQueued, Outgoing, Queue};
use super::table::Table;
use super::{LinkError, Stream};

/// How many bytes of an earlier session are discarded while waiting for the answer to the greeting.
const MAX_STALE: usize = 64 * 1024 * 1024;
/// A greeting without an answer is repeated after this time; the pause doubles each time.
const GREET_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// If a link with open streams is silent for so long, the guest is asked for a sign of life.
const ASK_AFTER: Duration = Duration::from_secs(10);
/// If it stays silent for so long, the link is closed. This is generous, because an emulated guest's own code may starve
/// its agent.
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
    /// The generation of the protocol that the guest speaks.
    generation: u32,
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
        let (reader, writer) = connection.into_split();
        let mut greeting = Greeting { reader, writer, nonce: String::new() };
        greeting.say().await?;
        Ok(greeting)
    }

    /// Opens a stream.
    pub fn open(&self, request: Request, body: &[u8]) -> Result<Stream, LinkError> {
        if request.since() > self.inner.generation {
            return Err(Failure::unknown_request().into());
        }
        let (id, incoming, send_window) = self.inner.table.open().map_err(LinkError::Closed)?;
        let stream = Stream { id, link: self.inner.clone(), incoming, send_window, owed: 0, ended: false };
        self.inner.post(&ToGuest::Open { stream: id, request }, body)?;
        Ok(stream)
    }

    /// The generation of the protocol that the guest speaks.
    pub fn generation(&self) -> u32 {
        self.inner.generation
    }

    /// Asks for something that is answered by one response.
    pub async fn call(&self, request: Request) -> Result<Response, LinkError> {
        self.open(request, &[])?.drain(|_, _| {}).await
    }

    /// As [`Link::call`], within a time.
    pub async fn call_within(&self, limit: Duration, request: Request) -> Result<Response, LinkError> {
        tokio::time::timeout(limit, self.call(request)).await.unwrap_or(Err(LinkError::NoAnswer))
    }

    /// Records that the machine is stopped on purpose, or runs again. While it is stopped, its silence is expected.
    pub fn hold(&self, held: bool) {
        self.inner.table.hold(held);
    }

    pub fn is_held(&self) -> bool {
        self.inner.table.is_held()
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
    /// Sends a greeting with a fresh nonce, so that an answer to an earlier greeting does not count.
    async fn say(&mut self) -> std::io::Result<()> {
        self.nonce = uuid::Uuid::new_v4().simple().to_string();
        let hello = ToGuest::Hello { nonce: self.nonce.clone(), generation: generation::CURRENT };
        let bytes = frame::encode(&hello, &[]).map_err(std::io::Error::other)?;
        self.writer.write_all(&bytes).await
    }

    /// Waits for the guest's answer. Bytes before it belong to an earlier session.
    pub async fn answered(self, limit: Duration) -> Result<Link, LinkError> {
        self.answered_before(tokio::time::sleep(limit)).await
    }

    /// The same, until `too_late` completes.
    pub async fn answered_before(mut self, too_late: impl Future<Output = ()>) -> Result<Link, LinkError> {
        let mut decoder = Decoder::new();
        let generation = tokio::select! {
            biased;
            answer = self.insist(&mut decoder) => answer?,
            () = too_late => return Err(LinkError::NoAnswer),
        };
        let (outgoing, queue) = outgoing::queue();
        let inner = Arc::new(Inner { table: Table::new(), outgoing, generation });
        let link = Link { inner: inner.clone(), _guard: Arc::new(Guard(inner.clone())) };
        tokio::spawn(read(self.reader, decoder, inner.clone()));
        tokio::spawn(write(self.writer, queue, inner.clone()));
        tokio::spawn(watch_silence(inner));
        Ok(link)
    }

    /// Greets until the guest answers. A guest may read a greeting before it notices the new connection. When it then
    /// handles the end of the old connection, it drops the greeting and its answer.
    async fn insist(&mut self, decoder: &mut Decoder) -> Result<u32, LinkError> {
        let mut stale = 0;
        let mut patience = GREET_AGAIN_AFTER;
        // Only the answer to the last greeting counts; otherwise the guest would restart a session that is in use. Each
        // greeting waits longer than the one before, so that a slow guest also gets to answer.
        loop {
            match tokio::time::timeout(patience, self.find_answer(decoder, &mut stale)).await {
                Ok(found) => return found,
                Err(_) => self.say().await.map_err(|error| LinkError::Closed(error.to_string()))?,
            }
            patience *= 2;
        }
    }

    async fn find_answer(&mut self, decoder: &mut Decoder, stale: &mut usize) -> Result<u32, LinkError> {
        let mut buffer = vec![0; 64 * 1024];
        while *stale < MAX_STALE {
            let read = self.reader.read(&mut buffer).await.map_err(|e| LinkError::Closed(e.to_string()))?;
            if read == 0 {
                return Err(LinkError::Closed("the machine ended".to_owned()));
            }
            *stale += read;
            // Nothing follows the answer before we ask for something, so the rest of these bytes can be dropped.
            for frame in decoder.push::<ToHost>(&buffer[..read]).into_iter().flatten() {
                match frame.message {
                    ToHost::Hello { nonce, generation } if nonce == self.nonce => {
                        return Ok(generation::check(generation)?);
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

/// Opens a stream that is not read: any answer is a sign of life.
fn ask(inner: &Inner) {
    if let Ok((stream, _, _)) = inner.table.open() {
        let _ = inner.post(&ToGuest::Open { stream, request: Request::Usage }, &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads greetings and answers as it is told: each with the nonces to repeat.
    async fn guest(connection: UnixStream, answers: impl FnMut(usize, &str) -> Option<String>) {
        guest_of(generation::CURRENT, connection, answers).await;
    }

    async fn guest_of(
        generation: u32,
        mut connection: UnixStream,
        mut answers: impl FnMut(usize, &str) -> Option<String>,
    ) {
        let (mut decoder, mut buffer, mut heard) = (Decoder::new(), vec![0; 4096], 0);
        loop {
            let count = connection.read(&mut buffer).await.unwrap_or_default();
            if count == 0 {
                return;
            }
            for frame in decoder.push::<ToGuest>(&buffer[..count]).into_iter().flatten() {
                let ToGuest::Hello { nonce, .. } = frame.message else { continue };
                if let Some(nonce) = answers(heard, &nonce) {
                    let hello = frame::encode(&ToHost::Hello { nonce, generation }, &[]).unwrap();
                    connection.write_all(&hello).await.unwrap();
                }
                heard += 1;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_greeting_that_was_lost_is_said_again() {
        let (host, other) = UnixStream::pair().unwrap();
        tokio::spawn(guest(other, |number, nonce| (number > 1).then(|| nonce.to_owned())));
        let greeting = Link::greet(host).await.unwrap();
        assert!(greeting.answered(Duration::from_secs(30)).await.is_ok());
    }

    async fn connect_to(generation: u32) -> Result<Link, LinkError> {
        let (host, other) = UnixStream::pair().unwrap();
        tokio::spawn(guest_of(generation, other, |_, nonce| Some(nonce.to_owned())));
        Link::greet(host).await.unwrap().answered(Duration::from_secs(30)).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_link_uses_the_generation_that_the_guest_answers() {
        for generation in [generation::OLDEST, generation::CURRENT] {
            assert_eq!(connect_to(generation).await.unwrap().inner.generation, generation);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_of_an_unknown_generation_is_refused_with_advice() {
        let error = connect_to(generation::CURRENT + 1).await.err().unwrap().to_string();
        assert!(error.contains("upgrade Sandling"), "{error}");
        assert!(connect_to(0).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_to_an_earlier_greeting_is_none() {
        let (host, other) = UnixStream::pair().unwrap();
        let mut first = None;
        tokio::spawn(guest(other, move |_, nonce| {
            Some(first.get_or_insert_with(|| nonce.to_owned()).clone()).filter(|first| first != nonce)
        }));
        let greeting = Link::greet(host).await.unwrap();
        assert!(matches!(greeting.answered(Duration::from_secs(30)).await, Err(LinkError::NoAnswer)));
    }
}
