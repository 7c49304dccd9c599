//! The messages, in both directions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    CellReport, CellSpec, Change, ContextInfo, ContextSpec, Entry, ExecInfo, ExecSpec, Exit, Identity, Language,
    LentDisk, Proof, TerminalSize, Usage, WriteMode, generation,
};

/// A stream's number. The host chooses it and does not use it twice in one session.
pub type StreamId = u32;

/// A message from the host. The comments name the body, if a message has one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToGuest {
    /// Begins a session. The guest drops the streams of an earlier one; commands keep running. `generation` is the newest
    /// that the host speaks.
    Hello {
        nonce: String,
        #[serde(rename = "version", default = "generation::first")]
        generation: u32,
    },
    /// Opens a stream. Body: the code, for [`Request::Run`] of code and [`Request::RunCell`].
    Open { stream: StreamId, request: Request },
    /// Body: bytes for stdin, an upload or a tunnel.
    Data { stream: StreamId },
    /// The host sends no more `Data`: the end of stdin, of an upload, or of this half of a tunnel.
    Finish { stream: StreamId },
    /// The host has consumed this many bytes of the stream's `Data`.
    Credit { stream: StreamId, bytes: u32 },
    /// The host no longer reads the stream. A command keeps running; an unfinished upload leaves no trace.
    Cancel { stream: StreamId },
}

/// A message from the guest. The host treats every byte as hostile.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToHost {
    /// Answers the host's greeting with its nonce and with the generation of the session.
    Hello {
        nonce: String,
        #[serde(rename = "version", default = "generation::first")]
        generation: u32,
    },
    /// Body: bytes of one part of the stream. `offset` counts the stream's bytes of all parts, replayed ones included.
    Data { stream: StreamId, part: Part, offset: u64 },
    /// Something happened before the stream's end.
    Event { stream: StreamId, event: Event },
    /// The guest has consumed this many bytes of the stream's `Data`.
    Credit { stream: StreamId, bytes: u32 },
    /// The last message of a stream.
    End { stream: StreamId, outcome: Outcome },
}

/// The part of a stream that a `Data` belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Stdout,
    Stderr,
    /// A terminal's output, in which stdout and stderr are one.
    Terminal,
    /// Rich results that a cell displays: one MIME bundle, a JSON object from MIME type to string, per line.
    Results,
    /// The value of a cell's last expression, in the same form.
    Value,
    /// File contents, or a tunnel's bytes.
    Bytes,
    /// Directory entries: one [`Entry`] or [`crate::TreeEntry`] as JSON per line.
    Entries,
}

/// What the host can ask for. Each request opens one stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Gives a restored guest its clock, randomness and names. No user code runs before it.
    Identify(Identity),
    /// Adds variables to the environment of everything that starts from now on. Ends with `Done`.
    AddVariables {
        variables: BTreeMap<String, String>,
    },
    /// Starts a warm interpreter for `language` that has done `imports`, before a snapshot. Ends with `Done`.
    Warm {
        language: Language,
        imports: Vec<String>,
    },

    /// Waits until a warm interpreter of `language` is ready, if the guest keeps any. Ends with `Done`.
    Settle {
        language: Language,
    },

    /// Starts a command and attaches to it. The same id never starts twice: a second `Run` only attaches.
    Run(ExecSpec),
    /// Attaches to a command and replays its output from byte `from` on, or from the oldest byte that is still kept.
    Attach {
        exec: String,
        from: u64,
    },
    /// Sends a signal to a command's whole process group.
    Signal {
        exec: String,
        signal: i32,
    },
    Resize {
        exec: String,
        size: TerminalSize,
    },
    /// Lists running commands and the finished ones whose output is still kept.
    ListExecs,
    /// Deletes a finished command's record and output.
    Forget {
        exec: String,
    },

    /// Sends a file's bytes as `Part::Bytes`. Ends with `Read`.
    ReadFile {
        path: String,
        offset: u64,
        length: Option<u64>,
    },
    /// Takes a file's bytes as `Data` until `Finish`. Ends with `Written`.
    WriteFile {
        path: String,
        write: WriteMode,
        mode: Option<u32>,
        user: Option<String>,
        /// Replaces the file's metadata. A guest that does not know it keeps none, which [`crate::Entry`] then shows.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        metadata: BTreeMap<String, String>,
    },
    /// Sends the entries of a directory as `Part::Entries`; `depth` 1 lists the directory only. Ends with `Listed`.
    ListDir {
        path: String,
        depth: u32,
    },
    /// Sends everything below `path` on its file system as `Part::Entries`, one [`crate::TreeEntry`] as JSON per line,
    /// unordered. Leaves out the paths in `skip` and everything below them. Ends with `Listed`.
    Walk {
        path: String,
        skip: Vec<String>,
    },
    /// Freezes all user processes for good, because the host only wants to read the machine's files.
    #[serde(rename = "stand_still")]
    Freeze,
    Stat {
        path: String,
    },
    /// The new directories belong to `user`. Absent: to root.
    MakeDir {
        path: String,
        mode: Option<u32>,
        parents: bool,
        #[serde(default)]
        user: Option<String>,
    },
    Move {
        from: String,
        to: String,
    },
    Remove {
        path: String,
        recursive: bool,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    /// Sends an `Event::Changed` for each change until cancelled.
    Watch {
        path: String,
        recursive: bool,
    },

    /// Starts a context. Ends with `Context`.
    CreateContext(ContextSpec),
    /// Runs a cell: sends `Stdout`, `Stderr`, `Results` and `Value`. Ends with `Cell`.
    RunCell(CellSpec),
    /// Interrupts the cell that a context is running.
    Interrupt {
        context: String,
    },
    /// Replaces a context's interpreter by a new one. The id stays; the variables are lost.
    RestartContext {
        context: String,
    },
    CloseContext {
        context: String,
    },
    ListContexts,

    /// A TCP connection to a port on the guest's loopback, as a stream of bytes.
    Connect {
        port: u16,
    },
    /// Lists the TCP ports that have a listener.
    ListPorts,
    Usage,
    /// Writes dirty file data to the disk.
    Sync,
    /// Grows the root file system to fill its disk, as soon as the disk has this many bytes.
    GrowDisk {
        bytes: u64,
    },

    /// Mounts the volume in that slot at a directory, which is created if it does not exist. If the volume is mounted
    /// there already, only `read_only` is applied.
    MountVolume {
        slot: u32,
        path: String,
        read_only: bool,
    },
    /// Flushes the volume in that slot and unmounts it everywhere. A mount that is in use is detached, so that only its
    /// users still see it, and the answer is [`FailureKind::Busy`].
    UnmountVolume {
        slot: u32,
        /// The disk is gone, so the guest does not try to flush it.
        lost: bool,
    },

    /// Continues the upload that another stream receives with the bytes of a disk. Ends with `Done` when they are in the
    /// file. If they cannot be, the upload fails as well.
    TakeDisk {
        upload: StreamId,
        disk: LentDisk,
    },

    /// A request of a later generation. The guest answers with [`FailureKind::Unsupported`].
    #[serde(other)]
    Unknown,
}

impl Request {
    /// The generation that introduced the request, or the newest field of it that a guest must not ignore.
    pub fn since(&self) -> u32 {
        match self {
            Self::TakeDisk { .. } => generation::TAKES_DISKS,
            _ => 1,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The command runs. `existing`: it was started by an earlier request.
    Started {
        pid: u32,
        existing: bool,
    },
    /// This many bytes before the next `Data` are no longer kept.
    Dropped {
        bytes: u64,
    },
    Changed(Change),
    /// A tunnel is connected, or a watch is in place.
    Connected,
}

/// How a stream ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok(Response),
    Failed(Failure),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub enum Response {
    Done,
    Identified(Proof),
    Exited(Exit),
    Execs {
        execs: Vec<ExecInfo>,
    },
    /// `size` is the size of the whole file when it was opened.
    Read {
        bytes: u64,
        size: u64,
    },
    Written {
        bytes: u64,
    },
    Entry(Entry),
    /// The end of a listing, with the number of entries sent.
    Listed {
        entries: u64,
    },
    Context(ContextInfo),
    Contexts {
        contexts: Vec<ContextInfo>,
    },
    Cell(CellReport),
    Ports {
        ports: Vec<u16>,
    },
    Usage(Usage),
}

/// Why a request failed, in words for the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

impl Failure {
    /// The answer to a request that the guest agent does not know.
    pub fn unknown_request() -> Self {
        let message =
            "the sandbox's guest agent is too old for this; create a new sandbox from the template".to_owned();
        Self { kind: FailureKind::Unsupported, message }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    NotFound,
    AlreadyExists,
    PermissionDenied,
    NotADirectory,
    IsADirectory,
    NotEmpty,
    NoSpace,
    Invalid,
    TooLarge,
    /// There are too many at once, or the object is in use.
    Busy,
    /// The template lacks the interpreter or program, or the guest agent does not know the request.
    Unsupported,
    Refused,
    Other,
}
