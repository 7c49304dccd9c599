//! What holds for a sandbox at one moment: what it says itself, what it follows where it says nothing, what binds it.

use sandling_network::Limits;
use sandling_network::policy::{Policy, TlsMode};
use serde::Serialize;

use super::defaults::{NetworkDefault, key};
use super::settings::NetworkSettings;
use crate::engine::Engine;
use crate::sandbox::Command;
use crate::store::StoreError;

/// Who said what a sandbox may reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicySource {
    /// It itself, or whoever made or changed it.
    Sandbox,
    /// Its template's default.
    Template,
    /// Its workspace's default.
    Workspace,
    /// Nobody, so it may reach nothing.
    #[default]
    Nothing,
}

/// What holds for a sandbox. Until it is known that is nothing at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InForce {
    pub policy: Policy,
    pub from: PolicySource,
    /// The workspace's policy, if it binds: nothing beyond it is reached, whatever the other says.
    pub bound: Option<Policy>,
    pub limits: Limits,
    /// Names of secrets that it was given and that were removed since.
    pub revoked: Vec<String>,
}

impl InForce {
    /// `most` are the operator's limits.
    fn of(own: &NetworkSettings, template: NetworkDefault, workspace: NetworkDefault, most: &Limits) -> Self {
        let binds = workspace.binding == Some(true);
        let most = if binds { workspace.limits.within(most) } else { *most };
        // A default that binds has a policy; if it had none, nothing would be reached.
        let bound = binds.then(|| workspace.policy.clone().unwrap_or_default());
        let limits = own.limits.or(template.limits).or(workspace.limits).within(&most);
        let said = [
            (own.policy.clone(), PolicySource::Sandbox),
            (template.policy, PolicySource::Template),
            (workspace.policy, PolicySource::Workspace),
        ];
        let said = said.into_iter().find_map(|(policy, from)| Some((policy?, from)));
        let (policy, from) = said.unwrap_or_default();
        Self { policy, from, bound, limits, revoked: Vec::new() }
    }

    /// Whether all of its TLS has to be opened.
    pub(crate) fn inspects(&self) -> bool {
        self.bound.iter().chain([&self.policy]).any(|policy| policy.tls == TlsMode::Inspected)
    }

    /// What is written down of a change.
    pub(crate) fn detail(&self) -> serde_json::Value {
        serde_json::json!({ "policy": self.policy, "from": self.from, "bound": self.bound, "limits": self.limits })
    }
}

impl Engine {
    /// What holds for a sandbox that says nothing itself.
    pub fn usual_network(&self, workspace: &str, template: &str) -> Result<InForce, StoreError> {
        self.in_force(workspace, template, &NetworkSettings::default())
    }

    /// What holds for a sandbox with these settings, as the defaults are now.
    pub(crate) fn in_force(
        &self,
        workspace: &str,
        template: &str,
        own: &NetworkSettings,
    ) -> Result<InForce, StoreError> {
        let default = |template| self.store.network_default(workspace, &key(template)).map(Option::unwrap_or_default);
        let said = InForce::of(own, default(Some(template))?, default(None)?, &self.outside.limits);
        Ok(InForce { revoked: self.revoked(workspace, &own.secrets)?, ..said })
    }

    /// Gives the sandboxes of a workspace what the defaults say now. Those that sleep have it when they wake, those of
    /// another engine of this home when they next get a gateway.
    pub(super) fn defaults_changed(&self, workspace: &str) {
        for sandbox in self.living() {
            if sandbox.info.workspace != workspace || !sandbox.network.renew(self, &sandbox.info) {
                continue;
            }
            let detail = sandbox.network.in_force().detail();
            if let Err(error) = self.record(sandbox.id(), workspace, "network_changed", detail) {
                tracing::warn!(sandbox = %sandbox.id(), error = &error as &dyn std::error::Error, "an event was not written down");
            }
            if sandbox.network.lacks_authority() {
                // Its guest is told behind this; until then its TLS is refused.
                tokio::spawn(async move { sandbox.commands.send(Command::CatchUp).await });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sandling_network::LimitRequest;
    use sandling_network::policy::Mode;

    use super::*;

    fn own(policy: Option<Policy>, connections: Option<u64>) -> NetworkSettings {
        let limits = LimitRequest { connections, ..LimitRequest::default() };
        NetworkSettings { policy, limits, ..NetworkSettings::default() }
    }

    fn default(mode: Option<Mode>, connections: Option<u64>) -> NetworkDefault {
        let limits = LimitRequest { connections, ..LimitRequest::default() };
        NetworkDefault { policy: mode.map(Policy::of), limits, ..NetworkDefault::default() }
    }

    fn in_force(own: &NetworkSettings, template: NetworkDefault, workspace: NetworkDefault) -> InForce {
        InForce::of(own, template, workspace, &Limits::default())
    }

    #[test]
    fn who_says_nothing_follows_the_nearest_default() {
        let (silent, none) = (own(None, None), NetworkDefault::default);
        let said = |template, workspace| {
            let in_force = in_force(&silent, template, workspace);
            (in_force.policy.mode, in_force.from, in_force.limits.connections)
        };
        assert_eq!(said(none(), none()), (Mode::Deny, PolicySource::Nothing, Limits::default().connections));
        let open = || default(Some(Mode::Open), Some(9));
        assert_eq!(said(none(), open()), (Mode::Open, PolicySource::Workspace, 9));
        assert_eq!(said(default(Some(Mode::Deny), None), open()), (Mode::Deny, PolicySource::Template, 9));
        assert_eq!(said(default(None, Some(5)), open()), (Mode::Open, PolicySource::Workspace, 5));
    }

    #[test]
    fn who_says_something_follows_in_the_rest() {
        let open = own(Some(Policy::of(Mode::Open)), None);
        let said = in_force(&open, default(Some(Mode::Deny), Some(5)), default(Some(Mode::Deny), Some(9)));
        assert_eq!((said.policy.mode, said.from, said.limits.connections), (Mode::Open, PolicySource::Sandbox, 5));
        let limited = in_force(&own(None, Some(3)), default(Some(Mode::Learn), Some(5)), NetworkDefault::default());
        assert_eq!((limited.policy.mode, limited.from), (Mode::Learn, PolicySource::Template));
        assert_eq!(limited.limits.connections, 3);
    }

    #[test]
    fn what_binds_is_the_most_of_all() {
        let binding = |mode| NetworkDefault { binding: Some(true), ..default(mode, Some(9)) };
        let wide = own(Some(Policy::of(Mode::Open)), Some(500));
        let said = in_force(&wide, default(Some(Mode::Open), Some(50)), binding(Some(Mode::Deny)));
        assert_eq!((said.policy.mode, said.bound), (Mode::Open, Some(Policy::default())));
        assert_eq!(said.limits.connections, 9);
        assert_eq!(in_force(&own(None, Some(3)), NetworkDefault::default(), binding(None)).limits.connections, 3);
        assert_eq!(in_force(&wide, NetworkDefault::default(), binding(None)).bound, Some(Policy::default()), "closed");
        let loose = NetworkDefault { binding: Some(false), ..default(Some(Mode::Deny), Some(9)) };
        assert_eq!(in_force(&wide, NetworkDefault::default(), loose).bound, None);
    }

    #[test]
    fn tls_is_opened_if_either_policy_says_so() {
        let inspected = || Policy { tls: TlsMode::Inspected, ..Policy::default() };
        assert!(!InForce::default().inspects());
        assert!(InForce { policy: inspected(), ..InForce::default() }.inspects());
        assert!(InForce { bound: Some(inspected()), ..InForce::default() }.inspects());
    }
}
