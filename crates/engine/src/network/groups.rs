//! Named groups: sandboxes of one workspace that were put together on purpose, and see each other by name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sandling_network::{GatewayHandle, Group, HostName, Member, Peers};

use crate::model::{Membership, SandboxId};

/// The groups of all workspaces that have members.
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
    pub(super) fn of(groups: &Groups, workspace: &str, id: &SandboxId, membership: &Membership) -> Place {
        let names = membership.names(id).iter().filter_map(|name| name.parse().ok()).collect();
        Place { group: groups.get(workspace, &membership.group), names, joined: Vec::new() }
    }

    /// The member in this place, as the others see it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_share_no_group() {
        let groups = Groups::default();
        let one = groups.get("a", "crawl");
        assert!(Arc::ptr_eq(&one, &groups.get("a", "crawl")));
        assert!(!Arc::ptr_eq(&one, &groups.get("b", "crawl")));
    }
}
