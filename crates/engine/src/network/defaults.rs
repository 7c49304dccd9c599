//! What sandboxes may reach that say nothing about it themselves: their template's default, then their workspace's,
//! then nothing. They follow it: what changes here changes for those that run, too. A workspace's default can also
//! bind those that say something.

use sandling_network::LimitRequest;
use sandling_network::policy::PolicyChange;

use super::effective::default_key;
use super::error::NetworkError;
use super::networks::Networks;
use super::settings::check;
use crate::model::NetworkDefault;
use crate::store::StoreError;

/// What is to change of a default. What is absent stays.
#[derive(Debug, Clone, Default)]
pub struct NetworkDefaultChange {
    pub policy: PolicyChange,
    pub limits: LimitRequest,
    pub binding: Option<bool>,
}

impl Networks {
    /// The default of a workspace, or of one of its templates.
    pub fn default_of(&self, workspace: &str, template: Option<&str>) -> Result<NetworkDefault, NetworkError> {
        Ok(self.shared.store.network_default(workspace, &default_key(template))?.unwrap_or_default())
    }

    /// Changes a default, at once for all that follow it or are bound by it. What the change does not say stays.
    pub fn change_default(
        &self,
        workspace: &str,
        template: Option<&str>,
        change: NetworkDefaultChange,
    ) -> Result<NetworkDefault, NetworkError> {
        change.limits.check(self.limits())?;
        if change.binding.is_some() && template.is_some() {
            return Err(NetworkError::TemplateBinds);
        }
        let default = self.shared.store.change_network_default(workspace, &default_key(template), |known| {
            let default = change.onto(known);
            default.policy.as_ref().map_or(Ok(()), check)?;
            let binds_nothing = default.policy.is_none() && default.binding == Some(true);
            if binds_nothing { Err(NetworkError::NothingBinds) } else { Ok(default) }
        })?;
        self.defaults_changed(workspace);
        Ok(default)
    }

    /// Stores a default in the place of what there was.
    pub(super) fn put_default(
        &self,
        workspace: &str,
        template: Option<&str>,
        default: NetworkDefault,
    ) -> Result<(), StoreError> {
        self.shared
            .store
            .change_network_default(workspace, &default_key(template), |_| Ok::<_, StoreError>(default))?;
        self.defaults_changed(workspace);
        Ok(())
    }

    /// There is none any more, if there was one: at once for all that followed it or were bound by it.
    pub fn remove_default(&self, workspace: &str, template: Option<&str>) -> Result<(), StoreError> {
        self.shared.store.remove_network_default(workspace, &default_key(template))?;
        self.defaults_changed(workspace);
        Ok(())
    }

    /// Applies the defaults as they are now to the running sandboxes of a workspace. Sleeping sandboxes get them when
    /// they wake, those of another engine of this home with their next gateway.
    fn defaults_changed(&self, workspace: &str) {
        for network in self.of_workspace(workspace) {
            if !network.renew() {
                continue;
            }
            self.shared.events.note(network.id(), workspace, "network_changed", network.effective().detail());
            if network.lacks_authority() {
                network.want_authority();
            }
        }
    }
}

impl NetworkDefaultChange {
    fn onto(self, known: NetworkDefault) -> NetworkDefault {
        let policy = match self.policy.is_nothing() {
            true => known.policy.clone(),
            false => Some(self.policy.onto(&known.policy.clone().unwrap_or_default())),
        };
        let (limits, binding) = (self.limits.or(known.limits), self.binding.or(known.binding));
        NetworkDefault { policy, limits, binding, ..known }
    }
}

#[cfg(test)]
mod tests {
    use sandling_network::policy::{Mode, Policy};

    use super::super::effective::WHOLE_WORKSPACE;
    use super::*;
    use crate::model::DEFAULT_WORKSPACE;
    use crate::network::networks::tests::home;
    use crate::network::{NetworkSpec, PolicyFrom};

    #[test]
    fn a_changed_limit_leaves_the_policy() {
        let limits = |connections, sent_bytes| LimitRequest { connections, sent_bytes, ..LimitRequest::default() };
        let policy = Some(Policy::of(Mode::Deny));
        let known = NetworkDefault {
            policy,
            limits: limits(Some(9), Some(1)),
            binding: Some(true),
            ..NetworkDefault::default()
        };
        let change = NetworkDefaultChange { limits: limits(Some(5), None), ..NetworkDefaultChange::default() };
        let changed = change.onto(known.clone());
        assert_eq!(changed, NetworkDefault { limits: limits(Some(5), Some(1)), ..known });
    }

    #[test]
    fn a_default_above_what_the_operator_allows_now_stops_no_create() {
        let (_dir, networks) = home();
        let limits = LimitRequest { connections: Some(50_000), ..LimitRequest::default() };
        let default = NetworkDefault { limits, ..NetworkDefault::default() };
        networks
            .shared
            .store
            .change_network_default(DEFAULT_WORKSPACE, WHOLE_WORKSPACE, |_| Ok::<_, StoreError>(default))
            .unwrap();
        let prepare = |wish: NetworkSpec| networks.prepare(DEFAULT_WORKSPACE, "base", &wish);
        assert_eq!(prepare(NetworkSpec::default()).unwrap().settings.limits, LimitRequest::default());
        let most = networks.limits().connections;
        assert_eq!(networks.usual(DEFAULT_WORKSPACE, "base").unwrap().limits.connections, most);
        assert!(matches!(prepare(NetworkSpec { limits, ..NetworkSpec::default() }), Err(NetworkError::Limit(_))));
    }

    #[test]
    fn what_holds_is_what_the_defaults_say_now() {
        let (_dir, networks) = home();
        let set = |template, mode| {
            let default = NetworkDefaultChange { policy: Policy::of(mode).into(), ..NetworkDefaultChange::default() };
            networks.change_default(DEFAULT_WORKSPACE, template, default).unwrap();
        };
        let usual = || {
            let effective = networks.usual(DEFAULT_WORKSPACE, "base").unwrap();
            (effective.policy.mode, effective.from, effective.bound.is_some())
        };
        set(None, Mode::Open);
        set(Some("base"), Mode::Learn);
        assert_eq!(usual(), (Mode::Learn, PolicyFrom::Template, false));
        networks.remove_default(DEFAULT_WORKSPACE, Some("base")).unwrap();
        assert_eq!(usual(), (Mode::Open, PolicyFrom::Workspace, false));
        let binds = |binding| NetworkDefaultChange { binding: Some(binding), ..NetworkDefaultChange::default() };
        networks.change_default(DEFAULT_WORKSPACE, None, binds(true)).unwrap();
        assert_eq!(usual(), (Mode::Open, PolicyFrom::Workspace, true));
        networks.remove_default(DEFAULT_WORKSPACE, None).unwrap();
        assert_eq!(usual(), (Mode::Deny, PolicyFrom::Nothing, false));

        let refused = |template, binding| networks.change_default(DEFAULT_WORKSPACE, template, binds(binding));
        assert!(matches!(refused(None, true), Err(NetworkError::NothingBinds)));
        assert!(matches!(refused(Some("base"), true), Err(NetworkError::TemplateBinds)));
        assert_eq!(networks.default_of(DEFAULT_WORKSPACE, None).unwrap(), NetworkDefault::default());
    }
}
