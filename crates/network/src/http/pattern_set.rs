//! Searches for many patterns at once. No I/O.
//!
//! A pattern is matched one character at a time, and each character may be written in its own way: as it is, or escaped
//! for a URL, JSON, HTML, a programming language or quoted-printable text. Zero bytes in between are skipped, so that
//! UTF-16 and UTF-32 match, too. Base64 digits may be wrapped into lines.
//!
//! Filters of the first three bytes exclude almost every offset, so that large responses pass quickly.

use std::ops::Range;

use super::escape::{Escape, INTRODUCERS, can_continue};
use super::pattern::{Kind, Pattern};

/// The most bytes that are skipped between two characters. This bounds the length of a match.
const LONGEST_GAP: usize = 16;
/// How many bytes the filters compare.
const FILTERED: usize = 3;

/// Patterns to search for.
pub struct PatternSet {
    /// In the order of their kinds, then of their characters. Those with the same beginning are neighbors.
    patterns: Vec<Pattern>,
    kinds: Vec<(Kind, Range<usize>)>,
    /// Bytes that begin an escape or a gap.
    special: [bool; 256],
    /// Bytes that a pattern can begin with.
    firsts: [bool; 256],
    /// The pairs of bytes that a pattern can begin with.
    pairs: BitSet,
    /// The pairs of which the first is special, and that the second character of a pattern can be written with.
    special_seconds: BitSet,
    /// The hashes of the first three bytes of all patterns without escapes and gaps.
    triples: BitSet,
}

/// What is known about one offset.
#[derive(Default)]
pub struct Match {
    /// For each kind of which a pattern begins here: the offset after the longest one.
    pub ends: [Option<(Kind, usize)>; 3],
    /// With more bytes, a pattern may begin here, or be longer.
    pub unfinished: bool,
}

/// Patterns whose first characters have been read, up to an offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Reading {
    first: usize,
    after_last: usize,
    end: usize,
}

/// Buffers that are used for every offset.
#[derive(Default)]
struct Buffers {
    readings: Vec<Reading>,
    next: Vec<Reading>,
}

impl PatternSet {
    pub fn new(mut patterns: Vec<Pattern>) -> PatternSet {
        patterns.retain(|pattern| !pattern.characters().is_empty());
        patterns.sort_by(|one, other| (one.kind(), one.characters()).cmp(&(other.kind(), other.characters())));
        let of_kind = |kind| {
            let first = patterns.partition_point(|pattern| pattern.kind() < kind);
            (kind, first..patterns.partition_point(|pattern| pattern.kind() <= kind))
        };
        let kinds = [Kind::Text, Kind::Base64, Kind::Hex].map(of_kind);
        let kinds = kinds.into_iter().filter(|(_, range)| !range.is_empty()).collect();
        let special = std::array::from_fn(|byte| byte == 0 || INTRODUCERS.contains(&(byte as u8)));
        let (pairs, special_seconds, triples) = (BitSet::new(), BitSet::new(), BitSet::new());
        let firsts = [false; 256];
        let mut set = PatternSet { patterns, kinds, special, firsts, pairs, special_seconds, triples };
        set.fill_filters();
        set
    }

    fn fill_filters(&mut self) {
        for first in INTRODUCERS {
            for second in (0..=u8::MAX).filter(|second| can_continue(first, *second)) {
                self.pairs.insert(pair(first, second));
                self.special_seconds.insert(pair(first, second));
            }
        }
        let specials: Vec<u8> = (0..=u8::MAX).filter(|byte| self.special[usize::from(*byte)]).collect();
        for pattern in &self.patterns {
            let forms = |index: usize| {
                let character = pattern.characters().get(index);
                let forms = character.map(|character| pattern.kind().forms(*character));
                // After the end of a pattern, there may be any byte.
                let any = (0..=u8::MAX).filter(move |_| forms.is_none());
                any.chain(forms.map(|(form, _)| form)).chain(forms.and_then(|(_, other)| other))
            };
            for first in forms(0) {
                self.firsts[usize::from(first)] = true;
                specials.iter().for_each(|second| self.pairs.insert(pair(first, *second)));
                // A backslash may precede any character.
                self.pairs.insert(pair(b'\\', first));
                for second in forms(1) {
                    self.pairs.insert(pair(first, second));
                    if self.special[usize::from(second)] {
                        // It may stand for itself, and then any third character follows.
                        (0..=u8::MAX).for_each(|third| self.special_seconds.insert(pair(second, third)));
                    }
                    specials.iter().for_each(|special| self.special_seconds.insert(pair(*special, second)));
                    forms(2).for_each(|third| self.triples.insert(triple(first, second, third)));
                }
            }
        }
        for first in &specials {
            specials.iter().for_each(|second| self.special_seconds.insert(pair(*first, *second)));
            specials.iter().for_each(|second| self.pairs.insert(pair(*first, *second)));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Pattern> {
        self.patterns.iter()
    }

    /// Calls `found` for each offset at which a pattern begins or may begin.
    pub fn search(&self, text: &[u8], mut found: impl FnMut(usize, Match)) {
        let mut buffers = Buffers::default();
        let mut consider = |at: usize| {
            let found_here = self.match_at(text, at, &mut buffers);
            if found_here.unfinished || found_here.ends.iter().any(Option::is_some) {
                found(at, found_here);
            }
        };
        for (at, window) in text.windows(FILTERED).enumerate() {
            let &[first, second, third] = window else { continue };
            if !self.pairs.contains(pair(first, second)) {
                continue;
            }
            let [is_special, then_special, last_special] = window_flags(&self.special, [first, second, third]);
            let possible = match (is_special, then_special, last_special) {
                (true, ..) | (_, false, true) => true,
                (false, true, _) => self.special_seconds.contains(pair(second, third)),
                (false, false, false) => self.triples.contains(triple(first, second, third)),
            };
            if possible {
                consider(at);
            }
        }
        (text.len().saturating_sub(FILTERED - 1)..text.len()).for_each(consider);
    }

    fn match_at(&self, text: &[u8], at: usize, buffers: &mut Buffers) -> Match {
        let Buffers { readings, next } = buffers;
        let mut found = Match::default();
        // All kinds begin with the same escape, if there is one.
        let escape = text.get(at).filter(|byte| INTRODUCERS.contains(byte)).map(|_| Escape::read(&text[at..]));
        if escape.as_ref().is_some_and(|escape| !self.can_begin(text[at], escape)) {
            return found;
        }
        for ((kind, range), longest) in self.kinds.iter().zip(&mut found.ends) {
            readings.clear();
            readings.push(Reading { first: range.start, after_last: range.end, end: at });
            let mut index = 0;
            while !readings.is_empty() {
                next.clear();
                for reading in &mut *readings {
                    let patterns = &self.patterns[reading.first..reading.after_last];
                    let complete = patterns.iter().take_while(|pattern| pattern.characters().len() == index).count();
                    if complete > 0 {
                        let end = longest.map_or(reading.end, |(_, end)| reading.end.max(end));
                        *longest = Some((*kind, end));
                        reading.first += complete;
                    }
                    if reading.first < reading.after_last {
                        let escape = escape.as_ref().filter(|_| index == 0);
                        found.unfinished |= self.read_one(*kind, text, *reading, index, escape, next);
                    }
                }
                // A character may be written in two ways that begin alike, so two readings may become the same.
                if next.len() > 1 {
                    next.sort_unstable();
                    next.dedup();
                }
                std::mem::swap(readings, next);
                index += 1;
            }
        }
        found
    }

    /// Whether a pattern may begin with an escape that begins with `byte`.
    fn can_begin(&self, byte: u8, escape: &Escape<'_>) -> bool {
        let is_first = |byte: u8| self.firsts[usize::from(byte)];
        // A backslash may also be a gap.
        byte == b'\\'
            || escape.unfinished
            || is_first(byte)
            || escape.readings().iter().any(|(byte, _)| is_first(*byte))
    }

    /// Reads the character at `index` in each way in which it may be written. Returns whether more bytes could give
    /// another way. `escape` is the one at the start of the reading, if it is known.
    fn read_one(
        &self,
        kind: Kind,
        text: &[u8],
        from: Reading,
        index: usize,
        escape: Option<&Escape<'_>>,
        next: &mut Vec<Reading>,
    ) -> bool {
        let (mut gap, mut unfinished) = (0, false);
        loop {
            let at = from.end + gap;
            let rest = &text[at..];
            let Some(byte) = rest.first() else { return true };
            self.narrow(kind, from, index, *byte, at + 1, next);
            if INTRODUCERS.contains(byte) {
                let read;
                let escape = match escape.filter(|_| gap == 0) {
                    Some(known) => known,
                    None => {
                        read = Escape::read(rest);
                        &read
                    }
                };
                for (byte, length) in escape.readings() {
                    self.narrow(kind, from, index, *byte, at + usize::from(*length), next);
                }
                unfinished |= escape.unfinished;
            }
            match kind.gap(rest, index) {
                0 => return unfinished,
                skipped => gap += skipped,
            }
            if gap > LONGEST_GAP {
                return unfinished;
            }
        }
    }

    /// Adds the patterns whose character at `index` may be written as `byte`.
    fn narrow(&self, kind: Kind, from: Reading, index: usize, byte: u8, end: usize, next: &mut Vec<Reading>) {
        let patterns = &self.patterns[from.first..from.after_last];
        let (meaning, other) = kind.meanings(byte);
        for character in [Some(meaning), other].into_iter().flatten() {
            let first = patterns.partition_point(|pattern| pattern.characters()[index] < character);
            let count = patterns[first..].partition_point(|pattern| pattern.characters()[index] == character);
            if count > 0 {
                let first = from.first + first;
                next.push(Reading { first, after_last: first + count, end });
            }
        }
    }
}

fn window_flags(flags: &[bool; 256], window: [u8; FILTERED]) -> [bool; FILTERED] {
    window.map(|byte| flags[usize::from(byte)])
}

fn pair(first: u8, second: u8) -> u16 {
    u16::from_be_bytes([first, second])
}

/// A hash of three bytes.
fn triple(first: u8, second: u8, third: u8) -> u16 {
    (u32::from_le_bytes([first, second, third, 0]).wrapping_mul(0x9e37_79b1) >> 16) as u16
}

/// A set of 16-bit numbers.
struct BitSet(Box<[u64; 1024]>);

impl BitSet {
    fn new() -> BitSet {
        BitSet(Box::new([0; 1024]))
    }

    fn insert(&mut self, number: u16) {
        self.0[usize::from(number / 64)] |= 1 << (number % 64);
    }

    fn contains(&self, number: u16) -> bool {
        self.0[usize::from(number / 64)] >> (number % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_filters_exclude_no_offset_at_which_a_pattern_may_begin(
            texts in prop::collection::vec(r"[ab+/=%\\&x0 ]{1,5}", 1..4),
            parts in prop::collection::vec(prop::sample::select(vec![
                "a", "b", "+", "-", "/", "_", "=", "%", "\\", "&", "x", "0", " ", "\0", "%61", "\\u0061", "&#97;", "&amp;",
                "\\x62", "=62", "%2561", "\n", "é", "\"",
            ]), 0..30),
        ) {
            let of = |text: &String| [Pattern::text(text), Pattern::base64(text)];
            let set = PatternSet::new(texts.iter().flat_map(of).collect());
            let text = parts.concat();
            let mut found = Vec::new();
            set.search(text.as_bytes(), |at, here| found.push((at, here.ends, here.unfinished)));
            let mut buffers = Buffers::default();
            let all = (0..text.len()).map(|at| (at, set.match_at(text.as_bytes(), at, &mut buffers)));
            let all = all.map(|(at, here)| (at, here.ends, here.unfinished));
            let all: Vec<_> = all.filter(|(_, ends, unfinished)| *unfinished || ends.iter().any(Option::is_some)).collect();
            prop_assert_eq!(found, all);
        }
    }
}
