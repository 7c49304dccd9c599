//! The jail's settings.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cgroup::CgroupLimits;

/// Whether a machine may start without a layer of the jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requirement {
    Required,
    IfAvailable,
}

/// How programs are jailed. [`super::Program`] describes the program itself and what it can see.
#[derive(Debug, Clone)]
pub struct JailConfig {
    /// The binary that calls [`super::main`] when its first argument is [`super::ARGUMENT`].
    pub launcher: PathBuf,
    pub limits: Limits,
    /// Some hosts forbid user namespaces. Root can do without, because the machine's user is unprivileged anyway; other
    /// users cannot.
    pub user_namespace: Requirement,
}

impl JailConfig {
    /// A jail whose launcher is the running binary.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            launcher: std::env::current_exe()?,
            limits: Limits::default(),
            user_namespace: Requirement::Required,
        })
    }
}

/// What the jailed program may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The largest file that it may write: at least as large as the guest's memory and its disk.
    pub file_bytes: u64,
    /// Open descriptors; at most [`super::program::EXEC_FD`], so that the program cannot exec again.
    pub open_files: u64,
    /// Processes and threads of the machine's user, counted in its own user namespace.
    pub tasks: u64,
    pub address_space_bytes: Option<u64>,
    /// Enforced by control groups where the host lets us create them.
    pub cgroup: CgroupLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 64 << 30,
            open_files: 512,
            tasks: 256,
            address_space_bytes: None,
            cgroup: CgroupLimits { tasks: Some(256), ..CgroupLimits::default() },
        }
    }
}
