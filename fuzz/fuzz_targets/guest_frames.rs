//! Every byte a guest can send, in pieces of every size: no panic, no unbounded buffer, and always in step again.
//!
//! Rubbish alone seldom gets past the lengths of a frame, so much of what is sent is framed as it should be, with
//! rubbish inside.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use sandling_protocol::frame::{Decoder, Frame, encode};
use sandling_protocol::{Part, ToHost};

#[derive(Debug, Arbitrary)]
enum Sent {
    Bytes(Vec<u8>),
    /// Right in its lengths and its encoding, if not in its header.
    Framed {
        header: Vec<u8>,
        body: Vec<u8>,
    },
}

impl Sent {
    fn write(self, channel: &mut Vec<u8>) {
        match self {
            Self::Bytes(bytes) => channel.extend(bytes),
            Self::Framed { header, body } => {
                let total = (8 + header.len() + body.len()) as u32;
                let raw = [&total.to_le_bytes()[..], &(header.len() as u32).to_le_bytes(), &header, &body].concat();
                channel.extend(cobs::encode_vec_including_sentinels(&raw));
            }
        }
    }
}

/// What was understood is said again in the same words.
fn survives(frame: &Frame<ToHost>) {
    let again = encode(&frame.message, &frame.body).expect("it fitted into a frame before");
    let [Ok(decoded)] = &Decoder::new().push::<ToHost>(&again)[..] else { panic!("{frame:?} is not one frame") };
    assert_eq!((format!("{:?}", decoded.message), &decoded.body), (format!("{:?}", frame.message), &frame.body));
}

fuzz_target!(|input: ([Sent; 3], u8)| {
    let (sent, piece) = input;
    let mut channel = Vec::new();
    sent.into_iter().for_each(|sent| sent.write(&mut channel));
    let mut decoder = Decoder::new();
    for part in channel.chunks(usize::from(piece).max(1)) {
        decoder.push::<ToHost>(part).iter().flatten().for_each(survives);
    }
    let good = encode(&ToHost::Data { stream: 1, part: Part::Stdout, offset: 0 }, b"after").expect("small");
    let frames = decoder.push::<ToHost>(&good);
    let last = frames.into_iter().last().expect("a whole frame was pushed").expect("and it was good");
    assert_eq!(last.body, b"after");
});
