//! Finding a workspace's template and the size of its sandboxes.

use sandling_engine::{Engine, TemplateError, TemplateSummary};
use sandling_image::Resolved;

/// How many templates the refusal of another name lists.
const MOST_LISTED: usize = 20;

/// A request for a sandbox of a template that the workspace does not have.
#[derive(Debug, thiserror::Error)]
#[error("there is no template {name:?}; there are {known}")]
pub struct UnknownTemplate {
    name: String,
    known: String,
}

/// The size of a template's sandboxes unless the request says otherwise.
pub struct TemplateSize {
    pub vcpus: u32,
    pub memory_mib: u32,
    pub disk_mib: u32,
}

/// A template of a workspace. For an alias, the description says which template it stands for.
pub fn find_template(engine: &Engine, workspace: &str, name: &str) -> Result<Option<TemplateSummary>, TemplateError> {
    let resolved = engine.built_in(workspace, name)?;
    let stands_for = resolved.as_ref().map_or(name, |resolved| resolved.recipe.name.as_str());
    let mut templates = engine.list_templates(workspace)?.into_iter();
    let found = templates.find(|template| template.name == stands_for);
    let found = match found {
        None => engine.snapshots().template_named(workspace, stands_for)?,
        found => found,
    };
    let Some(mut template) = found else { return Ok(None) };
    if let Some(note) = resolved.and_then(|resolved| resolved.alias_note) {
        template.name = name.to_owned();
        template.description = note.to_owned();
    }
    Ok(Some(template))
}

/// Whether a sandbox can be created of a template here.
pub fn has_template(engine: &Engine, workspace: &str, name: &str) -> bool {
    matches!(find_template(engine, workspace, name), Ok(Some(template)) if template.is_ready())
}

/// The size of a template. The sizes of built-in templates are known before they are built.
pub fn template_size(engine: &Engine, workspace: &str, name: &str) -> Result<TemplateSize, UnknownTemplate> {
    if let Ok(Some(Resolved { recipe, .. })) = engine.built_in(workspace, name) {
        return Ok(TemplateSize { vcpus: recipe.vcpus, memory_mib: recipe.memory_mib, disk_mib: recipe.disk_mib });
    }
    match find_template(engine, workspace, name) {
        Ok(Some(TemplateSummary { vcpus, memory_mib, disk_mib, .. })) => {
            Ok(TemplateSize { vcpus, memory_mib, disk_mib })
        }
        Ok(None) | Err(_) => Err(unknown(engine, workspace, name)),
    }
}

fn unknown(engine: &Engine, workspace: &str, name: &str) -> UnknownTemplate {
    let templates = engine.list_templates(workspace).unwrap_or_default();
    let listed: Vec<&str> = templates.iter().take(MOST_LISTED).map(|template| template.name.as_str()).collect();
    let more = templates.len() - listed.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    UnknownTemplate { name: name.to_owned(), known: format!("{}{more}", listed.join(", ")) }
}
