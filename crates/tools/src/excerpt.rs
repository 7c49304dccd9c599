//! Shortens output to its beginning and its end, with a note in between.

use std::collections::VecDeque;

/// Keeps only the first and the last bytes of a stream.
#[derive(Debug)]
pub struct Excerpt {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    cut: u64,
}

impl Excerpt {
    /// Keeps this many bytes.
    pub fn new(limit: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: limit / 2, cut: 0 }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(first);
        // Of a piece that is longer than the limit, only the end can be kept.
        let skipped = rest.len().saturating_sub(self.half);
        self.tail.extend(&rest[skipped..]);
        let over = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..over);
        self.cut += (skipped + over) as u64;
    }

    /// Counts bytes that are lost already, such as those that the guest did not keep.
    pub fn skip(&mut self, bytes: u64) {
        self.cut += bytes;
    }

    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.tail.is_empty() && self.cut == 0
    }

    pub fn into_text(mut self) -> String {
        if self.cut == 0 {
            self.head.extend(self.tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        let tail: Vec<u8> = self.tail.into();
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
        format!("{head}\n[... {} bytes cut here ...]\n{tail}", self.cut)
    }
}

/// Shortens text to this many bytes.
pub fn shorten(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(limit / 2);
    let tail = text.ceil_char_boundary(text.len() - limit / 2);
    format!("{}\n[... {} bytes cut here ...]\n{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(limit: usize, pieces: &[&str]) -> String {
        let mut excerpt = Excerpt::new(limit);
        pieces.iter().for_each(|piece| excerpt.push(piece.as_bytes()));
        excerpt.into_text()
    }

    #[test]
    fn short_output_is_unchanged() {
        assert_eq!(excerpt(8, &["abc", "defgh"]), "abcdefgh");
        assert_eq!(excerpt(8, &[]), "");
        assert_eq!(shorten("abc", 3), "abc");
    }

    #[test]
    fn the_middle_is_cut_for_any_pieces() {
        let wanted = "abcd\n[... 3 bytes cut here ...]\nhijk";
        assert_eq!(excerpt(8, &["abcdefghijk"]), wanted);
        assert_eq!(excerpt(8, &"abcdefghijk".split("").collect::<Vec<_>>()), wanted);
        assert_eq!(shorten("abcdefghijk", 8), wanted);
    }

    #[test]
    fn a_cut_within_a_character_is_safe() {
        assert!(excerpt(4, &["ααααα"]).contains("6 bytes cut"));
        assert!(shorten("€€€€€", 7).contains("cut here"));
    }
}
