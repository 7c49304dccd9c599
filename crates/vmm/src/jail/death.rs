//! Why a jailed program ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a machine ended. The supervisor writes it to `exit.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Death {
    /// QEMU exited, with code 0 if the guest powered off, rebooted or panicked.
    Exited { code: i32 },
    /// A signal killed QEMU.
    Signalled { signal: i32 },
    /// The supervisor ended it at its deadline.
    Deadline,
    /// The supervisor was killed, and QEMU with it, so there is no report. The supervisor itself reports this if it ended
    /// QEMU because the caller died before it had recorded the machine.
    #[serde(rename = "keeper_lost", alias = "abandoned")]
    SupervisorLost,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "QEMU exited with code {code}"),
            Self::Signalled { signal } => write!(f, "QEMU was killed by signal {signal}"),
            Self::Deadline => f.write_str("its deadline passed"),
            Self::SupervisorLost => f.write_str("its supervisor was killed"),
        }
    }
}
