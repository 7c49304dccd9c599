//! Answers the guest's questions under the policy.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::message::{self, Answer, Question};
use super::pins::MOST_ADDRESSES;
use super::resolver::{ResolveError, Resolver};
use crate::event::{Event, EventKind, Failure, Verdict};
use crate::limits::Limits;
use crate::name::HostName;
use crate::policy::Refusal;
use crate::rate::Bucket;
use crate::shared::Shared;

/// Questions that wait for the host's name servers at a time.
const WAITING: usize = 32;
/// How long the host's name servers may take.
const PATIENCE: Duration = Duration::from_secs(8);
/// The longest time to live the guest is told, so that it asks again after a restore.
const TOLD_TTL: Duration = Duration::from_secs(60);

/// The DNS server of one sandbox.
pub(crate) struct DnsServer {
    resolver: Arc<dyn Resolver>,
    queries: Mutex<Bucket>,
    new_names: Mutex<Bucket>,
    waiting: Semaphore,
}

/// What became of a question.
enum Outcome {
    Addresses(Vec<Ipv4Addr>, Duration),
    Nothing,
    Refused(Refusal),
    Failed(Failure),
}

/// What a question is answered with.
pub(crate) struct Reply {
    /// Nothing, where an answer would help nobody.
    pub message: Option<Vec<u8>>,
    /// It made no sense, or there were too many.
    pub excessive: bool,
}

impl DnsServer {
    pub fn new(resolver: Arc<dyn Resolver>, limits: &Limits) -> DnsServer {
        let (queries, names) = rates(limits);
        DnsServer {
            resolver,
            queries: Mutex::new(Bucket::new(queries.0, queries.1)),
            new_names: Mutex::new(Bucket::new(names.0, names.1)),
            waiting: Semaphore::new(WAITING),
        }
    }

    /// Holds questions to other limits from now on.
    pub fn limit(&self, limits: &Limits) {
        let (queries, names) = rates(limits);
        self.queries.lock().unwrap_or_else(PoisonError::into_inner).change(queries.0, queries.1);
        self.new_names.lock().unwrap_or_else(PoisonError::into_inner).change(names.0, names.1);
    }

    /// Answers one message.
    pub async fn answer(&self, shared: &Shared, bytes: &[u8]) -> Reply {
        shared.journal.asked();
        let question = match message::read(bytes) {
            Ok(question) => question,
            Err(unreadable) => {
                let verdict = Verdict::Refused(Refusal::DnsMalformed);
                shared.journal.write(Event::new(EventKind::Dns, verdict));
                return Reply { message: unreadable.answer(), excessive: true };
            }
        };
        let outcome = self.decide(shared, &question).await;
        let verdict = match &outcome {
            Outcome::Addresses(..) | Outcome::Nothing => Verdict::Allowed,
            Outcome::Refused(why) => Verdict::Refused(*why),
            Outcome::Failed(why) => Verdict::Failed(*why),
        };
        let mut event = Event::new(EventKind::Dns, verdict).of_name(question.name.clone());
        if let Outcome::Addresses(addresses, _) = &outcome {
            event.address = addresses.first().map(|address| (*address).into());
        }
        let excessive = verdict == Verdict::Refused(Refusal::DnsRate);
        if excessive {
            shared.journal.sample(event);
        } else {
            shared.journal.write(event);
        }
        Reply { message: reply(&question, &outcome), excessive }
    }

    async fn decide(&self, shared: &Shared, question: &Question) -> Outcome {
        if !take(&self.queries) {
            return Outcome::Refused(Refusal::DnsRate);
        }
        let Some(name) = &question.name else {
            return Outcome::Refused(Refusal::NotListed);
        };
        if let Some(address) = shared.peer_address(name) {
            let told = if question.asks_address() { vec![address] } else { Vec::new() };
            return Outcome::Addresses(told, TOLD_TTL);
        }
        if let Err(why) = shared.rules().name(name) {
            return Outcome::Refused(why);
        }
        if question.asks_what_is_never_there() {
            return Outcome::Nothing;
        }
        if !question.asks_address() {
            return Outcome::Refused(Refusal::RecordType);
        }
        let longest = name.labels().map(str::len).max().unwrap_or_default();
        let limits = shared.limits();
        if longest > limits.dns_label_length || name.as_str().len() > limits.dns_name_length {
            return Outcome::Refused(Refusal::DnsNameLength);
        }
        match shared.pins.answer(name) {
            Some((addresses, fresh)) => Outcome::Addresses(addresses, fresh),
            None => self.resolve(shared, name).await,
        }
    }

    async fn resolve(&self, shared: &Shared, name: &HostName) -> Outcome {
        if !take(&self.new_names) {
            return Outcome::Refused(Refusal::DnsRate);
        }
        let Ok(_place) = self.waiting.try_acquire() else {
            return Outcome::Refused(Refusal::DnsRate);
        };
        let mut resolved = match timeout(PATIENCE, self.resolver.resolve(name)).await {
            Ok(Ok(resolved)) => resolved,
            Ok(Err(ResolveError::NoSuchName)) => return Outcome::Failed(Failure::NoSuchName),
            Ok(Err(ResolveError::Failed(error))) => {
                tracing::debug!(%name, %error, "the host's name servers failed");
                return Outcome::Failed(Failure::NoAnswer);
            }
            Err(_) => return Outcome::Failed(Failure::TimedOut),
        };
        // The policy may have changed meanwhile, and one address out of bounds spoils the whole answer: whoever mixes
        // them is rebinding.
        let rules = shared.rules();
        if let Err(why) = rules.name(name) {
            return Outcome::Refused(why);
        }
        if let Some(range) = resolved.addresses.iter().find_map(|address| rules.refusing(*address)) {
            return Outcome::Refused(Refusal::Rebinding(range));
        }
        resolved.addresses.truncate(MOST_ADDRESSES);
        if resolved.addresses.is_empty() {
            return Outcome::Nothing;
        }
        shared.pins.pin(name, &resolved.addresses, resolved.ttl);
        Outcome::Addresses(resolved.addresses, resolved.ttl)
    }
}

/// Questions, and names that were not asked for lately: so many a second, and so many at once.
fn rates(limits: &Limits) -> ((f64, f64), (f64, f64)) {
    let queries = f64::from(limits.dns_queries_per_second);
    let names = f64::from(limits.dns_new_names_per_minute);
    ((queries, queries * 4.0), (names / 60.0, names))
}

fn take(bucket: &Mutex<Bucket>) -> bool {
    bucket.lock().unwrap_or_else(PoisonError::into_inner).take(1.0)
}

fn reply(question: &Question, outcome: &Outcome) -> Option<Vec<u8>> {
    question.answer(match outcome {
        Outcome::Addresses(addresses, ttl) => Answer::Addresses(addresses, ttl.min(&TOLD_TTL).as_secs() as u32),
        Outcome::Nothing => Answer::Nothing,
        Outcome::Refused(Refusal::RecordType | Refusal::DnsRate) => Answer::Refused,
        Outcome::Refused(_) | Outcome::Failed(Failure::NoSuchName) => Answer::NoSuchName,
        Outcome::Failed(_) => Answer::Failed,
    })
}
