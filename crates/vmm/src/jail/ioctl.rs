//! The `ioctl` requests that QEMU may make, by number.
//!
//! The list is what Debian's QEMU 7.2 makes for our devices: measured with `strace -f` under emulation (boot, restore,
//! save, fork, hibernation, volumes, network), and for KVM taken from its source and run in the nested KVM test.
//! QEMU's devices have no terminal, no TUN device and no host block device, so under emulation there is no request
//! that it needs. Requests of nested virtualization, device assignment, encrypted guests and Xen are not on the list.
//!
//! A filter compares the low 32 bits, because the kernel ignores the others.

/// Requests on `/dev/kvm` and on the descriptors of the machine and its processors that QEMU gets there. The one that
/// enters the guest is the first, because a filter compares them in this order.
#[rustfmt::skip]
pub(super) const KVM: &[u32] = &[
    // the guest runs, and its interrupts
    0x0000_ae80, // KVM_RUN
    0x4008_ae61, // KVM_IRQ_LINE
    0xc008_ae67, // KVM_IRQ_LINE_STATUS
    0x4020_aea5, // KVM_SIGNAL_MSI
    0x4040_ae79, // KVM_IOEVENTFD
    0x4020_ae76, // KVM_IRQFD
    0x4008_ae6a, // KVM_SET_GSI_ROUTING
    // what the host offers
    0x0000_ae00, // KVM_GET_API_VERSION
    0x0000_ae03, // KVM_CHECK_EXTENSION
    0x4068_aea3, // KVM_ENABLE_CAP
    0x0000_ae01, // KVM_CREATE_VM
    0x0000_ae04, // KVM_GET_VCPU_MMAP_SIZE
    0xc004_ae02, // KVM_GET_MSR_INDEX_LIST
    0xc004_ae0a, // KVM_GET_MSR_FEATURE_INDEX_LIST
    0xc008_ae05, // KVM_GET_SUPPORTED_CPUID
    0xc008_aec1, // KVM_GET_SUPPORTED_HV_CPUID
    0x8008_ae9d, // KVM_X86_GET_MCE_CAP_SUPPORTED
    0x4018_aee2, // KVM_GET_DEVICE_ATTR
    0x4018_aee3, // KVM_HAS_DEVICE_ATTR
    // the machine
    0x0000_ae41, // KVM_CREATE_VCPU
    0x0000_ae60, // KVM_CREATE_IRQCHIP
    0x4040_ae77, // KVM_CREATE_PIT2
    0x0000_ae47, // KVM_SET_TSS_ADDR
    0x4008_ae48, // KVM_SET_IDENTITY_MAP_ADDR
    0x4020_ae46, // KVM_SET_USER_MEMORY_REGION
    0x40a0_ae49, // KVM_SET_USER_MEMORY_REGION2
    0x4010_ae42, // KVM_GET_DIRTY_LOG
    0xc018_aec0, // KVM_CLEAR_DIRTY_LOG
    0x4010_ae67, // KVM_REGISTER_COALESCED_MMIO
    0x4010_ae68, // KVM_UNREGISTER_COALESCED_MMIO
    0xc208_ae62, // KVM_GET_IRQCHIP
    0x8208_ae63, // KVM_SET_IRQCHIP
    0x8070_ae9f, // KVM_GET_PIT2
    0x4070_aea0, // KVM_SET_PIT2
    0x0000_ae71, // KVM_REINJECT_CONTROL
    0x8030_ae7c, // KVM_GET_CLOCK
    0x4030_ae7b, // KVM_SET_CLOCK
    0x4188_aec6, // KVM_X86_SET_MSR_FILTER
    // a virtual processor
    0x8090_ae81, // KVM_GET_REGS
    0x4090_ae82, // KVM_SET_REGS
    0x8138_ae83, // KVM_GET_SREGS
    0x4138_ae84, // KVM_SET_SREGS
    0x8140_aecc, // KVM_GET_SREGS2
    0x4140_aecd, // KVM_SET_SREGS2
    0x81a0_ae8c, // KVM_GET_FPU
    0x41a0_ae8d, // KVM_SET_FPU
    0x9000_aea4, // KVM_GET_XSAVE
    0x9000_aecf, // KVM_GET_XSAVE2
    0x5000_aea5, // KVM_SET_XSAVE
    0x8188_aea6, // KVM_GET_XCRS
    0x4188_aea7, // KVM_SET_XCRS
    0x8080_aea1, // KVM_GET_DEBUGREGS
    0x4080_aea2, // KVM_SET_DEBUGREGS
    0xc008_ae88, // KVM_GET_MSRS
    0x4008_ae89, // KVM_SET_MSRS
    0x8400_ae8e, // KVM_GET_LAPIC
    0x4400_ae8f, // KVM_SET_LAPIC
    0x8004_ae98, // KVM_GET_MP_STATE
    0x4004_ae99, // KVM_SET_MP_STATE
    0x8040_ae9f, // KVM_GET_VCPU_EVENTS
    0x4040_aea0, // KVM_SET_VCPU_EVENTS
    0x4008_ae90, // KVM_SET_CPUID2
    0x0000_aea3, // KVM_GET_TSC_KHZ
    0x0000_aea2, // KVM_SET_TSC_KHZ
    0x0000_aead, // KVM_KVMCLOCK_CTRL
    0x4004_ae8b, // KVM_SET_SIGNAL_MASK
    0xc028_ae92, // KVM_TPR_ACCESS_REPORTING
    0x4008_ae93, // KVM_SET_VAPIC_ADDR
    0x4008_ae9c, // KVM_X86_SETUP_MCE
    0x4040_ae9e, // KVM_X86_SET_MCE
    0x4004_ae86, // KVM_INTERRUPT
    0x0000_ae9a, // KVM_NMI
    0x0000_aeb7, // KVM_SMI
];

/// Requests by which the supervisor answers the program's opens of guest memory.
pub(super) const SUPERVISOR: [u32; 4] = [
    libc::SECCOMP_IOCTL_NOTIF_RECV as u32,
    libc::SECCOMP_IOCTL_NOTIF_SEND as u32,
    libc::SECCOMP_IOCTL_NOTIF_ADDFD as u32,
    libc::SECCOMP_IOCTL_NOTIF_ID_VALID as u32,
];
