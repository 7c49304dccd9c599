//! DNS messages: reads one query and writes one answer. No I/O. Every byte read here is hostile.

use std::net::Ipv4Addr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};

use crate::name::HostName;

/// The longest query that is read. Real queries are far shorter.
const LONGEST_QUESTION: usize = 512;
/// The answer size that the gateway advertises. Its answers are always shorter.
const PAYLOAD: u16 = 1232;
/// Length of a DNS header.
const HEADER: usize = 12;

/// A query that can be answered.
#[derive(Debug, Clone)]
pub struct Question {
    id: u16,
    query: Query,
    recursion_desired: bool,
    extended: bool,
    /// The name, if it is a valid host name.
    pub name: Option<HostName>,
}

/// A message that is not a query. `id` is known if the sender can get an error reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable {
    id: Option<u16>,
}

/// The answer to a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    Addresses(&'a [Ipv4Addr], u32),
    /// The name exists, but has no such record.
    Nothing,
    NoSuchName,
    Refused,
    Failed,
}

/// Reads a message, which must contain exactly one question.
pub fn read(bytes: &[u8]) -> Result<Question, Unreadable> {
    let id = bytes.get(..HEADER).map(|header| u16::from_be_bytes([header[0], header[1]]));
    let unreadable = Unreadable { id };
    if bytes.len() > LONGEST_QUESTION {
        return Err(unreadable);
    }
    let message = Message::from_vec(bytes).map_err(|_| unreadable)?;
    let lone = message.queries.len() == 1 && message.answers.is_empty() && message.authorities.is_empty();
    let asks = message.metadata.message_type == MessageType::Query && message.metadata.op_code == OpCode::Query;
    let [query] = &message.queries[..] else {
        return Err(unreadable);
    };
    if !lone || !asks || query.query_class() != DNSClass::IN {
        // Never answer an answer, because two gateways could then talk to each other forever.
        let told = message.metadata.message_type == MessageType::Query;
        return Err(Unreadable { id: id.filter(|_| told) });
    }
    Ok(Question {
        id: message.metadata.id,
        name: query.name().to_ascii().parse().ok(),
        recursion_desired: message.metadata.recursion_desired,
        extended: message.edns.is_some(),
        query: query.clone(),
    })
}

impl Question {
    /// Whether it asks for IPv4 addresses.
    pub fn asks_address(&self) -> bool {
        self.query.query_type() == RecordType::A
    }

    /// Whether it asks for records that clients query routinely and do not need.
    pub fn asks_what_is_never_there(&self) -> bool {
        matches!(self.query.query_type(), RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB)
    }

    /// Writes the message that carries `answer`.
    pub fn answer(&self, answer: Answer<'_>) -> Option<Vec<u8>> {
        let mut message = Message::response(self.id, OpCode::Query);
        message.metadata.recursion_desired = self.recursion_desired;
        message.metadata.recursion_available = true;
        message.metadata.response_code = match answer {
            Answer::Addresses(..) | Answer::Nothing => ResponseCode::NoError,
            Answer::NoSuchName => ResponseCode::NXDomain,
            Answer::Refused => ResponseCode::Refused,
            Answer::Failed => ResponseCode::ServFail,
        };
        message.add_query(self.query.clone());
        if let Answer::Addresses(addresses, ttl) = answer {
            for address in addresses {
                message.add_answer(Record::from_rdata(self.query.name().clone(), ttl, RData::A(A(*address))));
            }
        }
        if self.extended {
            let mut edns = Edns::new();
            edns.set_max_payload(PAYLOAD);
            message.set_edns(edns);
        }
        message.to_vec().ok()
    }
}

impl Unreadable {
    /// Writes the error reply, if the sender's `id` is known.
    pub fn answer(self) -> Option<Vec<u8>> {
        Message::error_msg(self.id?, OpCode::Query, ResponseCode::FormErr).to_vec().ok()
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::Name;
    use proptest::prelude::*;

    use super::*;

    fn question(name: &str, kind: RecordType) -> Vec<u8> {
        let mut message = Message::query();
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        message.to_vec().unwrap()
    }

    #[test]
    fn an_answer_repeats_the_question() {
        let bytes = question("Example.COM.", RecordType::A);
        let asked = read(&bytes).unwrap();
        assert!(asked.asks_address());
        assert_eq!(asked.name, Some("example.com".parse().unwrap()));
        let addresses = [Ipv4Addr::new(93, 184, 216, 34)];
        let answer = Message::from_vec(&asked.answer(Answer::Addresses(&addresses, 60)).unwrap()).unwrap();
        assert_eq!(answer.queries[0].name().to_ascii(), "Example.COM.");
        assert_eq!(answer.answers[0].data, RData::A(A(addresses[0])));
    }

    #[test]
    fn the_longest_answer_fits_into_the_smallest_datagram() {
        let name = format!("{}.{}.{}.{}.", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(59));
        let asked = read(&question(&name, RecordType::A)).unwrap();
        let addresses = [Ipv4Addr::new(93, 184, 216, 34); crate::dns::pins::MOST_ADDRESSES];
        assert!(asked.answer(Answer::Addresses(&addresses, 60)).unwrap().len() <= 512);
    }

    #[test]
    fn answers_double_questions_and_other_classes_are_refused() {
        let mut message = Message::query();
        let query = Query::query(Name::from_ascii("a.com.").unwrap(), RecordType::A);
        message.add_query(query.clone()).add_query(query.clone());
        assert!(read(&message.to_vec().unwrap()).is_err());

        let mut answer = Message::response(7, OpCode::Query);
        answer.add_query(query.clone());
        assert_eq!(read(&answer.to_vec().unwrap()).unwrap_err().answer(), None);

        let mut chaos = Message::query();
        let mut query = query;
        query.set_query_class(DNSClass::CH);
        chaos.add_query(query);
        assert!(read(&chaos.to_vec().unwrap()).unwrap_err().answer().is_some());
    }

    proptest! {
        #[test]
        fn random_bytes_get_at_most_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Err(unreadable) = read(&bytes) {
                prop_assert!(unreadable.answer().is_none_or(|answer| answer.len() == HEADER));
            }
        }
    }
}
