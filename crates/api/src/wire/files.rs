//! Files.

use sandling_protocol::{Change, ChangeKind, Entry, EntryKind, WriteMode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::ApiError;

/// Linux takes no longer path.
const MAX_PATH: usize = 4096;
const MAX_DEPTH: u32 = 64;

/// A path in a sandbox. It must be absolute; where it leads is the guest's affair, since nothing of the host is there.
pub(crate) fn checked(path: String) -> Result<String, ApiError> {
    if !path.starts_with('/') {
        return Err(ApiError::bad_request("a path must be absolute"));
    }
    if path.contains('\0') || path.len() >= MAX_PATH {
        return Err(ApiError::bad_request(format!("a path must be shorter than {MAX_PATH} bytes, without a NUL")));
    }
    Ok(path)
}

/// Permission bits as people write them: octal digits.
pub(crate) fn permissions(text: &str) -> Result<u32, ApiError> {
    Ok(sandling_service::parse_mode(text)?)
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PathParams {
    #[param(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub(crate) path: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DirParams {
    /// `/` if absent.
    #[param(pattern = r"^/[^\x00]*$", max_length = 4095)]
    path: Option<String>,
    /// How many levels down; 1 is the directory itself.
    #[param(minimum = 1, maximum = 64)]
    depth: Option<u32>,
}

impl DirParams {
    pub(crate) fn checked(self) -> Result<(String, u32), ApiError> {
        let depth = self.depth.unwrap_or(1);
        if !(1..=MAX_DEPTH).contains(&depth) {
            return Err(ApiError::bad_request(format!("depth must be between 1 and {MAX_DEPTH}")));
        }
        Ok((checked(self.path.unwrap_or_else(|| "/".to_owned()))?, depth))
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteParams {
    #[param(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub(crate) path: String,
    /// `replace` (the default; a reader sees the old file or the new one), `append`, or `create_new`.
    pub(crate) write: Option<WriteName>,
    /// Permission bits in octal, such as 0644.
    #[param(pattern = "^[0-7]{1,4}$")]
    pub(crate) mode: Option<String>,
    /// The owner of a new file: a name or a number.
    pub(crate) user: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WriteName {
    Replace,
    Append,
    CreateNew,
}

impl From<WriteName> for WriteMode {
    fn from(name: WriteName) -> Self {
        match name {
            WriteName::Replace => Self::Replace,
            WriteName::Append => Self::Append,
            WriteName::CreateNew => Self::CreateNew,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoveParams {
    #[param(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub(crate) path: String,
    /// Also a directory that is not empty; true if absent.
    pub(crate) recursive: Option<bool>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WatchParams {
    #[param(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) recursive: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MakeDirRequest {
    #[schema(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub(crate) path: String,
    /// Permission bits in octal.
    #[schema(pattern = "^[0-7]{1,4}$")]
    pub(crate) mode: Option<String>,
    /// Make what is missing above it, and do not mind if it is there; true if absent.
    pub(crate) parents: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveRequest {
    #[schema(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub(crate) from: String,
    #[schema(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub(crate) to: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChmodRequest {
    #[schema(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub(crate) path: String,
    /// Permission bits in octal.
    #[schema(pattern = "^[0-7]{1,4}$")]
    pub(crate) mode: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Written {
    pub(crate) path: String,
    pub(crate) bytes: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EntryView {
    name: String,
    path: String,
    is_dir: bool,
    size: u64,
    /// What it is, in one letter: `f`ile, `d`irectory, `l`ink, or `o`ther.
    mode: &'static str,
    /// Permission bits in octal.
    permissions: String,
    uid: u32,
    gid: u32,
    /// Seconds since 1970.
    mtime: i64,
    /// Where a symbolic link points.
    target: Option<String>,
}

impl From<Entry> for EntryView {
    fn from(entry: Entry) -> Self {
        Self {
            name: entry.name,
            path: entry.path,
            is_dir: entry.kind == EntryKind::Directory,
            size: entry.size,
            mode: match entry.kind {
                EntryKind::File => "f",
                EntryKind::Directory => "d",
                EntryKind::Symlink => "l",
                EntryKind::Other => "o",
            },
            permissions: format!("{:04o}", entry.mode & 0o7777),
            uid: entry.uid,
            gid: entry.gid,
            mtime: entry.modified_unix_ms.div_euclid(1000),
            target: entry.target,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Listing {
    pub(crate) path: String,
    pub(crate) entries: Vec<EntryView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangeView {
    path: String,
    /// `created`, `modified`, `removed`, `renamed`, `attributes` or `overflow`.
    kind: &'static str,
}

impl From<Change> for ChangeView {
    fn from(change: Change) -> Self {
        let kind = match change.kind {
            ChangeKind::Created => "created",
            ChangeKind::Modified => "modified",
            ChangeKind::Removed => "removed",
            ChangeKind::Renamed => "renamed",
            ChangeKind::Attributes => "attributes",
            ChangeKind::Overflow => "overflow",
        };
        Self { path: change.path, kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_short_and_without_nul() {
        assert!(checked("/a b/ü/../c".to_owned()).is_ok());
        for bad in ["", "a", "../etc", "/a\0b", &format!("/{}", "x".repeat(5000))] {
            assert!(checked(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(permissions("0755").unwrap(), 0o755);
        assert_eq!(permissions("644").unwrap(), 0o644);
        for bad in ["", "rwx", "888", "17777", "-1"] {
            assert!(permissions(bad).is_err(), "{bad:?}");
        }
    }
}
