//! Responses about network policies and gateway traffic.

use sandling_engine::network::{EffectivePolicy, NetworkSettings};
use sandling_engine::{NetworkDefault, Sandbox, SandboxInfo};
use sandling_network::policy::{Entry, Mode, Policy, TlsMode};
use sandling_wire::{
    AttachedView, GroupView, ModeName, NetworkDefaultView, NetworkSummary, NetworkView, PolicyView, TlsName,
};

use super::IntoWire;

impl IntoWire for &Policy {
    type Wire = PolicyView;

    fn into_wire(self) -> PolicyView {
        let (mode, tls) = (self.mode.into_wire(), self.tls.into_wire());
        let texts = |entries: &[Entry]| entries.iter().map(ToString::to_string).collect();
        PolicyView { mode, allow: texts(&self.allow), deny: texts(&self.deny), tls }
    }
}

into_wire!(enum Mode => ModeName { Deny, Allow, Open, Learn });
into_wire!(enum TlsMode => TlsName { Sealed, Inspected });

/// A sandbox's attached secrets, without those that were removed since.
fn usable(settings: &NetworkSettings, effective: &EffectivePolicy) -> impl Iterator<Item = AttachedView> {
    let attached = settings.secrets.iter().filter(|secret| !effective.revoked.contains(&secret.name));
    attached.map(|secret| AttachedView { name: secret.name.clone(), placeholder: secret.placeholder.clone() })
}

pub(crate) fn network_summary(info: &SandboxInfo) -> NetworkSummary {
    let (settings, effective) = (&info.network, &info.effective);
    let secrets = usable(settings, effective).map(|secret| secret.name).collect();
    let group = settings.group.as_ref().map(|membership| membership.group.clone());
    NetworkSummary { policy: (&effective.policy).into_wire(), from: effective.from, secrets, group }
}

impl IntoWire for NetworkDefault {
    type Wire = NetworkDefaultView;

    fn into_wire(self) -> NetworkDefaultView {
        NetworkDefaultView {
            policy: self.policy.as_ref().map(IntoWire::into_wire),
            limits: self.limits.into_wire(),
            binding: self.binding == Some(true),
        }
    }
}

pub(crate) fn network_view(sandbox: &Sandbox) -> NetworkView {
    let (settings, effective) = (sandbox.network(), sandbox.effective_policy());
    let learned = (effective.policy.mode == Mode::Learn).then(|| sandbox.learned_policy());
    NetworkView {
        policy: (&effective.policy).into_wire(),
        from: effective.from,
        bound: effective.bound.as_ref().map(IntoWire::into_wire),
        limits: effective.limits.into_wire(),
        secrets: usable(&settings, &effective).collect(),
        revoked_secrets: effective.revoked,
        group: settings
            .group
            .map(|membership| GroupView { names: membership.names(sandbox.id()), name: membership.group }),
        counts: sandbox.network_counts(),
        learned: learned.map(|policy| policy.allow.iter().map(ToString::to_string).collect()),
    }
}
