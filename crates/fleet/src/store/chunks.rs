//! Files as chunks on a fixed grid. Chunks that are holes are left out.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The size of a chunk, before it is compressed.
pub const CHUNK: usize = 8 << 20;
/// Zeros of this length become a hole.
const BLOCK: usize = 4096;

/// Where the chunks of a file begin that have data.
pub(super) fn chunks_with_data(file: &File) -> io::Result<Vec<u64>> {
    use rustix::fs::{SeekFrom, seek};
    let length = file.metadata()?.len();
    let grid = CHUNK as u64;
    let mut found: Vec<u64> = Vec::new();
    let mut at = 0;
    while at < length {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        if data >= length {
            break;
        }
        let start = data / grid * grid;
        found.push(start);
        at = start + grid;
    }
    Ok(found)
}

/// The chunk that begins at an offset.
pub(super) fn read_chunk(file: &File, length: u64, at: u64) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(length.saturating_sub(at)).unwrap_or(CHUNK).min(CHUNK);
    let mut chunk = vec![0; bytes];
    file.read_exact_at(&mut chunk, at)?;
    Ok(chunk)
}

/// Writes a chunk to a file that has its length already. Zeros stay holes.
pub(super) fn write_chunk(file: &File, at: u64, chunk: &[u8]) -> io::Result<()> {
    let mut offset = 0;
    let mut blocks = chunk.chunks(BLOCK).peekable();
    while let Some(block) = blocks.next() {
        let start = offset;
        offset += block.len();
        if is_zero(block) {
            continue;
        }
        // Blocks that follow each other are written at once.
        while let Some(next) = blocks.next_if(|next| !is_zero(next)) {
            offset += next.len();
        }
        file.write_all_at(&chunk[start..offset], at + start as u64)?;
    }
    Ok(())
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_with_holes_is_the_same_after_its_chunks_are_written() {
        let grid = CHUNK as u64;
        let (from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let length = 5 * grid + 10;
        for file in [&from, &to] {
            file.set_len(length).unwrap();
        }
        from.write_all_at(b"one", grid + 5).unwrap();
        from.write_all_at(&[1; 10_000], 3 * grid - 5000).unwrap();
        from.write_all_at(b"end", length - 3).unwrap();
        let chunks = chunks_with_data(&from).unwrap();
        assert_eq!(chunks, [grid, 2 * grid, 3 * grid, 5 * grid]);
        for at in chunks {
            let chunk = read_chunk(&from, length, at).unwrap();
            write_chunk(&to, at, &chunk).unwrap();
        }
        let all = |file: &File| {
            let mut all = vec![0; length as usize];
            file.read_exact_at(&mut all, 0).unwrap();
            all
        };
        assert!(all(&from) == all(&to));
        assert!(to.metadata().unwrap().blocks() * 512 < 100_000, "holes stay holes");
    }
}
