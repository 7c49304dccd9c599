//! Copies of the process: each thread records itself, and a fork keeps the memory.

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use crate::context::{Action, Context, Table, call, save};
use crate::guest_memory::{ADDRESS, BYTES};
use crate::late_pages::on_missing_page;
use crate::plan::MOST_THREADS;
use crate::system::{
    FUTEX_WAIT, FUTEX_WAKE, SA_RESTORER, SIGBUS, SYS_ACCEPT4, SYS_ARCH_PRCTL, SYS_CLONE, SYS_EXIT_GROUP, SYS_FUTEX,
    SYS_GETPID, SYS_GETTID, SYS_MADVISE, SYS_READ, SYS_RT_SIGACTION, SYS_RT_SIGPROCMASK, SYS_TGKILL, SYS_WAIT4,
    SYS_WRITE, close, fill, syscall,
};

const ARCH_GET_GS: usize = 0x1004;
const SOCK_CLOEXEC: c_int = 0o2_000_000;
const MADV_DOFORK: c_int = 11;
const SIG_BLOCK: c_int = 0;
const SIGCHLD: c_int = 17;
const WNOHANG: c_int = 1;
const ANY_CHILD: c_int = -1;
const SA_RESTART: usize = 0x1000_0000;

/// A signal of the C library's own, which no thread blocks. It is for calls such as `setuid`, which QEMU cannot make.
const PARKING_SIGNAL: c_long = 33;
const PARKING_TRIES: u32 = 200;
const PARKING_PATIENCE_NS: usize = 10_000_000;

/// The socket on which callers ask for copies.
pub static COPY_FD: AtomicUsize = AtomicUsize::new(0);

/// Copies the process for each caller, one after the other.
pub extern "C" fn serve(_: *mut c_void) -> *mut c_void {
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
        (*table).actions[SIGBUS as usize - 1] = on_missing_page(after_signal);
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
