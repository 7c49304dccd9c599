//! Archives of files: tar, plain or compressed.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};

use crate::Failure;

const BLOCK: usize = 512;
const SUM: std::ops::Range<usize> = 148..156;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Bzip2,
    Xz,
    Zstd,
}

fn compression(start: &[u8]) -> Compression {
    match start {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [b'B', b'Z', b'h', ..] => Compression::Bzip2,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
        _ => Compression::None,
    }
}

/// Opens a file as an archive. `None` if it is another kind of file.
pub fn open(mut file: File) -> Result<Option<tar::Archive<Box<dyn Read>>>, Failure> {
    let failed = |error: io::Error| format!("cannot read the archive: {error}");
    let start = beginning(&mut file).map_err(failed)?;
    let kind = compression(&start);
    // A file that only looks compressed is copied, as in Docker.
    let Ok(mut content) = reader(kind, file.try_clone().map_err(failed)?) else { return Ok(None) };
    let mut block = [0; BLOCK];
    let is_archive = content.read_exact(&mut block).is_ok() && is_header(&block);
    if !is_archive {
        return Ok(None);
    }
    let content = io::Cursor::new(block).chain(content);
    Ok(Some(tar::Archive::new(Box::new(content))))
}

fn beginning(file: &mut File) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(0))?;
    let mut start = Vec::new();
    file.take(8).read_to_end(&mut start)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(start)
}

fn reader(kind: Compression, file: File) -> io::Result<Box<dyn Read>> {
    let file = BufReader::with_capacity(1 << 16, file);
    Ok(match kind {
        Compression::None => Box::new(file),
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(file)),
        Compression::Bzip2 => Box::new(bzip2_rs::DecoderReader::new(file)),
        Compression::Xz => Box::new(unpacked_xz(file)?),
        Compression::Zstd => Box::new(ruzstd::decoding::StreamingDecoder::new(file).map_err(io::Error::other)?),
    })
}

/// The decoder for xz cannot be read from, so its result is a file without a name.
fn unpacked_xz(mut file: impl io::BufRead) -> io::Result<File> {
    let mut out = temporary()?;
    let mut writer = io::BufWriter::with_capacity(1 << 16, &mut out);
    lzma_rs::xz_decompress(&mut file, &mut writer).map_err(|error| io::Error::other(format!("{error:?}")))?;
    writer.flush()?;
    drop(writer);
    out.seek(SeekFrom::Start(0))?;
    Ok(out)
}

/// A file without a name, on the machine's disk.
pub fn temporary() -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags};
    let opened =
        rustix::fs::openat(CWD, "/", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    Ok(opened?.into())
}

/// Whether a block is the header of a tar entry: its checksum fits. An archive of zeros is empty, and is one, too.
fn is_header(block: &[u8; BLOCK]) -> bool {
    let text = String::from_utf8_lossy(&block[SUM]);
    let stored = u32::from_str_radix(text.trim_matches([' ', '\0']), 8);
    let sum: u32 =
        block.iter().enumerate().map(|(at, byte)| if SUM.contains(&at) { 32 } else { u32::from(*byte) }).sum();
    stored == Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_of_one_file() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(2);
        header.set_mode(0o644);
        builder.append_data(&mut header, "x", &b"hi"[..]).unwrap();
        builder.into_inner().unwrap()
    }

    fn names(bytes: &[u8]) -> Option<Vec<String>> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let mut archive = open(file).unwrap()?;
        let names = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
        Some(names.collect())
    }

    #[test]
    fn archives_are_told_from_other_files_by_their_content() {
        let plain = tar_of_one_file();
        assert_eq!(names(&plain), Some(vec!["x".to_owned()]));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        gzip.write_all(&plain).unwrap();
        assert_eq!(names(&gzip.finish().unwrap()), Some(vec!["x".to_owned()]));
        let mut zipped_text = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        zipped_text.write_all(b"only a text").unwrap();
        for other in [&b"a text"[..], b"", b"\x1f\x8bnot really", &zipped_text.finish().unwrap()] {
            assert_eq!(names(other), None);
        }
    }
}
