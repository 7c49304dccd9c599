//! The jail: how a program that must not be trusted is started, and who keeps watch over it.
//!
//! The caller starts a fresh process, the launcher (its own binary with [`ARGUMENT`] as first argument), and sends
//! it a description of the jail. The launcher enters new namespaces, builds a file system that holds only what was
//! named, gives up its identity and every capability, and forks. The child adds resource limits, Landlock and
//! seccomp to that and becomes the program, as pid 1. The launcher stays as its *supervisor*: it ends the program at its
//! deadline, bounds its logs and writes down how it ended, whether or not the caller still lives.
//!
//! What always holds: the program never has a privilege, a capability, a network, a path or a descriptor that the
//! description did not name; it dies with its supervisor; it can execute nothing else.

mod cable;
mod config;
mod directory;
mod entry;
mod filesystem;
mod identity;
mod landlock_rules;
mod launch;
mod limits;
mod log;
mod memory_open;
mod program;
mod resources;
mod seccomp;
mod spec;
mod supervisor;
mod survey;

pub(crate) use cable::receive as receive_cable;
pub use config::{JailConfig, Limits, Requirement};
pub use directory::MachineDir;
pub use entry::main;
pub use landlock_rules::Landlock;
pub(crate) use launch::Processes;
pub use launch::{Jailed, LaunchError, launch};
pub use spec::{Inherit, Layer, Linkage, Program};
pub use supervisor::ExitReport;
pub use survey::{HostLayer, survey};

/// The first argument that makes a binary call [`main`] instead of doing anything else.
pub const ARGUMENT: &str = "__jail";

/// The descriptor number of a program's first [`Inherit`]; the others follow.
pub const FIRST_INHERITED: i32 = 3;

/// Where the machine's own files are, for the program.
pub const FILES: &str = "/vm";

/// Where the read-only layers are, for the program.
pub const LAYERS: &str = "/layers";

/// Where the library is that is loaded into the program: see [`Program::preload`].
pub const PRELOAD: &str = "/preload.so";

/// The layer that is opened for writing by QEMU but never written: see [`Program::memory`].
pub const MEMORY: &str = "/layers/memory";
