//! One virtual machine: which accelerator runs it, the jail around it, QEMU itself and the way to talk to it.
//!
//! This crate knows no sandboxes, no templates and nothing of what is said over the control channel. A
//! [`machine::Machine`] is started from a [`machine::MachineConfig`], outlives the process that started it, and
//! can be taken over by a later one.
//!
//! ```text
//!   caller ──spec──▶ launcher __jail = keeper ──fork──▶ QEMU   (pid 1 of its own namespaces)
//!      │                        │ deadline, logs, exit.json       ▲
//!      └────────────────────────┴──────────── QMP, control ───────┘
//! ```

pub mod accelerator;
pub mod boundary;
mod cgroup;
pub mod disk;
pub mod jail;
pub mod machine;
pub mod memory;
mod process;
pub mod qmp;
pub mod thaw;
