//! What the library needs of the kernel and of the C library.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};

unsafe extern "C" {
    pub fn syscall(number: c_long, ...) -> c_long;
    pub fn getenv(name: *const c_char) -> *const c_char;
    pub fn mallopt(parameter: c_int, value: c_int) -> c_int;
    pub fn pthread_create(
        thread: *mut usize,
        attributes: *const c_void,
        start: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    pub fn __errno_location() -> *mut c_int;
}

pub const SYS_READ: c_long = 0;
pub const SYS_WRITE: c_long = 1;
pub const SYS_CLOSE: c_long = 3;
pub const SYS_MMAP: c_long = 9;
pub const SYS_RT_SIGACTION: c_long = 13;
pub const SYS_RT_SIGPROCMASK: c_long = 14;
pub const SYS_PREAD64: c_long = 17;
pub const SYS_PWRITE64: c_long = 18;
pub const SYS_MADVISE: c_long = 28;
pub const SYS_SENDTO: c_long = 44;
pub const SYS_SENDMSG: c_long = 46;
pub const SYS_CLONE: c_long = 56;
pub const SYS_GETPID: c_long = 39;
pub const SYS_WAIT4: c_long = 61;
pub const SYS_ARCH_PRCTL: c_long = 158;
pub const SYS_GETTID: c_long = 186;
pub const SYS_FUTEX: c_long = 202;
pub const SYS_EXIT_GROUP: c_long = 231;
pub const SYS_TGKILL: c_long = 234;
pub const SYS_OPENAT: c_long = 257;
pub const SYS_ACCEPT4: c_long = 288;
pub const SYS_PREADV: c_long = 295;
pub const SYS_PWRITEV: c_long = 296;
pub const SYS_GETRANDOM: c_long = 318;

const AT_FDCWD: c_int = -100;
const O_CLOEXEC: c_int = 0o2_000_000;
pub const FUTEX_WAIT: usize = 128;
pub const FUTEX_WAKE: usize = 129;
pub const SIGBUS: c_int = 7;
pub const SA_RESTORER: usize = 0x0400_0000;

pub fn open(path: &CStr) -> c_int {
    // SAFETY: a NUL-terminated path.
    unsafe { syscall(SYS_OPENAT, AT_FDCWD as c_long, path.as_ptr(), O_CLOEXEC as c_long, 0 as c_long) as c_int }
}

pub fn close(fd: c_int) {
    // SAFETY: opened here, and used nowhere else.
    unsafe { syscall(SYS_CLOSE, fd as c_long) };
}

/// Reads until the buffer is full or the file ends; returns the number of bytes read.
pub fn fill(fd: c_int, buffer: &mut [u8]) -> usize {
    let mut length = 0;
    while length < buffer.len() {
        let rest = &mut buffer[length..];
        // SAFETY: a live buffer of that length.
        match unsafe { syscall(SYS_READ, fd as c_long, rest.as_mut_ptr(), rest.len()) } {
            read if read > 0 => length += read as usize,
            _ => break,
        }
    }
    length
}

pub fn fail(why: &CStr) -> ! {
    // SAFETY: a live string of that length; the process ends before anything else happens in it.
    unsafe {
        syscall(SYS_WRITE, 2 as c_long, why.as_ptr(), why.to_bytes().len());
        syscall(SYS_EXIT_GROUP, 1 as c_long);
    }
    loop {}
}
