//! The order of the boot.

use std::path::Path;
use std::time::Duration;

use super::{machine, mounts, ramdisk};
use crate::agent::{Agent, Setup};
use crate::cgroup::{self, Cgroups};
use crate::console;
use crate::usage;

/// The agent's own files, in memory.
const FOLDER: &str = "/run/sandling";

/// Why the machine could not boot.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("cannot {step}: {source}")]
    Step { step: String, source: std::io::Error },
    #[error("the disk {0} did not appear")]
    NoDisk(&'static str),
}

/// Adds the step that failed to an error.
pub trait During<T> {
    fn during(self, step: impl FnOnce() -> String) -> Result<T, BootError>;
}

impl<T, E: Into<std::io::Error>> During<T> for Result<T, E> {
    fn during(self, step: impl FnOnce() -> String) -> Result<T, BootError> {
        self.map_err(|error| BootError::Step { step: step(), source: error.into() })
    }
}

/// Boots and serves. If the boot fails, prints the reason on the console and waits for the host to end the machine.
pub fn boot_and_serve() -> ! {
    match boot() {
        Ok(agent) => agent.serve(),
        Err(error) => loop {
            console::log(&format!("the sandbox cannot start: {error}"));
            std::thread::sleep(Duration::from_secs(10));
        },
    }
}

fn boot() -> Result<Agent, BootError> {
    if Path::new(ramdisk::MODULES).exists() {
        ramdisk::move_to_disk()?;
    }
    mounts::mount_all()?;
    console::use_kernel_log();
    machine::configure()?;
    machine::mount_names(Path::new(FOLDER))?;
    let cgroups = Cgroups::new(Path::new(cgroup::ROOT), usage::memory_available_bytes());
    // Without control groups, the machine still runs commands, with weaker limits.
    let cgroups = cgroups.unwrap_or_else(|error| {
        console::log(&format!("cannot set up control groups: {error}"));
        Cgroups::default()
    });
    Agent::new(Setup::machine(Path::new(FOLDER), cgroups)).during(|| "start the agent".to_owned())
}
