//! The process cache: QEMU processes that were captured with everything they have translated, and can be resumed.
//!
//! QEMU can load a machine's devices and memory, but it starts with nothing translated. Under emulation, translation is
//! most of what a restored machine does first. So besides device state, [`capture`] stores a copy of the process
//! ([`crate::memory::Frozen`]) as pages and a plan. `preload/resume.rs` carries the plan out in a jail like QEMU's, and
//! continues as that process.
//!
//! ```text
//!   QEMU, stopped ── copy ──▶ process.00 (its memory)    guest memory's layers    process.plan
//!                                    └──────────── mapped privately ───┴────────────┘
//!                             a new jail: resume ──▶ the same threads, at the same addresses
//! ```
//!
//! A cached process is valid for one boot of one host, and exists for emulated machines only. It is an optimization:
//! device state is always there to fall back to. [`ProcessCache`] is where callers begin. No library does this for a
//! process that cannot be traced: the jail has no `/proc`, and allows only QEMU's own system calls.
//!
//! # The kernel's state of a process, and how a resumed process gets it
//!
//! *Restored* state is the captured process's. *From the jail* means that the new jail sets it, as for any QEMU, and
//! the captured process has no say. *Impossible* means that the jail's system call filter (`jail/seccomp.rs`) does not
//! let QEMU have any. *Refused* means that [`capture`] fails, and the process is not cached.
//!
//! | state | in a resumed process |
//! |---|---|
//! | general registers | restored: each thread returns from the signal that parked it, and the kernel loads its frame |
//! | x87, SSE, AVX (XSAVE) | restored from the same frame; the host and its processor are the same |
//! | `fs` base (thread storage) | restored by `clone` or `arch_prctl` |
//! | `gs` base, `arch_prctl` settings | refused if a thread has a `gs` base; QEMU makes no other setting |
//! | debug registers, ptrace | impossible |
//! | signal mask, alternate stack | restored from the signal frame; the library's own thread blocks all signals in both, and QEMU's threads never block SIGBUS |
//! | signal handlers | restored: the library records all 64, and replaces that of SIGBUS by its own, which waits for pages that are still being written |
//! | pending signals | refused, except SIGCHLD, which reports a copy's end, and a late parking signal |
//! | thread ids | new; written to where the C library has them (checked at capture), with `set_tid_address` |
//! | ids in locks that are held | stale. A stopped QEMU's threads wait in the kernel and hold no lock that checks its owner. If one did, QEMU would abort at once, and the machine would be restored from device state |
//! | interrupted system calls | restarted, or EINTR, as after any signal |
//! | futex waiters | restored: a waiter is a thread in a system call, see above |
//! | robust list | not registered again: QEMU has no robust mutexes |
//! | rseq | not registered again: only `sched_getcpu` reads it, which QEMU does not call |
//! | membarrier registration | not registered again: QEMU uses no command that needs it |
//! | thread names, timer slack | restored for all threads at once: QEMU's threads have one name and one slack |
//! | CPU time, page fault counters | start at zero, as for any restored machine |
//! | POSIX timers | refused |
//! | `setitimer`, `alarm` | impossible |
//! | scheduling policy, niceness, CPU affinity | from the jail: QEMU cannot change them |
//! | clocks | the same boot, so they continue; QEMU and the guest see a pause |
//! | memory contents and protection | restored: written pages and mapped files are stored, except guest memory, which has layers of its own |
//! | shared mappings | refused |
//! | addresses, vDSO | restored; the vDSO is moved |
//! | heap (`brk`) | not the kernel's any more. The C library finds that it cannot grow, and uses `mmap`; the preloaded library keeps it from shrinking the heap |
//! | first stack | restored with the size to which it could grow |
//! | `madvise` (huge pages, no dump, no fork) | not restored: affects speed and core dumps only. The library undoes "no fork" itself |
//! | `mlock`, memory policy, userfaultfd, protection keys | impossible |
//! | inherited descriptors | from the jail: fresh sockets under the same numbers, with the flags that the process had set |
//! | connections | closed: the process gets an end of a connection whose other end is gone |
//! | other descriptors | restored: eventfd with its count, signalfd with its mask, an epoll that watches nothing, files under `/vm`, `/layers` and `/dev` |
//! | timerfd, pipes, memfd, epoll that watches something, deleted files, others | refused |
//! | file offsets | start at zero: QEMU reads and writes its disks at explicit offsets |
//! | file locks | not restored: an overlay belongs to one machine, and layers are never written |
//! | io_uring, kernel AIO | impossible |
//! | disk requests under way | none: QEMU has completed them when it has stopped |
//! | child processes | none: only copies of the process, which it never needs again |
//! | credentials, capabilities, namespaces, no_new_privs, seccomp, Landlock | from the jail |
//! | cgroup, resource limits, OOM score, parent death signal | from the jail |
//! | root, working directory, umask, session | from the jail |
//! | personality | from the jail: it turns off address randomization, so that the heap is where the plan expects it |
//! | dumpable | from the jail: a process with a subordinate user gives it up (`preload/context.rs`) |
//! | other `prctl` flags | impossible, except the machine-check policy, which QEMU sets with KVM only |
//! | SysV semaphores, keyrings | impossible |
//! | random numbers for the guest (`rdrand`) | from the host's kernel: the preloaded library replaces the TLS library's generator, whose state all resumed processes would share |
//! | addresses and stack canaries | shared by all processes that are resumed from one capture; see SECURITY.md |

mod areas;
mod cache;
mod capture;
mod descriptors;

pub use cache::{CachedProcess, ProcessCache};
pub use capture::{CapturedProcess, capture};

/// The name among the layers of a file of pages.
fn pages_name(number: usize) -> String {
    format!("{}{number:02}", crate::plan::PAGES_PREFIX)
}
