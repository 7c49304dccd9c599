//! Making a restored guest itself: its clock, its randomness, its names.
//!
//! On the way of every create, so it starts nothing and waits for nothing. Interpreters are not waited for either:
//! the line that reseeds them goes before any line that makes them run code. Those that run somebody's code already
//! get it at once; those that only wait to be claimed are not even woken for it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::rand::{GetRandomFlags, getrandom};
use sandling_protocol::{Failure, FailureKind, Identity, Proof};

use crate::agent::Agent;
use crate::clock;
use crate::console;
use crate::failure::{failure, io_failure};
use crate::interpreters::Role;

/// `_IOW('R', 3, int[2])`: credits entropy to the kernel's generator.
const RNDADDENTROPY: libc::c_ulong = 0x4008_5203;
/// `_IO('R', 7)`: makes the generator use it at once.
const RNDRESEEDCRNG: libc::c_ulong = 0x5207;

const LEAST_ENTROPY_BYTES: usize = 32;
const MOST_ENTROPY_BYTES: usize = 512;

pub const MACHINE_ID: &str = "machine-id";
pub const BOOT_ID: &str = "boot-id";
pub const HOSTNAME: &str = "hostname";

/// What the kernel takes: a header and the bytes.
#[repr(C)]
struct Pool {
    entropy_bits: libc::c_int,
    bytes: libc::c_int,
    data: [u8; MOST_ENTROPY_BYTES],
}

/// What a machine's identity is written to, held open: in a guest that was just restored all code is new to the
/// emulator, and an open is a lot of it.
pub struct Names {
    /// What `/etc` and `/proc` show; see [`crate::boot`].
    files: [File; 3],
    /// What was last written there.
    written: [String; 3],
    /// The kernel's random generator.
    random: File,
}

impl Names {
    pub fn open(folder: &Path) -> io::Result<Self> {
        let writable = |path: &Path| File::options().write(true).open(path);
        let [machine_id, boot_id, hostname] = [MACHINE_ID, BOOT_ID, HOSTNAME].map(|name| writable(&folder.join(name)));
        let files = [machine_id?, boot_id?, hostname?];
        Ok(Self { files, written: Default::default(), random: writable(Path::new("/dev/urandom"))? })
    }

    /// A standby has its names before somebody claims it.
    fn write(&mut self, identity: &Identity) -> io::Result<()> {
        if hostname() != identity.hostname {
            rustix::system::sethostname(identity.hostname.as_bytes())?;
        }
        let names = [&identity.machine_id, &identity.boot_id, &identity.hostname];
        for ((file, written), name) in self.files.iter().zip(&mut self.written).zip(names) {
            if written == name {
                continue;
            }
            let line = format!("{name}\n");
            file.write_all_at(line.as_bytes(), 0)?;
            if file.metadata()?.len() != line.len() as u64 {
                file.set_len(line.len() as u64)?;
            }
            written.clone_from(name);
        }
        Ok(())
    }

    fn reseed_kernel(&self, entropy: &[u8]) -> io::Result<()> {
        let mut data = [0; MOST_ENTROPY_BYTES];
        let length = entropy.len().min(MOST_ENTROPY_BYTES);
        data[..length].copy_from_slice(&entropy[..length]);
        let pool = Pool { entropy_bits: (length * 8) as libc::c_int, bytes: length as libc::c_int, data };
        // SAFETY: `pool` has the layout of `rand_pool_info` and holds as many bytes as it says; the second takes none.
        let failed = unsafe {
            libc::ioctl(self.random.as_raw_fd(), RNDADDENTROPY, &raw const pool) != 0
                || libc::ioctl(self.random.as_raw_fd(), RNDRESEEDCRNG) != 0
        };
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Agent {
    pub fn identify(&mut self, identity: Identity) -> Result<Proof, Failure> {
        let entropy = from_hex(&identity.entropy).filter(|entropy| entropy.len() >= LEAST_ENTROPY_BYTES);
        let entropy =
            entropy.ok_or_else(|| failure(FailureKind::Invalid, "entropy must be 32 bytes or more, in hex"))?;
        let mut kernel_reseeded = false;
        // A machine that is somebody else's keeps its clock and names.
        if let Some(names) = &mut self.names {
            clock::set_unix_nanos(identity.unix_nanos).map_err(|error| io_failure("setting the clock", &error))?;
            let reseeded = names.reseed_kernel(&entropy).inspect_err(|e| console::say(&format!("no reseed: {e}")));
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

    /// Tells every live interpreter to reseed; returns how many there are and how many were told.
    fn reseed_interpreters(&mut self) -> (u32, u32) {
        let mut count = (0, 0);
        // A script does not listen: it is a process like any other, with whatever state it had.
        let mut in_use = Vec::new();
        for interpreter in self.interpreters.iter_mut().filter(|interpreter| interpreter.listens()) {
            count.0 += 1;
            match interpreter.role {
                Role::Zygote | Role::Spare => {
                    interpreter.control.owe(reseed_line().as_bytes());
                    count.1 += 1;
                }
                Role::Script { .. } | Role::Context { .. } => in_use.push(interpreter.key),
            }
        }
        for key in in_use {
            self.tell(key, reseed_line().as_bytes());
            count.1 += u32::from(self.interpreters.get(key).is_some());
        }
        count
    }
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The line that reseeds an interpreter.
pub fn reseed_line() -> String {
    format!("{{\"reseed\":\"{}\"}}", fresh_entropy())
}

/// New randomness for one interpreter, from the kernel.
pub fn fresh_entropy() -> String {
    let mut bytes = [0u8; LEAST_ENTROPY_BYTES];
    // The kernel's generator is ready long before this and then gives so few bytes at once, without fail.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |digit: u8| (digit as char).to_digit(16);
    digits.chunks_exact(2).map(|pair| Some((value(pair[0])? * 16 + value(pair[1])?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_read_strictly() {
        assert_eq!(from_hex("00fF10").unwrap(), [0, 255, 16]);
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
        assert_eq!(from_hex("+1"), None);
    }

    #[test]
    fn fresh_entropy_is_fresh() {
        assert_eq!(fresh_entropy().len(), 64);
        assert_ne!(fresh_entropy(), fresh_entropy());
    }
}
