//! TLS and HTTP greetings from a hostile guest: what is read once more, byte by byte, is read the same.

use sandling_network::fuzzing::{Greeting, Hello, classify};

pub fn run(data: &[u8]) {
    if let Ok(Some(whole)) = Hello::read(data) {
        let first = (0..=data.len()).find_map(|end| Hello::read(&data[..end]).ok().flatten());
        assert_eq!(first, Some(whole), "more bytes change nothing about a greeting");
    }
    let whole = classify(data);
    for end in 0..data.len() {
        let early = classify(&data[..end]);
        assert!(early == Greeting::Unsure || early == whole, "{early:?} after {end} bytes, then {whole:?}");
    }
}
