//! Applies the process defaults of a template to its sandboxes.

use sandling_engine::store::StoreError;
use sandling_engine::{CreateSpec, Engine, ProcessDefaults};
use sandling_image::Recipe;

use crate::images;

/// Applies the process defaults of its template to a new sandbox. Values from the client take precedence.
pub fn inherit_process_defaults(engine: &Engine, spec: &mut CreateSpec) -> Result<(), StoreError> {
    let template = match &spec.from_snapshot {
        Some(id) => engine.snapshots().find(&spec.workspace, id)?,
        None => engine.snapshots().of_template(&spec.workspace, &spec.template)?,
    };
    let of_image =
        || Some(images::process_defaults(&engine.machines().oci_image(&spec.workspace, &spec.template)?.config));
    let defaults = match template {
        Some(template) => Some(template.settings.process),
        None if spec.from_snapshot.is_none() => of_built_in(engine, &spec.workspace, &spec.template)?.or_else(of_image),
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

/// What a built-in template sets for processes, if it sets anything.
pub(crate) fn of_built_in(engine: &Engine, workspace: &str, name: &str) -> Result<Option<ProcessDefaults>, StoreError> {
    Ok(engine.built_in(workspace, name)?.and_then(|built_in| of_recipe(&built_in.recipe)))
}

fn of_recipe(recipe: &Recipe) -> Option<ProcessDefaults> {
    let env = recipe.desktop.as_ref()?.env();
    Some(ProcessDefaults { env, ..ProcessDefaults::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_desktop_names_a_display() {
        let of = |name: &str| of_recipe(&sandling_image::resolve(name).unwrap().recipe);
        assert_eq!(of("desktop").unwrap().env["DISPLAY"], ":0");
        assert!(of("base").is_none());
    }
}
