//! From the kernel's first program to a machine that serves.
//!
//! In the initial ramdisk: the modules for the disk, then the disk, then everything moves onto it. There: the
//! file systems every program expects, a loopback interface and a network card, and names that can be changed after a restore.

mod card;
mod machine;
mod mounts;
mod ramdisk;
mod sequence;

pub use sequence::boot_and_serve;
