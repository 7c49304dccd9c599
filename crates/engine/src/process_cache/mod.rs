//! The process cache: makes emulated machines fast from their first moment.
//!
//! A machine that is resumed from a cached process (`sandling_vmm::process_cache`) starts with everything translated. All
//! of this only saves time. If a cached process cannot be used, the machine is restored from device state. Each such
//! fallback is logged, counted by its [`Fallback`] reason, and recorded as an event of the sandbox that gets the machine.
//!
//! [`ProcessCache`] is the only way in: it captures, finds and loads processes, and decides which ones to trust.

mod cache;
mod fallback;
mod stored;

pub(crate) use cache::ProcessCache;
pub use fallback::Fallback;
pub(crate) use stored::{Cached, CapturedPages, StoredProcess, guest_memory_of};
