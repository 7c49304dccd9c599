//! The accelerator of this host's virtual machines: KVM where it works, otherwise QEMU's emulation.
//!
//! `/dev/kvm` may be absent, forbidden, or present and unable to run a stock kernel. The only way to find out is to run
//! guest code, so [`probe`] does. The answer is valid until the host reboots, so cache it.

mod guest_code;

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    Kvm,
    Tcg,
}

impl Accelerator {
    /// The default CPU model.
    pub fn default_cpu_model(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            // Five-level paging only makes emulated page walks longer. The extended level is explicit: without SVM,
            // QEMU lowers it below the leaf that has the address sizes, and the kernel then treats its own memory as
            // out of range. With "fast string instructions", kernel and C library would copy byte by byte, and each
            // byte is one iteration of an emulated loop.
            Self::Tcg => "max,la57=off,xlevel=0x80000008,erms=off",
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

/// The user's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AcceleratorChoice {
    #[default]
    Auto,
    Kvm,
    Tcg,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an accelerator; use auto, kvm or tcg")]
pub struct UnknownAccelerator(String);

impl FromStr for AcceleratorChoice {
    type Err = UnknownAccelerator;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Tcg),
            _ => Err(UnknownAccelerator(text.to_owned())),
        }
    }
}

/// An accelerator, and the reason for it, for humans.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    pub accelerator: Accelerator,
    pub reason: String,
    pub took: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("KVM was requested but does not work on this host: {reason}; use auto or tcg")]
    KvmDoesNotWork { reason: String },
}

/// Runs a few instructions of guest code to find out whether KVM works. It takes milliseconds, and a few seconds at
/// most if KVM hangs.
pub fn probe() -> Probe {
    let begun = Instant::now();
    let (accelerator, reason) = match guest_code::run(guest_code::TIME_LIMIT) {
        Ok(()) => (Accelerator::Kvm, "KVM ran the probe's guest code".to_owned()),
        Err(reason) => (Accelerator::Tcg, reason.to_string()),
    };
    Probe { accelerator, reason, took: begun.elapsed() }
}

/// Turns a choice into an accelerator. If KVM is chosen and does not work, that is an error, and never a silent
/// fallback.
pub fn resolve(choice: AcceleratorChoice) -> Result<Probe, ResolveError> {
    if choice == AcceleratorChoice::Tcg {
        return Ok(Probe { accelerator: Accelerator::Tcg, reason: "requested".to_owned(), took: Duration::ZERO });
    }
    let probe = probe();
    if choice == AcceleratorChoice::Kvm && probe.accelerator != Accelerator::Kvm {
        return Err(ResolveError::KvmDoesNotWork { reason: probe.reason });
    }
    Ok(probe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_parsed_from_its_exact_name() {
        assert_eq!("auto".parse(), Ok(AcceleratorChoice::Auto));
        assert_eq!("kvm".parse(), Ok(AcceleratorChoice::Kvm));
        assert_eq!("tcg".parse(), Ok(AcceleratorChoice::Tcg));
        assert!("KVM ".parse::<AcceleratorChoice>().is_err());
    }

    #[test]
    fn the_probe_answers_in_time_with_a_reason() {
        let probe = probe();
        assert!(!probe.reason.is_empty());
        assert!(probe.took < guest_code::TIME_LIMIT * 3, "{probe:?}");
    }

    #[test]
    fn requested_kvm_is_used_or_refused_but_never_replaced() {
        match resolve(AcceleratorChoice::Kvm) {
            Ok(probe) => assert_eq!(probe.accelerator, Accelerator::Kvm),
            Err(ResolveError::KvmDoesNotWork { reason }) => assert!(!reason.is_empty()),
        }
    }

    #[test]
    fn requested_tcg_is_used_without_a_probe() {
        let probe = resolve(AcceleratorChoice::Tcg).unwrap();
        assert_eq!((probe.accelerator, probe.took), (Accelerator::Tcg, Duration::ZERO));
    }
}
