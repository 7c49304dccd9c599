//! Responses about network policies and gateway traffic.

use sandling_engine::network::{EffectivePolicy, NetworkCounts, NetworkSettings, PolicySource};
use sandling_engine::{NetworkDefault, Sandbox, SandboxInfo};
use sandling_network::policy::{Entry, Mode, Policy, TlsMode};
use sandling_wire::{
    AttachedView, CountsView, GroupView, ModeName, NetworkDefaultView, NetworkSummary, NetworkView, PolicyFrom,
    PolicyView, TlsName,
};

use super::IntoWire;

impl IntoWire for &Policy {
    type Wire = PolicyView;

    fn into_wire(self) -> PolicyView {
        let mode = match self.mode {
            Mode::Deny => ModeName::Deny,
            Mode::Allow => ModeName::Allow,
            Mode::Open => ModeName::Open,
            Mode::Learn => ModeName::Learn,
        };
        let tls = match self.tls {
            TlsMode::Sealed => TlsName::Sealed,
            TlsMode::Inspected => TlsName::Inspected,
        };
        let texts = |entries: &[Entry]| entries.iter().map(ToString::to_string).collect();
        PolicyView { mode, allow: texts(&self.allow), deny: texts(&self.deny), tls }
    }
}

impl IntoWire for PolicySource {
    type Wire = PolicyFrom;

    fn into_wire(self) -> PolicyFrom {
        match self {
            PolicySource::Sandbox => PolicyFrom::Sandbox,
            PolicySource::Template => PolicyFrom::Template,
            PolicySource::Workspace => PolicyFrom::Workspace,
            PolicySource::Nothing => PolicyFrom::Nothing,
        }
    }
}

/// A sandbox's attached secrets, without those that were removed since.
fn usable(settings: &NetworkSettings, effective: &EffectivePolicy) -> impl Iterator<Item = AttachedView> {
    let attached = settings.secrets.iter().filter(|secret| !effective.revoked.contains(&secret.name));
    attached.map(|secret| AttachedView { name: secret.name.clone(), placeholder: secret.placeholder.clone() })
}

pub(crate) fn network_summary(info: &SandboxInfo) -> NetworkSummary {
    let (settings, effective) = (&info.network, &info.effective);
    let secrets = usable(settings, effective).map(|secret| secret.name).collect();
    let group = settings.group.as_ref().map(|membership| membership.group.clone());
    NetworkSummary { policy: (&effective.policy).into_wire(), from: effective.from.into_wire(), secrets, group }
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
        from: effective.from.into_wire(),
        bound: effective.bound.as_ref().map(IntoWire::into_wire),
        limits: effective.limits.into_wire(),
        secrets: usable(&settings, &effective).collect(),
        revoked_secrets: effective.revoked,
        group: settings
            .group
            .map(|membership| GroupView { names: membership.names(sandbox.id()), name: membership.group }),
        counts: sandbox.network_counts().into_wire(),
        learned: learned.map(|policy| policy.allow.iter().map(ToString::to_string).collect()),
    }
}

impl IntoWire for NetworkCounts {
    type Wire = CountsView;

    fn into_wire(self) -> CountsView {
        CountsView {
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
            connections_open: self.connections_open,
            connections_allowed: self.connections_allowed,
            connections_refused: self.connections_refused,
            dns_queries: self.dns_queries,
            dns_refused: self.dns_refused,
            requests_refused: self.requests_refused,
            packets_refused: self.packets_refused,
            events_lost: self.events_lost,
        }
    }
}
