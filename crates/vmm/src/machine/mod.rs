//! A virtual machine: one jailed QEMU, its disk, its memory, and the connection to it.
//!
//! A [`Machine`] is a handle. The machine itself outlives the handle and the process that holds it. It ends on request,
//! when its deadline passes, when its guest powers off, or when QEMU or its supervisor dies; [`Machine::died`] reports
//! that.

mod adopt;
mod blocking;
mod command_line;
mod config;
mod connect;
mod control;
mod death;
mod emulator;
mod error;
mod fold;
mod freeze;
mod handle;
mod lend;
mod plug;
mod record;
mod start;
mod tenant;
mod usage;

pub use adopt::{check_record, is_alive, kill_leftover};
pub use config::{Disk, Hardware, MachineConfig, Start};
pub use emulator::{DEVICE_MODEL, emulator_fingerprint, emulator_version};
pub use error::MachineError;
pub use freeze::{Afterwards, FreezeError};
pub use handle::Machine;
pub use lend::{LENT_SLOT, Lent};
pub use plug::{Plug, PlugAccess, PlugSource};
pub use usage::{GuestPages, QuickUsage, Usage};

pub use crate::jail::{Death, Layer, MachineDir};
