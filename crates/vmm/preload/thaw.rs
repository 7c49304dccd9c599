//! Becomes a QEMU that was frozen: maps its memory, opens its descriptors, makes its threads, and lets them go on.
//!
//! What to do is in `/layers/thaw.plan`, as `u64` words; the caller wrote it (`src/thaw/plan.rs`) when it saved
//! the process. This program is linked to an address that is nobody's, has no standard library, and runs on a stack of its
//! own: everything that the kernel gave it may be covered by what it maps.

#![no_std]
#![no_main]

mod context;

use core::arch::{asm, naked_asm};

use context::{Table, call, go_on};

const MMAP: usize = 9;
const MREMAP: usize = 25;
const WRITE: usize = 1;
const CLOSE: usize = 3;
const BRK: usize = 12;
const RT_SIGACTION: usize = 13;
const RT_SIGPROCMASK: usize = 14;
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
/// A thread as the C library makes them: everything shared, its storage set, its number written and cleared.
const THREAD: usize = 0x003d_0f00;

/// Nobody's: below where the kernel puts programs that can be moved, and above ours.
const PLAN_PLACE: usize = 0x2000_0000;
const PLAN_MOST: usize = 0x0400_0000;
const SCRATCH: usize = 0x3000_0000;

const PAGE: usize = 4096;
const FILES: usize = 80;
static mut OPEN: [usize; FILES] = [0; FILES];

const STACK_BYTES: usize = 64 * 1024;

static mut STACK: [u128; STACK_BYTES / 16] = [0; STACK_BYTES / 16];

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _start() -> ! {
    naked_asm!(
        "mov rdi, rsp",
        "lea rsp, [rip + {stack} + {bytes}]",
        "xor ebp, ebp",
        "call {thaw}",
        "ud2",
        stack = sym STACK,
        bytes = const STACK_BYTES,
        thaw = sym thaw,
    )
}

/// The plan, read from the front to the back.
struct Plan(*const usize);

impl Plan {
    fn next(&mut self) -> usize {
        // SAFETY: the plan says how much of everything there is, and was written with this program.
        unsafe {
            let word = *self.0;
            self.0 = self.0.add(1);
            word
        }
    }

    fn words<const N: usize>(&mut self) -> [usize; N] {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.next();
        }
        words
    }

    /// A string of so many words, with its NUL.
    fn string(&mut self) -> usize {
        let words = self.next();
        let string = self.0 as usize;
        // SAFETY: as above.
        self.0 = unsafe { self.0.add(words) };
        string
    }
}

extern "C" fn thaw(initial: *const usize) -> ! {
    // SAFETY: the whole of this program is one trick with memory; what holds is that the plan was made from a process
    // that was whole, and that nothing else runs here until its threads do.
    unsafe {
        let vdso = vdso(initial);
        let all = !0u64;
        call(RT_SIGPROCMASK, [0, &raw const all as usize, 0, 8, 0, 0]);
        close_heap();
        let mut plan = open_plan();
        move_vdso(&mut plan, vdso);
        map(&mut plan);
        open_descriptors(&mut plan);
        let table = plan.next() as *const Table;
        call(PRCTL, [PR_SET_NAME, c"qemu-system-x86".as_ptr() as usize, 0, 0, 0, 0]);
        call(PRCTL, [PR_SET_TIMERSLACK, 1, 0, 0, 0, 0]);
        let actions = (*table).actions.iter();
        for (signal, action) in actions.enumerate() {
            if action.handler != 0 {
                call(RT_SIGACTION, [signal + 1, &raw const *action as usize, 0, 8, 0, 0]);
            }
        }
        for number in (0..(*table).count as usize).filter(|number| *number != 1) {
            start(table, number);
        }
        let own = &raw const (*table).contexts[1];
        let place = (*own).tid_place();
        *place = must(c"set_tid_address", call(SET_TID_ADDRESS, [place as usize, 0, 0, 0, 0, 0])) as u32;
        must(c"arch_prctl", call(ARCH_PRCTL, [ARCH_SET_FS, (*own).base as usize, 0, 0, 0, 0]));
        go_on(own)
    }
}

/// Where the kernel put its own code into this process.
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

/// The process has a heap of its own, which this one's is not the continuation of: it must not grow, and be forgotten
/// when the process is saved again. The C library then takes memory elsewhere. It remembers where the heap ends, so that
/// must be the same place whenever the process is thawed: the caller sees to that.
unsafe fn close_heap() {
    // SAFETY: a page behind the end of the heap, which is empty.
    unsafe {
        let end = call(BRK, [0; 6]) as usize;
        let flags = MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS;
        must(c"heap", call(MMAP, [end.next_multiple_of(PAGE), PAGE, 0, flags, usize::MAX, 0]));
    }
}

unsafe fn open_plan() -> Plan {
    let fd = open(c"/layers/thaw.plan".as_ptr() as usize, O_CLOEXEC);
    let flags = MAP_PRIVATE | MAP_FIXED;
    // SAFETY: at a place that is nobody's.
    unsafe { must(c"plan", call(MMAP, [PLAN_PLACE, PLAN_MOST, PROT_READ, flags, fd, 0])) };
    close(fd);
    Plan(PLAN_PLACE as *const usize)
}

/// By way of a place that is nobody's: the old and the new one may overlap.
unsafe fn move_vdso(plan: &mut Plan, vdso: usize) {
    let [offset, target, parts] = plan.words();
    let here = vdso - offset;
    for _ in 0..parts {
        let [at, bytes] = plan.words();
        for (from, to) in [(here + at, SCRATCH + at), (SCRATCH + at, target + at)] {
            // SAFETY: parts of the kernel's own mapping, which may be moved as a whole.
            unsafe { must(c"vdso", call(MREMAP, [from, bytes, bytes, MREMAP_MAYMOVE_FIXED, to, 0])) };
        }
    }
}

unsafe fn map(plan: &mut Plan) {
    // SAFETY: this program has one thread until it is another. (On the stack it would have to be filled, by a library.)
    let files = unsafe { &mut *(&raw mut OPEN) };
    let count = plan.next();
    for file in files.iter_mut().take(count) {
        *file = open(plan.string(), O_CLOEXEC);
    }
    for _ in 0..plan.next() {
        let [address, bytes, prot, file, at] = plan.words();
        let (flags, fd) = if file == 0 { (MAP_ANONYMOUS, usize::MAX) } else { (0, files[(file - 1) % FILES]) };
        let flags = flags | MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
        // SAFETY: what is there is covered, and nothing of this program is.
        unsafe { must(c"map", call(MMAP, [address, bytes, prot, flags, fd, at])) };
    }
    for file in files.iter().take(count) {
        close(*file);
    }
}

unsafe fn open_descriptors(plan: &mut Plan) {
    for _ in 0..plan.next() {
        let [number, kind, one, other] = plan.words();
        // SAFETY: each call makes a descriptor or changes one of this process.
        unsafe {
            let made = match kind {
                0 => {
                    must(c"fcntl", call(FCNTL, [number, F_SETFL, one, 0, 0, 0]));
                    continue;
                }
                1 => call(EVENTFD2, [one, other, 0, 0, 0, 0]),
                2 => call(SIGNALFD4, [usize::MAX, &raw const one as usize, 8, other, 0, 0]),
                3 => call(EPOLL_CREATE1, [other, 0, 0, 0, 0, 0]),
                4 => open(plan.string(), other) as isize,
                5 => {
                    must(c"dead", call(DUP3, [one, number, O_CLOEXEC, 0, 0, 0]));
                    continue;
                }
                _ => fail(c"kind"),
            };
            let made = must(c"descriptor", made);
            if made != number {
                must(c"dup3", call(DUP3, [made, number, O_CLOEXEC, 0, 0, 0]));
                close(made);
            }
        }
    }
}

/// A thread that goes on from its context.
unsafe fn start(table: *const Table, number: usize) {
    // SAFETY: the child runs on the stack of the thread that it becomes, and touches none of ours.
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
        must(c"clone", made);
    }
}

fn open(path: usize, flags: usize) -> usize {
    // SAFETY: a string with its NUL.
    unsafe { must(c"open", call(OPENAT, [AT_FDCWD, path, flags, 0, 0, 0])) }
}

fn close(fd: usize) {
    // SAFETY: opened here, and used nowhere else.
    unsafe { call(CLOSE, [fd, 0, 0, 0, 0, 0]) };
}

fn must(what: &core::ffi::CStr, answer: isize) -> usize {
    if answer < 0 && answer > -4096 { fail(what) } else { answer as usize }
}

fn fail(what: &core::ffi::CStr) -> ! {
    // SAFETY: live strings; the process ends.
    unsafe {
        for text in [c"sandling: cannot thaw: ", what, c"\n"] {
            call(WRITE, [2, text.as_ptr() as usize, text.count_bytes(), 0, 0, 0]);
        }
        call(EXIT_GROUP, [1, 0, 0, 0, 0, 0]);
    }
    loop {}
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    fail(c"panic")
}
