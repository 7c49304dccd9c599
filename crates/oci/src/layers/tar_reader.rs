//! Reads the entries of a layer's tar archive.
//!
//! The tar crate provides the formats of headers. Its iterator over entries is not used, because it splits PAX records at
//! newlines, which file capabilities may contain, and does not know the sparse formats in PAX headers. Where parsers
//! differ, this one does what Go's `archive/tar` does, with which other implementations of OCI read the same layer.

use std::io::Read;

use tar::{EntryType, GnuExtSparseHeader, Header};

use super::entry::{Entry, EntryKind, Segment};
use super::error::{LayerError, shown};
use super::input::LayerStream;
use super::numeric;
use super::pax::{self, Record};
use super::sparse::{self, MOST_SEGMENTS, MapParser, PaxSparse};
use super::tree::Metadata;

const BLOCK: usize = 512;

/// A header that describes another entry (PAX records, long names) may not be larger.
const MOST_EXTENSION: u64 = 1 << 20;

/// `GNU.sparse` and `SCHILY.xattr` are the prefixes that GNU tar and star write; Go reads the same.
const XATTR_PREFIX: &[u8] = b"SCHILY.xattr.";

pub(crate) struct TarReader {
    stream: LayerStream,
    /// Content of the current entry that was not read yet, and the padding after it.
    remaining: u64,
    padding: u64,
}

/// Headers that came before the entry they describe.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Vec<Record>,
}

impl TarReader {
    pub(crate) fn new(stream: LayerStream) -> Self {
        Self { stream, remaining: 0, padding: 0 }
    }

    pub(crate) fn stream(&mut self) -> &mut LayerStream {
        &mut self.stream
    }

    pub(crate) fn into_stream(self) -> LayerStream {
        self.stream
    }

    pub(crate) fn layer(&self) -> usize {
        self.stream.layer()
    }

    /// The next entry; `None` at the end of the archive.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, LayerError> {
        let mut extensions = Extensions::default();
        let mut described = false;
        loop {
            self.skip(self.remaining + self.padding)?;
            (self.remaining, self.padding) = (0, 0);
            let Some(header) = self.read_header()? else {
                return if described {
                    Err(self.malformed("a header describes an entry that is missing"))
                } else {
                    Ok(None)
                };
            };
            let kind = header.entry_type();
            if kind.is_pax_local_extensions() {
                let bytes = self.read_extension(&header)?;
                let records = pax::parse(&bytes).ok_or_else(|| self.malformed("a PAX header is malformed"))?;
                extensions.records.extend(records);
            } else if kind.is_gnu_longname() {
                extensions.path = Some(until_nul(self.read_extension(&header)?));
            } else if kind.is_gnu_longlink() {
                extensions.link = Some(until_nul(self.read_extension(&header)?));
            } else if kind.is_pax_global_extensions() {
                // Git writes one with a comment. Other implementations ignore all of them.
                self.read_extension(&header)?;
                continue;
            } else {
                return self.entry(&header, extensions).map(Some);
            }
            described = true;
        }
    }

    /// Reads content of the current entry; zero bytes at its end.
    pub(crate) fn read_content(&mut self, into: &mut [u8]) -> Result<usize, LayerError> {
        let most = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(into.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.stream.read(&mut into[..most]).map_err(|error| self.stream.error(error))?;
        if count == 0 {
            return Err(LayerError::Truncated { layer: self.layer() });
        }
        self.remaining -= count as u64;
        Ok(count)
    }

    fn entry(&mut self, header: &Header, extensions: Extensions) -> Result<Entry, LayerError> {
        let Extensions { path, link, records } = extensions;
        let find = |key| pax::find(&records, key);
        let sparse_name = find("GNU.sparse.name").map(<[u8]>::to_vec);
        let path = sparse_name
            .or_else(|| find("path").map(<[u8]>::to_vec))
            .or(path)
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let link = find("linkpath")
            .map(<[u8]>::to_vec)
            .or(link)
            .or_else(|| header.link_name_bytes().map(|name| name.into_owned()))
            .unwrap_or_default();
        let bad = |reason: &str| self.bad_entry(&path, reason);
        if path.contains(&0) || link.contains(&0) {
            return Err(bad("its name contains a zero byte"));
        }
        let kind = entry_kind(header, &path, link).map_err(bad)?;
        let metadata = metadata(header, &records).map_err(bad)?;
        let mut entry = Entry { path, kind, metadata, size: 0, segments: None };
        if entry.kind == EntryKind::File {
            self.start_content(header, &records, &mut entry)?;
        }
        Ok(entry)
    }

    fn start_content(&mut self, header: &Header, records: &[Record], entry: &mut Entry) -> Result<(), LayerError> {
        let stored = match pax::find(records, "size") {
            Some(size) => pax::number(size),
            None => numeric::field(&header.as_old().size),
        };
        let stored = stored.filter(|size| *size < 1 << 62);
        let stored = stored.ok_or_else(|| self.bad_entry(&entry.path, "its size is malformed"))?;
        self.remaining = stored;
        self.padding = stored.next_multiple_of(BLOCK as u64) - stored;
        entry.size = stored;
        let real_size = pax::find(records, "GNU.sparse.realsize").or_else(|| pax::find(records, "GNU.sparse.size"));
        let (segments, real_size) = if header.entry_type().is_gnu_sparse() {
            let gnu = header.as_gnu().ok_or_else(|| self.bad_entry(&entry.path, "its sparse format is unknown"))?;
            (self.old_sparse_map(gnu, entry)?, gnu.real_size().ok())
        } else {
            let map = match sparse::from_pax(records).map_err(|reason| self.bad_entry(&entry.path, reason))? {
                None => return Ok(()),
                Some(PaxSparse::Map(map)) => map,
                Some(PaxSparse::InContent) => self.map_in_content(entry)?,
            };
            (map, real_size.and_then(pax::number))
        };
        let size = real_size.ok_or_else(|| self.bad_entry(&entry.path, "the size of the sparse file is malformed"))?;
        sparse::check(&segments, size, self.remaining).map_err(|reason| self.bad_entry(&entry.path, reason))?;
        entry.size = size;
        entry.segments = Some(segments);
        Ok(())
    }

    fn old_sparse_map(&mut self, gnu: &tar::GnuHeader, entry: &Entry) -> Result<Vec<Segment>, LayerError> {
        let mut map = Vec::new();
        let mut more = gnu.is_extended();
        let mut add = |headers: &[tar::GnuSparseHeader]| {
            for header in headers.iter().filter(|header| !header.is_empty()) {
                map.push(Segment { offset: header.offset().ok()?, length: header.length().ok()? });
            }
            (map.len() <= MOST_SEGMENTS).then_some(())
        };
        let mut valid = add(&gnu.sparse);
        while more && valid.is_some() {
            let mut extended = GnuExtSparseHeader::new();
            self.read_exact(extended.as_mut_bytes())?;
            more = extended.is_extended();
            valid = add(&extended.sparse);
        }
        valid.ok_or_else(|| self.bad_entry(&entry.path, "its map of holes is malformed"))?;
        Ok(map)
    }

    fn map_in_content(&mut self, entry: &Entry) -> Result<Vec<Segment>, LayerError> {
        let mut parser = MapParser::default();
        let mut block = [0; BLOCK];
        loop {
            if self.remaining < BLOCK as u64 {
                return Err(self.bad_entry(&entry.path, "its map of holes is malformed"));
            }
            self.read_exact(&mut block)?;
            self.remaining -= BLOCK as u64;
            match parser.push(&block) {
                Ok(Some(map)) => return Ok(map),
                Ok(None) => (),
                Err(reason) => return Err(self.bad_entry(&entry.path, reason)),
            }
        }
    }

    fn read_header(&mut self) -> Result<Option<Header>, LayerError> {
        let mut header = Header::new_old();
        if !self.read_block(header.as_mut_bytes())? {
            return Ok(None);
        }
        if header.as_bytes() == &[0; BLOCK] {
            let mut second = [0; BLOCK];
            if self.read_block(&mut second)? && second != [0; BLOCK] {
                return Err(self.malformed("data follows the end of the archive"));
            }
            return Ok(None);
        }
        let (unsigned, signed) = checksums(header.as_bytes());
        match numeric::field(&header.as_old().cksum) {
            Some(sum) if sum == u64::from(unsigned) || sum == u64::from(signed) => Ok(Some(header)),
            _ => Err(self.malformed("the checksum of a header is wrong")),
        }
    }

    fn read_extension(&mut self, header: &Header) -> Result<Vec<u8>, LayerError> {
        let size = numeric::field(&header.as_old().size).filter(|size| *size <= MOST_EXTENSION);
        let size = size.ok_or_else(|| self.malformed("a header is larger than 1 MiB"))?;
        let mut bytes = vec![0; size as usize];
        self.read_exact(&mut bytes)?;
        self.padding = size.next_multiple_of(BLOCK as u64) - size;
        Ok(bytes)
    }

    /// Fills a block; `false` at the end of the layer.
    fn read_block(&mut self, block: &mut [u8]) -> Result<bool, LayerError> {
        let first = self.stream.read(&mut block[..]).map_err(|error| self.stream.error(error))?;
        if first == 0 {
            return Ok(false);
        }
        self.read_exact(&mut block[first..])?;
        Ok(true)
    }

    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), LayerError> {
        self.stream.read_exact(into).map_err(|error| self.stream.error(error))
    }

    fn skip(&mut self, mut count: u64) -> Result<(), LayerError> {
        let mut buffer = [0; 16 << 10];
        while count > 0 {
            let most = count.min(buffer.len() as u64) as usize;
            self.read_exact(&mut buffer[..most])?;
            count -= most as u64;
        }
        Ok(())
    }

    fn malformed(&self, reason: &str) -> LayerError {
        LayerError::BadArchive { layer: self.layer(), reason: reason.to_owned() }
    }

    fn bad_entry(&self, path: &[u8], reason: &str) -> LayerError {
        LayerError::BadEntry { layer: self.layer(), path: shown(path), reason: reason.to_owned() }
    }
}

/// The sum of a header's bytes with its checksum as spaces. Old writers summed signed bytes.
fn checksums(header: &[u8; BLOCK]) -> (u32, u32) {
    let bytes = header.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { b' ' } else { *byte });
    let signed: i32 = bytes.clone().map(|byte| i32::from(byte as i8)).sum();
    (bytes.map(u32::from).sum(), signed as u32)
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

fn entry_kind(header: &Header, path: &[u8], link: Vec<u8>) -> Result<EntryKind, &'static str> {
    let numbers = || device_numbers(header).ok_or("its device numbers are malformed");
    Ok(match header.entry_type() {
        // In the oldest format, a directory is a file whose name ends in a slash.
        EntryType::Regular if header.as_bytes()[156] == 0 && path.ends_with(b"/") => EntryKind::Directory,
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => EntryKind::File,
        EntryType::Directory => EntryKind::Directory,
        EntryType::Symlink if link.is_empty() => return Err("the symbolic link has no target"),
        EntryType::Symlink => EntryKind::Symlink { target: link },
        EntryType::Link => EntryKind::HardLink { target: link },
        EntryType::Char => numbers().map(|(major, minor)| EntryKind::CharDevice { major, minor })?,
        EntryType::Block => numbers().map(|(major, minor)| EntryKind::BlockDevice { major, minor })?,
        EntryType::Fifo => EntryKind::Fifo,
        _ => return Err("its type is unknown"),
    })
}

/// The oldest format has no device numbers.
fn device_numbers(header: &Header) -> Option<(u32, u32)> {
    let (major, minor) = match (header.as_ustar(), header.as_gnu()) {
        (Some(ustar), _) => (&ustar.dev_major, &ustar.dev_minor),
        (_, Some(gnu)) => (&gnu.dev_major, &gnu.dev_minor),
        _ => return Some((0, 0)),
    };
    Some((numeric::field(major)?.try_into().ok()?, numeric::field(minor)?.try_into().ok()?))
}

fn metadata(header: &Header, records: &[Record]) -> Result<Metadata, &'static str> {
    let find = |key| pax::find(records, key);
    let fields = header.as_old();
    let id = |key, field: &[u8]| {
        let id = find(key).map_or_else(|| numeric::field(field), pax::number);
        // The kernel uses the largest number for "no owner".
        id.and_then(|id| u32::try_from(id).ok()).filter(|id| *id != u32::MAX)
    };
    let (seconds, nanoseconds) = match find("mtime") {
        Some(text) => pax::time(text).ok_or("its time is malformed")?,
        // A negative number in binary is returned as its two's complement.
        None => (numeric::field(&fields.mtime).ok_or("its time is malformed")? as i64, 0),
    };
    let xattrs = records
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(XATTR_PREFIX)?.to_vec(), value.clone())))
        .collect();
    Ok(Metadata {
        mode: (numeric::field(&fields.mode).ok_or("its mode is malformed")? & 0o7777) as u16,
        uid: id("uid", &fields.uid).ok_or("its owner is malformed")?,
        gid: id("gid", &fields.gid).ok_or("its group is malformed")?,
        seconds,
        nanoseconds,
        xattrs,
    })
}
