//! A machine's names and randomness.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::rand::{GetRandomFlags, getrandom};
use sandling_protocol::Identity;

/// `_IOW('R', 3, int[2])`: credits entropy to the kernel's generator.
const RNDADDENTROPY: libc::c_ulong = 0x4008_5203;
/// `_IO('R', 7)`: makes the generator use it at once.
const RNDRESEEDCRNG: libc::c_ulong = 0x5207;

pub const MIN_ENTROPY_BYTES: usize = 32;
const MOST_ENTROPY_BYTES: usize = 512;

pub const MACHINE_ID: &str = "machine-id";
pub const BOOT_ID: &str = "boot-id";
pub const HOSTNAME: &str = "hostname";

/// The kernel's `rand_pool_info`: a header and the bytes.
#[repr(C)]
struct Pool {
    entropy_bits: libc::c_int,
    bytes: libc::c_int,
    data: [u8; MOST_ENTROPY_BYTES],
}

/// The files that hold a machine's identity. They stay open, because opening a file runs much kernel code, all of which
/// the emulator has to translate in a guest that was just restored.
pub struct Names {
    /// What `/etc` and `/proc` show, because the boot bind-mounts these files there.
    files: [File; 3],
    /// What was last written to each.
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

    /// Writes only what changed: a standby has its names before it is claimed.
    pub fn write(&mut self, identity: &Identity) -> io::Result<()> {
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

    pub fn reseed_kernel(&self, entropy: &[u8]) -> io::Result<()> {
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

pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The line that reseeds an interpreter.
pub fn reseed_line() -> String {
    format!("{{\"reseed\":\"{}\"}}", fresh_entropy())
}

/// Fresh randomness for one interpreter, from the kernel.
pub fn fresh_entropy() -> String {
    let mut bytes = [0u8; MIN_ENTROPY_BYTES];
    // Cannot fail: the kernel's generator is ready long before this and returns so few bytes at once.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn from_hex(text: &str) -> Option<Vec<u8>> {
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
    fn fresh_entropy_differs_each_time() {
        assert_eq!(fresh_entropy().len(), 64);
        assert_ne!(fresh_entropy(), fresh_entropy());
    }
}
