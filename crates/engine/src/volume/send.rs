//! A volume as a stream, for another home.
//!
//! ```text
//! sandling-volume 1\n
//! a zstd stream of
//!     the size in MiB, and whether the last writer unmounted the volume
//!     the parts of the file that are not holes (`sparse.rs`)
//!     BLAKE3 of all that
//! ```

use std::fs::File;
use std::io::{self, Write};

use crate::hashing::Hashed;
use crate::sparse::write_parts;

pub(super) const MAGIC: &[u8] = b"sandling-volume 1\n";
/// The network between nodes is fast, so this is about time and not about size.
const LEVEL: i32 = 1;

/// What is on a volume at one moment, in a file that has no name.
pub struct VolumeMoment {
    pub(super) file: File,
    pub(super) size_mib: u32,
    pub(super) is_clean: bool,
}

impl VolumeMoment {
    /// Writes it for [`Volumes::receive`](super::Volumes::receive). Blocks.
    pub fn send(self, mut out: impl Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        let mut stream = zstd::Encoder::new(out, LEVEL)?;
        let mut hashed = Hashed::new(&mut stream);
        hashed.write_all(&self.size_mib.to_le_bytes())?;
        hashed.write_all(&[u8::from(self.is_clean)])?;
        write_parts(self.file, u64::from(self.size_mib) << 20, &mut hashed)?;
        let digest = hashed.digest();
        stream.write_all(&digest)?;
        stream.finish()?.flush()
    }
}
