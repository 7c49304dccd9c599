//! What a principal may do. The rules are pure and the same for every workspace.

use serde::{Deserialize, Serialize};

use crate::audit::Actor;
use crate::workspaces::WorkspaceName;

/// How much a token may do. Each scope contains those before it.
///
/// The first three apply to the token's own workspace only. An operator also makes and deletes workspaces, sets their
/// quotas and makes tokens for them, but cannot see the sandboxes of another workspace either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// List and read objects.
    Read,
    /// Create, use and end sandboxes.
    Run,
    /// Manage the workspace's tokens and settings, and read its audit log.
    Admin,
    /// Manage workspaces and their quotas.
    Operator,
}

impl Scope {
    pub const ALL: [Self; 4] = [Self::Read, Self::Run, Self::Admin, Self::Operator];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }

    /// Whether this scope contains `needed`.
    pub fn allows(self, needed: Self) -> bool {
        self >= needed
    }
}

/// The holder of the token that a request came with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub workspace: WorkspaceName,
    pub scope: Scope,
    pub token_prefix: String,
    /// The token's name.
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("this needs the scope {}; the token has {}", needed.as_str(), held.as_str())]
    Scope { needed: Scope, held: Scope },
    #[error("a token cannot give more than it has: {} asked for, {} held", asked.as_str(), held.as_str())]
    GivesMore { asked: Scope, held: Scope },
}

impl Principal {
    pub fn require(&self, needed: Scope) -> Result<(), Denied> {
        if self.scope.allows(needed) { Ok(()) } else { Err(Denied::Scope { needed, held: self.scope }) }
    }

    /// Whether the principal can see objects of this workspace.
    pub fn sees(&self, owner: &WorkspaceName) -> bool {
        self.workspace == *owner
    }

    /// Whether the principal may manage the tokens, settings and audit log of this workspace.
    pub fn require_manage(&self, workspace: &WorkspaceName) -> Result<(), Denied> {
        self.require(if self.workspace == *workspace { Scope::Admin } else { Scope::Operator })
    }

    /// Whether the principal may make a token of this scope in this workspace.
    pub fn require_grant(&self, workspace: &WorkspaceName, asked: Scope) -> Result<(), Denied> {
        self.require_manage(workspace)?;
        if self.scope.allows(asked) { Ok(()) } else { Err(Denied::GivesMore { asked, held: self.scope }) }
    }

    /// The principal as the audit log names it.
    pub fn actor(&self) -> Actor {
        Actor { prefix: self.token_prefix.clone(), name: self.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_scope() -> impl Strategy<Value = Scope> {
        proptest::sample::select(Scope::ALL.to_vec())
    }

    /// Includes `default`, because that name must have no special rights.
    fn any_workspace() -> impl Strategy<Value = WorkspaceName> {
        proptest::sample::select(vec!["default", "admin", "team-a", "team-b"])
            .prop_map(|name| WorkspaceName::parse(name).unwrap())
    }

    fn principal(workspace: WorkspaceName, scope: Scope) -> Principal {
        Principal { workspace, scope, token_prefix: "sdl_00000000".to_owned(), name: "t".to_owned() }
    }

    #[test]
    fn an_admin_of_default_is_no_operator() {
        let admin = principal(WorkspaceName::default(), Scope::Admin);
        let other = WorkspaceName::parse("team-a").unwrap();
        let denied = Denied::Scope { needed: Scope::Operator, held: Scope::Admin };
        assert_eq!(admin.require(Scope::Operator), Err(denied.clone()));
        assert_eq!(admin.require_grant(&other, Scope::Read), Err(denied));
        assert!(admin.require_grant(&WorkspaceName::default(), Scope::Operator).is_err());
    }

    #[test]
    fn names_of_scopes_are_read_back() {
        for scope in Scope::ALL {
            assert_eq!(Scope::parse(scope.as_str()), Some(scope));
            assert_eq!(serde_json::to_string(&scope).unwrap(), format!("{:?}", scope.as_str()));
        }
        assert_eq!(Scope::parse("Admin"), None);
    }

    proptest! {
        #[test]
        fn a_larger_scope_never_loses_a_right(a in any_scope(), b in any_scope(), needed in any_scope()) {
            if a.allows(b) && b.allows(needed) {
                prop_assert!(a.allows(needed));
            }
            prop_assert!(a.allows(b) || b.allows(a));
        }

        #[test]
        fn nobody_sees_another_workspace(own in any_workspace(), other in any_workspace(), scope in any_scope()) {
            prop_assert_eq!(principal(own.clone(), scope).sees(&other), own == other);
        }

        #[test]
        fn a_token_never_gives_more_than_it_has(
            own in any_workspace(), target in any_workspace(), held in any_scope(), asked in any_scope(),
        ) {
            let granted = principal(own.clone(), held).require_grant(&target, asked).is_ok();
            let local = own == target && held >= Scope::Admin && asked <= held;
            let abroad = held == Scope::Operator;
            prop_assert_eq!(granted, local || abroad);
        }

        #[test]
        fn rights_do_not_depend_on_the_workspaces_name(
            own in any_workspace(), other in any_workspace(), scope in any_scope(), needed in any_scope(),
        ) {
            prop_assert_eq!(
                principal(own, scope).require(needed).is_ok(),
                principal(other, scope).require(needed).is_ok()
            );
        }
    }
}
