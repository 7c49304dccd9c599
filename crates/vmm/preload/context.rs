//! What is written down of a process and its threads so that both can be made again: shared by the two ends.

#![allow(dead_code)] // each end uses its half

use core::arch::{asm, naked_asm};

pub const MOST_THREADS: usize = 64;
const SIGNALS: usize = 64;

/// Where glibc has a thread's number, counted from the base of its storage. Looked at before it is relied on.
const TID_OFFSET: usize = 720;

/// What a call must keep, the base of the thread's own storage, and its number.
#[repr(C)]
pub struct Context {
    kept: [u64; 6],
    stack: u64,
    next: u64,
    pub base: u64,
    pub tid: u64,
}

/// A signal's handler, as the kernel has it.
#[repr(C)]
pub struct Action {
    pub handler: usize,
    pub flags: usize,
    pub restorer: usize,
    pub mask: u64,
}

/// The first thread is the one that makes copies, the second the process's own.
#[repr(C)]
pub struct Table {
    pub count: u64,
    pub contexts: [Context; MOST_THREADS],
    pub actions: [Action; SIGNALS],
}

impl Table {
    pub const EMPTY: Self = {
        const CONTEXT: Context = Context { kept: [0; 6], stack: 0, next: 0, base: 0, tid: 0 };
        const ACTION: Action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
        Self { count: 0, contexts: [CONTEXT; MOST_THREADS], actions: [ACTION; SIGNALS] }
    };
}

impl Context {
    /// Where the thread's own storage has its number.
    pub fn tid_place(&self) -> *mut u32 {
        (self.base as usize + TID_OFFSET) as *mut u32
    }
}

/// Writes down where the caller is and returns 0; returns 1 where [`go_on`] was told to go on from there.
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

/// Goes on where [`save`] was called.
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

/// A system call without the C library: its `errno` belongs to the thread that was interrupted.
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
