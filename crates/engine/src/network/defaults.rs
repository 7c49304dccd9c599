//! What sandboxes may reach that say nothing about it themselves: their template's default, then their workspace's,
//! then nothing. They follow it: what changes here changes for those that run, too. A workspace's default can also
//! bind those that say something.

use sandling_network::LimitRequest;
use sandling_network::policy::{Policy, PolicyChange};
use serde::{Deserialize, Serialize};

use super::error::NetworkError;
use super::settings::check;
use crate::engine::Engine;
use crate::format::Format;
use crate::store::StoreError;

/// The workspace's own default, in place of a template's name.
const WHOLE_WORKSPACE: &str = "";

/// A default. What it does not say is left to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkDefault {
    pub policy: Option<Policy>,
    pub limits: LimitRequest,
    /// Whether it is the most that any sandbox may reach and use, whatever that says itself. Only a workspace's is.
    pub binding: Option<bool>,
    #[serde(flatten)]
    pub format: Format<1>,
}

/// What is to change of a default. What is absent stays.
#[derive(Debug, Clone, Default)]
pub struct NetworkDefaultChange {
    pub policy: PolicyChange,
    pub limits: LimitRequest,
    pub binding: Option<bool>,
}

/// An alias has its template's default.
pub(crate) fn key(template: Option<&str>) -> String {
    let name = template.unwrap_or(WHOLE_WORKSPACE);
    sandling_image::resolve(name).map_or(name.to_owned(), |resolved| resolved.recipe.name.to_string())
}

impl Engine {
    /// The default of a workspace, or of one of its templates.
    pub fn network_default(&self, workspace: &str, template: Option<&str>) -> Result<NetworkDefault, NetworkError> {
        Ok(self.store.network_default(workspace, &key(template))?.unwrap_or_default())
    }

    /// Changes a default, at once for all that follow it or are bound by it. What the change does not say stays.
    pub fn change_network_default(
        &self,
        workspace: &str,
        template: Option<&str>,
        change: NetworkDefaultChange,
    ) -> Result<NetworkDefault, NetworkError> {
        change.limits.check(&self.outside.limits)?;
        if change.binding.is_some() && template.is_some() {
            return Err(NetworkError::TemplateBinds);
        }
        let default = self.store.change_network_default(workspace, &key(template), |known| {
            let default = change.onto(known);
            default.policy.as_ref().map_or(Ok(()), check)?;
            let binds_nothing = default.policy.is_none() && default.binding == Some(true);
            if binds_nothing { Err(NetworkError::NothingBinds) } else { Ok(default) }
        })?;
        self.defaults_changed(workspace);
        Ok(default)
    }

    /// There is none any more, if there was one: at once for all that followed it or were bound by it.
    pub fn remove_network_default(&self, workspace: &str, template: Option<&str>) -> Result<(), StoreError> {
        self.store.remove_network_default(workspace, &key(template))?;
        self.defaults_changed(workspace);
        Ok(())
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
    use sandling_network::policy::Mode;

    use super::*;
    use crate::create::DEFAULT_WORKSPACE;
    use crate::network::{NetworkWish, PolicySource};
    use crate::{EngineConfig, Home};

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

    async fn engine(dir: &tempfile::TempDir) -> std::sync::Arc<Engine> {
        let home = Home::new(dir.path().join("home"));
        Engine::open(EngineConfig::new(home).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_default_above_what_the_operator_allows_now_stops_no_create() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine(&dir).await;
        let limits = LimitRequest { connections: Some(50_000), ..LimitRequest::default() };
        let default = NetworkDefault { limits, ..NetworkDefault::default() };
        engine
            .store
            .change_network_default(DEFAULT_WORKSPACE, WHOLE_WORKSPACE, |_| Ok::<_, StoreError>(default))
            .unwrap();
        let prepare = |wish: NetworkWish| engine.prepare_network(DEFAULT_WORKSPACE, "base", &wish);
        assert_eq!(prepare(NetworkWish::default()).unwrap().settings.limits, LimitRequest::default());
        let most = engine.outside.limits.connections;
        assert_eq!(engine.usual_network(DEFAULT_WORKSPACE, "base").unwrap().limits.connections, most);
        assert!(matches!(prepare(NetworkWish { limits, ..NetworkWish::default() }), Err(NetworkError::Limit(_))));
    }

    #[tokio::test]
    async fn what_holds_is_what_the_defaults_say_now() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine(&dir).await;
        let set = |template, mode| {
            let default = NetworkDefaultChange { policy: Policy::of(mode).into(), ..NetworkDefaultChange::default() };
            engine.change_network_default(DEFAULT_WORKSPACE, template, default).unwrap();
        };
        let usual = || {
            let in_force = engine.usual_network(DEFAULT_WORKSPACE, "base").unwrap();
            (in_force.policy.mode, in_force.from, in_force.bound.is_some())
        };
        set(None, Mode::Open);
        set(Some("base"), Mode::Learn);
        assert_eq!(usual(), (Mode::Learn, PolicySource::Template, false));
        engine.remove_network_default(DEFAULT_WORKSPACE, Some("base")).unwrap();
        assert_eq!(usual(), (Mode::Open, PolicySource::Workspace, false));
        let binds = |binding| NetworkDefaultChange { binding: Some(binding), ..NetworkDefaultChange::default() };
        engine.change_network_default(DEFAULT_WORKSPACE, None, binds(true)).unwrap();
        assert_eq!(usual(), (Mode::Open, PolicySource::Workspace, true));
        engine.remove_network_default(DEFAULT_WORKSPACE, None).unwrap();
        assert_eq!(usual(), (Mode::Deny, PolicySource::Nothing, false));

        let refused = |template, binding| engine.change_network_default(DEFAULT_WORKSPACE, template, binds(binding));
        assert!(matches!(refused(None, true), Err(NetworkError::NothingBinds)));
        assert!(matches!(refused(Some("base"), true), Err(NetworkError::TemplateBinds)));
        assert_eq!(engine.network_default(DEFAULT_WORKSPACE, None).unwrap(), NetworkDefault::default());
    }

    #[test]
    fn an_alias_is_its_template() {
        assert_eq!(key(None), "");
        assert_eq!(key(Some("my-own")), "my-own");
        assert_eq!(key(Some("python-data")), "code-interpreter");
        assert_eq!(key(Some("ubuntu-24.04")), "base");
    }
}
