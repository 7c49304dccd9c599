//! Named groups: sandboxes of one workspace that were put together on purpose, and see each other by name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sandling_network::{GatewayHandle, Group, HostName, Member, Peers};
use serde::{Deserialize, Serialize};

use super::change::{GroupChange, NetworkChange};
use super::error::NetworkError;
use crate::engine::Engine;
use crate::sandbox::{SandboxId, SandboxInfo};

/// Below this their names are; nobody's in the public DNS are.
const DOMAIN: &str = "internal";
const LONGEST: usize = 40;
/// A gateway has addresses for twice as many names, and some to spare.
const MOST_MEMBERS: usize = 100;

/// Which group a sandbox is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    pub group: String,
    /// What the others call it, besides its id.
    pub hostname: Option<String>,
}

impl Membership {
    /// Whether its words can be used.
    pub(super) fn check(&self) -> Result<(), NetworkError> {
        let hostname = self.hostname.as_deref();
        let is_id = hostname.is_some_and(|name| SandboxId::parse(name).is_some());
        if !is_word(&self.group) || is_id || !hostname.is_none_or(is_word) {
            return Err(NetworkError::GroupWords);
        }
        Ok(())
    }

    /// The names by which others reach the sandbox of this id.
    pub fn names(&self, id: &SandboxId) -> Vec<String> {
        let words = self.hostname.as_deref().into_iter().chain([id.as_str()]);
        words.map(|word| format!("{word}.{DOMAIN}")).collect()
    }
}

/// Letters, digits and dashes, as a name in the DNS has them.
fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends = !text.starts_with('-') && !text.ends_with('-');
    !text.is_empty() && text.len() <= LONGEST && text.bytes().all(plain) && ends
}

/// The groups of all workspaces that somebody is in.
#[derive(Default)]
pub(crate) struct Groups(Mutex<HashMap<(String, String), Weak<Group>>>);

impl Groups {
    fn get(&self, workspace: &str, name: &str) -> Arc<Group> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|_, group| group.strong_count() > 0);
        let key = (workspace.to_owned(), name.to_owned());
        if let Some(group) = groups.get(&key).and_then(Weak::upgrade) {
            return group;
        }
        let group = Group::new();
        groups.insert(key, Arc::downgrade(&group));
        group
    }
}

/// A place in a group, which ends when this is dropped.
pub(super) struct Place {
    group: Arc<Group>,
    names: Vec<HostName>,
    /// Those of them that the others see.
    joined: Vec<HostName>,
}

impl Place {
    /// A place that the others do not see yet.
    pub(super) fn of(engine: &Engine, info: &SandboxInfo, membership: &Membership) -> Place {
        let names = membership.names(&info.id).iter().filter_map(|name| name.parse().ok()).collect();
        Place { group: engine.groups.get(&info.workspace, &membership.group), names, joined: Vec::new() }
    }

    /// Whoever has taken it, as the others see them.
    pub(super) fn member(&self) -> Option<Arc<dyn Peers>> {
        Some(Member::new(self.group.clone(), self.joined.first()?.clone()))
    }

    /// Lets the others see it.
    pub(super) fn take(&mut self, gateway: &GatewayHandle) {
        for name in &self.names {
            if self.group.join(name.clone(), gateway) {
                self.joined.push(name.clone());
            } else {
                tracing::warn!(%name, "a name in a group is taken; the sandbox is known by its id only");
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in &self.joined {
            self.group.leave(name);
        }
    }
}

impl Engine {
    /// Whether a sandbox can be changed so, as far as that depends on others.
    pub(crate) fn check_change(&self, info: &SandboxInfo, change: &NetworkChange) -> Result<(), NetworkError> {
        match &change.group {
            Some(GroupChange::Join(wanted)) => self.check_membership(&info.workspace, Some(&info.id), wanted),
            Some(GroupChange::Leave) | None => Ok(()),
        }
    }

    /// Whether a sandbox can be in a group, under that name.
    pub(super) fn check_membership(
        &self,
        workspace: &str,
        own: Option<&SandboxId>,
        wanted: &Membership,
    ) -> Result<(), NetworkError> {
        wanted.check()?;
        let others: Vec<Membership> = self
            .living()
            .iter()
            .filter(|sandbox| sandbox.info.workspace == workspace && Some(sandbox.id()) != own)
            .filter_map(|sandbox| sandbox.network().group)
            .filter(|other| other.group == wanted.group)
            .collect();
        if others.len() >= MOST_MEMBERS {
            return Err(NetworkError::GroupFull { most: MOST_MEMBERS });
        }
        match &wanted.hostname {
            Some(name) if others.iter().any(|other| other.hostname.as_ref() == Some(name)) => {
                Err(NetworkError::NameTaken(name.clone()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(group: &str, hostname: Option<&str>) -> Membership {
        Membership { group: group.to_owned(), hostname: hostname.map(str::to_owned) }
    }

    #[test]
    fn workspaces_share_no_group() {
        let groups = Groups::default();
        let one = groups.get("a", "crawl");
        assert!(Arc::ptr_eq(&one, &groups.get("a", "crawl")));
        assert!(!Arc::ptr_eq(&one, &groups.get("b", "crawl")));
    }

    #[test]
    fn names_are_words_of_the_dns() {
        let id = SandboxId::parse("0f5b2c9e-3c4d-4e5f-8a9b-0c1d2e3f4a5b").unwrap();
        let names = membership("crawl", Some("db")).names(&id);
        assert_eq!(names, ["db.internal", "0f5b2c9e-3c4d-4e5f-8a9b-0c1d2e3f4a5b.internal"]);
        assert!(membership("crawl-2", Some("db")).check().is_ok());
        for bad in ["", "a.b", "-a", "A", "a b", &"a".repeat(41), "ä", "0f5b2c9e-3c4d-4e5f-8a9b-0c1d2e3f4a5b"] {
            assert!(membership("crawl", Some(bad)).check().is_err(), "{bad}");
        }
        assert!(membership("a/b", None).check().is_err());
    }
}
