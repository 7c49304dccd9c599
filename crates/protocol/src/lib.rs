//! The control protocol: what the host and the guest agent say to each other over one byte channel per sandbox.
//!
//! The channel is a virtio-serial port. A restore, a fork or a crash of the daemon can cut it at any byte, so frames are
//! self-delimiting ([`frame`]). A session begins with a [`ToGuest::Hello`] whose nonce the guest repeats. Whatever the
//! host reads before that answer belongs to an earlier session. The greeting also fixes the session's [`generation`].
//!
//! After the greeting everything is a *stream*: the host opens one with a [`Request`], bytes flow both ways under a credit
//! window ([`WINDOW`]), and the guest ends it with an [`Outcome`]. This crate does no I/O.

mod cobs;
mod context;
mod exec;
mod files;
pub mod frame;
pub mod generation;
mod identity;
mod message;

pub use context::{CellReport, CellSpec, CellStatus, ContextInfo, ContextSpec, Language, Traceback};
pub use exec::{ExecInfo, ExecSpec, ExecState, Exit, ExitReason, OnLimit, Program, Stdin, TerminalSize};
pub use files::{Change, ChangeKind, Entry, EntryKind, LentDisk, TreeEntry, WriteMode};
pub use identity::{Identity, Limits, Proof, Usage};
pub use message::{Event, Failure, FailureKind, Outcome, Part, Request, Response, StreamId, ToGuest, ToHost};

/// Bytes of [`ToHost::Data`] or [`ToGuest::Data`] that a peer may send on one stream before it needs a credit.
pub const WINDOW: usize = 256 * 1024;

/// The largest `Data` body that the peers of this crate send; receivers accept up to [`frame::MAX_FRAME`].
pub const CHUNK: usize = 32 * 1024;

/// The virtio-serial port's name, by which the guest finds it under `/sys/class/virtio-ports`.
pub const PORT_NAME: &str = "sandling.control";
