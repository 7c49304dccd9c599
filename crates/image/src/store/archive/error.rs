//! Why a template could not be exported or imported.

use std::io;

use crate::error::{BuildError, LoadError};
use crate::name::{ContentId, TemplateName};
use crate::recipe::RecipeError;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("this is not an exported template; `sandling template export NAME FILE` writes one")]
    NotAnArchive,
    #[error("the archive was written by a newer Sandling (its format is {format}); upgrade Sandling to import it")]
    TooNew { format: u32 },
    #[error("the archive is damaged ({0}); nothing was imported, so copy or export it again")]
    Damaged(String),
    #[error("template `{name}` exists already; --replace replaces it, and --name imports it under another name")]
    Exists { name: TemplateName },
    #[error("`{name}` is a built-in template, but the archive holds `{found}`; use --name to give it another name")]
    NotThatBuiltIn { name: TemplateName, found: TemplateName },
    #[error("template `{name}` exists already and was made from steps or a snapshot; remove it first, or use --name")]
    Taken { name: TemplateName },
    #[error("the archive has the image {found} in place of {wanted}; nothing was imported")]
    OtherImage { wanted: ContentId, found: ContentId },
    #[error(transparent)]
    Name(#[from] RecipeError),
    #[error("could not read the archive")]
    Read(#[source] io::Error),
    #[error("could not write the archive")]
    Write(#[source] io::Error),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Store(#[from] BuildError),
}

impl ArchiveError {
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }

    /// For an error while reading: tells damage from a failing disk or pipe.
    pub(super) fn reading(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::damaged("it ends too early"),
            // The decompressor and the reader of tar report damaged input with these kinds.
            io::ErrorKind::Other | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                Self::Damaged(format!("it cannot be unpacked: {error}"))
            }
            _ => Self::Read(error),
        }
    }
}
