//! Real machines: QEMU, Debian's kernel, a test guest and the jail, on whatever host this runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod console;
mod death;
mod disk;
mod fixture;
mod inside;
mod lifecycle;
mod memory;
mod ordinary_user;
mod outlive;
mod outside;
