//! One allowed connection: what it has shown so far, and whether the policy still allows it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::destination::{Destination, End};
use crate::event::{Event, EventKind, Verdict};
use crate::name::HostName;
use crate::policy::{AllowedBy, Refusal, Shown};
use crate::secret::SecretSet;
use crate::shared::Shared;
use crate::tcp::Connection;
use crate::traffic::Traffic;

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
    /// The client hello contains another, encrypted name.
    hides_name: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    NotYet,
    SealedTls,
    OpenedTls,
    Http,
    Other,
}

impl Session {
    pub fn new(shared: &Arc<Shared>, connection: Arc<Connection>, destination: Destination) -> Session {
        let traffic = shared.traffic();
        Session { shared: shared.clone(), connection, destination, traffic, seen: Mutex::default() }
    }

    /// Whether the gateway must intercept TLS to `name`.
    pub fn must_open(&self, name: &HostName) -> bool {
        let Destination { address, port, .. } = self.destination;
        let bound = !self.shared.secrets.borrow().bound_to(name, port).is_empty();
        bound || self.shared.header_rules().apply_to(Some(name), address, port) || self.shared.rules().inspects()
    }

    /// Whether the current policy allows any name, so that an encrypted one does no harm.
    pub fn may_hide_name(&self) -> bool {
        let Destination { address, port, names, .. } = &self.destination;
        self.shared.rules().address(*address, *port, names) == Ok(AllowedBy::Open)
    }

    /// Judges what the connection shows. Records the decision.
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

    /// Judges what the connection shows, without recording the decision.
    pub fn judge_quietly(&self, shown: Shown<'_>) -> Result<(), Refusal> {
        let Destination { address, port, names, .. } = &self.destination;
        self.shared.rules().shown(*address, *port, shown, names)
    }

    /// Records a refusal of what the connection shows.
    pub fn refuse(&self, why: Refusal, name: Option<HostName>) -> End {
        self.note(EventKind::Name, Verdict::Refused(why), name);
        End::Refused(why)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_seen(&self, name: Option<HostName>, shown: Protocol) {
        let mut seen = self.seen();
        (seen.name, seen.shown) = (name, shown);
    }

    /// Sets whether the client hello contains another, encrypted name.
    pub fn set_hides_name(&self, hides: bool) {
        self.seen().hides_name = hides;
    }

    /// Sets the name that the latest request on this connection shows.
    pub fn shows(&self, name: HostName) {
        self.set_seen(Some(name), Protocol::Http);
    }

    /// Waits until the policy or the secrets no longer allow this connection.
    pub async fn revoked(&self) -> Refusal {
        let mut rules = self.shared.rules.subscribe();
        let mut secrets = self.shared.secrets.subscribe();
        // A change between the first judgement and the subscription is not announced, so judge once more.
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

    fn secrets_differ(&self, before: &SecretSet, after: &SecretSet) -> bool {
        let seen = self.seen().clone();
        let port = self.destination.port;
        let tls = matches!(seen.shown, Protocol::OpenedTls | Protocol::SealedTls);
        seen.name.is_some_and(|name| tls && before.bound_to(&name, port) != after.bound_to(&name, port))
    }

    /// Records a decision about this connection.
    pub fn note(&self, kind: EventKind, verdict: Verdict, name: Option<HostName>) {
        self.shared.journal.write(self.event(kind, verdict, name));
    }

    /// An event about this connection.
    pub fn event(&self, kind: EventKind, verdict: Verdict, name: Option<HostName>) -> Event {
        Event::new(kind, verdict).of_name(name).at_address(self.destination.address, Some(self.destination.port))
    }

    pub fn closed(&self, end: End) {
        let seen = self.seen().name.clone();
        let mut event = self.event(EventKind::Close, end.into(), seen.or_else(|| self.destination.only_name()));
        (event.bytes_out, event.bytes_in) = self.traffic.counted();
        self.shared.journal.write(event);
    }
}
