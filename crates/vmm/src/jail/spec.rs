//! The messages between caller and launcher: packets of JSON on one socket.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::config::{Limits, Requirement};
use super::landlock_rules::Landlock;

/// A read-only file that the program finds at `/layers/NAME`, wherever it is on the host.
///
/// The machine's own user must be able to read the file, but not its directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub name: String,
    pub path: PathBuf,
}

/// Whether a name is that of a visible file in the directory to which it is added.
pub(crate) fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('/')
}

/// A descriptor that the program inherits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inherit {
    /// A listening Unix socket of that name in [`super::MachineDir::supervisor`]. It is bound before the program runs,
    /// so a client that connects early waits in the queue.
    Listen { name: String },
    /// A file, opened for reading with the caller's rights.
    Read { path: PathBuf },
    /// One end of a pair of datagram sockets. The supervisor hands the other end to each client that connects to the
    /// socket of that name in [`super::MachineDir::supervisor`].
    Cable { name: String },
    /// A file, opened for reading and writing with the caller's rights.
    ReadWrite { path: PathBuf },
    /// A stream whose other end is gone.
    Closed,
    /// A stream whose bytes the supervisor writes to `console.log`, which is bounded.
    Console,
}

/// How a program is linked, which decides what the jail must have for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Linkage {
    /// It is at its own path, beside the loader and the shared libraries.
    Dynamic,
    /// It is at `place`, without any library, and the kernel does not randomize its addresses.
    Static { place: PathBuf },
}

/// The program to run, and all of the host that it can see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub path: PathBuf,
    pub linkage: Linkage,
    pub arguments: Vec<String>,
    /// Read-only directories that keep their path.
    pub data: Vec<PathBuf>,
    pub layers: Vec<Layer>,
    /// Layers from which code may be executed.
    pub code: Vec<Layer>,
    /// Guest memory, opened with the caller's rights. QEMU opens it for writing although it maps it privately, so the
    /// supervisor answers that one open with a read-only descriptor.
    pub memory: Option<PathBuf>,
    /// Numbered from [`super::FIRST_INHERITED`] on.
    pub inherit: Vec<Inherit>,
    /// Whether the program gets `/dev/kvm`.
    pub kvm: bool,
    /// A shared library that is loaded into the program before its own code runs.
    pub preload: Option<PathBuf>,
    /// The program's whole environment, except the variable that names the library.
    pub environment: Vec<(String, String)>,
}

impl Program {
    /// Its path in the jail.
    pub(super) fn place(&self) -> &Path {
        match &self.linkage {
            Linkage::Dynamic => &self.path,
            Linkage::Static { place } => place,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    pub program: Program,
    pub directory: PathBuf,
    pub limits: Limits,
    pub user_namespace: Requirement,
    /// The groups that the launcher joins itself. Callers of older versions ask for that.
    pub cgroups: Vec<PathBuf>,
    /// Whether the caller moves the launcher to its groups. The launcher starts no process before it hears [`JOINED`].
    #[serde(default)]
    pub joined_by_caller: bool,
}

/// What the caller hears, from the launcher and from the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The launcher's, with a pidfd of the supervisor.
    Supervisor,
    /// The supervisor's, with a pidfd of the program.
    Started { landlock: Landlock },
    /// Of either.
    Failed { step: String, reason: String },
}

/// The caller sends this when the launcher is in its control groups.
pub(super) const JOINED: &[u8; 5] = b"join\n";

/// The caller sends this when it has a handle on both processes. Until then the supervisor does not reap the program,
/// or the caller could not learn its pid.
pub(super) const SEEN: &[u8; 5] = b"seen\n";

/// The caller sends this when it has recorded the machine. If it never does, the supervisor ends the program.
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
