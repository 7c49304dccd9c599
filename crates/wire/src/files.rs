//! Files.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PathParams {
    #[param(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub path: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DirParams {
    /// `/` if absent.
    #[param(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub path: Option<String>,
    /// How many levels down; 1 is the directory itself.
    #[param(minimum = 1, maximum = 64)]
    pub depth: Option<u32>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WriteParams {
    #[param(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub path: String,
    /// `replace` (the default; a reader sees the old file or the new one), `append`, or `create_new`.
    pub write: Option<WriteName>,
    /// Permission bits in octal, such as 0644.
    #[param(pattern = "^[0-7]{1,4}$")]
    pub mode: Option<String>,
    /// The owner of a new file: a name or a number.
    pub user: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteName {
    Replace,
    Append,
    CreateNew,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RemoveParams {
    #[param(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub path: String,
    /// Also remove a directory that is not empty; true if absent.
    pub recursive: Option<bool>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WatchParams {
    #[param(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub path: String,
    #[serde(default)]
    pub recursive: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeDirRequest {
    #[schema(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub path: String,
    /// Permission bits in octal.
    #[schema(pattern = "^[0-7]{1,4}$")]
    pub mode: Option<String>,
    /// Create missing parents, and accept an existing directory; true if absent.
    pub parents: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    #[schema(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub from: String,
    #[schema(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub to: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChmodRequest {
    #[schema(pattern = r"^/[^\x00]*$", max_length = 4095)]
    pub path: String,
    /// Permission bits in octal.
    #[schema(pattern = "^[0-7]{1,4}$")]
    pub mode: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Written {
    pub path: String,
    pub bytes: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct EntryView {
    pub name: String,
    pub path: String,
    pub is_dir: bool,
    pub size: u64,
    /// The kind in one letter: `f`ile, `d`irectory, `l`ink or `o`ther.
    pub mode: &'static str,
    /// Permission bits in octal.
    pub permissions: String,
    pub uid: u32,
    pub gid: u32,
    /// Seconds since 1970.
    pub mtime: i64,
    /// The target of a symbolic link.
    pub target: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Listing {
    pub path: String,
    pub entries: Vec<EntryView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ChangeView {
    pub path: String,
    /// `created`, `modified`, `removed`, `renamed`, `attributes` or `overflow`.
    pub kind: &'static str,
}
