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
