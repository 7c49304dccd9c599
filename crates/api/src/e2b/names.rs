//! Resolves template names to built-in templates, snapshots, or templates built from a client's steps.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandling_engine::{SnapshotId, SnapshotInfo};
use sandling_service::{Stage, TemplateSource};
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::error::ApiError;

/// E2B's template names, and the built-in templates they stand for.
const STANDS_FOR: [(&str, &str); 4] = [
    ("code-interpreter-v1", "code-interpreter"),
    ("e2bdev/code-interpreter", "code-interpreter"),
    ("mcp-gateway", "code-interpreter"),
    ("e2bdev/base", "base"),
];

/// Prefix of the names of snapshots that were built as templates.
const BUILT: &str = "e2b-template:";
/// Prefix of the description of an alias: a template that stands for a tag added after the build.
const TAG_OF: &str = "E2B's ";
/// The default tag.
pub(super) const DEFAULT_TAG: &str = "default";

/// A template's name and tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) name: String,
    pub(super) tag: String,
}

impl Name {
    /// Parses a name of letters, digits, `.`, `-`, `_` and inner slashes, with an optional `:tag`.
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let (name, tag) = text.split_once(':').unwrap_or((text, DEFAULT_TAG));
        let plain = |text: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
            (1..=100).contains(&text.len()) && text.bytes().all(allowed)
        };
        if plain(name) && plain(tag) {
            return Ok(Self { name: name.to_owned(), tag: tag.to_owned() });
        }
        Err(ApiError::bad_request(
            "a template's name has letters, digits, dots, dashes or underscores, and perhaps a tag",
        ))
    }

    /// The name of the snapshot that has this name and tag.
    pub(super) fn of_snapshot(&self) -> String {
        format!("{BUILT}{}:{}", self.name, self.tag)
    }

    /// The name of the alias template for a tag that was added after the build. It is short enough for any name and
    /// tag.
    fn of_alias(&self) -> String {
        let digest = Sha256::digest(format!("{}:{}", self.name, self.tag));
        let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        format!("e2b-{hex}")
    }

    /// The description of the alias template.
    fn described(&self) -> String {
        format!("{TAG_OF}{}:{}", self.name, self.tag)
    }

    pub(super) fn from_description(text: &str) -> Option<Self> {
        let (name, tag) = text.strip_prefix(TAG_OF)?.split_once(':')?;
        Some(Self { name: name.to_owned(), tag: tag.to_owned() })
    }

    /// The name of a snapshot that was built as a template.
    pub(super) fn from_snapshot(info: &SnapshotInfo) -> Option<Self> {
        let (name, tag) = info.name.as_deref()?.strip_prefix(BUILT)?.split_once(':')?;
        Some(Self { name: name.to_owned(), tag: tag.to_owned() })
    }
}

/// E2B's names of a built-in template.
pub(super) fn theirs(ours: &str) -> impl Iterator<Item = &str> {
    STANDS_FOR.iter().filter(move |(_, name)| *name == ours).map(|(theirs, _)| *theirs)
}

/// Whether E2B gives this name to a built-in template. Nothing else can be found by it.
pub(super) fn is_taken(name: &str) -> bool {
    STANDS_FOR.iter().any(|(theirs, _)| *theirs == name)
}

/// Resolves a template name: a snapshot's id or name, a built template, or a built-in one.
pub(super) fn resolve(app: &App, workspace: &str, text: &str) -> Result<TemplateSource, ApiError> {
    if let Some(id) = SnapshotId::parse(text) {
        let found = app.engine.snapshots().find(workspace, &id)?;
        return found
            .map(|info| TemplateSource::Snapshot(Box::new(info)))
            .ok_or_else(|| ApiError::not_found("snapshot"));
    }
    // Built-in templates have no other tags.
    let plain = text.strip_suffix(":default").unwrap_or(text);
    if let Some((_, ours)) = STANDS_FOR.iter().find(|(theirs, _)| *theirs == plain) {
        return Ok(TemplateSource::Template((*ours).to_owned()));
    }
    if let Some(info) = find_snapshot(app, workspace, text)? {
        return Ok(TemplateSource::Snapshot(Box::new(info)));
    }
    if let Ok(name) = Name::parse(text)
        && let Some(info) = app.engine.snapshots().of_template(workspace, &name.of_alias())?
    {
        return Ok(TemplateSource::Saved { name: name.of_alias(), snapshot: Box::new(info) });
    }
    if let Some(info) = app.engine.snapshots().of_template(workspace, text)? {
        return Ok(TemplateSource::Saved { name: text.to_owned(), snapshot: Box::new(info) });
    }
    Ok(TemplateSource::of_template(&app.engine, workspace, plain))
}

/// Whether a create of this template finds it here.
pub(crate) fn has_template(app: &App, workspace: &str, text: &str) -> bool {
    match resolve(app, workspace, text) {
        Ok(TemplateSource::Template(name)) => sandling_service::has_template(&app.engine, workspace, &name),
        Ok(_) => true,
        Err(_) => false,
    }
}

/// The same for a new sandbox, which can also be created from a copy of another node's snapshot.
pub(super) fn resolve_for_create(app: &App, workspace: &str, text: &str) -> Result<TemplateSource, ApiError> {
    let copy = SnapshotId::parse(text).map(|id| app.engine.snapshots().find_usable(workspace, &id)).transpose()?;
    match copy.flatten() {
        Some(info) => Ok(TemplateSource::Snapshot(Box::new(info))),
        None => resolve(app, workspace, text),
    }
}

/// Whether a name stands for a built-in template, on every node alike.
pub(crate) fn is_built_in(app: &App, workspace: &str, text: &str) -> bool {
    let plain = text.strip_suffix(":default").unwrap_or(text);
    is_taken(plain) || app.engine.built_in(workspace, plain).is_ok_and(|found| found.is_some())
}

/// When the newest of what a name stands for here was made. It is a text, and later times are greater. Templates that were
/// not made by a build, a snapshot or a tag have an empty one.
pub(crate) fn made_at(app: &App, workspace: &str, text: &str) -> Option<String> {
    let named = match resolve(app, workspace, text) {
        Ok(TemplateSource::Snapshot(info) | TemplateSource::Saved { snapshot: info, .. }) => {
            Some(sortable(info.created_at))
        }
        Ok(TemplateSource::Template(_)) => has_template(app, workspace, text).then(String::new),
        Ok(TemplateSource::Image(_)) => Some(String::new()),
        Ok(TemplateSource::Scratch) | Err(_) => None,
    };
    let tags = tags_of_bare(app, workspace, text).unwrap_or_default();
    named.max(tags.into_values().map(|info| sortable(info.created_at)).max())
}

/// The same, or when a build of this name began that has not ended yet.
pub(crate) fn made_or_begun_at(app: &App, workspace: &str, text: &str) -> Option<String> {
    let builds = app.service.builds.registry.list(workspace).into_iter();
    let under_way = builds.filter(|build| {
        let has_ended = matches!(build.progress().borrow().stage, Stage::Done { .. } | Stage::Failed { .. });
        build.name == text && !has_ended
    });
    made_at(app, workspace, text).max(under_way.map(|build| sortable(build.started_at)).max())
}

fn sortable(at: Timestamp) -> String {
    format!("{:030}", at.as_nanosecond())
}

/// Finds the newest snapshot of this name.
fn find_snapshot(app: &App, workspace: &str, text: &str) -> Result<Option<SnapshotInfo>, ApiError> {
    let Ok(wanted) = Name::parse(text) else { return Ok(None) };
    Ok(newest(&app.engine.snapshots().list(workspace)?, &wanted).cloned())
}

/// The newest of these snapshots that has this name, whether it was built as a template or not. They come oldest first.
pub(super) fn newest<'a>(snapshots: &'a [SnapshotInfo], wanted: &Name) -> Option<&'a SnapshotInfo> {
    snapshots.iter().rev().find(|info| {
        let plain = info.name.as_deref().and_then(|name| Name::parse(name).ok());
        Name::from_snapshot(info).or(plain).as_ref() == Some(wanted)
    })
}

/// Finds the snapshot of a tag, whether the tag was set by the build or added later.
pub(super) fn tagged(app: &App, workspace: &str, name: &Name) -> Result<Option<SnapshotInfo>, ApiError> {
    match built(app, workspace, name)? {
        Some(info) => Ok(Some(info)),
        None => Ok(app.engine.snapshots().of_template(workspace, &name.of_alias())?),
    }
}

/// Points a tag to a snapshot, and replaces what it pointed to.
pub(super) async fn tag(app: &App, workspace: &str, name: &Name, info: &SnapshotInfo) -> Result<(), ApiError> {
    let before = built(app, workspace, name)?;
    let alias = name.of_alias();
    if app.engine.snapshots().of_template(workspace, &alias)?.is_some() {
        app.engine.remove_template(workspace, &alias).await?;
    }
    app.engine.template_from_snapshot(workspace, info, &alias, &name.described())?;
    if let Some(before) = before {
        app.engine.snapshots().delete(workspace, &before.id).await?;
    }
    Ok(())
}

/// Removes a tag. Returns false if it does not exist.
pub(super) async fn untag(app: &App, workspace: &str, name: &Name) -> Result<bool, ApiError> {
    let mut was_there = false;
    if let Some(info) = built(app, workspace, name)? {
        app.engine.snapshots().delete(workspace, &info.id).await?;
        was_there = true;
    }
    if app.engine.snapshots().of_template(workspace, &name.of_alias())?.is_some() {
        app.engine.remove_template(workspace, &name.of_alias()).await?;
        was_there = true;
    }
    Ok(was_there)
}

/// A template's tags with their snapshots, whether the build set them or they were added later.
pub(super) fn tags(app: &App, workspace: &str, name: &str) -> Result<BTreeMap<String, SnapshotInfo>, ApiError> {
    let mut found = BTreeMap::new();
    for template in app.engine.list_templates(workspace)? {
        let Some(tagged) = Name::from_description(&template.description).filter(|tagged| tagged.name == name) else {
            continue;
        };
        found.extend(app.engine.snapshots().of_template(workspace, &template.name)?.map(|info| (tagged.tag, info)));
    }
    found.extend(app.engine.snapshots().list(workspace)?.into_iter().filter_map(|info| {
        let built = Name::from_snapshot(&info).filter(|built| built.name == name)?;
        Some((built.tag, info))
    }));
    Ok(found)
}

/// All tags of a template that is named without one. It may have been built without the default tag.
pub(super) fn tags_of_bare(app: &App, workspace: &str, text: &str) -> Result<BTreeMap<String, SnapshotInfo>, ApiError> {
    if text.contains(':') { Ok(BTreeMap::new()) } else { tags(app, workspace, text) }
}

/// The id of the build that made a snapshot. Snapshots of older releases do not know it.
pub(super) fn build_id(info: &SnapshotInfo) -> String {
    info.settings.for_build.clone().unwrap_or_else(|| info.id.to_string())
}

/// Finds the newest build of this name.
pub(super) fn built(app: &App, workspace: &str, name: &Name) -> Result<Option<SnapshotInfo>, ApiError> {
    let mut newest_first = app.engine.snapshots().list(workspace)?;
    newest_first.reverse();
    Ok(newest_first.into_iter().find(|info| Name::from_snapshot(info).as_ref() == Some(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_is_given_afterwards_is_found_by_its_description() {
        let name = Name::parse(&format!("team/{}:v1", "x".repeat(90))).unwrap();
        assert_eq!(Name::from_description(&name.described()), Some(name.clone()));
        assert!(name.of_alias().len() < 64 && name.of_alias() != Name::parse("mine").unwrap().of_alias());
        assert_eq!(Name::from_description("built from steps on base"), None);
    }

    #[test]
    fn a_name_may_have_a_tag() {
        let name = Name::parse("team/mine:v1").unwrap();
        assert_eq!((name.name.as_str(), name.tag.as_str()), ("team/mine", "v1"));
        assert_eq!(Name::parse("mine").unwrap(), Name::parse("mine:default").unwrap());
        for bad in ["", ":", "a:", "a b", "a:b:c", &"x".repeat(101)] {
            assert!(Name::parse(bad).is_err(), "{bad}");
        }
    }
}
