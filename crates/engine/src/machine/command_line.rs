//! What a guest's kernel is started with.

use sandling_vmm::accelerator::Accelerator;
use sandling_vmm::machine::Hardware;

use super::ticks;

/// Options that make a guest start faster or survive: no delays, a panic ends the machine at once, and nothing is
/// accounted or checked on every call that nobody in a sandbox looks at.
///
/// `mitigations=off` is for emulated guests only. The instructions and registers by which a kernel keeps programs from
/// reading its memory through a processor's speculation have no effect on the host's processor there, and only cost
/// time. Under KVM they protect the guest's kernel and users from each other.
pub(super) const EMULATED: &str = "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t tsc=reliable no_timer_check \
    random.trust_cpu=on cgroup_no_v1=all mitigations=off nmi_watchdog=0 audit=0 psi=0 lsm=landlock \
    init_on_alloc=0";
const ON_KVM: &str = "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t tsc=reliable no_timer_check \
    random.trust_cpu=on cgroup_no_v1=all nmi_watchdog=0 audit=0 psi=0 lsm=landlock init_on_alloc=0";
/// Every command line that a version had, as it was: snapshots stand on bakes of older versions, too. Earlier versions
/// had the first one under KVM, too.
pub(super) const COMMAND_LINES: [&str; 2] = [EMULATED, ON_KVM];

pub(super) fn options(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Tcg => EMULATED,
        Accelerator::Kvm => ON_KVM,
    }
}

/// With the speed of what an emulated guest takes for its clock.
pub(super) async fn command_line(hardware: &Hardware) -> String {
    let options = options(hardware.accelerator);
    match ticks::khz().await.filter(|_| hardware.accelerator == Accelerator::Tcg) {
        Some(khz) => format!("{options} tsc_early_khz={khz}"),
        None => options.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_emulated_kernels_do_without_mitigations() {
        assert!(options(Accelerator::Tcg).contains(" mitigations=off "));
        assert!(!options(Accelerator::Kvm).contains("mitigations"));
        assert_eq!(ON_KVM, EMULATED.replace(" mitigations=off", ""), "nothing else differs");
    }
}
