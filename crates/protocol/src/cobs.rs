//! COBS, which removes the zero bytes of a text: each zero becomes the distance to the next one.
//!
//! Every byte of a file passes through here, on the host and in an emulated guest. So blocks between zeros are copied as a
//! whole, and none is looked at byte by byte.

use memchr::memchr;

/// The longest block that one code byte describes, without the code byte.
const LONGEST_BLOCK: usize = 254;

/// The text was cut short.
#[derive(Debug, PartialEq, Eq)]
pub struct Torn;

/// The most bytes that `length` bytes become.
pub const fn max_encoded_length(length: usize) -> usize {
    length + length / LONGEST_BLOCK + 1
}

/// Appends the encoded text.
pub fn encode(mut text: &[u8], out: &mut Vec<u8>) {
    loop {
        let block = &text[..text.len().min(LONGEST_BLOCK)];
        let zero = memchr(0, block);
        let block = &block[..zero.unwrap_or(block.len())];
        out.push(block.len() as u8 + 1);
        out.extend_from_slice(block);
        let ends = block.len() == text.len();
        // A full block has no zero behind it, whatever follows.
        text = &text[block.len() + usize::from(zero.is_some())..];
        if ends {
            return;
        }
    }
}

/// Decodes a text without zero bytes in place, and returns the length of the result.
pub fn decode(text: &mut [u8]) -> Result<usize, Torn> {
    let (mut from, mut to) = (0, 0);
    while let Some(&code) = text.get(from) {
        let block = usize::from(code).checked_sub(1).ok_or(Torn)?;
        let end = from + 1 + block;
        if end > text.len() {
            return Err(Torn);
        }
        text.copy_within(from + 1..end, to);
        (from, to) = (end, to + block);
        if block < LONGEST_BLOCK && from < text.len() {
            text[to] = 0;
            to += 1;
        }
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        out
    }

    #[test]
    fn blocks_are_encoded_as_the_standard_says() {
        assert_eq!(encoded(b""), [1]);
        assert_eq!(encoded(&[0]), [1, 1]);
        assert_eq!(encoded(&[0x11, 0x22, 0, 0x33]), [3, 0x11, 0x22, 2, 0x33]);
        assert_eq!(encoded(&[1; 254]), [&[0xff][..], &[1; 254]].concat());
        assert_eq!(encoded(&[1; 255]), [&[0xff][..], &[1; 254], &[2, 1]].concat());
    }

    #[test]
    fn a_text_that_was_cut_short_is_refused() {
        assert_eq!(decode(&mut [5, 1, 2]), Err(Torn));
        assert_eq!(decode(&mut [2, 1, 0, 2]), Err(Torn));
    }

    proptest! {
        #[test]
        fn the_result_is_the_one_of_the_cobs_crate(mut text in proptest::collection::vec(any::<u8>(), 0..2000), dense: bool) {
            if dense {
                text.iter_mut().for_each(|byte| *byte |= 1);
            }
            let mut out = encoded(&text);
            prop_assert_eq!(&out, &cobs::encode_vec(&text));
            prop_assert!(!out.contains(&0) && out.len() <= max_encoded_length(text.len()));
            let length = decode(&mut out).unwrap();
            prop_assert_eq!(&out[..length], &text[..]);
        }

        #[test]
        fn rubbish_never_panics(mut text in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = decode(&mut text);
        }
    }
}
