//! The control channel of a hostile guest, in pieces of every size: no unbounded buffer, and always in step again.
//!
//! Random bytes seldom pass the lengths of a frame. Each section is therefore also sent in a frame with the right
//! lengths.

use sandling_protocol::frame::{Decoder, Frame, encode};
use sandling_protocol::{Part, ToHost};

use crate::input::Input;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (piece, body) = (input.byte(), usize::from(input.byte()));
    let mut channel = Vec::new();
    while !input.0.is_empty() {
        let section = input.section();
        let (header, body) = section.split_at(section.len().saturating_sub(body));
        let total = (8 + section.len()) as u32;
        let raw = [&total.to_le_bytes()[..], &(header.len() as u32).to_le_bytes(), header, body].concat();
        channel.extend(cobs::encode_vec_including_sentinels(&raw));
        channel.extend_from_slice(section);
    }
    let mut decoder = Decoder::new();
    for part in channel.chunks(usize::from(piece).max(1)) {
        decoder.push::<ToHost>(part).iter().flatten().for_each(survives);
    }
    let good = encode(&ToHost::Data { stream: 1, part: Part::Stdout, offset: 0 }, b"after").expect("small");
    let frames = decoder.push::<ToHost>(&good);
    let last = frames.into_iter().last().expect("a whole frame was pushed").expect("and it was good");
    assert_eq!(last.body, b"after");
}

/// A message that was read is written and read again as the same.
fn survives(frame: &Frame<ToHost>) {
    let again = encode(&frame.message, &frame.body).expect("it fitted into a frame before");
    let [Ok(decoded)] = &Decoder::new().push::<ToHost>(&again)[..] else { panic!("{frame:?} is not one frame") };
    assert_eq!((format!("{:?}", decoded.message), &decoded.body), (format!("{:?}", frame.message), &frame.body));
}
