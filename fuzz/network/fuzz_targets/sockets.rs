//! What both ends of a WebSocket may say, cut in two anywhere: it is read the same, and no larger than what came.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sandling_network::fuzzing::{GuestFrames, Scrubber, Search, ServerFrames, Spelling};
use sandling_network::{Secret, SecretSet};

const PLACEHOLDER: &str = "sandling-placeholder-1";
/// What a frame's head may have, before and after.
const HEAD: usize = 10;

fuzz_target!(|data: (u16, &[u8])| {
    let (cut, bytes) = data;
    let (first, rest) = bytes.split_at(usize::from(cut).min(bytes.len()));

    let hosts = vec!["api.example.com".parse().expect("a name")];
    let secret = Secret::new("token", PLACEHOLDER, "value".to_owned(), hosts).expect("a secret");
    let search = Search::new(&SecretSet::new(vec![secret]));
    let mut whole = GuestFrames::new(search.clone());
    let mut halves = GuestFrames::new(search);
    assert_eq!(whole.push(bytes), halves.push(first).and_then(|()| halves.push(rest)));

    let mut frames = ServerFrames::new(Scrubber::new(vec![Spelling::new(b"hunter2".to_vec())]));
    for part in [first, rest] {
        let Ok(out) = frames.push(part) else { return };
        assert!(out.len() <= (part.len() + 7) * HEAD);
    }
});
