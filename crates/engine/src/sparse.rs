//! A sparse file as a stream: its parts that are not holes, each as its offset, its length and its bytes. A part without
//! bytes is the end.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// The longest part that is sent as one.
const LONGEST_PART: usize = 1 << 20;
/// A compressor holds back what compresses well, and a receiver gives up if nothing arrives for a while.
const FLUSH_EVERY: usize = 16 << 20;

/// Why the parts of a file cannot become a file again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PartsError {
    #[error("a part of a file lies outside of it")]
    Outside,
    #[error("the parts of a file cannot be read")]
    Read(#[source] io::Error),
    #[error("the file cannot be written")]
    Write(#[source] io::Error),
}

/// Writes the parts of a file that are not holes.
pub(crate) fn write_parts(mut file: File, length: u64, out: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; LONGEST_PART];
    let (mut at, mut unflushed) = (0, 0);
    while at < length {
        let data = match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(data))?.min(length);
        file.seek(SeekFrom::Start(data))?;
        at = data;
        while at < hole {
            let part = usize::try_from(hole - at).unwrap_or(LONGEST_PART).min(LONGEST_PART);
            file.read_exact(&mut buffer[..part])?;
            out.write_all(&at.to_le_bytes())?;
            out.write_all(&(part as u32).to_le_bytes())?;
            out.write_all(&buffer[..part])?;
            at += part as u64;
            unflushed += part;
            if unflushed >= FLUSH_EVERY {
                out.flush()?;
                unflushed = 0;
            }
        }
    }
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&0u32.to_le_bytes())
}

/// Reads what [`write_parts`] wrote into a file of this length that is all holes.
pub(crate) fn read_parts(from: &mut impl Read, file: &File, length: u64) -> Result<(), PartsError> {
    let mut buffer = vec![0; LONGEST_PART];
    let mut end = 0;
    loop {
        let (mut offset, mut part) = ([0; 8], [0; 4]);
        from.read_exact(&mut offset).map_err(PartsError::Read)?;
        from.read_exact(&mut part).map_err(PartsError::Read)?;
        let (offset, part) = (u64::from_le_bytes(offset), u32::from_le_bytes(part) as usize);
        if part == 0 {
            return Ok(());
        }
        let within = offset.checked_add(part as u64).is_some_and(|until| until <= length);
        if part > LONGEST_PART || offset < end || !within {
            return Err(PartsError::Outside);
        }
        from.read_exact(&mut buffer[..part]).map_err(PartsError::Read)?;
        file.write_all_at(&buffer[..part], offset).map_err(PartsError::Write)?;
        end = offset + part as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const LENGTH: u64 = 64 << 20;

    fn empty() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(LENGTH).unwrap();
        file
    }

    fn part(offset: u64, length: u32) -> Vec<u8> {
        [&offset.to_le_bytes()[..], &length.to_le_bytes(), &vec![7; length as usize]].concat()
    }

    fn refusal(parts: &[Vec<u8>]) -> PartsError {
        read_parts(&mut &*parts.concat(), &empty(), LENGTH).unwrap_err()
    }

    #[test]
    fn a_file_arrives_with_its_bytes_and_its_holes() {
        let file = empty();
        // The first byte, more than one part, and the last byte.
        for (offset, length) in [(0, 1), (20 << 20, 3 << 20), (LENGTH - 1, 1)] {
            file.write_all_at(&vec![7; length], offset).unwrap();
        }
        let mut parts = Vec::new();
        write_parts(file.try_clone().unwrap(), LENGTH, &mut parts).unwrap();
        assert!(parts.len() < 4 << 20, "holes are not sent");
        let copy = empty();
        read_parts(&mut &*parts, &copy, LENGTH).unwrap();
        let content = |file: &File| {
            let mut bytes = vec![0; LENGTH as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        assert!(content(&file) == content(&copy));
        assert!(copy.metadata().unwrap().blocks() * 512 < 16 << 20);
    }

    #[test]
    fn a_file_of_holes_is_only_an_end() {
        let mut parts = Vec::new();
        write_parts(empty(), LENGTH, &mut parts).unwrap();
        assert_eq!(parts, part(LENGTH, 0));
    }

    #[test]
    fn parts_outside_of_the_file_or_out_of_order_are_refused() {
        let end = || part(LENGTH, 0);
        for wrong in [
            vec![part(LENGTH, 1), end()],
            vec![part(LENGTH - 1, 2), end()],
            vec![part(u64::MAX, 1), end()],
            vec![part(0, (LONGEST_PART + 1) as u32), end()],
            vec![part(4096, 2), part(4097, 1), end()],
            vec![part(4096, 1), part(0, 1), end()],
        ] {
            assert!(matches!(refusal(&wrong), PartsError::Outside));
        }
    }

    #[test]
    fn parts_without_an_end_are_refused() {
        let mut torn = part(0, 4096);
        torn.truncate(100);
        for wrong in [vec![], vec![part(0, 1)], vec![torn]] {
            let PartsError::Read(error) = refusal(&wrong) else { panic!("{wrong:?}") };
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
