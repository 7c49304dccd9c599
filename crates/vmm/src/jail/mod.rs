//! The jail: starts an untrusted program and supervises it.
//!
//! The caller starts a new process, the launcher (its own binary with [`ARGUMENT`] as first argument), and sends it a
//! description of the jail. The launcher enters new namespaces, starts the *supervisor* in them and ends. The supervisor
//! builds a file system with only what the description names, gives up its identity and every capability, and forks. The
//! child adds resource limits, Landlock and seccomp, and becomes the program, as pid 1. The supervisor ends the program
//! at its deadline, bounds its logs and records how it ended, whether or not the caller is still alive.
//!
//! Invariants: the program has no privilege, capability, network, path or descriptor that the description does not
//! name; it dies with its supervisor; it cannot execute another program.

mod cable;
mod config;
mod death;
mod directory;
mod entry;
mod filesystem;
mod identity;
mod ioctl;
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
mod users;

pub(crate) use cable::receive as receive_cable;
pub use config::{JailConfig, Limits, Requirement};
pub use death::Death;
pub use directory::MachineDir;
pub use entry::main;
pub use landlock_rules::Landlock;
pub(crate) use launch::Processes;
pub use launch::{Jailed, LaunchError, launch};
pub(crate) use spec::is_plain_name;
pub use spec::{Inherit, Layer, Linkage, Program};
pub use survey::{HostLayer, survey, unlimited};
pub(crate) use users::claim as claim_user;

/// The first argument with which a binary must call [`main`].
pub const ARGUMENT: &str = "__jail";

/// The descriptor number of a program's first [`Inherit`]; the others follow.
pub const FIRST_INHERITED: i32 = 3;

/// The devices that every program has.
pub(crate) const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/urandom"];

/// Where the program finds the machine's own files.
pub const FILES: &str = "/vm";

/// Where the program finds the read-only layers.
pub const LAYERS: &str = "/layers";

/// Where the program finds the library that is loaded into it: see [`Program::preload`].
pub const PRELOAD: &str = "/preload.so";

/// The layer that QEMU opens for writing but never writes: see [`Program::memory`].
pub const MEMORY: &str = "/layers/memory";
