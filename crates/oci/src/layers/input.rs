//! One layer's bytes: decompressed, counted, limited and hashed while they are read.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use sha2::{Digest as _, Sha256};

use super::error::LayerError;
use super::limits::Limits;
use crate::digest::Digest;

/// Where a layer is, and what it must be.
#[derive(Debug)]
pub struct LayerInput {
    pub file: File,
    /// The layer is this part of the file: an archive has several layers in one file.
    pub offset: u64,
    pub length: u64,
    /// Empty if unknown. The compression is recognised by the first bytes, as in other implementations.
    pub media_type: String,
    /// The digest of the bytes in the file. Absent for an archive without digests.
    pub digest: Option<Digest>,
    /// The digest of the uncompressed bytes. Absent for a plain archive of a root file system.
    pub diff_id: Option<Digest>,
}

impl LayerInput {
    /// A layer that is a whole file.
    pub fn whole_file(file: File, media_type: &str, digest: Digest, diff_id: Digest) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let media_type = media_type.to_owned();
        Ok(Self { file, offset: 0, length, media_type, digest: Some(digest), diff_id: Some(diff_id) })
    }
}

/// A limit that was exceeded inside of a `Read`, where only an [`io::Error`] can be returned.
#[derive(Debug, Clone, Copy)]
enum Exceeded {
    Bytes,
    Ratio,
}

#[derive(Debug, Default)]
struct State {
    compressed: Sha256,
    compressed_bytes: u64,
    plain: Sha256,
    plain_bytes: u64,
    exceeded: Option<Exceeded>,
}

type Shared = Rc<RefCell<State>>;

/// The uncompressed bytes of a layer.
pub(crate) struct LayerStream {
    layer: usize,
    reader: Option<Box<dyn Read>>,
    state: Shared,
    limits: Limits,
    /// What earlier layers left of the limit on bytes.
    bytes_left: u64,
    digest: Option<Digest>,
    diff_id: Option<Digest>,
    start: u64,
    rest: RawLayer,
}

const BUFFER: usize = 256 << 10;

impl LayerStream {
    pub(crate) fn open(
        input: &LayerInput,
        layer: usize,
        limits: &Limits,
        bytes_before: u64,
    ) -> Result<Self, LayerError> {
        if !input.media_type.is_empty() && !input.media_type.contains("tar") {
            return Err(LayerError::UnsupportedMediaType { layer, media_type: input.media_type.clone() });
        }
        let failed = |source| LayerError::Read { layer, source };
        let state = Shared::default();
        let raw = || -> io::Result<RawLayer> {
            let file = input.file.try_clone()?;
            Ok(RawLayer { file, at: input.offset, end: input.offset + input.length, state: state.clone() })
        };
        let mut buffered = BufReader::with_capacity(BUFFER, raw().map_err(failed)?);
        let start = buffered.fill_buf().map_err(failed)?;
        let reader: Box<dyn Read> = if start.starts_with(&[0x1f, 0x8b]) {
            Box::new(flate2::bufread::MultiGzDecoder::new(buffered))
        } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Box::new(zstd::stream::read::Decoder::with_buffer(buffered).map_err(failed)?)
        } else {
            Box::new(buffered)
        };
        Ok(Self {
            layer,
            reader: Some(reader),
            rest: raw().map_err(failed)?,
            start: input.offset,
            state,
            limits: limits.clone(),
            bytes_left: limits.bytes.saturating_sub(bytes_before),
            digest: input.digest.clone(),
            diff_id: input.diff_id.clone(),
        })
    }

    pub(crate) fn layer(&self) -> usize {
        self.layer
    }

    /// Bytes that were read from the file, and bytes after decompression.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let state = self.state.borrow();
        (state.compressed_bytes, state.plain_bytes)
    }

    /// Reads what follows the archive, and compares both digests.
    pub(crate) fn finish(mut self) -> Result<u64, LayerError> {
        if let Err(error) = io::copy(&mut self, &mut io::sink()) {
            let error = self.error(error);
            return Err(self.explain(error));
        }
        self.check_compressed()?;
        let state = self.state.borrow();
        let actual = Digest::finish(state.plain.clone());
        match &self.diff_id {
            Some(expected) if *expected != actual => {
                Err(LayerError::DiffIdMismatch { expected: expected.clone(), actual })
            }
            _ => Ok(state.plain_bytes),
        }
    }

    /// Turns an error of this stream into one that names the layer.
    pub(crate) fn error(&self, error: io::Error) -> LayerError {
        let layer = self.layer;
        match self.state.borrow().exceeded {
            Some(Exceeded::Bytes) => LayerError::TooManyBytes { layer, limit: self.limits.bytes },
            Some(Exceeded::Ratio) => LayerError::CompressionBomb { layer, limit: self.limits.ratio },
            None if error.kind() == io::ErrorKind::UnexpectedEof => LayerError::Truncated { layer },
            None => LayerError::Read { layer, source: error },
        }
    }

    /// Bytes that do not match their digest are the cause of every other error in them, so that is reported instead.
    pub(crate) fn explain(&mut self, error: LayerError) -> LayerError {
        let from_content = matches!(
            error,
            LayerError::Truncated { .. }
                | LayerError::Read { .. }
                | LayerError::BadArchive { .. }
                | LayerError::BadEntry { .. }
        );
        if from_content && let Err(mismatch @ LayerError::DigestMismatch { .. }) = self.check_compressed() {
            return mismatch;
        }
        error
    }

    fn check_compressed(&mut self) -> Result<(), LayerError> {
        let layer = self.layer;
        // The decoder's buffer has read ahead, so hashing continues behind it.
        self.reader = None;
        self.rest.at = self.start + self.state.borrow().compressed_bytes;
        io::copy(&mut self.rest, &mut io::sink()).map_err(|source| LayerError::Read { layer, source })?;
        let actual = Digest::finish(self.state.borrow().compressed.clone());
        match &self.digest {
            Some(expected) if *expected != actual => {
                Err(LayerError::DigestMismatch { expected: expected.clone(), actual })
            }
            _ => Ok(()),
        }
    }
}

impl Read for LayerStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(reader) = &mut self.reader else { return Ok(0) };
        let count = reader.read(into)?;
        let mut state = self.state.borrow_mut();
        state.plain.update(&into[..count]);
        state.plain_bytes += count as u64;
        state.exceeded = if state.plain_bytes > self.bytes_left {
            Some(Exceeded::Bytes)
        } else if state.plain_bytes > self.limits.ratio_floor
            && state.plain_bytes / self.limits.ratio.max(1) > state.compressed_bytes
        {
            Some(Exceeded::Ratio)
        } else {
            return Ok(count);
        };
        Err(io::Error::other("a limit was exceeded"))
    }
}

/// The bytes in the file. Reads have positions, because other descriptors share the file's offset.
struct RawLayer {
    file: File,
    at: u64,
    end: u64,
    state: Shared,
}

impl Read for RawLayer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX).min(into.len());
        let count = self.file.read_at(&mut into[..most], self.at)?;
        self.at += count as u64;
        let mut state = self.state.borrow_mut();
        state.compressed.update(&into[..count]);
        state.compressed_bytes += count as u64;
        Ok(count)
    }
}
