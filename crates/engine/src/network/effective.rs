//! What holds for a sandbox at one moment: what it says itself, what it follows where it says nothing, what binds it.

use sandling_network::Limits;
use sandling_wire::PolicyFrom;

use super::shared::Shared;
use crate::model::{EffectivePolicy, NetworkDefault, NetworkSettings};
use crate::store::StoreError;

impl EffectivePolicy {
    /// `most` are the operator's limits.
    fn of(own: &NetworkSettings, template: NetworkDefault, workspace: NetworkDefault, most: &Limits) -> Self {
        let binds = workspace.binding == Some(true);
        let most = if binds { workspace.limits.within(most) } else { *most };
        // A default that binds has a policy; if it had none, nothing would be reached.
        let bound = binds.then(|| workspace.policy.clone().unwrap_or_default());
        let limits = own.limits.or(template.limits).or(workspace.limits).within(&most);
        let said = [
            (own.policy.clone(), PolicyFrom::Sandbox),
            (template.policy, PolicyFrom::Template),
            (workspace.policy, PolicyFrom::Workspace),
        ];
        let said = said.into_iter().find_map(|(policy, from)| Some((policy?, from)));
        let (policy, from) = said.unwrap_or_default();
        Self { policy, from, bound, limits, revoked: Vec::new() }
    }
}

/// Under which name a workspace's own default is stored, instead of a template's.
pub(super) const WHOLE_WORKSPACE: &str = "";

/// The name under which a default is stored. An alias has its template's default.
pub(super) fn default_key(template: Option<&str>) -> String {
    let name = template.unwrap_or(WHOLE_WORKSPACE);
    sandling_image::resolve(name).map_or(name.to_owned(), |resolved| resolved.recipe.name.to_string())
}

impl Shared {
    /// What holds for a sandbox with these settings, as the defaults are now.
    pub(super) fn effective(
        &self,
        workspace: &str,
        template: &str,
        own: &NetworkSettings,
    ) -> Result<EffectivePolicy, StoreError> {
        let default =
            |template| self.store.network_default(workspace, &default_key(template)).map(Option::unwrap_or_default);
        let said = EffectivePolicy::of(own, default(Some(template))?, default(None)?, &self.gateways.limits);
        Ok(EffectivePolicy { revoked: self.revoked(workspace, &own.secrets)?, ..said })
    }
}

#[cfg(test)]
mod tests {
    use sandling_network::LimitRequest;
    use sandling_network::policy::{Mode, Policy, TlsMode};

    use super::*;

    fn own(policy: Option<Policy>, connections: Option<u64>) -> NetworkSettings {
        let limits = LimitRequest { connections, ..LimitRequest::default() };
        NetworkSettings { policy, limits, ..NetworkSettings::default() }
    }

    fn default(mode: Option<Mode>, connections: Option<u64>) -> NetworkDefault {
        let limits = LimitRequest { connections, ..LimitRequest::default() };
        NetworkDefault { policy: mode.map(Policy::of), limits, ..NetworkDefault::default() }
    }

    fn effective(own: &NetworkSettings, template: NetworkDefault, workspace: NetworkDefault) -> EffectivePolicy {
        EffectivePolicy::of(own, template, workspace, &Limits::default())
    }

    #[test]
    fn who_says_nothing_follows_the_nearest_default() {
        let (silent, none) = (own(None, None), NetworkDefault::default);
        let said = |template, workspace| {
            let effective = effective(&silent, template, workspace);
            (effective.policy.mode, effective.from, effective.limits.connections)
        };
        assert_eq!(said(none(), none()), (Mode::Deny, PolicyFrom::Nothing, Limits::default().connections));
        let open = || default(Some(Mode::Open), Some(9));
        assert_eq!(said(none(), open()), (Mode::Open, PolicyFrom::Workspace, 9));
        assert_eq!(said(default(Some(Mode::Deny), None), open()), (Mode::Deny, PolicyFrom::Template, 9));
        assert_eq!(said(default(None, Some(5)), open()), (Mode::Open, PolicyFrom::Workspace, 5));
    }

    #[test]
    fn who_says_something_follows_in_the_rest() {
        let open = own(Some(Policy::of(Mode::Open)), None);
        let said = effective(&open, default(Some(Mode::Deny), Some(5)), default(Some(Mode::Deny), Some(9)));
        assert_eq!((said.policy.mode, said.from, said.limits.connections), (Mode::Open, PolicyFrom::Sandbox, 5));
        let limited = effective(&own(None, Some(3)), default(Some(Mode::Learn), Some(5)), NetworkDefault::default());
        assert_eq!((limited.policy.mode, limited.from), (Mode::Learn, PolicyFrom::Template));
        assert_eq!(limited.limits.connections, 3);
    }

    #[test]
    fn what_binds_is_the_most_of_all() {
        let binding = |mode| NetworkDefault { binding: Some(true), ..default(mode, Some(9)) };
        let wide = own(Some(Policy::of(Mode::Open)), Some(500));
        let said = effective(&wide, default(Some(Mode::Open), Some(50)), binding(Some(Mode::Deny)));
        assert_eq!((said.policy.mode, said.bound), (Mode::Open, Some(Policy::default())));
        assert_eq!(said.limits.connections, 9);
        assert_eq!(effective(&own(None, Some(3)), NetworkDefault::default(), binding(None)).limits.connections, 3);
        assert_eq!(effective(&wide, NetworkDefault::default(), binding(None)).bound, Some(Policy::default()), "closed");
        let loose = NetworkDefault { binding: Some(false), ..default(Some(Mode::Deny), Some(9)) };
        assert_eq!(effective(&wide, NetworkDefault::default(), loose).bound, None);
    }

    #[test]
    fn tls_is_opened_if_either_policy_says_so() {
        let inspected = || Policy { tls: TlsMode::Inspected, ..Policy::default() };
        assert!(!EffectivePolicy::default().inspects());
        assert!(EffectivePolicy { policy: inspected(), ..EffectivePolicy::default() }.inspects());
        assert!(EffectivePolicy { bound: Some(inspected()), ..EffectivePolicy::default() }.inspects());
    }

    #[test]
    fn an_alias_has_the_default_of_its_template() {
        assert_eq!(default_key(None), "");
        assert_eq!(default_key(Some("my-own")), "my-own");
        assert_eq!(default_key(Some("python-data")), "code-interpreter");
        assert_eq!(default_key(Some("ubuntu-24.04")), "base");
    }
}
