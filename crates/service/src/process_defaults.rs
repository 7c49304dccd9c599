//! Applies the process defaults of a template to its sandboxes.

use sandling_engine::store::StoreError;
use sandling_engine::{CreateSpec, Engine, ProcessDefaults};
use sandling_image::Recipe;
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
        Some(id) => engine.snapshots().find_usable(&spec.workspace, id)?,
        None => engine.snapshots().of_template(&spec.workspace, &spec.template)?,
    };
    let of_image =
        || Some(images::process_defaults(&engine.machines().oci_image(&spec.workspace, &spec.template)?.config));
    let in_start_directory = |defaults| {
        let workdir = (start == StartDirectory::Workspace).then(|| WORKSPACE.to_owned());
        ProcessDefaults { workdir, ..defaults }
    };
    let defaults = match template {
        Some(template) => Some(template.settings.process),
        None if spec.from_snapshot.is_none() => {
            let built_in = of_built_in(engine, &spec.workspace, &spec.template)?;
            built_in.map(in_start_directory).or_else(of_image)
        }
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

/// What a built-in template sets for processes in every dialect. `None` if the name is not that of a built-in template.
pub(crate) fn of_built_in(engine: &Engine, workspace: &str, name: &str) -> Result<Option<ProcessDefaults>, StoreError> {
    Ok(engine.built_in(workspace, name)?.map(|built_in| of_recipe(&built_in.recipe)))
}

fn of_recipe(recipe: &Recipe) -> ProcessDefaults {
    let env = recipe.desktop.as_ref().map(|desktop| desktop.env()).unwrap_or_default();
    ProcessDefaults { env, ..ProcessDefaults::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_desktop_names_a_display() {
        let of = |name: &str| of_recipe(&sandling_image::resolve(name).unwrap().recipe);
        assert_eq!(of("desktop").env["DISPLAY"], ":0");
        assert!(of("base").env.is_empty());
    }
}
