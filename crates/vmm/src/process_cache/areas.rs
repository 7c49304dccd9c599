//! The memory of a process, read from `/proc/PID/maps`.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

use crate::jail::LAYERS;
use crate::memory::Extent;
use crate::plan::PAGES_PREFIX;

use super::capture::unknown;

pub(super) const READ: u64 = 1;
pub(super) const WRITE: u64 = 2;
const EXECUTE: u64 = 4;

/// A mapping: a line of `/proc/PID/maps`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub range: Range<u64>,
    pub protection: u64,
    /// The inode of the mapped file, or 0, and the offset in it.
    pub inode: u64,
    pub at: u64,
    pub name: String,
}

impl Area {
    pub fn read_all(mut maps: File) -> io::Result<Vec<Self>> {
        let mut text = String::new();
        maps.read_to_string(&mut text)?;
        text.lines().map(|line| Self::parse(line).ok_or_else(|| unknown("mapping", line))).collect()
    }

    /// `START-END PERMISSIONS OFFSET DEVICE INODE NAME`. A shared mapping is not accepted.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        let permissions = words.next().filter(|permissions| permissions.ends_with('p'))?;
        let rights = [('r', READ), ('w', WRITE), ('x', EXECUTE)];
        let protection = rights.iter().filter(|(right, _)| permissions.contains(*right)).map(|(_, bit)| bit).sum();
        let at = u64::from_str_radix(words.next()?, 16).ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        Some(Self { range, protection, inode, at, name: words.next().unwrap_or_default().to_owned() })
    }

    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub fn overlaps(&self, other: &Range<u64>) -> bool {
        self.range.start < other.end && other.start < self.range.end
    }

    /// Which part of which file of pages this is, if the process was itself resumed.
    pub fn resumed_from(&self) -> Option<Extent> {
        let layer = self.name.strip_prefix(LAYERS)?.strip_prefix('/')?.strip_prefix(PAGES_PREFIX)?.parse().ok()?;
        Some(Extent { guest: self.range.start, bytes: self.bytes(), layer, at: self.at })
    }

    /// The kernel's own: the vDSO, its data, and `[vsyscall]`, which every process has.
    pub fn is_kernels(&self) -> bool {
        self.name.starts_with("[v")
    }

    pub fn is_stack(&self) -> bool {
        self.name == "[stack]"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_mapping_is_read_and_a_shared_one_refused() {
        let line = "7f00-7f10 r-xp 00002000 fd:01 42                 /layers/process.03";
        let area = Area::parse(line).unwrap();
        assert_eq!((area.range.clone(), area.protection, area.inode), (0x7f00..0x7f10, READ | EXECUTE, 42));
        assert_eq!(area.resumed_from(), Some(Extent { guest: 0x7f00, bytes: 0x10, layer: 3, at: 0x2000 }));
        assert_eq!(Area::parse(&line.replace("r-xp", "rw-s")), None);
        assert_eq!(Area::parse(&line.replace("process.03", "process.plan")).unwrap().resumed_from(), None);
    }
}
