//! The jobs, which are passed as JSON in the program's only argument.

use serde::{Deserialize, Serialize};

/// Where the builder keeps its own files on the machine's disk. A template has none of them.
pub const DIRECTORY: &str = "/.sandling-build";
/// One directory for each `id` of a cache mount.
pub const CACHES: &str = "/.sandling-build/caches";
/// Files that are bound into a `RUN`, one directory for each mount.
pub const STAGED: &str = "/.sandling-build/staged";
/// Secrets are in memory, one file each. The builder overwrites and removes them.
pub const SECRETS: &str = "/run/.sandling-secrets";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Writes these paths of the root file system to a file, as a stream for [`Job::Place`].
    Pack {
        sources: Vec<String>,
        file: String,
    },
    /// Reads a stream from stdin: a tar with `d/PATH` for the content of directories and `f/NAME` for files.
    Place(Place),
    /// Reads an archive from stdin, and copies from it what `source` names.
    Copy {
        source: String,
        place: Place,
    },
    /// Checks a file on the machine's disk, and moves it to its place.
    Adopt {
        file: String,
        name: String,
        sha256: Option<String>,
        place: Place,
    },
    Run(Run),
    /// Runs a command, and kills the processes that it leaves.
    Rehearse(Run),
    /// Removes what the builder has left on the disk.
    Finish,
}

/// Where files go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// An absolute path. A trailing slash makes it a directory.
    pub target: String,
    /// Whether the target is a directory in any case.
    pub into: bool,
    /// A user, or `user:group`. Otherwise the files keep the owner that the stream names.
    pub owner: Option<String>,
    pub mode: Option<u32>,
    /// Whether archives are unpacked into the target.
    pub unpack: bool,
}

/// A command with mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub argv: Vec<String>,
    pub user: String,
    pub directory: String,
    pub mounts: Vec<Mount>,
    /// Whether the command sees a network.
    pub network: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum Mount {
    /// A directory that later steps see again.
    Cache {
        id: String,
        target: String,
        mode: u32,
        uid: u32,
        gid: u32,
        read_only: bool,
    },
    /// Files that were placed below [`STAGED`]. What the command writes is dropped.
    Bind {
        staged: String,
        target: String,
        read_only: bool,
    },
    Tmpfs {
        target: String,
        size_bytes: Option<u64>,
    },
    /// A file below [`SECRETS`], at a path, in a variable, or both.
    Secret {
        id: String,
        target: Option<String>,
        variable: Option<String>,
        mode: u32,
        uid: u32,
        gid: u32,
    },
}
