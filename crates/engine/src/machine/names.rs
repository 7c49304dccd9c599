//! Names of templates, which are separate for each workspace.

use sandling_image::{BadTemplateName, RecipeError, TemplateName};

use crate::model::DEFAULT_WORKSPACE;

/// What an alias stands for, as a note for the user.
pub fn alias_note(name: &str) -> Option<&'static str> {
    sandling_image::resolve(name).ok().and_then(|resolved| resolved.alias_note)
}

/// Stored names of templates outside the default workspace begin with this and the workspace's name.
const FOREIGN: &str = "w.";

/// The name under which a new template of a workspace is stored. A built-in template keeps its name, and an alias stands
/// for it.
pub fn stored_name(workspace: &str, name: &str) -> Result<TemplateName, RecipeError> {
    sandling_image::resolve(name).map_or_else(|_| own_name(workspace, name), |built_in| Ok(built_in.recipe.name))
}

/// The name under which a template that a user made is stored. It has its workspace in front, so that two workspaces can
/// use the same name.
pub(crate) fn own_name(workspace: &str, name: &str) -> Result<TemplateName, RecipeError> {
    if name.starts_with(FOREIGN) {
        return Err(BadTemplateName { name: name.to_owned() }.into());
    }
    // Checked before the prefix is added: with it, an empty name would pass.
    let own: TemplateName = name.parse()?;
    if workspace == DEFAULT_WORKSPACE { Ok(own) } else { Ok(format!("{FOREIGN}{workspace}.{own}").parse()?) }
}

/// The name of a stored template in this workspace, or `None` if it belongs to another.
pub(super) fn shown_name(workspace: &str, stored: &str) -> Option<String> {
    match stored.strip_prefix(FOREIGN) {
        None => (workspace == DEFAULT_WORKSPACE || sandling_image::resolve(stored).is_ok()).then(|| stored.to_owned()),
        Some(rest) => rest.strip_prefix(workspace)?.strip_prefix('.').map(str::to_owned),
    }
}

/// The workspace that a stored template belongs to. Built-in templates belong to the default workspace.
pub(super) fn workspace_of(stored: &str) -> &str {
    // The name of a workspace has no dots.
    let foreign = stored.strip_prefix(FOREIGN).and_then(|rest| rest.split_once('.'));
    foreign.map_or(DEFAULT_WORKSPACE, |(workspace, _)| workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_in_every_workspace_or_in_none() {
        for name in ["", ".", "..", "-x", ".hidden", "a/b", "w.other.mine"] {
            for workspace in [DEFAULT_WORKSPACE, "team"] {
                assert!(stored_name(workspace, name).is_err(), "{workspace}: {name:?}");
            }
        }
        assert_eq!(stored_name("team", "mine").unwrap().as_str(), "w.team.mine");
        assert_eq!(stored_name("team", "ubuntu-24.04").unwrap().as_str(), "base");
        assert_eq!(own_name("team", "desktop").unwrap().as_str(), "w.team.desktop");
        assert_eq!(shown_name("team", "w.team.mine").as_deref(), Some("mine"));
        assert_eq!(shown_name("other", "w.team.mine"), None);
        assert_eq!((workspace_of("w.team.mine"), workspace_of("mine")), ("team", DEFAULT_WORKSPACE));
    }
}
