//! Frames of earlier generations, byte for byte as the code of their time wrote them.
//!
//! `golden/generation-N/` never changes: guests that speak generation N are in memory in users' snapshots. Each line of
//! `to_guest.txt` and `to_host.txt` is a sample's name and its frame in hexadecimal.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop here")]

mod samples;

use std::collections::BTreeMap;

use sandling_protocol::frame::{self, Decoder};
use sandling_protocol::{Request, ToGuest, ToHost, TreeEntry};
use serde::Serialize;
use serde::de::DeserializeOwned;

const TO_GUEST: &str = include_str!("golden/generation-1/to_guest.txt");
const TO_GUEST_3: &str = include_str!("golden/generation-3/to_guest.txt");
const TO_HOST: &str = include_str!("golden/generation-1/to_host.txt");
const TREE_ENTRIES: &str = include_str!("golden/generation-1/tree_entries.txt");

fn lines(text: &'static str) -> BTreeMap<&'static str, &'static str> {
    text.lines().map(|line| line.split_once(' ').unwrap()).collect()
}

fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Checks that today's code reads the golden frames as the samples, and writes the samples as the golden frames.
fn check<T: Serialize + DeserializeOwned>(golden: &'static str, samples: &[samples::Sample<T>]) {
    let golden = lines(golden);
    assert_eq!(golden.len(), samples.len());
    for (name, message, body) in samples {
        let bytes = from_hex(golden[name]);
        let mut frames = Decoder::new().push::<T>(&bytes);
        let read = frames.pop().unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(frames.is_empty(), "{name}: more than one frame");
        assert_eq!(read.body, *body, "{name}");
        let json = |message: &T| serde_json::to_value(message).unwrap();
        assert_eq!(json(&read.message), json(message), "{name}");
        assert_eq!(frame::encode(message, body).unwrap(), bytes, "{name}");
    }
}

#[test]
fn a_generation_1_guest_can_read_what_the_host_writes() {
    check(TO_GUEST, &samples::to_guest());
}

#[test]
fn a_generation_3_guest_can_read_what_generation_1_did_not_know() {
    check(TO_GUEST_3, &samples::to_guest_3());
}

#[test]
fn the_host_can_read_what_a_generation_1_guest_writes() {
    check(TO_HOST, &samples::to_host());
}

#[test]
fn the_host_can_read_the_tree_entries_of_a_generation_1_guest() {
    let golden = lines(TREE_ENTRIES);
    for (name, entry) in samples::tree_entries() {
        assert_eq!(serde_json::from_str::<TreeEntry>(golden[name]).unwrap(), entry, "{name}");
        assert_eq!(serde_json::to_string(&entry).unwrap(), golden[name], "{name}");
    }
}

/// A new request must be listed here, with the directory of its golden frame, and in [`Request::since`].
fn golden_generation(request: &Request) -> Option<u32> {
    match request {
        Request::Identify(_) | Request::AddVariables { .. } | Request::Warm { .. } | Request::Settle { .. } => Some(1),
        Request::Run(_) | Request::Attach { .. } | Request::Signal { .. } | Request::Resize { .. } => Some(1),
        Request::ListExecs | Request::Forget { .. } | Request::ReadFile { .. } | Request::WriteFile { .. } => Some(1),
        Request::ListDir { .. } | Request::Walk { .. } | Request::Freeze | Request::Stat { .. } => Some(1),
        Request::MakeDir { .. } | Request::Move { .. } | Request::Remove { .. } | Request::Chmod { .. } => Some(1),
        Request::Watch { .. } | Request::CreateContext(_) | Request::RunCell(_) | Request::Interrupt { .. } => Some(1),
        Request::RestartContext { .. } | Request::CloseContext { .. } | Request::ListContexts => Some(1),
        Request::Connect { .. } | Request::ListPorts | Request::Usage | Request::Sync => Some(1),
        Request::GrowDisk { .. } | Request::MountVolume { .. } | Request::UnmountVolume { .. } => Some(1),
        Request::TakeDisk { .. } => Some(3),
        Request::Unknown => None,
    }
}

#[test]
fn every_request_names_the_generation_that_introduced_it() {
    for (name, message, _) in samples::to_guest().into_iter().chain(samples::to_guest_3()) {
        if let ToGuest::Open { request, .. } = message {
            assert_eq!(Some(request.since()), golden_generation(&request), "{name}");
        }
    }
}

#[test]
fn a_greeting_without_a_generation_is_of_the_first() {
    let hello: ToHost = serde_json::from_str(r#"{"type":"hello","nonce":"n"}"#).unwrap();
    assert!(matches!(hello, ToHost::Hello { generation: 1, .. }));
    let hello: ToGuest = serde_json::from_str(r#"{"type":"hello","nonce":"n"}"#).unwrap();
    assert!(matches!(hello, ToGuest::Hello { generation: 1, .. }));
}

#[test]
fn unknown_fields_are_ignored_and_an_unknown_request_is_recognised() {
    let later = r#"{"type":"open","stream":7,"request":{"request":"sync","later":[1]},"more":{}}"#;
    let message: ToGuest = serde_json::from_str(later).unwrap();
    assert!(matches!(message, ToGuest::Open { stream: 7, request: Request::Sync }));
    let later = r#"{"type":"open","stream":7,"request":{"request":"teleport","to":{"x":1}}}"#;
    let message: ToGuest = serde_json::from_str(later).unwrap();
    assert!(matches!(message, ToGuest::Open { stream: 7, request: Request::Unknown }));
}
