//! How much memory and disk space the host can still give.

mod memory;
mod space;

pub(crate) use memory::available_mib as available_memory_mib;
pub(crate) use space::available_mib as available_space_mib;
