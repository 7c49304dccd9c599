//! What can be wrong with a layer.

use std::io;

use crate::digest::Digest;

/// Why a layer was refused. Paths are shown with escapes, because an image's author chooses their bytes.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error(
        "the content of layer {expected} does not match its digest: it is truncated or was changed; fetch it again"
    )]
    DigestMismatch { expected: Digest, actual: Digest },
    #[error("the uncompressed content of layer {expected} does not match the image's configuration")]
    DiffIdMismatch { expected: Digest, actual: Digest },
    #[error("layer {layer} has the media type `{media_type}`, which is not a file system layer")]
    UnsupportedMediaType { layer: usize, media_type: String },
    #[error("layer {layer} ends too early: it is truncated")]
    Truncated { layer: usize },
    #[error("cannot read layer {layer}: {source}")]
    Read { layer: usize, source: io::Error },
    #[error("layer {layer} is not a valid tar archive: {reason}")]
    BadArchive { layer: usize, reason: String },
    #[error("layer {layer}: the entry `{path}` is invalid: {reason}")]
    BadEntry { layer: usize, path: String, reason: String },
    #[error("layer {layer}: the path `{path}` leaves the root directory")]
    OutsideRoot { layer: usize, path: String },
    #[error("layer {layer}: `{path}` cannot be created because one of its parents is not a directory")]
    ParentNotDirectory { layer: usize, path: String },
    #[error("layer {layer}: `{path}` has too many symbolic links in its path")]
    SymlinkLoop { layer: usize, path: String },
    #[error("layer {layer}: the hard link `{path}` points to `{target}`, which {problem}")]
    BadHardLink { layer: usize, path: String, target: String, problem: &'static str },
    #[error("the image unpacks to more than {limit} bytes, which is the limit (layer {layer})")]
    TooManyBytes { layer: usize, limit: u64 },
    #[error("the image has more than {limit} files and directories, which is the limit (layer {layer}, `{path}`)")]
    TooManyInodes { layer: usize, path: String, limit: u64 },
    #[error("layer {layer} expands to more than {limit} times its compressed size: it looks like a decompression bomb")]
    CompressionBomb { layer: usize, limit: u64 },
    #[error("layer {layer}: the path `{path}` is longer than {limit} bytes")]
    PathTooLong { layer: usize, path: String, limit: usize },
    #[error("layer {layer}: `{path}` is below more than {limit} directories")]
    TooDeep { layer: usize, path: String, limit: usize },
    #[error("layer {layer}: the extended attributes of `{path}` are larger than {limit} bytes")]
    XattrsTooLarge { layer: usize, path: String, limit: usize },
    #[error("the names, links and attributes of the image are larger than {limit} bytes (layer {layer}, `{path}`)")]
    TooMuchMetadata { layer: usize, path: String, limit: u64 },
    #[error("layer {layer}: cannot store the content of `{path}`: {source}")]
    Store { layer: usize, path: String, source: Box<crate::blocks::Ext4Error> },
}

/// A path for a message: printable, and short enough for one sentence.
pub(crate) fn shown(path: &[u8]) -> String {
    const MOST: usize = 200;
    let mut text = path.iter().take(MOST).copied().collect::<Vec<u8>>().escape_ascii().to_string();
    if path.len() > MOST {
        text.push('…');
    }
    text
}
