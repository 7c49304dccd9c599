//! Every byte a guest can send, in pieces of every size: no panic, no unbounded buffer, and always in step again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandling_protocol::frame::{Decoder, encode};
use sandling_protocol::{Part, ToHost};

fuzz_target!(|input: (Vec<u8>, u8)| {
    let (bytes, piece) = input;
    let mut decoder = Decoder::new();
    for part in bytes.chunks(usize::from(piece).max(1)) {
        let _ = decoder.push::<ToHost>(part);
    }
    let good = encode(&ToHost::Data { stream: 1, part: Part::Stdout, offset: 0 }, b"after").expect("small");
    let frames = decoder.push::<ToHost>(&good);
    let last = frames.into_iter().last().expect("a whole frame was pushed").expect("and it was good");
    assert_eq!(last.body, b"after");
});
