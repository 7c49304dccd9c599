//! The map from guest memory to layers.

use std::ops::Range;

const RECORD_BYTES: usize = 32;
const PAGE: u64 = 4096;

/// A part of guest memory, and its place in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub guest: u64,
    pub bytes: u64,
    pub layer: u64,
    /// Offset in the layer's file.
    pub at: u64,
}

impl Extent {
    fn end(&self) -> u64 {
        self.guest + self.bytes
    }

    /// The part of it in a range of guest memory.
    fn part(&self, range: Range<u64>) -> Option<Self> {
        let (from, until) = (self.guest.max(range.start), self.end().min(range.end));
        let part = Self { guest: from, bytes: until.saturating_sub(from), at: self.at + (from - self.guest), ..*self };
        (from < until).then_some(part)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error("the memory map is truncated")]
    Truncated,
    #[error("record {0} of the memory map is invalid")]
    Invalid(usize),
}

/// All layers together: disjoint extents in the order of guest memory. The rest of guest memory is in the base.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryMap {
    extents: Vec<Extent>,
}

impl MemoryMap {
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The parts of guest memory that are in some layer.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.extents.iter().map(|extent| extent.guest..extent.end())
    }

    /// This map with another layer on top, whose extents are disjoint and in order.
    pub fn under(&self, upper: &[Extent]) -> Self {
        let mut extents = Vec::with_capacity(self.extents.len() + upper.len());
        let mut free = 0;
        let mut below = self.extents.iter().peekable();
        for cover in upper {
            copy_between(&mut below, free..cover.guest, &mut extents);
            extents.push(*cover);
            free = cover.end();
        }
        copy_between(&mut below, free..u64::MAX, &mut extents);
        Self { extents }
    }

    /// The parts of it in a range.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Extent> {
        let first = self.extents.partition_point(|extent| extent.end() <= range.start);
        let parts = self.extents[first..].iter().take_while(move |extent| extent.guest < range.end);
        parts.filter_map(move |extent| extent.part(range.clone()))
    }

    pub fn encode(&self) -> Vec<u8> {
        let numbers = self.extents.iter().flat_map(|extent| [extent.guest, extent.bytes, extent.layer, extent.at]);
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, MapError> {
        if !bytes.len().is_multiple_of(RECORD_BYTES) {
            return Err(MapError::Truncated);
        }
        let mut extents: Vec<Extent> = Vec::with_capacity(bytes.len() / RECORD_BYTES);
        for (number, record) in bytes.chunks_exact(RECORD_BYTES).enumerate() {
            let field = |index: usize| {
                let bytes = record[index * 8..index * 8 + 8].try_into();
                u64::from_le_bytes(bytes.expect("a record has four fields of eight bytes"))
            };
            let extent = Extent { guest: field(0), bytes: field(1), layer: field(2), at: field(3) };
            let whole = [extent.guest, extent.bytes, extent.at].iter().all(|value| value.is_multiple_of(PAGE));
            let ends =
                extent.guest.checked_add(extent.bytes).is_some() && extent.at.checked_add(extent.bytes).is_some();
            let after = extents.last().is_none_or(|last| last.end() <= extent.guest);
            if !whole || !ends || !after || extent.bytes == 0 {
                return Err(MapError::Invalid(number));
            }
            extents.push(extent);
        }
        Ok(Self { extents })
    }
}

/// Copies the parts of extents that are in `gap`. An extent that reaches beyond it stays in the iterator.
fn copy_between<'a>(
    below: &mut std::iter::Peekable<impl Iterator<Item = &'a Extent>>,
    gap: Range<u64>,
    copied: &mut Vec<Extent>,
) {
    while let Some(extent) = below.peek() {
        if extent.guest >= gap.end {
            return;
        }
        copied.extend(extent.part(gap.clone()));
        if extent.end() > gap.end {
            return;
        }
        below.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: usize = 48;

    /// A layer with the pages that a machine wrote.
    fn layer(written: &[bool], layer: u64) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = 0;
        for (page, _) in written.iter().enumerate().filter(|(_, written)| **written) {
            let guest = page as u64 * PAGE;
            match extents.last_mut() {
                Some(last) if last.end() == guest => last.bytes += PAGE,
                _ => extents.push(Extent { guest, bytes: PAGE, layer, at }),
            }
            at += PAGE;
        }
        extents
    }

    /// The place of each page, computed page by page.
    fn places(extents: &[Extent]) -> Vec<Option<(u64, u64)>> {
        let mut places = vec![None; PAGES];
        for extent in extents {
            for page in 0..extent.bytes / PAGE {
                places[(extent.guest / PAGE + page) as usize] = Some((extent.layer, extent.at + page * PAGE));
            }
        }
        places
    }

    proptest! {
        #[test]
        fn the_uppermost_layer_wins_for_every_page(layers in proptest::collection::vec(proptest::collection::vec(any::<bool>(), PAGES), 1..6)) {
            let mut map = MemoryMap::default();
            let mut expected = vec![None; PAGES];
            for (number, written) in layers.iter().enumerate() {
                let upper = layer(written, number as u64);
                map = map.under(&upper);
                for (place, upper) in expected.iter_mut().zip(places(&upper)) {
                    *place = upper.or(*place);
                }
            }
            prop_assert_eq!(places(map.extents()), expected);
            prop_assert_eq!(MemoryMap::decode(&map.encode()).unwrap(), map);
        }

        #[test]
        fn any_bytes_decode_to_a_map_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(map) = MemoryMap::decode(&bytes) {
                prop_assert_eq!(map.encode(), bytes);
            }
        }
    }

    #[test]
    fn extents_that_overlap_are_refused() {
        let extent = Extent { guest: 0, bytes: 2 * PAGE, layer: 0, at: 0 };
        let overlapping = MemoryMap { extents: vec![extent, Extent { guest: PAGE, ..extent }] };
        assert!(matches!(MemoryMap::decode(&overlapping.encode()), Err(MapError::Invalid(1))));
    }
}
