//! One virtual machine: its accelerator, the jail around it, QEMU itself and the connection to it.
//!
//! This crate knows neither sandboxes nor templates, nor the protocol of the control channel. A [`machine::Machine`] is
//! started from a [`machine::MachineConfig`], outlives the process that started it, and can be adopted by a later one.
//!
//! ```text
//!   caller ──spec──▶ launcher __jail ──clone──▶ supervisor ──fork──▶ QEMU   (each pid 1 of its own namespace)
//!      │                                            │ deadline, logs      ▲
//!      └────────────────────────────────────────────┴── QMP, control ─────┘
//! ```

pub mod accelerator;
pub mod boundary;
mod cgroup;
pub mod disk;
mod inherited;
pub mod jail;
pub mod machine;
pub mod memory;
mod pass_fd;
#[path = "../preload/plan.rs"]
mod plan;
mod process;
pub mod process_cache;
pub mod qmp;
mod trace;

pub use trace::TRACE_TARGET;
