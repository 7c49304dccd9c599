//! Unpacks layers in a process of its own that can do nothing else.
//!
//! The caller's program is executed again with [`UNPACK_ARGUMENT`] and calls [`unpack_main`] before anything else. That
//! process has an empty environment, the open layers, the open disk, and a pipe to report to. It enters new namespaces
//! with an empty root directory, if the kernel allows that; gives up all privileges; and restricts itself with Landlock,
//! resource limits and a list of allowed system calls. Only then does it read the first byte of a layer.

mod child;
mod confine;
mod filter;
mod message;
mod parent;

pub use child::{UNPACK_ARGUMENT, unpack_main};
#[doc(hidden)]
pub use child::{Work, confined_main};
pub use parent::{Jail, JailError, Unpacked};
