//! Which entries of a cache make room: those that were not used for longest.

use std::time::Duration;

use jiff::Timestamp;
use sandling_wire::FreedView;

/// Entries that were not used for so long are evicted, also if there is room for them.
pub(crate) const UNUSED_FOR: Duration = Duration::from_secs(14 * 24 * 3600);

pub(crate) struct CacheEntry<T> {
    pub(crate) item: T,
    pub(crate) bytes: u64,
    pub(crate) used_at: Timestamp,
}

/// How much a cache may keep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheLimits {
    pub(crate) bytes: u64,
    pub(crate) entries: usize,
}

/// The entries to evict, the one that was not used for longest first.
pub(crate) fn superfluous<T>(mut entries: Vec<CacheEntry<T>>, limits: CacheLimits, now: Timestamp) -> Vec<T> {
    entries.sort_by_key(|entry| entry.used_at);
    let (mut bytes, mut count) = (entries.iter().map(|entry| entry.bytes).sum::<u64>(), entries.len());
    let is_superfluous = |entry: &CacheEntry<T>| {
        let unused_for = now.duration_since(entry.used_at).unsigned_abs();
        let evict = bytes > limits.bytes || count > limits.entries || unused_for >= UNUSED_FOR;
        bytes -= entry.bytes;
        count -= 1;
        evict
    };
    let count = entries.iter().map(is_superfluous).take_while(|evict| *evict).count();
    entries.into_iter().take(count).map(|entry| entry.item).collect()
}

/// What was evicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Freed {
    /// Results of steps of builds.
    pub steps: usize,
    /// Layers of images.
    pub layers: usize,
    /// Templates of images.
    pub templates: usize,
    /// Bakes of other sizes.
    pub bakes: usize,
    pub bytes: u64,
}

impl std::ops::AddAssign for Freed {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.layers += other.layers;
        self.templates += other.templates;
        self.bakes += other.bakes;
        self.bytes += other.bytes;
    }
}

impl From<Freed> for FreedView {
    fn from(freed: Freed) -> Self {
        let [steps, layers, templates, bakes] =
            [freed.steps, freed.layers, freed.templates, freed.bakes].map(|count| count as u64);
        Self { steps, layers, templates, bakes, bytes: freed.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_that_were_not_used_for_longest_go_first() {
        let now = Timestamp::now();
        let entry = |item: &'static str, days: i64| CacheEntry {
            item,
            bytes: 10,
            used_at: Timestamp::from_second(now.as_second() - days * 24 * 3600).unwrap(),
        };
        let evicted = |bytes, entries| {
            let kept = vec![entry("new", 1), entry("ancient", 20), entry("old", 3)];
            superfluous(kept, CacheLimits { bytes, entries }, now)
        };
        assert_eq!(evicted(100, 10), ["ancient"]);
        assert_eq!(evicted(15, 10), ["ancient", "old"]);
        assert_eq!(evicted(100, 1), ["ancient", "old"]);
        assert_eq!(evicted(0, 0), ["ancient", "old", "new"]);
        let recent = vec![entry("old", 3), entry("new", 1)];
        assert!(superfluous(recent, CacheLimits { bytes: 20, entries: 2 }, now).is_empty());
    }
}
