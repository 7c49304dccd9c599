//! The plan, as `preload/thaw.rs` reads it: `u64` words, each list behind its length.

/// The plan's name among the layers.
pub(crate) const PLAN: &str = "thaw.plan";

/// The name among the layers of a file of pages.
pub(crate) fn pages_name(number: usize) -> String {
    format!("thaw.{number:02}")
}

/// A part of the process's memory. Later ones cover earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    pub address: u64,
    pub bytes: u64,
    pub protection: u64,
    /// In the plan's list of files; none is zeros.
    pub file: Option<usize>,
    pub at: u64,
}

/// What has a descriptor's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Descriptor {
    /// Inherited: only its flags are set.
    Flags(u64),
    Event {
        count: u64,
        flags: u64,
    },
    Signals {
        mask: u64,
        flags: u64,
    },
    Poll {
        flags: u64,
    },
    File {
        path: String,
        flags: u64,
    },
    /// A connection whose other end is gone.
    Closed,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Of the kernel's own code: its parts (address, length), the last of which is where the code is.
    pub kernel: Vec<(u64, u64)>,
    pub files: Vec<String>,
    pub mappings: Vec<Mapping>,
    pub descriptors: Vec<(i32, Descriptor)>,
    pub table: u64,
}

impl Plan {
    pub fn encode(&self, closed: i32) -> Vec<u8> {
        let mut words = Vec::new();
        let first = self.kernel.first().map_or(0, |part| part.0);
        let code = self.kernel.last().map_or(0, |part| part.0);
        words.extend([code - first, first, self.kernel.len() as u64]);
        words.extend(self.kernel.iter().flat_map(|(address, bytes)| [address - first, *bytes]));
        words.push(self.files.len() as u64);
        self.files.iter().for_each(|file| string(&mut words, file));
        words.push(self.mappings.len() as u64);
        for mapping in &self.mappings {
            let file = mapping.file.map_or(0, |file| file as u64 + 1);
            words.extend([mapping.address, mapping.bytes, mapping.protection, file, mapping.at]);
        }
        words.push(self.descriptors.len() as u64);
        for (number, descriptor) in &self.descriptors {
            let (kind, one, other) = match descriptor {
                Descriptor::Flags(flags) => (0, *flags, 0),
                Descriptor::Event { count, flags } => (1, *count, *flags),
                Descriptor::Signals { mask, flags } => (2, *mask, *flags),
                Descriptor::Poll { flags } => (3, 0, *flags),
                Descriptor::File { flags, .. } => (4, 0, *flags),
                Descriptor::Closed => (5, closed as u64, 0),
            };
            words.extend([*number as u64, kind, one, other]);
            if let Descriptor::File { path, .. } = descriptor {
                string(&mut words, path);
            }
        }
        words.push(self.table);
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

/// With its NUL, filled up to whole words, behind their number.
fn string(words: &mut Vec<u64>, text: &str) {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((text.len() / 8 + 1) * 8, 0);
    words.push(bytes.len() as u64 / 8);
    words.extend(bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight"))));
}
