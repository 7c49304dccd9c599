//! Answers the guest's DNS queries under the policy.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::dns::{self, Answer, LookupError, MOST_ADDRESSES, Question};
use crate::event::{Event, EventKind, Failure, Verdict};
use crate::name::HostName;
use crate::policy::Refusal;
use crate::shared::Shared;

/// The longest TTL in an answer, so that the guest asks again soon after a restore.
const TOLD_TTL: Duration = Duration::from_secs(60);

/// The result of a query.
enum Outcome {
    Addresses(Vec<Ipv4Addr>, Duration),
    Nothing,
    Refused(Refusal),
    Failed(Failure),
}

/// The reply to a query.
pub(crate) struct Reply {
    /// Absent if no reply is sent.
    pub message: Option<Vec<u8>>,
    /// The query was malformed, or exceeded the rate limit.
    pub excessive: bool,
}

/// Answers one DNS message.
pub(crate) async fn answer(shared: &Shared, bytes: &[u8]) -> Reply {
    shared.journal.asked();
    let question = match dns::read(bytes) {
        Ok(question) => question,
        Err(unreadable) => {
            let verdict = Verdict::Refused(Refusal::DnsMalformed);
            shared.journal.write(Event::new(EventKind::Dns, verdict));
            return Reply { message: unreadable.answer(), excessive: true };
        }
    };
    let outcome = decide(shared, &question).await;
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

async fn decide(shared: &Shared, question: &Question) -> Outcome {
    if !shared.lookups.admits_query() {
        return Outcome::Refused(Refusal::DnsRate);
    }
    let Some(name) = &question.name else {
        return Outcome::Refused(Refusal::NotListed);
    };
    if let Some(address) = shared.peers.address(name) {
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
    let limits = shared.meters.limits();
    if longest > limits.dns_label_length || name.as_str().len() > limits.dns_name_length {
        return Outcome::Refused(Refusal::DnsNameLength);
    }
    match shared.pins.answer(name) {
        Some((addresses, fresh)) => Outcome::Addresses(addresses, fresh),
        None => resolve(shared, name).await,
    }
}

async fn resolve(shared: &Shared, name: &HostName) -> Outcome {
    let mut resolved = match shared.lookups.resolve(name).await {
        Ok(resolved) => resolved,
        Err(LookupError::TooMany) => return Outcome::Refused(Refusal::DnsRate),
        Err(LookupError::Failed(why)) => return Outcome::Failed(why),
    };
    // The policy may have changed meanwhile. One address in a refused range spoils the whole answer, because an answer
    // that mixes ranges is a rebinding attack.
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

fn reply(question: &Question, outcome: &Outcome) -> Option<Vec<u8>> {
    question.answer(match outcome {
        Outcome::Addresses(addresses, ttl) => Answer::Addresses(addresses, ttl.min(&TOLD_TTL).as_secs() as u32),
        Outcome::Nothing => Answer::Nothing,
        Outcome::Refused(Refusal::RecordType | Refusal::DnsRate) => Answer::Refused,
        Outcome::Refused(_) | Outcome::Failed(Failure::NoSuchName) => Answer::NoSuchName,
        Outcome::Failed(_) => Answer::Failed,
    })
}
