//! The probe's guest: a few instructions in 64-bit mode that a stock kernel needs and that a broken KVM gets wrong.
//!
//! The vCPU runs on its own thread. The probe never waits for it longer than the limit: a signal interrupts the thread
//! in the kernel, and if even that does not help, the probe abandons it.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_segment, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Milliseconds on hardware; KVM inside an emulated machine, on a busy host, was seen to need more than a second. Only
/// a KVM that hangs takes all of it.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(4);

const MEMORY_BYTES: usize = 2 * 1024 * 1024;
const PML4: u64 = 0x1000;
const PDPT: u64 = 0x2000;
const PD: u64 = 0x3000;
const CODE: u64 = 0x4000;
const PAIR: u64 = 0x5000;
const XSAVE_AREA: u64 = 0x6000;
const STACK_TOP: u64 = 0x8000;

const LOW: u64 = 0x1122_3344_5566_7788;
const HIGH: u64 = 0x99aa_bbcc_ddee_ff00;
const DONE_PORT: u16 = 0x10;
const DONE: u8 = 0x2a;

/// The loop at the end tells hardware from a kernel that emulates every instruction: there it outlasts the limit.
const GUEST_CODE: &[&[u8]] = &[
    &[0xf0, 0x48, 0x0f, 0xc7, 0x0f], // lock cmpxchg16b [rdi]
    &[0x75, 0x1f],                   // jnz failed
    &[0x31, 0xc9],                   // xor ecx, ecx
    &[0x31, 0xd2],                   // xor edx, edx
    &[0xb8, 0x03, 0x00, 0x00, 0x00], // mov eax, 3 (x87 and SSE)
    &[0x0f, 0x01, 0xd1],             // xsetbv
    &[0x0f, 0xae, 0x26],             // xsave [rsi]
    &[0x0f, 0xae, 0x2e],             // xrstor [rsi]
    &[0xb9, 0x40, 0x0d, 0x03, 0x00], // mov ecx, 200_000
    &[0xff, 0xc9],                   // again: dec ecx
    &[0x75, 0xfc],                   // jnz again
    &[0xb0, DONE],                   // mov al, DONE
    &[0xe6, DONE_PORT as u8],        // out DONE_PORT, al
    &[0xf4],                         // failed: hlt
];

#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("/dev/kvm is absent")]
    Absent,
    #[error("/dev/kvm may not be opened by this user (add the user to its group)")]
    Forbidden,
    #[error("/dev/kvm does not open ({0})")]
    DoesNotOpen(kvm_ioctls::Error),
    #[error("/dev/kvm is there, but {step} fails ({error})")]
    Refused { step: &'static str, error: io::Error },
    #[error("/dev/kvm is there, but cannot run a stock kernel: the probe's guest code ended with {exit}")]
    Broken { exit: String },
    #[error("/dev/kvm is there, but its guest code did not end within {} ms", .0.as_millis())]
    TooSlow(Duration),
}

fn refused<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Unusable {
    move |error| Unusable::Refused { step, error: error.into() }
}

fn kvm_refused(step: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> Unusable {
    move |error| Unusable::Refused { step, error: io::Error::from_raw_os_error(error.errno()) }
}

/// Runs the guest code to its end, or says why that cannot be done.
pub(super) fn run(limit: Duration) -> Result<(), Unusable> {
    let kvm = open()?;
    allow_kicks().map_err(refused("installing a signal handler"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, result) = channel();
    let vcpu_stop = stop.clone();
    let vcpu = std::thread::Builder::new()
        .name("kvm-probe".to_owned())
        .spawn(move || {
            // The probe may have given up by now.
            let _ = tell.send(run_vcpu(&kvm, &vcpu_stop, limit));
        })
        .map_err(refused("starting a thread"))?;
    wait(&vcpu, &result, &stop, limit)
}

fn open() -> Result<Kvm, Unusable> {
    Kvm::new().map_err(|error| match error.errno() {
        libc::ENOENT | libc::ENODEV | libc::ENXIO => Unusable::Absent,
        libc::EACCES | libc::EPERM => Unusable::Forbidden,
        _ => Unusable::DoesNotOpen(error),
    })
}

fn wait(
    vcpu: &JoinHandle<()>,
    result: &Receiver<Result<(), Unusable>>,
    stop: &AtomicBool,
    limit: Duration,
) -> Result<(), Unusable> {
    match result.recv_timeout(limit) {
        Ok(answer) => return answer,
        Err(RecvTimeoutError::Disconnected) => return Err(Unusable::Broken { exit: "a panic".to_owned() }),
        Err(RecvTimeoutError::Timeout) => stop.store(true, Ordering::Release),
    }
    let given_up = Instant::now() + limit;
    while Instant::now() < given_up {
        // SAFETY: the handle is not joined, so its thread id is still valid even if the thread has ended.
        unsafe { libc::pthread_kill(vcpu.as_pthread_t(), kick_signal()) };
        // Sent again and again: a signal that arrives just before KVM_RUN would otherwise be lost.
        if !matches!(result.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout)) {
            break;
        }
    }
    Err(Unusable::TooSlow(limit))
}

fn kick_signal() -> i32 {
    libc::SIGRTMIN() + 7
}

extern "C" fn do_nothing(_: i32) {}

/// A handler that does nothing, without SA_RESTART, makes the signal end KVM_RUN instead of the process.
fn allow_kicks() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is valid; the handler is async-signal-safe as it does nothing.
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = do_nothing as *const () as usize;
        libc::sigaction(kick_signal(), &action, std::ptr::null_mut())
    };
    if installed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn run_vcpu(kvm: &Kvm, stop: &AtomicBool, limit: Duration) -> Result<(), Unusable> {
    let vm = kvm.create_vm().map_err(kvm_refused("creating a virtual machine"))?;
    let memory = GuestMemory::new()?;
    memory.fill();
    let mut vcpu = prepare(kvm, &vm, &memory)?;
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(DONE_PORT, [DONE])) => break,
            Ok(exit) => return Err(Unusable::Broken { exit: format!("{exit:?}") }),
            Err(error) if error.errno() == libc::EINTR && !stop.load(Ordering::Acquire) => {}
            Err(error) if error.errno() == libc::EINTR => return Err(Unusable::TooSlow(limit)),
            Err(error) => return Err(kvm_refused("running guest code")(error)),
        }
    }
    if memory.read(PAIR) == LOW && memory.read(PAIR + 8) == HIGH {
        return Ok(());
    }
    Err(Unusable::Broken { exit: "a wrong result of cmpxchg16b".to_owned() })
}

fn prepare(kvm: &Kvm, vm: &VmFd, memory: &GuestMemory) -> Result<VcpuFd, Unusable> {
    // Intel processors without "unrestricted guest" need a place for a task state segment, as QEMU gives them.
    vm.set_tss_address(0xfffb_d000).map_err(kvm_refused("placing the TSS"))?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: MEMORY_BYTES as u64,
        userspace_addr: memory.start.as_ptr() as u64,
    };
    // SAFETY: the region is mapped, of that size, and outlives the virtual machine's only run.
    unsafe { vm.set_user_memory_region(region) }.map_err(kvm_refused("giving it memory"))?;
    let vcpu = vm.create_vcpu(0).map_err(kvm_refused("creating a vCPU"))?;
    let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(kvm_refused("reading CPU features"))?;
    vcpu.set_cpuid2(&cpuid).map_err(kvm_refused("setting CPU features"))?;
    enter_long_mode(&vcpu)?;
    let mut registers = vcpu.get_regs().map_err(kvm_refused("reading registers"))?;
    registers.rip = CODE;
    registers.rsp = STACK_TOP;
    registers.rflags = 2;
    (registers.rax, registers.rdx) = (0, 0);
    (registers.rbx, registers.rcx) = (LOW, HIGH);
    (registers.rdi, registers.rsi) = (PAIR, XSAVE_AREA);
    vcpu.set_regs(&registers).map_err(kvm_refused("setting registers"))?;
    Ok(vcpu)
}

fn enter_long_mode(vcpu: &VcpuFd) -> Result<(), Unusable> {
    const CR0_PE_MP_ET_NE_WP_PG: u64 = 0x8001_0033;
    const CR4_PAE_OSFXSR_OSXMMEXCPT_OSXSAVE: u64 = 0x4_0620;
    const EFER_LME_LMA: u64 = 0x500;

    let mut special = vcpu.get_sregs().map_err(kvm_refused("reading control registers"))?;
    let code = kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector: 8,
        type_: 11,
        present: 1,
        s: 1,
        l: 1,
        g: 1,
        ..Default::default()
    };
    let data = kvm_segment { selector: 16, type_: 3, l: 0, db: 1, ..code };
    special.cs = code;
    (special.ds, special.es, special.ss) = (data, data, data);
    (special.fs, special.gs) = (data, data);
    special.cr0 = CR0_PE_MP_ET_NE_WP_PG;
    special.cr3 = PML4;
    special.cr4 = CR4_PAE_OSFXSR_OSXMMEXCPT_OSXSAVE;
    special.efer = EFER_LME_LMA;
    vcpu.set_sregs(&special).map_err(kvm_refused("entering 64-bit mode"))
}

struct GuestMemory {
    start: NonNull<u8>,
}

impl GuestMemory {
    fn new() -> Result<Self, Unusable> {
        // SAFETY: a fresh anonymous mapping, at an address of the kernel's choice, aliases nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                MEMORY_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(refused("mapping memory"))?;
        let start = NonNull::new(start.cast()).ok_or_else(|| refused("mapping memory")(io::ErrorKind::OutOfMemory))?;
        Ok(Self { start })
    }

    /// Identity-maps the first 2 MiB with one large page and puts the code in place.
    fn fill(&self) {
        const PRESENT_WRITABLE: u64 = 3;
        const LARGE: u64 = 1 << 7;
        self.write(PML4, &(PDPT | PRESENT_WRITABLE).to_le_bytes());
        self.write(PDPT, &(PD | PRESENT_WRITABLE).to_le_bytes());
        self.write(PD, &(PRESENT_WRITABLE | LARGE).to_le_bytes());
        self.write(CODE, &GUEST_CODE.concat());
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        assert!(at as usize + bytes.len() <= MEMORY_BYTES, "inside the guest's memory");
        // SAFETY: in bounds, checked above; no vCPU runs yet.
        unsafe { self.start.add(at as usize).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    fn read(&self, at: u64) -> u64 {
        assert!(at as usize + 8 <= MEMORY_BYTES, "inside the guest's memory");
        // SAFETY: in bounds, checked above; volatile because the guest wrote it.
        u64::from_le(unsafe { self.start.add(at as usize).cast::<u64>().read_volatile() })
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more. If unmapping fails, 2 MiB stay mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), MEMORY_BYTES) };
    }
}
