//! The messages themselves, in both directions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    CellReport, CellSpec, Change, ContextInfo, ContextSpec, Entry, ExecInfo, ExecSpec, Exit, Identity, Language, Proof,
    TerminalSize, Usage, WriteMode,
};

/// A stream's number, chosen by the host, never used twice in one session.
pub type StreamId = u32;

/// From the host. The body is named where a message has one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToGuest {
    /// Begins a session: streams of an earlier one are dropped, running commands are not.
    Hello { nonce: String, version: u32 },
    /// Opens a stream. Body: the code, for [`Request::Run`] of code and [`Request::RunCell`].
    Open { stream: StreamId, request: Request },
    /// Body: bytes for stdin, an upload, or a tunnel.
    Data { stream: StreamId },
    /// No more `Data` will come: end of stdin, of an upload, of this half of a tunnel.
    Finish { stream: StreamId },
    /// The host has consumed so many bytes of this stream's `Data`.
    Credit { stream: StreamId, bytes: u32 },
    /// The host no longer listens. A command runs on; an upload that was not finished leaves no trace.
    Cancel { stream: StreamId },
}

/// From the guest. Every byte of it is hostile to the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToHost {
    /// Answers the host's greeting with its nonce.
    Hello { nonce: String, version: u32 },
    /// Body: bytes of one part of the stream. `offset` counts this stream's bytes of all parts, replay included.
    Data { stream: StreamId, part: Part, offset: u64 },
    /// Something happened before the end.
    Event { stream: StreamId, event: Event },
    /// The guest has consumed so many bytes of this stream's `Data`.
    Credit { stream: StreamId, bytes: u32 },
    /// The last message of a stream.
    End { stream: StreamId, outcome: Outcome },
}

/// Which of a stream's byte sequences a `Data` belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Stdout,
    Stderr,
    /// A terminal's output, in which stdout and stderr are one.
    Terminal,
    /// Rich results that a cell displays: one JSON object (MIME type to string) per line.
    Results,
    /// The value of a cell's last expression, in the same form.
    Value,
    /// File contents, or a tunnel's bytes.
    Bytes,
    /// Directory entries: one [`Entry`] or [`crate::Walked`] as JSON per line.
    Entries,
}

/// What a host can ask for. Each opens one stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Makes a restored guest itself: clock, randomness, names. Nothing of the user runs before it.
    Identify(Identity),
    /// Gives everything that starts from now on these variables, too. Ends with `Done`.
    AddVariables {
        variables: BTreeMap<String, String>,
    },
    /// Starts a warm interpreter for `language` with `imports` done, before a snapshot. Ends with `Done`.
    Warm {
        language: Language,
        imports: Vec<String>,
    },

    /// Ends with `Done` when an interpreter of `language` waits to be used, if any is kept warm.
    Settle {
        language: Language,
    },

    /// Starts a command and attaches to it. The same id never starts twice: a second `Run` attaches.
    Run(ExecSpec),
    /// Attaches to a command, replaying its output from byte `from` on (or the oldest still kept).
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
    /// Drops a finished command's record and output.
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
    },
    /// Sends the entries of a directory as `Part::Entries`; `depth` 1 is the directory itself.
    ListDir {
        path: String,
        depth: u32,
    },
    /// Sends everything below `path` on its file system as `Part::Entries`, one [`crate::Walked`] as JSON per line, in
    /// no order; without what is at or below a path of `skip`. Ends with `Listed`.
    Walk {
        path: String,
        skip: Vec<String>,
    },
    /// Stops all of the user's processes for good: the machine is only to be looked at.
    StandStill,
    Stat {
        path: String,
    },
    /// What is made belongs to `user`; absent: to root.
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

    /// Starts a live interpreter. Ends with `Context`.
    CreateContext(ContextSpec),
    /// Runs a cell: `Stdout`, `Stderr`, `Results`, then `Cell`.
    RunCell(CellSpec),
    /// Interrupts what a context is running.
    Interrupt {
        context: String,
    },
    /// Replaces a context's interpreter by a new one; its variables are gone, its id stays.
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
    /// TCP ports somebody listens on.
    ListPorts,
    Usage,
    /// Writes dirty file data to the disk.
    Sync,
    /// Grows the root file system to fill its disk, which has so many bytes now or is about to.
    GrowDisk {
        bytes: u64,
    },

    /// Mounts the volume in that slot at a directory, which is made if it is not there. One that is mounted there
    /// already becomes as it is asked for: `read_only`, or not.
    MountVolume {
        slot: u32,
        path: String,
        read_only: bool,
    },
    /// Writes out what belongs to the volume in that slot and unmounts it everywhere. A mount that is in use goes for
    /// all but its users, and the answer is [`FailureKind::Busy`].
    UnmountVolume {
        slot: u32,
        /// Nothing can be written to it any more, so nothing is tried.
        lost: bool,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The command runs. `existing` if the same id had been started before.
    Started {
        pid: u32,
        existing: bool,
    },
    /// So many bytes before the next `Data` are no longer kept.
    Dropped {
        bytes: u64,
    },
    Changed(Change),
    /// A tunnel is connected, or a watch in place.
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
    /// `size` is the whole file's at the time it was opened.
    Read {
        bytes: u64,
        size: u64,
    },
    Written {
        bytes: u64,
    },
    Entry(Entry),
    /// A listing's end.
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

/// Why the guest could not do it, in words a user can be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
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
    /// Too many at once, or the thing is in use.
    Busy,
    /// The interpreter or program is not in this template.
    Unsupported,
    Refused,
    Other,
}
