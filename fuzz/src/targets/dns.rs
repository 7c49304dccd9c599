//! DNS messages from a hostile guest: each is answered in a datagram's length, or not at all.

use std::net::Ipv4Addr;

use sandling_network::fuzzing::{Answer, read_dns};

pub fn run(data: &[u8]) {
    match read_dns(data) {
        Ok(question) => {
            let addresses = [Ipv4Addr::LOCALHOST; 8];
            let answers = [
                Answer::Addresses(&addresses, 60),
                Answer::Nothing,
                Answer::NoSuchName,
                Answer::Refused,
                Answer::Failed,
            ];
            for answer in answers {
                let bytes = question.answer(answer).expect("a question that was read is answered");
                assert!(bytes.len() <= 512);
                assert!(read_dns(&bytes).is_err(), "an answer is no question");
            }
        }
        Err(unreadable) => drop(unreadable.answer()),
    }
}
