//! What new sandboxes may reach that say nothing about it themselves: their template's default, then their
//! workspace's, then nothing.

use sandling_network::LimitWish;
use sandling_network::policy::Policy;
use serde::{Deserialize, Serialize};

use super::error::NetworkError;
use super::settings::{NetworkWish, check};
use crate::engine::Engine;

/// The workspace's own default, in place of a template's name.
const WHOLE_WORKSPACE: &str = "";

/// A default for new sandboxes. What it does not say is left to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkDefault {
    pub policy: Option<Policy>,
    pub limits: LimitWish,
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

    /// Changes a default, for sandboxes that are made from now on. What the change does not say stays.
    pub fn change_network_default(
        &self,
        workspace: &str,
        template: Option<&str>,
        change: NetworkDefault,
    ) -> Result<NetworkDefault, NetworkError> {
        change.policy.as_ref().map_or(Ok(()), check)?;
        change.limits.check(&self.outside.limits)?;
        let default = change.or(self.network_default(workspace, template)?);
        self.store.put_network_default(workspace, &key(template), &default)?;
        Ok(default)
    }

    /// There is none any more, if there was one.
    pub fn remove_network_default(&self, workspace: &str, template: Option<&str>) -> Result<(), NetworkError> {
        Ok(self.store.remove_network_default(workspace, &key(template))?)
    }

    /// A wish, and where it says nothing, what the defaults say. Only the wish can ask for too much: a default may be
    /// older than the operator's limits, and sandboxes are held to those anyway.
    pub(crate) fn with_network_defaults(
        &self,
        workspace: &str,
        template: &str,
        wish: NetworkWish,
    ) -> Result<NetworkWish, NetworkError> {
        wish.limits.check(&self.outside.limits)?;
        let of_template = self.network_default(workspace, Some(template))?;
        let of_workspace = self.network_default(workspace, None)?;
        Ok(wish.or(of_template).or(of_workspace))
    }
}

impl NetworkDefault {
    fn or(self, other: NetworkDefault) -> Self {
        Self { policy: self.policy.or(other.policy), limits: self.limits.or(other.limits) }
    }
}

impl NetworkWish {
    fn or(self, default: NetworkDefault) -> Self {
        Self { policy: self.policy.or(default.policy), limits: self.limits.or(default.limits), ..self }
    }
}

#[cfg(test)]
mod tests {
    use sandling_network::policy::Mode;

    use super::*;
    use crate::create::DEFAULT_WORKSPACE;
    use crate::{EngineConfig, Home};

    #[test]
    fn the_nearest_default_wins() {
        let default = |mode, connections| NetworkDefault {
            policy: Some(Policy::of(mode)),
            limits: LimitWish { connections, ..LimitWish::default() },
        };
        let wish = NetworkWish::default().or(default(Mode::Deny, None)).or(default(Mode::Open, Some(9)));
        assert_eq!((wish.policy.unwrap().mode, wish.limits.connections), (Mode::Deny, Some(9)));
        let own = NetworkWish { policy: Some(Policy::of(Mode::Open)), ..NetworkWish::default() };
        assert_eq!(own.or(default(Mode::Deny, None)).policy.unwrap().mode, Mode::Open);
    }

    #[test]
    fn a_changed_limit_leaves_the_policy() {
        let limits = |connections, sent_bytes| LimitWish { connections, sent_bytes, ..LimitWish::default() };
        let known = NetworkDefault { policy: Some(Policy::of(Mode::Deny)), limits: limits(Some(9), Some(1)) };
        let changed = NetworkDefault { policy: None, limits: limits(Some(5), None) }.or(known.clone());
        assert_eq!(changed, NetworkDefault { limits: limits(Some(5), Some(1)), ..known });
    }

    #[tokio::test]
    async fn a_default_above_what_the_operator_allows_now_stops_no_create() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        let engine = Engine::open(EngineConfig::new(home).unwrap()).await.unwrap();
        let limits = LimitWish { connections: Some(50_000), ..LimitWish::default() };
        let default = NetworkDefault { limits, ..NetworkDefault::default() };
        engine.store.put_network_default(DEFAULT_WORKSPACE, WHOLE_WORKSPACE, &default).unwrap();
        let merged = engine.with_network_defaults(DEFAULT_WORKSPACE, "base", NetworkWish::default()).unwrap();
        let prepared = engine.prepare_network(DEFAULT_WORKSPACE, &merged).unwrap();
        assert_eq!(prepared.settings.limits, limits);
        let own = NetworkWish { limits, ..NetworkWish::default() };
        assert!(matches!(engine.with_network_defaults(DEFAULT_WORKSPACE, "base", own), Err(NetworkError::Limit(_))));
    }

    #[test]
    fn an_alias_is_its_template() {
        assert_eq!(key(None), "");
        assert_eq!(key(Some("my-own")), "my-own");
    }
}
