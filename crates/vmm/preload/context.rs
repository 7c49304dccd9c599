//! The state of a process and its threads that the preloaded library records and `resume.rs` restores.

#![allow(dead_code)] // each program that includes this file uses a part of it

use core::arch::{asm, naked_asm};

use crate::plan::{MOST_THREADS, OWN_USER};

const SIGNALS: usize = 64;

/// Where glibc has a thread's id, counted from the base of its storage. The library checks this before it relies on it.
const TID_OFFSET: usize = 720;

/// The registers that a function call preserves, the bases of the thread's segments, and its id.
#[repr(C)]
pub struct Context {
    preserved: [u64; 6],
    stack: u64,
    next: u64,
    pub base: u64,
    pub tid: u64,
    pub gs_base: u64,
}

/// A signal's handler, in the kernel's layout.
#[repr(C)]
pub struct Action {
    pub handler: usize,
    pub flags: usize,
    pub restorer: usize,
    pub mask: u64,
}

/// The first thread is the library's, which makes copies; the second is the process's main thread.
#[repr(C)]
pub struct Table {
    pub count: u64,
    pub contexts: [Context; MOST_THREADS],
    pub actions: [Action; SIGNALS],
}

const PRCTL: usize = 157;
const GETUID: usize = 102;
const PR_SET_DUMPABLE: usize = 4;

/// Makes the process undumpable if it runs as a subordinate user of its caller. The files of such a process under
/// `/proc` belong to the root of its user namespace, which is the caller, who saves the machine by means of them. They
/// would belong to the process's own user otherwise.
pub fn give_to_caller() {
    // SAFETY: the calls take numbers only.
    unsafe {
        if call(GETUID, [0; 6]) as u32 == OWN_USER {
            call(PRCTL, [PR_SET_DUMPABLE, 0, 0, 0, 0, 0]);
        }
    }
}

impl Table {
    pub const EMPTY: Self = {
        const CONTEXT: Context = Context { preserved: [0; 6], stack: 0, next: 0, base: 0, tid: 0, gs_base: 0 };
        const ACTION: Action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
        Self { count: 0, contexts: [CONTEXT; MOST_THREADS], actions: [ACTION; SIGNALS] }
    };
}

impl Context {
    /// Where the C library has the thread's id.
    pub fn tid_place(&self) -> *mut u32 {
        (self.base as usize + TID_OFFSET) as *mut u32
    }

    /// Whether the thread can be made again: its id is where we expect it, and it does not use the `gs` segment.
    pub fn is_known(&self) -> bool {
        // SAFETY: the thread is alive and recorded its storage itself.
        self.gs_base == 0 && unsafe { *self.tid_place() } == self.tid as u32
    }
}

/// Records where the caller is and returns 0. It returns a second time, with 1, when [`go_on`] continues from there.
#[unsafe(naked)]
pub unsafe extern "C" fn save(context: *mut Context) -> u64 {
    naked_asm!(
        "mov [rdi], rbx",
        "mov [rdi + 8], rbp",
        "mov [rdi + 16], r12",
        "mov [rdi + 24], r13",
        "mov [rdi + 32], r14",
        "mov [rdi + 40], r15",
        "lea rdx, [rsp + 8]",
        "mov [rdi + 48], rdx",
        "mov rdx, [rsp]",
        "mov [rdi + 56], rdx",
        "mov rdx, fs:0",
        "mov [rdi + 64], rdx",
        "xor eax, eax",
        "ret",
    )
}

/// Continues where [`save`] was called.
#[unsafe(naked)]
pub unsafe extern "C" fn go_on(context: *const Context) -> ! {
    naked_asm!(
        "mov rbx, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov r12, [rdi + 16]",
        "mov r13, [rdi + 24]",
        "mov r14, [rdi + 32]",
        "mov r15, [rdi + 40]",
        "mov rsp, [rdi + 48]",
        "mov eax, 1",
        "jmp [rdi + 56]",
    )
}

/// A system call that does not touch `errno`, which belongs to the code that was interrupted.
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let answer;
    // SAFETY: as safe as the call that the caller asks for.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        )
    };
    answer
}
