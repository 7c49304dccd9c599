//! One allowed connection from its first byte to its last: what it shows is judged, then it is relayed, and it ends
//! the moment the policy no longer allows it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection::Connection;
use super::greeting::{Greeting, classify};
use super::relay::{relay, relay_stream};
use super::stream::GuestStream;
use crate::destination::{Destination, End};
use crate::event::{Event, EventKind, Failure, Verdict};
use crate::http;
use crate::name::HostName;
use crate::peers::PeerStream;
use crate::policy::{Ground, Refusal, Shown};
use crate::shared::Shared;
use crate::tls::{self, Hello};
use crate::traffic::Traffic;

/// How long the last bytes may take to reach the guest.
const LINGER: Duration = Duration::from_secs(30);

/// The host's side of a connection.
pub(crate) enum Upstream {
    Tcp(TcpStream),
    Peer(PeerStream),
}

/// One allowed connection.
pub(crate) struct Session {
    pub shared: Arc<Shared>,
    pub connection: Arc<Connection>,
    pub destination: Destination,
    pub traffic: Arc<Traffic>,
    seen: Mutex<Seen>,
}

/// What the connection has shown so far.
#[derive(Debug, Clone, Default)]
struct Seen {
    name: Option<HostName>,
    shown: Protocol,
    /// Another name may be encrypted beside it.
    hides_name: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Protocol {
    #[default]
    NotYet,
    SealedTls,
    OpenedTls,
    Http,
    Other,
}

impl Session {
    pub fn new(shared: &Arc<Shared>, connection: Arc<Connection>, destination: Destination) -> Session {
        let traffic = Traffic::new(shared);
        Session { shared: shared.clone(), connection, destination, traffic, seen: Mutex::default() }
    }

    /// Runs to the end.
    pub async fn run(self, upstream: Upstream) {
        self.note(EventKind::Connect, Verdict::Allowed, self.destination.only_name());
        let end = tokio::select! {
            end = self.talk(upstream) => end.unwrap_or_else(|end| end),
            why = self.revoked() => End::Refused(why),
            () = self.traffic.idle(Duration::MAX) => End::Failed(Failure::Idle),
            () = self.over() => End::Failed(Failure::Reset),
        };
        if end == End::Done {
            self.connection.finish();
            self.connection.over(LINGER).await;
        }
        self.connection.abort();
        self.closed(end);
    }

    /// Keeps the connection's clock until it is closed, and waits until the host's side has taken what came before. One
    /// that gave way to another is counted by nobody, so it waits for nothing.
    async fn over(&self) {
        self.connection.drive().await;
        let mut passed = None;
        while !self.connection.has_vanished() && passed != Some(self.traffic.counted()) {
            passed = Some(self.traffic.counted());
            tokio::time::sleep(LINGER).await;
        }
    }

    async fn talk(&self, upstream: Upstream) -> Result<End, End> {
        let stream = match upstream {
            Upstream::Tcp(stream) => stream,
            Upstream::Peer(peer) => {
                let guest = GuestStream::metered(self.connection.clone(), self.traffic.clone());
                relay_stream(guest, peer).await?;
                return Ok(End::Done);
            }
        };
        let (greeting, first) = self.greeting(&stream).await?;
        match greeting {
            Greeting::Tls => self.tls(stream, first).await,
            Greeting::Http => {
                self.set_seen(None, Protocol::Http);
                http::relay_plain(self, stream, first).await
            }
            Greeting::Other | Greeting::Unsure => {
                self.judge(Shown::OtherProtocol)?;
                self.set_seen(None, Protocol::Other);
                self.shared.learn(&self.destination, Shown::OtherProtocol);
                self.relay(stream, &first).await
            }
        }
    }

    async fn relay(&self, stream: TcpStream, first: &[u8]) -> Result<End, End> {
        // Only what both sides ended may look like an end: else what the guest sent half would pass for whole.
        let _ = stream.set_zero_linger();
        relay(&self.connection, &stream, &self.traffic, first).await?;
        let _ = rustix::net::sockopt::set_socket_linger(&stream, None);
        Ok(End::Done)
    }

    /// Reads from the guest until its protocol is known. Nothing that could still become TLS or HTTP is passed on, however
    /// long it takes. Where other protocols may pass, the server may speak first, to a guest that has said nothing.
    async fn greeting(&self, stream: &TcpStream) -> Result<(Greeting, Vec<u8>), End> {
        let mut first = Vec::new();
        let others_may = self.judge_quietly(Shown::OtherProtocol).is_ok();
        if others_may {
            tokio::select! {
                biased;
                () = self.connection.readable() => {}
                ready = stream.readable() => {
                    ready.map_err(End::from)?;
                    return Ok((Greeting::Other, first));
                }
            }
        }
        let reading = async {
            loop {
                match classify(&first) {
                    // What the guest ended becomes nothing else any more.
                    Greeting::Unsure if !self.read_more(&mut first).await? => {
                        return Ok::<Greeting, End>(Greeting::Other);
                    }
                    Greeting::Unsure => {}
                    known => return Ok(known),
                }
            }
        };
        let greeting = match timeout(self.shared.limits().greeting, reading).await {
            Ok(greeting) => greeting?,
            Err(_) => return Err(self.refuse(Refusal::SilentTooLong, None)),
        };
        // A guest that goes away without a word had nothing to be judged by.
        if first.is_empty() && !others_may {
            return Err(End::Done);
        }
        Ok((greeting, first))
    }

    /// Appends what the guest sent; false at its end.
    async fn read_more(&self, first: &mut Vec<u8>) -> Result<bool, End> {
        self.connection.readable().await;
        let count = self.connection.receive(|bytes| {
            first.extend_from_slice(bytes);
            Ok(bytes.len())
        })?;
        self.traffic.outward(count).map_err(End::Refused)?;
        Ok(count > 0)
    }

    async fn tls(&self, stream: TcpStream, mut first: Vec<u8>) -> Result<End, End> {
        let reading = async {
            loop {
                match Hello::read(&first) {
                    Ok(Some(hello)) => return Ok(hello),
                    Ok(None) if self.read_more(&mut first).await? => {}
                    Ok(None) => return Err(self.refuse(Refusal::TlsMalformed, None)),
                    Err(why) => return Err(self.refuse(why, None)),
                }
            }
        };
        let hello = match timeout(self.shared.limits().greeting, reading).await {
            Ok(hello) => hello?,
            Err(_) => return Err(self.refuse(Refusal::SilentTooLong, None)),
        };
        if hello.encrypted_name && !self.may_hide_name() {
            return Err(self.refuse(Refusal::EncryptedName, hello.name));
        }
        self.seen().hides_name = hello.encrypted_name;
        let Some(name) = hello.name else {
            self.judge(Shown::Nameless)?;
            if self.shared.rules().inspects() {
                // There is no name to open it for.
                return Err(self.refuse(Refusal::NameMissing, None));
            }
            self.set_seen(None, Protocol::SealedTls);
            self.shared.learn(&self.destination, Shown::Nameless);
            return self.relay(stream, &first).await;
        };
        self.judge(Shown::Name(&name))?;
        self.shared.learn(&self.destination, Shown::Name(&name));
        match (self.must_open(&name), self.shared.interceptor()) {
            (false, _) => {
                self.set_seen(Some(name), Protocol::SealedTls);
                self.relay(stream, &first).await
            }
            (true, Some(interceptor)) => {
                self.set_seen(Some(name.clone()), Protocol::OpenedTls);
                tls::intercept(self, &interceptor, name, stream, first).await
            }
            (true, None) => Err(self.refuse(Refusal::NoAuthority, Some(name))),
        }
    }

    /// Whether TLS to `name` has to be opened here.
    fn must_open(&self, name: &HostName) -> bool {
        let bound = !self.shared.secrets.borrow().bound_to(name, self.destination.port).is_empty();
        bound || self.shared.rules().inspects()
    }

    /// Whether it does not matter what name is encrypted in its greeting, under the policy of this moment.
    fn may_hide_name(&self) -> bool {
        let Destination { address, port, names, .. } = &self.destination;
        self.shared.rules().address(*address, *port, names) == Ok(Ground::Open)
    }

    /// Judges what the connection shows, and refuses it if it must.
    pub fn judge(&self, shown: Shown<'_>) -> Result<(), End> {
        let name = match shown {
            Shown::Name(name) => Some(name.clone()),
            Shown::Nameless | Shown::OtherProtocol => None,
        };
        self.judge_quietly(shown).map_err(|why| self.refuse(why, name.clone()))?;
        if name.is_some() {
            self.note(EventKind::Name, Verdict::Allowed, name);
        }
        Ok(())
    }

    /// The same without writing it down.
    pub fn judge_quietly(&self, shown: Shown<'_>) -> Result<(), Refusal> {
        let Destination { address, port, names, .. } = &self.destination;
        self.shared.rules().shown(*address, *port, shown, names)
    }

    /// Writes down a refusal of what the connection shows.
    fn refuse(&self, why: Refusal, name: Option<HostName>) -> End {
        self.note(EventKind::Name, Verdict::Refused(why), name);
        End::Refused(why)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_seen(&self, name: Option<HostName>, shown: Protocol) {
        let mut seen = self.seen();
        (seen.name, seen.shown) = (name, shown);
    }

    /// The name shown by a request of this connection, from now on.
    pub fn shows(&self, name: HostName) {
        self.set_seen(Some(name), Protocol::Http);
    }

    /// Waits until the policy or the secrets no longer allow what this connection is.
    async fn revoked(&self) -> Refusal {
        let mut rules = self.shared.rules.subscribe();
        let mut secrets = self.shared.secrets.subscribe();
        // What changed since this connection was judged is not announced any more.
        if !self.still_allowed() {
            return Refusal::PolicyChanged;
        }
        loop {
            let before = secrets.borrow_and_update().clone();
            tokio::select! {
                changed = rules.changed() => if changed.is_err() || !self.still_allowed() {
                    return Refusal::PolicyChanged;
                },
                changed = secrets.changed() => {
                    let after = secrets.borrow().clone();
                    if changed.is_err() || self.secrets_differ(&before, &after) {
                        return Refusal::SecretRevoked;
                    }
                }
            }
        }
    }

    fn still_allowed(&self) -> bool {
        if self.destination.peer.is_some() {
            return self.shared.peers.peer(self.destination.address) == self.destination.peer;
        }
        let seen = self.seen().clone();
        if seen.hides_name && !self.may_hide_name() {
            return false;
        }
        let Destination { address, port, names, .. } = &self.destination;
        let rules = self.shared.rules();
        let shown = match (&seen.name, seen.shown) {
            (_, Protocol::NotYet) => return rules.address(*address, *port, names).is_ok(),
            (Some(name), _) => Shown::Name(name),
            (None, Protocol::Other) => Shown::OtherProtocol,
            (None, _) => Shown::Nameless,
        };
        let as_before = match (seen.shown, &seen.name) {
            (Protocol::OpenedTls, Some(name)) => self.must_open(name),
            (Protocol::SealedTls, Some(name)) => !self.must_open(name),
            (Protocol::SealedTls, None) => !rules.inspects(),
            _ => true,
        };
        rules.shown(*address, *port, shown, names).is_ok() && as_before
    }

    fn secrets_differ(&self, before: &crate::SecretSet, after: &crate::SecretSet) -> bool {
        let seen = self.seen().clone();
        let port = self.destination.port;
        let tls = matches!(seen.shown, Protocol::OpenedTls | Protocol::SealedTls);
        seen.name.is_some_and(|name| tls && before.bound_to(&name, port) != after.bound_to(&name, port))
    }

    /// Writes down a decision about this connection.
    pub fn note(&self, kind: EventKind, verdict: Verdict, name: Option<HostName>) {
        self.shared.journal.write(self.event(kind, verdict, name));
    }

    /// An event about this connection.
    pub fn event(&self, kind: EventKind, verdict: Verdict, name: Option<HostName>) -> Event {
        Event::new(kind, verdict).of_name(name).at_address(self.destination.address, Some(self.destination.port))
    }

    fn closed(&self, end: End) {
        let seen = self.seen().name.clone();
        let mut event = self.event(EventKind::Close, end.into(), seen.or_else(|| self.destination.only_name()));
        (event.bytes_out, event.bytes_in) = self.traffic.counted();
        self.shared.journal.write(event);
    }
}
