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
//!   threads' [`Table`] (three `u64`), and waits until the caller closes the connection. The caller has stopped the
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
mod plan;

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use context::{Action, Context, Table, call, give_to_caller, save};
use plan::MOST_THREADS;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn getenv(name: *const c_char) -> *const c_char;
    fn mallopt(parameter: c_int, value: c_int) -> c_int;
    fn pthread_create(
        thread: *mut usize,
        attributes: *const c_void,
        start: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn __errno_location() -> *mut c_int;
}

const SYS_READ: c_long = 0;
const SYS_WRITE: c_long = 1;
const SYS_CLOSE: c_long = 3;
const SYS_MMAP: c_long = 9;
const SYS_RT_SIGACTION: c_long = 13;
const SYS_RT_SIGPROCMASK: c_long = 14;
const SYS_PREAD64: c_long = 17;
const SYS_PWRITE64: c_long = 18;
const SYS_MADVISE: c_long = 28;
const SYS_SENDTO: c_long = 44;
const SYS_SENDMSG: c_long = 46;
const SYS_CLONE: c_long = 56;
const SYS_GETPID: c_long = 39;
const SYS_WAIT4: c_long = 61;
const SYS_ARCH_PRCTL: c_long = 158;
const SYS_GETTID: c_long = 186;
const SYS_FUTEX: c_long = 202;
const SYS_EXIT_GROUP: c_long = 231;
const SYS_TGKILL: c_long = 234;
const SYS_OPENAT: c_long = 257;
const SYS_ACCEPT4: c_long = 288;
const SYS_PREADV: c_long = 295;
const SYS_PWRITEV: c_long = 296;
const SYS_GETRANDOM: c_long = 318;

const AT_FDCWD: c_int = -100;
const ARCH_GET_GS: usize = 0x1004;
const O_CLOEXEC: c_int = 0o2_000_000;
const SOCK_CLOEXEC: c_int = 0o2_000_000;
const MAP_PRIVATE: c_int = 0x02;
const MAP_FIXED: c_int = 0x10;
const MAP_NORESERVE: c_int = 0x4000;
const MADV_DOFORK: c_int = 11;
const SIG_BLOCK: c_int = 0;
const SIGCHLD: c_int = 17;
const WNOHANG: c_int = 1;
const ANY_CHILD: c_int = -1;
const SIGBUS: c_int = 7;
const SIG_DFL: usize = 0;
/// SIGBUS, and the signals that the C library never lets a program block.
const NEVER_BLOCKED: u64 = 1 << (SIGBUS - 1) | 1 << (32 - 1) | 1 << (33 - 1);
const EFAULT: c_int = 14;
const SA_SIGINFO: usize = 4;
const SA_NODEFER: usize = 0x4000_0000;
const SA_RESTORER: usize = 0x0400_0000;
const SA_RESTART: usize = 0x1000_0000;
const M_TRIM_THRESHOLD: c_int = -1;
const NEVER: c_int = -1;
const FUTEX_WAIT: usize = 128;
const FUTEX_WAKE: usize = 129;
const GNUTLS_E_RANDOM_FAILED: c_int = -206;

/// A signal of the C library's own, which no thread blocks. It is for calls such as `setuid`, which QEMU cannot make.
const PARKING_SIGNAL: c_long = 33;
const PARKING_TRIES: u32 = 200;
const PARKING_PATIENCE_NS: usize = 10_000_000;

/// How long an access to a page that is not written yet waits before it is tried again.
const PAGE_PATIENCE_NS: usize = 300_000;
const PAGE: usize = 4096;

const MAP_FILE: &CStr = c"/layers/memory.map";
const RECORD_BYTES: usize = 32;
const RECORDS_AT_ONCE: usize = 128;
const STACKED_LAYERS: usize = 64;

/// The address of guest memory, once QEMU has mapped it, and its size.
static ADDRESS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static COPY_FD: AtomicUsize = AtomicUsize::new(0);

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

#[unsafe(no_mangle)]
extern "C" fn mmap(place: *mut c_void, bytes: usize, prot: c_int, flags: c_int, fd: c_int, at: i64) -> *mut c_void {
    mmap64(place, bytes, prot, flags, fd, at)
}

#[unsafe(no_mangle)]
extern "C" fn mmap64(place: *mut c_void, bytes: usize, prot: c_int, flags: c_int, fd: c_int, at: i64) -> *mut c_void {
    // SAFETY: the very call that QEMU made.
    let mapped = unsafe { syscall(SYS_MMAP, place, bytes, prot as c_long, flags as c_long, fd as c_long, at) };
    let is_memory = fd >= 0 && flags & MAP_PRIVATE != 0 && bytes == BYTES.load(SeqCst) && mapped != -1;
    if is_memory && ADDRESS.swap(mapped as usize, SeqCst) == 0 {
        lay_layers(mapped as usize, bytes, prot, flags & MAP_NORESERVE);
        // Not earlier: the supervisor reads from this process which file it opens as guest memory.
        give_to_caller();
    }
    mapped as *mut c_void
}

/// Maps what the map file lists. Without a map file there are no layers.
fn lay_layers(memory: usize, bytes: usize, prot: c_int, flags: c_int) {
    let map = open(MAP_FILE);
    if map < 0 {
        return;
    }
    let mut layers = [-1; STACKED_LAYERS];
    let mut buffer = [0u8; RECORD_BYTES * RECORDS_AT_ONCE];
    loop {
        let length = fill(map, &mut buffer);
        for record in buffer[..length].chunks_exact(RECORD_BYTES) {
            let [guest, extent, layer, at] = fields(record);
            let fd = layer_file(&mut layers, layer as usize);
            let fits = guest.checked_add(extent).is_some_and(|end| end <= bytes as u64);
            if fd < 0 || !fits {
                fail(c"sandling: the memory map has an invalid record\n");
            }
            let place = memory + guest as usize;
            let flags = (MAP_PRIVATE | MAP_FIXED | flags) as c_long;
            // SAFETY: replaces a part of guest memory, which nothing has used yet, by the same part of a layer.
            let laid = unsafe { syscall(SYS_MMAP, place, extent, prot as c_long, flags, fd as c_long, at) };
            if laid == -1 {
                fail(c"sandling: cannot map a layer of guest memory\n");
            }
        }
        if length < buffer.len() {
            break;
        }
    }
    close(map);
    for layer in layers {
        if layer >= 0 {
            close(layer);
        }
    }
}

/// The four numbers of a record.
fn fields(record: &[u8]) -> [u64; 4] {
    let mut numbers = [0; 4];
    for (number, bytes) in numbers.iter_mut().zip(record.chunks_exact(8)) {
        for (shift, byte) in bytes.iter().enumerate() {
            *number |= u64::from(*byte) << (8 * shift);
        }
    }
    numbers
}

/// The descriptor of a layer, opened when it is first needed.
fn layer_file(layers: &mut [c_int; STACKED_LAYERS], layer: usize) -> c_int {
    let Some(fd) = layers.get_mut(layer) else { return -1 };
    if *fd < 0 {
        let mut path = *b"/layers/memory.00\0";
        path[15] = b'0' + (layer / 10) as u8;
        path[16] = b'0' + (layer % 10) as u8;
        // SAFETY: ends with a NUL, and has no other.
        *fd = open(unsafe { CStr::from_bytes_with_nul_unchecked(&path) });
    }
    *fd
}

/// Copies the process for each caller, one after the other.
extern "C" fn serve(_: *mut c_void) -> *mut c_void {
    let all: u64 = !0;
    // SAFETY: a live mask of the size that the kernel expects. QEMU's signals are for QEMU's threads.
    unsafe { syscall(SYS_RT_SIGPROCMASK, SIG_BLOCK as c_long, &raw const all, 0usize, 8usize) };
    loop {
        let listener = COPY_FD.load(SeqCst) as c_long;
        // SAFETY: no address is asked for.
        let caller = unsafe { syscall(SYS_ACCEPT4, listener, 0usize, 0usize, SOCK_CLOEXEC as c_long) } as c_int;
        if caller >= 0 {
            let mut count = [0; 4];
            let mut tids = [0; 4 * MOST_THREADS];
            let wanted = fill(caller, &mut count);
            let length = 4 * u32::from_ne_bytes(count) as usize;
            if wanted == count.len() && length < tids.len() && fill(caller, &mut tids[..length]) == length {
                copy(caller, &tids[..length]);
            }
            close(caller);
        }
    }
}

/// The recorded threads. Each thread writes its own entry; the library's thread writes the rest while the others wait.
struct Recorded(UnsafeCell<Table>);
// SAFETY: see above; `PARKED` and `ROUND` decide which thread may write what.
unsafe impl Sync for Recorded {}
static TABLE: Recorded = Recorded(UnsafeCell::new(Table::EMPTY));

/// How many threads are parked.
static PARKED: AtomicU32 = AtomicU32::new(0);
/// Raised when the parked threads may continue.
static ROUND: AtomicU32 = AtomicU32::new(0);
/// The round in which the threads were signalled: a thread that runs its handler too late must not wait for the next
/// one.
static ASKED: AtomicU32 = AtomicU32::new(0);

fn copy(caller: c_int, tids: &[u8]) {
    let (address, bytes) = (ADDRESS.load(SeqCst), BYTES.load(SeqCst));
    let table = TABLE.0.get();
    let parked = park_all(tids);
    // SAFETY: QEMU keeps guest memory out of forks; this copy needs it. The clone is a plain fork; it touches nothing
    // that another thread could have held, and ends without running any of QEMU's code. A process that is resumed from
    // it continues after `save`, and makes copies like any other.
    unsafe {
        while syscall(SYS_WAIT4, ANY_CHILD as c_long, 0usize, WNOHANG as c_long, 0usize) > 0 {}
        syscall(SYS_MADVISE, address, bytes, MADV_DOFORK as c_long);
        (*table).contexts[0].tid = syscall(SYS_GETTID) as u64;
        if save(&raw mut (*table).contexts[0]) == 0 {
            if syscall(SYS_CLONE, SIGCHLD as c_long, 0usize, 0usize, 0usize, 0usize) == 0 {
                let own = &(*table).contexts[0];
                let place = [address, bytes, if parked && own.is_known() { table as usize } else { 0 }];
                syscall(SYS_WRITE, caller as c_long, &raw const place, size_of_val(&place));
                let mut word = [0u8];
                syscall(SYS_READ, caller as c_long, &raw mut word, 1usize);
                syscall(SYS_EXIT_GROUP, 0 as c_long);
            }
        }
    }
    ROUND.fetch_add(1, SeqCst);
    // SAFETY: wakes the threads that wait for this number to change.
    unsafe { call(SYS_FUTEX as usize, [ROUND.as_ptr() as usize, FUTEX_WAKE, usize::MAX >> 33, 0, 0, 0]) };
}

/// Records the signal handlers and parks each of these threads. Returns whether all of them could be recorded.
fn park_all(tids: &[u8]) -> bool {
    let table = TABLE.0.get();
    PARKED.store(0, SeqCst);
    ASKED.store(ROUND.load(SeqCst), SeqCst);
    // SAFETY: no other thread uses the table before the signals are sent; each structure is as large as the kernel's.
    unsafe {
        (*table).count = 1;
        for (signal, action) in (*table).actions.iter_mut().enumerate() {
            syscall(SYS_RT_SIGACTION, signal as c_long + 1, 0usize, &raw mut *action, 8usize);
        }
        // For the resumed process only: all layers of this one's memory are complete.
        (*table).actions[SIGBUS as usize - 1] = Action {
            handler: await_page as *const () as usize,
            flags: SA_SIGINFO | SA_NODEFER | SA_RESTORER | SA_RESTART,
            restorer: after_signal as *const () as usize,
            mask: 0,
        };
        let parking = Action {
            handler: park as *const () as usize,
            flags: SA_RESTORER | SA_RESTART,
            restorer: after_signal as *const () as usize,
            mask: !0,
        };
        syscall(SYS_RT_SIGACTION, PARKING_SIGNAL, &raw const parking, 0usize, 8usize);
        for tid in tids.chunks_exact(4) {
            let number = u32::from_ne_bytes([tid[0], tid[1], tid[2], tid[3]]);
            if i64::from(number) == syscall(SYS_GETTID) {
                continue;
            }
            let slot = (*table).count as usize;
            (*table).contexts[slot].tid = u64::from(number);
            (*table).count += 1;
            if syscall(SYS_TGKILL, syscall(SYS_GETPID), number as c_long, PARKING_SIGNAL) != 0 {
                return false;
            }
        }
        let wanted = (*table).count as u32 - 1;
        for _ in 0..PARKING_TRIES {
            let so_far = PARKED.load(SeqCst);
            if so_far == wanted {
                let contexts = &(*table).contexts;
                return contexts[1..=wanted as usize].iter().all(Context::is_known);
            }
            let limit = [0usize, PARKING_PATIENCE_NS];
            call(
                SYS_FUTEX as usize,
                [PARKED.as_ptr() as usize, FUTEX_WAIT, so_far as usize, limit.as_ptr() as usize, 0, 0],
            );
        }
    }
    false
}

/// The signal handler of a thread that is to be recorded: it returns when the copy is made.
extern "C" fn park(_: c_int) {
    let round = ASKED.load(SeqCst);
    if ROUND.load(SeqCst) != round {
        return;
    }
    let table = TABLE.0.get();
    // SAFETY: each thread writes to its own entry, and the library's thread waits for it. No call here touches `errno`.
    unsafe {
        let tid = call(SYS_GETTID as usize, [0; 6]) as u64;
        let count = ((*table).count as usize).min(MOST_THREADS);
        for slot in 1..count {
            let context = &raw mut (*table).contexts[slot];
            if (*context).tid == tid {
                call(SYS_ARCH_PRCTL as usize, [ARCH_GET_GS, &raw mut (*context).gs_base as usize, 0, 0, 0, 0]);
                if save(context) != 0 {
                    return;
                }
                PARKED.fetch_add(1, SeqCst);
                call(SYS_FUTEX as usize, [PARKED.as_ptr() as usize, FUTEX_WAKE, 1, 0, 0, 0]);
                while ROUND.load(SeqCst) == round {
                    call(SYS_FUTEX as usize, [ROUND.as_ptr() as usize, FUTEX_WAIT, round as usize, 0, 0, 0]);
                }
                return;
            }
        }
    }
}

#[unsafe(naked)]
extern "C" fn after_signal() {
    naked_asm!("mov eax, 15", "syscall")
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

fn is_guest_memory(address: usize) -> bool {
    address.wrapping_sub(ADDRESS.load(SeqCst)) < BYTES.load(SeqCst)
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

fn open(path: &CStr) -> c_int {
    // SAFETY: a NUL-terminated path.
    unsafe { syscall(SYS_OPENAT, AT_FDCWD as c_long, path.as_ptr(), O_CLOEXEC as c_long, 0 as c_long) as c_int }
}

fn close(fd: c_int) {
    // SAFETY: opened here, and used nowhere else.
    unsafe { syscall(SYS_CLOSE, fd as c_long) };
}

/// Reads until the buffer is full or the file ends; returns the number of bytes read.
fn fill(fd: c_int, buffer: &mut [u8]) -> usize {
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

fn fail(why: &CStr) -> ! {
    // SAFETY: a live string of that length; the process ends before anything else happens in it.
    unsafe {
        syscall(SYS_WRITE, 2 as c_long, why.as_ptr(), why.to_bytes().len());
        syscall(SYS_EXIT_GROUP, 1 as c_long);
    }
    loop {}
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    fail(c"sandling: the preloaded library panicked\n")
}
