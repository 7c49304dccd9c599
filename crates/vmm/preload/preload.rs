//! Preloaded into a restored QEMU: maps saved pages over the base of guest memory, and copies the process on request.
//!
//! QEMU maps one file as guest memory and has no notion of layers, and it cannot leave a copy of itself behind. Both
//! take a few lines inside its process. There is no standard library here, no allocation and nothing that can panic: a
//! failure ends QEMU before its guest has run, with a line in its log.
//!
//! - Guest memory is the private mapping of `SANDLING_MEMORY` bytes. The library maps each record of
//!   `/layers/memory.map` (guest offset, length, layer, offset in the layer; four little-endian `u64`) over it from
//!   `/layers/memory.LAYER`, privately, so that all machines share the pages that none has written.
//! - A caller connects to the socket `SANDLING_COPY_FD` and sends how many threads to record, and their ids (all
//!   `u32`). The library then forks. The copy sends the address and the length of guest memory and the address of the
//!   threads' [`Table`](context::Table) (three `u64`), and waits until the caller closes the connection. The caller has stopped the
//!   guest, reads the copy's memory from outside, and lets the original continue meanwhile.
//! - A signal makes a thread record itself: the handler stores the registers that a call preserves, and waits until the
//!   copy is made. `resume.rs` makes the same threads in another process with this memory; there the handlers return, and
//!   the threads continue as after any signal.
//! - A resumed process may start while the pages of its topmost layer are still being appended to their file. An access
//!   to a page behind the file's end raises SIGBUS; the handler waits, and the access is tried again. A system call that
//!   QEMU gives such a page fails with EFAULT instead, so the calls that QEMU makes on guest memory are wrapped.

#![no_std]
#![crate_type = "cdylib"]

mod context;
mod copy;
mod guest_memory;
mod late_pages;
mod plan;
mod system;

use core::ffi::{CStr, c_int};
use core::sync::atomic::Ordering::SeqCst;

use copy::{COPY_FD, serve};
use guest_memory::BYTES;
use system::{SYS_GETRANDOM, fail, getenv, mallopt, pthread_create, syscall};

const M_TRIM_THRESHOLD: c_int = -1;
const NEVER: c_int = -1;
const GNUTLS_E_RANDOM_FAILED: c_int = -206;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    BYTES.store(number(c"SANDLING_MEMORY"), SeqCst);
    COPY_FD.store(number(c"SANDLING_COPY_FD"), SeqCst);
    // A resumed process cannot give parts of its heap back to the kernel; see `malloc_trim`.
    // SAFETY: two numbers, before QEMU has any thread.
    unsafe { mallopt(M_TRIM_THRESHOLD, NEVER) };
    let mut thread = 0;
    // SAFETY: a function that runs for as long as the process, without an argument.
    if unsafe { pthread_create(&mut thread, core::ptr::null(), serve, core::ptr::null_mut()) } != 0 {
        fail(c"sandling: cannot start the thread that makes copies\n");
    }
}

/// Gives nothing back to the kernel: in a resumed process the kernel does not know of this heap, and the C library
/// would lose count of it.
#[unsafe(no_mangle)]
extern "C" fn malloc_trim(_: usize) -> c_int {
    0
}

/// Gives QEMU random bytes for its guest (`rdrand`) from the kernel. The TLS library's own generator would return the
/// same bytes in every process that is resumed from one copy.
#[unsafe(no_mangle)]
extern "C" fn gnutls_rnd(_level: c_int, bytes: *mut u8, length: usize) -> c_int {
    let mut filled = 0;
    while filled < length {
        // SAFETY: the caller's buffer, from the first byte that is not filled yet.
        match unsafe { syscall(SYS_GETRANDOM, bytes.add(filled), length - filled, 0usize) } {
            count if count > 0 => filled += count as usize,
            _ => return GNUTLS_E_RANDOM_FAILED,
        }
    }
    0
}

fn number(name: &CStr) -> usize {
    // SAFETY: the environment is not changed while QEMU starts.
    let text = unsafe { getenv(name.as_ptr()) };
    if text.is_null() {
        fail(c"sandling: the preloaded library needs SANDLING_MEMORY and SANDLING_COPY_FD\n");
    }
    // SAFETY: a NUL-terminated string of the environment.
    let digits = unsafe { CStr::from_ptr(text) }.to_bytes();
    digits.iter().fold(0usize, |sum, digit| sum.wrapping_mul(10).wrapping_add(digit.wrapping_sub(b'0') as usize))
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    fail(c"sandling: the preloaded library panicked\n")
}
