//! What host and guest say to each other over one byte channel per sandbox.
//!
//! The channel is a virtio-serial port. It can be cut at any byte (a restore, a fork, a daemon that died) and
//! start again, so frames are self-delimiting ([`frame`]) and a session begins with a [`ToGuest::Hello`] whose
//! nonce the guest repeats; whatever stood in the pipe before that answer belongs to an earlier session.
//!
//! After the greeting everything is a *stream*: the host opens one with a [`Request`], bytes flow both ways under
//! a credit window ([`WINDOW`]), and the guest ends it with an [`Outcome`]. This crate does no I/O.

mod context;
mod exec;
mod files;
pub mod frame;
mod identity;
mod message;

pub use context::{CellReport, CellSpec, CellStatus, ContextInfo, ContextSpec, Language, Traceback};
pub use exec::{ExecInfo, ExecSpec, ExecState, Exit, ExitReason, OnLimit, Program, Stdin, TerminalSize};
pub use files::{Change, ChangeKind, Entry, EntryKind, Walked, WriteMode};
pub use identity::{Identity, Limits, Proof, Usage};
pub use message::{Event, Failure, FailureKind, Outcome, Part, Request, Response, StreamId, ToGuest, ToHost};

/// Raised when an old peer could misread a new one; a host speaks every version it may find in a stored snapshot.
pub const VERSION: u32 = 1;

/// Bytes of [`ToHost::Data`] or [`ToGuest::Data`] that may be under way on one stream without a credit.
pub const WINDOW: usize = 256 * 1024;

/// How large a `Data` body the peers of this crate send; receivers accept up to [`frame::MAX_FRAME`].
pub const CHUNK: usize = 32 * 1024;

/// The virtio-serial port's name, by which the guest finds it under `/sys/class/virtio-ports`.
pub const PORT_NAME: &str = "sandling.control";
