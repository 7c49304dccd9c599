//! The maps of sparse files: GNU's old format, and the three versions in PAX headers.

use super::entry::Segment;
use super::pax::{self, Record};

/// A map with more segments than this is refused: it is kept in memory.
pub(crate) const MOST_SEGMENTS: usize = 1 << 20;

/// Where a PAX header says that the map is.
pub(crate) enum PaxSparse {
    /// Versions 0.0 and 0.1: in the header itself.
    Map(Vec<Segment>),
    /// Version 1.0: at the start of the content.
    InContent,
}

/// What PAX records say about a sparse file. `Ok(None)`: the file is not sparse.
pub(crate) fn from_pax(records: &[Record]) -> Result<Option<PaxSparse>, &'static str> {
    match (pax::find(records, "GNU.sparse.major"), pax::find(records, "GNU.sparse.minor")) {
        (Some(b"1"), Some(b"0")) => return Ok(Some(PaxSparse::InContent)),
        (None, None) | (Some(b"0"), Some(b"0" | b"1")) => (),
        _ => return Err("its sparse format is unknown"),
    }
    if let Some(map) = pax::find(records, "GNU.sparse.map") {
        let numbers: Option<Vec<u64>> = map.split(|byte| *byte == b',').map(pax::number).collect();
        return Ok(Some(PaxSparse::Map(pairs(&numbers.ok_or(MALFORMED)?)?)));
    }
    let of_map = |key: &[u8]| key == b"GNU.sparse.offset" || key == b"GNU.sparse.numbytes";
    let numbers: Option<Vec<u64>> =
        records.iter().filter(|(key, _)| of_map(key)).map(|(_, value)| pax::number(value)).collect();
    let numbers = numbers.ok_or(MALFORMED)?;
    if numbers.is_empty() && pax::find(records, "GNU.sparse.size").is_none() {
        return Ok(None);
    }
    Ok(Some(PaxSparse::Map(pairs(&numbers)?)))
}

const MALFORMED: &str = "its map of holes is malformed";

fn pairs(numbers: &[u64]) -> Result<Vec<Segment>, &'static str> {
    if !numbers.len().is_multiple_of(2) {
        return Err(MALFORMED);
    }
    Ok(numbers.chunks(2).map(|pair| Segment { offset: pair[0], length: pair[1] }).collect())
}

/// Reads the map of version 1.0 from blocks of 512 bytes.
#[derive(Default)]
pub(crate) struct MapParser {
    numbers: Vec<u64>,
    digits: Vec<u8>,
}

impl MapParser {
    /// Adds a block; returns the map if it is complete.
    pub(crate) fn push(&mut self, block: &[u8]) -> Result<Option<Vec<Segment>>, &'static str> {
        for byte in block {
            if *byte != b'\n' {
                self.digits.push(*byte);
                if self.digits.len() > 20 {
                    return Err(MALFORMED);
                }
                continue;
            }
            self.numbers.push(pax::number(&self.digits).ok_or(MALFORMED)?);
            self.digits.clear();
            let count = usize::try_from(self.numbers[0]).unwrap_or(usize::MAX);
            if count > MOST_SEGMENTS {
                return Err("its map of holes is too large");
            }
            if self.numbers.len() == 1 + 2 * count {
                return pairs(&self.numbers[1..]).map(Some);
            }
        }
        Ok(None)
    }
}

/// Checks that segments are in order, inside of the file, and as long as the content.
pub(crate) fn check(segments: &[Segment], size: u64, content: u64) -> Result<(), &'static str> {
    let mut at = 0;
    let mut total = 0;
    for segment in segments {
        let end = segment.offset.checked_add(segment.length).ok_or(MALFORMED)?;
        if segment.offset < at || end > size {
            return Err(MALFORMED);
        }
        at = end;
        total += segment.length;
    }
    if total == content { Ok(()) } else { Err("its map of holes does not match its content") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_must_be_in_order_and_match_the_content() {
        let segment = |offset, length| Segment { offset, length };
        assert_eq!(check(&[segment(0, 512), segment(4096, 10)], 8192, 522), Ok(()));
        assert!(check(&[segment(4096, 10), segment(0, 512)], 8192, 522).is_err());
        assert!(check(&[segment(0, 512), segment(100, 10)], 8192, 522).is_err());
        assert!(check(&[segment(8000, 512)], 8192, 512).is_err());
        assert!(check(&[segment(u64::MAX, 512)], 8192, 512).is_err());
        assert!(check(&[segment(0, 512)], 8192, 513).is_err());
    }

    #[test]
    fn a_map_may_span_blocks() {
        let mut parser = MapParser::default();
        assert_eq!(parser.push(b"2\n0\n5"), Ok(None));
        let map = parser.push(b"12\n4096\n0\n\0\0\0").unwrap().unwrap();
        assert_eq!(map, [Segment { offset: 0, length: 512 }, Segment { offset: 4096, length: 0 }]);
        assert!(MapParser::default().push(b"99999999\n").is_err());
        assert!(MapParser::default().push(b"1x\n").is_err());
    }
}
