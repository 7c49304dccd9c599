//! What caller and launcher tell each other, as one line of JSON each way.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::THAW;
use super::config::{Limits, Requirement};
use super::landlock_rules::Landlock;

/// A read-only file that the program finds at `/layers/NAME`, wherever it lies on the host.
///
/// It must be readable by the machine's own user; its directory need not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub name: String,
    pub path: PathBuf,
}

/// A descriptor that the program is born with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inherit {
    /// A listening Unix socket of that name in [`super::MachineDir::keeper`], bound before the program runs, so that
    /// whoever connects early waits in the queue instead of finding nothing.
    Listen { name: String },
    /// A file, opened for reading with the caller's rights.
    Read { path: PathBuf },
    /// One end of a pair of datagram sockets. The keeper hands the other to whoever connects to the socket of that name
    /// in [`super::MachineDir::keeper`].
    Cable { name: String },
    /// A file, opened for reading and writing with the caller's rights.
    ReadWrite { path: PathBuf },
    /// A stream whose other end is gone.
    Closed,
    /// A stream whose bytes the keeper writes to `console.log`, as far as that is bounded.
    Console,
}

/// The program to run, and all of the host that it gets to see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<String>,
    /// Read-only directories that keep their path.
    pub data: Vec<PathBuf>,
    pub layers: Vec<Layer>,
    /// Layers with code in them that may be run.
    pub code: Vec<Layer>,
    /// Guest memory, read with the caller's rights. QEMU opens it for writing although it maps it privately, so
    /// the keeper answers that one open with a read-only descriptor.
    pub memory: Option<PathBuf>,
    /// Numbered from [`super::FIRST_INHERITED`] on.
    pub inherit: Vec<Inherit>,
    /// Whether `/dev/kvm` is there.
    pub kvm: bool,
    /// Whether it is the one that becomes a program that was kept (`preload/thaw.rs`). It needs no library, it is found
    /// at [`super::THAW`], and the kernel puts it, and its heap, where it always does.
    pub thaws: bool,
    /// A shared library that is loaded into the program before its own code runs.
    pub preload: Option<PathBuf>,
    /// All of the program's environment, but for what names the library.
    pub environment: Vec<(String, String)>,
}

impl Program {
    /// Where it is, inside.
    pub(super) fn place(&self) -> &Path {
        if self.thaws { Path::new(THAW) } else { &self.path }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    pub program: Program,
    pub directory: PathBuf,
    pub uid: Option<u32>,
    pub limits: Limits,
    pub user_namespace: Requirement,
    pub cgroups: Vec<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    Started { pid: i32, landlock: Landlock },
    Failed { step: String, reason: String },
}

/// Sent by the caller when it has a handle on both processes; until then the keeper lets no dead program go, or its
/// pid could be another's before the caller looked.
pub(super) const SEEN: &[u8; 5] = b"seen\n";

/// Sent by the caller when it has written down what was started; a keeper that does not get it ends the program.
pub(super) const KEEP: &[u8; 5] = b"keep\n";

/// A step of the launcher that failed.
#[derive(Debug)]
pub(super) struct StepError {
    pub step: String,
    pub error: std::io::Error,
}

/// Names the step in which a system call failed.
pub(super) trait Step<T> {
    fn step(self, step: impl Into<String>) -> Result<T, StepError>;
}

impl<T, E: Into<std::io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: impl Into<String>) -> Result<T, StepError> {
        self.map_err(|error| StepError { step: step.into(), error: error.into() })
    }
}
