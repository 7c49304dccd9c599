//! Decoding UTF-8 that arrives in pieces.
//!
//! Pieces may be cut anywhere, so an unfinished character waits for its rest. Bytes that are not UTF-8 become U+FFFD.

/// Turns a sequence of byte pieces into text without splitting a character.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The beginning of an unfinished character: at most three bytes.
    rest: Vec<u8>,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let whole = all.len() - unfinished(&all);
        self.rest = all.split_off(whole);
        String::from_utf8(all).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// The rest, when no more pieces will come.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

/// How many bytes at the end may become a character once more bytes arrive.
fn unfinished(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    // An error without a length means that the text ends too early. Other bytes stay wrong, however many follow.
    let is_beginning = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
    if is_beginning { last.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cutting_text_anywhere_changes_nothing(text in ".{0,40}", cuts in proptest::collection::vec(0usize..160, 0..8)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut decoder = Decoder::default();
            let (mut heard, mut from) = (String::new(), 0);
            for cut in cuts.into_iter().chain([bytes.len()]) {
                heard += &decoder.push(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(heard + &decoder.finish(), text);
        }

        #[test]
        fn any_bytes_are_taken_and_at_most_three_are_kept_back(pieces in proptest::collection::vec(any::<Vec<u8>>(), 0..8)) {
            let mut decoder = Decoder::default();
            for piece in &pieces {
                decoder.push(piece);
                prop_assert!(decoder.rest.len() <= 3);
            }
            decoder.finish();
        }
    }
}
