//! Pages of guest memory that are not in their file yet. A thread that needs one waits until it is written.

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::AtomicU32;

use crate::context::{Action, call};
use crate::guest_memory::is_guest_memory;
use crate::system::{
    __errno_location, FUTEX_WAIT, SA_RESTORER, SIGBUS, SYS_FUTEX, SYS_PREAD64, SYS_PREADV, SYS_PWRITE64, SYS_PWRITEV,
    SYS_RT_SIGACTION, SYS_RT_SIGPROCMASK, SYS_SENDMSG, SYS_SENDTO, syscall,
};

const SIG_DFL: usize = 0;
/// SIGBUS, and the signals that the C library never lets a program block.
const NEVER_BLOCKED: u64 = 1 << (SIGBUS - 1) | 1 << (32 - 1) | 1 << (33 - 1);
const EFAULT: c_int = 14;
const SA_SIGINFO: usize = 4;
const SA_RESTART: usize = 0x1000_0000;
const SA_NODEFER: usize = 0x4000_0000;

/// How long an access to a page that is not written yet waits before it is tried again.
const PAGE_PATIENCE_NS: usize = 300_000;
const PAGE: usize = 4096;

/// What a resumed process does about SIGBUS.
pub fn on_missing_page(after_signal: extern "C" fn()) -> Action {
    Action {
        handler: await_page as *const () as usize,
        flags: SA_SIGINFO | SA_NODEFER | SA_RESTORER | SA_RESTART,
        restorer: after_signal as *const () as usize,
        mask: 0,
    }
}

/// The handler of SIGBUS in a resumed process: waits a moment for a page of guest memory that is not in its file yet. The
/// access is tried again when this returns. An access to anything else is a bug, and the next one ends the process.
extern "C" fn await_page(_: c_int, information: *const usize, _: *const c_void) {
    // SAFETY: the third word of the kernel's description is the address. No call here touches `errno`.
    unsafe {
        if is_guest_memory(*information.add(2)) {
            let limit = [0usize, PAGE_PATIENCE_NS];
            static NEVER_WOKEN: AtomicU32 = AtomicU32::new(0);
            let word = NEVER_WOKEN.as_ptr() as usize;
            call(SYS_FUTEX as usize, [word, FUTEX_WAIT, 0, limit.as_ptr() as usize, 0, 0]);
        } else {
            let default = Action { handler: SIG_DFL, flags: SA_RESTORER, restorer: 0, mask: 0 };
            call(SYS_RT_SIGACTION as usize, [SIGBUS as usize, &raw const default as usize, 0, 8, 0, 0]);
        }
    }
}

/// QEMU's threads block all signals. A thread that blocks SIGBUS cannot wait for a page: the kernel ends the process.
#[unsafe(no_mangle)]
extern "C" fn pthread_sigmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    // SAFETY: QEMU's own sets, of which the kernel uses the first word.
    unsafe {
        let wanted = if set.is_null() { 0 } else { *set & !NEVER_BLOCKED };
        let set = if set.is_null() { 0 } else { &raw const wanted as usize };
        -(call(SYS_RT_SIGPROCMASK as usize, [how as usize, set, old as usize, 8, 0, 0]) as c_int)
    }
}

#[repr(C)]
struct Part {
    start: usize,
    bytes: usize,
}

#[unsafe(no_mangle)]
extern "C" fn pread64(fd: c_int, buffer: usize, bytes: usize, at: i64) -> isize {
    let part = Part { start: buffer, bytes };
    // SAFETY: the very call that QEMU made.
    with_pages(&part, 1, || unsafe { syscall(SYS_PREAD64, fd as c_long, buffer, bytes, at) })
}

#[unsafe(no_mangle)]
extern "C" fn pwrite64(fd: c_int, buffer: usize, bytes: usize, at: i64) -> isize {
    let part = Part { start: buffer, bytes };
    // SAFETY: the very call that QEMU made.
    with_pages(&part, 1, || unsafe { syscall(SYS_PWRITE64, fd as c_long, buffer, bytes, at) })
}

#[unsafe(no_mangle)]
extern "C" fn preadv64(fd: c_int, parts: *const Part, count: c_int, at: i64) -> isize {
    // SAFETY: the very call that QEMU made.
    with_pages(parts, count as usize, || unsafe {
        syscall(SYS_PREADV, fd as c_long, parts, count as c_long, at, 0usize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn pwritev64(fd: c_int, parts: *const Part, count: c_int, at: i64) -> isize {
    // SAFETY: the very call that QEMU made.
    with_pages(parts, count as usize, || unsafe {
        syscall(SYS_PWRITEV, fd as c_long, parts, count as c_long, at, 0usize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn send(fd: c_int, buffer: usize, bytes: usize, flags: c_int) -> isize {
    sendto(fd, buffer, bytes, flags, 0, 0)
}

#[unsafe(no_mangle)]
extern "C" fn sendto(fd: c_int, buffer: usize, bytes: usize, flags: c_int, to: usize, to_bytes: u32) -> isize {
    let part = Part { start: buffer, bytes };
    let (fd, flags, to_bytes) = (fd as c_long, flags as c_long, to_bytes as c_long);
    // SAFETY: the very call that QEMU made.
    with_pages(&part, 1, || unsafe { syscall(SYS_SENDTO, fd, buffer, bytes, flags, to, to_bytes) })
}

/// What `sendmsg` is given, up to the parts of the message.
#[repr(C)]
struct Message {
    name: usize,
    name_bytes: u32,
    parts: *const Part,
    count: usize,
}

#[unsafe(no_mangle)]
extern "C" fn sendmsg(fd: c_int, message: *const Message, flags: c_int) -> isize {
    // SAFETY: the very call that QEMU made, with a live message.
    unsafe {
        with_pages((*message).parts, (*message).count, || syscall(SYS_SENDMSG, fd as c_long, message, flags as c_long))
    }
}

/// Makes a call. If it fails because a page of guest memory is not written yet, waits for all pages of these parts and
/// makes it again.
fn with_pages(parts: *const Part, count: usize, call: impl Fn() -> c_long) -> isize {
    let answer = call();
    // SAFETY: the C library's own place for this thread, and the parts that the caller gave to the kernel.
    unsafe {
        if answer != -1 || *__errno_location() != EFAULT {
            return answer as isize;
        }
        for number in 0..count {
            let Part { start, bytes } = *parts.add(number);
            let mut page = start & !(PAGE - 1);
            while page < start + bytes {
                if is_guest_memory(page) {
                    (page as *const u8).read_volatile();
                }
                page += PAGE;
            }
        }
    }
    call() as isize
}
