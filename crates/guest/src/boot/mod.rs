//! The boot: from the kernel's first program to an agent that serves.
//!
//! In the initial ramdisk, the agent loads the modules for the disk, mounts the disk and makes it the root. Then it
//! mounts the file systems that programs expect, brings up the loopback interface and the network card, and makes the
//! machine's names changeable.

mod card;
mod machine;
mod mounts;
mod ramdisk;
mod sequence;

pub use sequence::boot_and_serve;
