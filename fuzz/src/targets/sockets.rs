//! Both ends of a WebSocket, cut in two anywhere: it is read the same, and becomes no larger than what came.

use sandling_network::fuzzing::{GuestFrames, Pattern, Scrubber, Search, ServerFrames};
use sandling_network::{Placement, Secret, SecretSet};

use crate::input::Input;

const PLACEHOLDER: &str = "sandling-placeholder-1";
/// What the head of a frame takes, before and after.
const HEAD: usize = 10;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let cut = usize::from(input.number());
    let bytes = input.0;
    let (first, rest) = bytes.split_at(cut.min(bytes.len()));

    let hosts = vec!["api.example.com".parse().expect("a name")];
    let secret = Secret::new("token", PLACEHOLDER, "value".to_owned(), hosts, vec![Placement::default()]);
    let search = Search::new(&SecretSet::new(vec![secret.expect("a secret")]));
    let mut whole = GuestFrames::new(search.clone());
    let mut halves = GuestFrames::new(search);
    assert_eq!(whole.push(bytes), halves.push(first).and_then(|()| halves.push(rest)));

    let mut frames = ServerFrames::new(Scrubber::new(vec![Pattern::text("hunter2")]));
    for part in [first, rest] {
        let Ok(out) = frames.push(part) else { return };
        assert!(out.len() <= (part.len() + 7) * HEAD);
    }
}
