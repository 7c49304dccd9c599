//! Becomes a QEMU that was cached: maps its memory, opens its descriptors, makes its threads, and lets them continue.
//!
//! The steps are in the plan (`plan.rs`), which the caller wrote when it captured the process. This program is linked
//! to an address that no other mapping uses, has no standard library, and runs on its own stack: the plan may map
//! something over everything that the kernel gave it.

#![no_std]
#![no_main]

mod context;
mod plan;

use core::arch::{asm, naked_asm};
use core::ffi::CStr;

use context::{Table, call, give_to_caller, go_on};
use plan::{MOST_FILES, MOST_PLAN_BYTES, PLAN_ADDRESS, PLAN_PATH, Reader, Step};

const WRITE: usize = 1;
const CLOSE: usize = 3;
const LSEEK: usize = 8;
const MMAP: usize = 9;
const BRK: usize = 12;
const RT_SIGACTION: usize = 13;
const RT_SIGPROCMASK: usize = 14;
const MREMAP: usize = 25;
const CLONE: usize = 56;
const FCNTL: usize = 72;
const PRCTL: usize = 157;
const ARCH_PRCTL: usize = 158;
const SET_TID_ADDRESS: usize = 218;
const EXIT_GROUP: usize = 231;
const OPENAT: usize = 257;
const SIGNALFD4: usize = 289;
const EVENTFD2: usize = 290;
const EPOLL_CREATE1: usize = 291;
const DUP3: usize = 292;

const AT_FDCWD: usize = -100isize as usize;
const AT_SYSINFO_EHDR: usize = 33;
const ARCH_SET_FS: usize = 0x1002;
const F_SETFL: usize = 4;
const MAP_PRIVATE: usize = 0x02;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MREMAP_MAYMOVE_FIXED: usize = 3;
const O_CLOEXEC: usize = 0o2_000_000;
const PR_SET_NAME: usize = 15;
const PR_SET_TIMERSLACK: usize = 29;
const PROT_READ: usize = 1;
const SEEK_END: usize = 2;
/// The flags with which the C library makes threads: all is shared, the kernel sets the thread's storage, and it writes
/// the thread's id and clears it at the end.
const THREAD: usize = 0x003d_0f00;

const PAGE: usize = 4096;

/// The files that are open to be mapped. A local array would need `memset`, which this program does not have.
struct Files {
    count: usize,
    fds: [usize; MOST_FILES],
}
static mut FILES: Files = Files { count: 0, fds: [0; MOST_FILES] };

const STACK_BYTES: usize = 64 * 1024;
static mut STACK: [u128; STACK_BYTES / 16] = [0; STACK_BYTES / 16];

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _start() -> ! {
    naked_asm!(
        "mov rdi, rsp",
        "lea rsp, [rip + {stack} + {bytes}]",
        "xor ebp, ebp",
        "call {resume}",
        "ud2",
        stack = sym STACK,
        bytes = const STACK_BYTES,
        resume = sym resume,
    )
}

extern "C" fn resume(initial: *const usize) -> ! {
    // SAFETY: the plan was made from a complete process, and nothing else runs here until the threads of that process
    // do.
    unsafe {
        let vdso = vdso(initial);
        let all = !0u64;
        call(RT_SIGPROCMASK, [0, &raw const all as usize, 0, 8, 0, 0]);
        give_to_caller();
        close_heap();
        let mut plan = open_plan();
        loop {
            match plan.step() {
                Some(Step::StartThreads { table }) => start_threads(table as *const Table),
                Some(step) => carry_out(step, vdso),
                None => fail(c"read the plan"),
            }
        }
    }
}

unsafe fn carry_out(step: Step<&CStr>, vdso: usize) {
    // SAFETY: this program has one thread. What a step maps over is not used any more, and no step touches the reserved
    // addresses. Each of the other calls makes a descriptor, or changes one, of this process.
    unsafe {
        let files = &mut *(&raw mut FILES);
        match step {
            Step::MoveVdso { offset, bytes, to } => relocate(vdso.wrapping_add(offset as usize), bytes, to),
            Step::Move { from, bytes, to } => relocate(from as usize, bytes, to),
            Step::OpenFile { path } => {
                let Some(fd) = files.fds.get_mut(files.count) else { fail(c"open so many files") };
                *fd = open(path, O_CLOEXEC);
                files.count += 1;
            }
            Step::Map { address, bytes, protection, file, at } => {
                let (kind, fd) = match (file as usize, files.fds.get((file as usize).wrapping_sub(1))) {
                    (0, _) => (MAP_ANONYMOUS, usize::MAX),
                    (number, Some(fd)) if number <= files.count => (0, *fd),
                    _ => fail(c"map a file that is not open"),
                };
                let flags = kind | MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
                let place = [address as usize, bytes as usize, protection as usize];
                must(c"map memory", call(MMAP, [place[0], place[1], place[2], flags, fd, at as usize]));
            }
            Step::CloseFiles { count } => {
                files.fds.iter().take(count as usize).for_each(|fd| close(*fd));
                files.count = 0;
            }
            Step::SetFlags { fd, flags } => {
                must(c"set flags", call(FCNTL, [fd as usize, F_SETFL, flags as usize, 0, 0, 0]));
            }
            Step::EventFd { fd, count, flags } => {
                place(fd, must(c"make an eventfd", call(EVENTFD2, [count as usize, flags as usize, 0, 0, 0, 0])));
            }
            Step::SignalFd { fd, mask, flags } => {
                let arguments = [usize::MAX, &raw const mask as usize, 8, flags as usize, 0, 0];
                place(fd, must(c"make a signalfd", call(SIGNALFD4, arguments)));
            }
            Step::Epoll { fd, flags } => {
                place(fd, must(c"make an epoll", call(EPOLL_CREATE1, [flags as usize, 0, 0, 0, 0, 0])));
            }
            Step::OpenDescriptor { fd, flags, path } => place(fd, open(path, flags as usize)),
            Step::Duplicate { from, fd } => {
                must(c"duplicate", call(DUP3, [from as usize, fd as usize, O_CLOEXEC, 0, 0, 0]));
            }
            Step::StartThreads { .. } => {}
        }
    }
}

/// Where the kernel put its own code (the vDSO) into this process.
unsafe fn vdso(initial: *const usize) -> usize {
    // SAFETY: arguments, a zero, the environment, a zero, then pairs up to one of zeros.
    unsafe {
        let mut word = initial.add(*initial + 2);
        while *word != 0 {
            word = word.add(1);
        }
        word = word.add(1);
        while *word != 0 && *word != AT_SYSINFO_EHDR {
            word = word.add(2);
        }
        *word.add(1)
    }
}

/// The cached process has its own heap, which is not this process's heap: the kernel's must not grow into it. The C
/// library then takes memory elsewhere. It remembers where the kernel's heap ends, so that must be the same address
/// whenever the process is resumed: the caller turns off address randomization.
unsafe fn close_heap() {
    // SAFETY: a page behind the end of the heap, which is empty.
    unsafe {
        let end = call(BRK, [0; 6]) as usize;
        let flags = MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS;
        must(c"close the heap", call(MMAP, [end.next_multiple_of(PAGE), PAGE, 0, flags, usize::MAX, 0]));
    }
}

unsafe fn open_plan() -> Reader<'static> {
    let fd = open(PLAN_PATH, O_CLOEXEC);
    // SAFETY: the plan is mapped at a reserved address, is as long as the file, and stays mapped.
    unsafe {
        let bytes = must(c"measure the plan", call(LSEEK, [fd, 0, SEEK_END, 0, 0, 0])).min(MOST_PLAN_BYTES as usize);
        let flags = MAP_PRIVATE | MAP_FIXED;
        must(c"map the plan", call(MMAP, [PLAN_ADDRESS as usize, bytes, PROT_READ, flags, fd, 0]));
        close(fd);
        let words = core::slice::from_raw_parts(PLAN_ADDRESS as *const u64, bytes / 8);
        let Some(plan) = Reader::new(words) else { fail(c"read a plan of another version") };
        plan
    }
}

unsafe fn relocate(from: usize, bytes: u64, to: u64) {
    // SAFETY: the caller moves a part of the kernel's own mapping, which may be moved as a whole.
    let moved = unsafe { call(MREMAP, [from, bytes as usize, bytes as usize, MREMAP_MAYMOVE_FIXED, to as usize, 0]) };
    must(c"move the vDSO", moved);
}

/// Moves a fresh descriptor to its number.
unsafe fn place(wanted: u64, fd: usize) {
    if fd != wanted as usize {
        // SAFETY: both numbers belong to this process.
        unsafe { must(c"number a descriptor", call(DUP3, [fd, wanted as usize, O_CLOEXEC, 0, 0, 0])) };
        close(fd);
    }
}

unsafe fn start_threads(table: *const Table) -> ! {
    // SAFETY: the table is in the memory that was mapped, as the preloaded library left it there.
    unsafe {
        call(PRCTL, [PR_SET_NAME, c"qemu-system-x86".as_ptr() as usize, 0, 0, 0, 0]);
        call(PRCTL, [PR_SET_TIMERSLACK, 1, 0, 0, 0, 0]);
        for (signal, action) in (*table).actions.iter().enumerate() {
            if action.handler != 0 {
                call(RT_SIGACTION, [signal + 1, &raw const *action as usize, 0, 8, 0, 0]);
            }
        }
        for number in (0..(*table).count as usize).filter(|number| *number != 1) {
            start_thread(table, number);
        }
        let own = &raw const (*table).contexts[1];
        let place = (*own).tid_place();
        *place = must(c"set its thread id", call(SET_TID_ADDRESS, [place as usize, 0, 0, 0, 0, 0])) as u32;
        must(c"set its storage", call(ARCH_PRCTL, [ARCH_SET_FS, (*own).base as usize, 0, 0, 0, 0]));
        go_on(own)
    }
}

/// Makes a thread that continues from its context.
unsafe fn start_thread(table: *const Table, number: usize) {
    // SAFETY: the child runs on the stack of the thread that it becomes, and does not touch ours.
    unsafe {
        let context = &raw const (*table).contexts[number];
        let place = (*context).tid_place();
        let made: isize;
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, r12",
            "jmp {go_on}",
            "2:",
            go_on = sym go_on,
            inlateout("rax") CLONE as isize => made,
            in("rdi") THREAD,
            in("rsi") 0usize,
            in("rdx") place,
            in("r10") place,
            in("r8") (*context).base,
            in("r12") context,
            lateout("rcx") _, lateout("r11") _,
        );
        must(c"make a thread", made);
    }
}

fn open(path: &CStr, flags: usize) -> usize {
    // SAFETY: a string with its NUL.
    unsafe { must(c"open a file", call(OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags, 0, 0, 0])) }
}

fn close(fd: usize) {
    // SAFETY: opened here, and used nowhere else.
    unsafe { call(CLOSE, [fd, 0, 0, 0, 0, 0]) };
}

fn must(what: &CStr, answer: isize) -> usize {
    if answer < 0 && answer > -4096 { fail(what) } else { answer as usize }
}

fn fail(what: &CStr) -> ! {
    // SAFETY: live strings; the process ends.
    unsafe {
        for text in [c"sandling: the cached process cannot be resumed: cannot ", what, c"\n"] {
            call(WRITE, [2, text.as_ptr() as usize, text.count_bytes(), 0, 0, 0]);
        }
        call(EXIT_GROUP, [1, 0, 0, 0, 0, 0]);
    }
    loop {}
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    fail(c"go on after a panic")
}
