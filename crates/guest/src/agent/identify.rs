//! Giving a restored guest its identity: clock, randomness and names.
//!
//! This is part of every create, so it starts no process and waits for nothing. The line that reseeds an interpreter is
//! queued before any line that makes the interpreter run code. Interpreters that run a user's code already get it at once.
//! Interpreters that wait to be claimed are not woken for it.

use sandling_protocol::{Failure, FailureKind, Identity, Proof};

use super::state::Agent;
use crate::clock;
use crate::console;
use crate::failure::{failure, io_failure};
use crate::identity::{MIN_ENTROPY_BYTES, from_hex, hostname, reseed_line};
use crate::interpreters::Role;

impl Agent {
    pub fn identify(&mut self, identity: Identity) -> Result<Proof, Failure> {
        let entropy = from_hex(&identity.entropy).filter(|entropy| entropy.len() >= MIN_ENTROPY_BYTES);
        let entropy =
            entropy.ok_or_else(|| failure(FailureKind::Invalid, "entropy must be 32 bytes or more, in hex"))?;
        let mut kernel_reseeded = false;
        // In tests, the machine is not a sandbox and keeps its clock and names.
        if let Some(names) = &mut self.names {
            clock::set_unix_nanos(identity.unix_nanos).map_err(|error| io_failure("setting the clock", &error))?;
            let reseeded =
                names.reseed_kernel(&entropy).inspect_err(|e| console::log(&format!("cannot reseed the kernel: {e}")));
            kernel_reseeded = reseeded.is_ok();
            names.write(&identity).map_err(|error| io_failure("setting the names", &error))?;
            let limited = self.cgroups.limit_pids(identity.limits.pids);
            limited.map_err(|error| io_failure("setting the limits", &error))?;
        }
        if let Some(variables) = identity.env {
            self.variables = variables;
        }
        let (interpreters, interpreters_reseeded) = self.reseed_interpreters();
        let unix_nanos = clock::unix_nanos();
        Ok(Proof { unix_nanos, kernel_reseeded, interpreters, interpreters_reseeded, hostname: hostname() })
    }

    /// Makes every live interpreter reseed. Returns how many there are and how many will reseed.
    fn reseed_interpreters(&mut self) -> (u32, u32) {
        let mut count = (0, 0);
        // A script does not read its control socket: like any other process, it keeps its state.
        let mut in_use = Vec::new();
        for interpreter in self.interpreters.iter_mut().filter(|interpreter| interpreter.listens()) {
            count.0 += 1;
            match interpreter.role {
                Role::Zygote | Role::Spare => {
                    interpreter.control.send_with_next(reseed_line().as_bytes());
                    count.1 += 1;
                }
                Role::Script { .. } | Role::Context { .. } => in_use.push(interpreter.key),
            }
        }
        for key in in_use {
            self.send_line(key, reseed_line().as_bytes());
            count.1 += u32::from(self.interpreters.get(key).is_some());
        }
        count
    }
}
