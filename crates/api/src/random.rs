//! Randomness from the operating system.

use rustix::rand::{GetRandomFlags, getrandom};

/// `N` random bytes.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())
            .expect("the kernel's generator, once ready, does not fail");
    }
    bytes
}

/// `N` random bytes in hexadecimal.
pub(crate) fn hex<const N: usize>() -> String {
    bytes::<N>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A random UUID.
pub(crate) fn uuid() -> String {
    let mut bytes = bytes::<16>();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let [a, b, c, d, e] = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    format!("{a}-{b}-{c}-{d}-{e}")
}
