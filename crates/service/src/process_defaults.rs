//! Applies the process defaults of a template to its sandboxes.

use sandling_engine::store::StoreError;
use sandling_engine::{CreateSpec, Engine, ProcessDefaults};
use sandling_wire::WORKSPACE;

use crate::images;

/// Where processes of a built-in template start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartDirectory {
    /// `/workspace`, as in our own clients.
    Workspace,
    /// The user's home, as clients of other products expect.
    Home,
}

/// Applies the process defaults of its template to a new sandbox. Values from the client take precedence.
pub fn inherit_process_defaults(
    engine: &Engine,
    spec: &mut CreateSpec,
    start: StartDirectory,
) -> Result<(), StoreError> {
    let template = match &spec.from_snapshot {
        Some(id) => engine.snapshots().find(&spec.workspace, id)?,
        None => engine.snapshots().of_template(&spec.workspace, &spec.template)?,
    };
    let of_image =
        || Some(images::process_defaults(&engine.machines().oci_image(&spec.workspace, &spec.template)?.config));
    let built_in = || {
        let workdir = (start == StartDirectory::Workspace).then(|| WORKSPACE.to_owned());
        Some(ProcessDefaults { workdir, ..of_built_in(&spec.template)? })
    };
    let defaults = match template {
        Some(template) => Some(template.settings.process),
        None if spec.from_snapshot.is_none() => built_in().or_else(of_image),
        None => None,
    };
    let (own, Some(defaults)) = (&mut spec.settings.process, defaults) else { return Ok(()) };
    for (name, value) in &defaults.env {
        spec.env.entry(name.clone()).or_insert_with(|| value.clone());
        own.env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    own.user = own.user.take().or(defaults.user);
    own.workdir = own.workdir.take().or(defaults.workdir);
    Ok(())
}

/// What a template sets for processes in every dialect. `None` if it is not a built-in template.
pub(crate) fn of_built_in(name: &str) -> Option<ProcessDefaults> {
    let recipe = sandling_image::resolve(name).ok()?.recipe;
    let env = recipe.desktop.map(|desktop| desktop.env()).unwrap_or_default();
    Some(ProcessDefaults { env, ..ProcessDefaults::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_desktop_names_a_display() {
        assert_eq!(of_built_in("desktop").unwrap().env["DISPLAY"], ":0");
        assert!(of_built_in("base").unwrap().env.is_empty() && of_built_in("mine").is_none());
    }
}
