//! Randomness from the operating system.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

fn try_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// `N` random bytes in hexadecimal, or the kernel's error.
pub(crate) fn try_hex<const N: usize>() -> io::Result<String> {
    try_bytes::<N>().map(|bytes| digits(&bytes))
}

/// `N` random bytes.
pub fn bytes<const N: usize>() -> [u8; N] {
    try_bytes().expect("the kernel's generator, once ready, does not fail")
}

/// `N` random bytes in hexadecimal.
pub fn hex<const N: usize>() -> String {
    digits(&bytes::<N>())
}

/// A random UUID.
pub fn uuid() -> String {
    let mut bytes = bytes::<16>();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = digits(&bytes);
    let [a, b, c, d, e] = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    format!("{a}-{b}-{c}-{d}-{e}")
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
