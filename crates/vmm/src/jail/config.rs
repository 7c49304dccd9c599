//! What a caller may choose about the jail.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cgroup::CgroupLimits;

/// Whether a start fails without a layer of the jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requirement {
    Required,
    IfAvailable,
}

/// How programs are jailed. The program itself, and what it may see, is said elsewhere.
#[derive(Debug, Clone)]
pub struct JailConfig {
    /// The binary that calls [`super::main`] when its first argument is [`super::ARGUMENT`].
    pub launcher: PathBuf,
    /// The unprivileged user and group id that is this machine's own. Used, and needed, only if the caller is root.
    pub uid: Option<u32>,
    pub limits: Limits,
    /// Some hosts forbid user namespaces. Root can do without (the uid is unprivileged anyway), others cannot.
    pub user_namespace: Requirement,
}

impl JailConfig {
    /// A jail started by this very binary.
    pub fn new(uid: Option<u32>) -> std::io::Result<Self> {
        Ok(Self {
            launcher: std::env::current_exe()?,
            uid,
            limits: Limits::default(),
            user_namespace: Requirement::Required,
        })
    }
}

/// What the jailed program may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The largest file it may write: at least the guest's memory and its disk.
    pub file_bytes: u64,
    /// Open descriptors; at most [`super::program::EXEC_FD`], which is what makes its one exec the last.
    pub open_files: u64,
    /// Processes and threads of the machine's user in its own user namespace.
    pub tasks: u64,
    pub address_space_bytes: Option<u64>,
    /// Held by control groups where the host has them for us.
    pub cgroup: CgroupLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 64 << 30,
            open_files: 512,
            tasks: 256,
            address_space_bytes: None,
            cgroup: CgroupLimits { memory_bytes: None, cpu_milli: None, tasks: Some(256) },
        }
    }
}
