//! What a template's name stands for: one of ours, a snapshot, or what was built from a client's own steps.

use sandling_engine::{SnapshotId, SnapshotInfo};
use sandling_service::TemplateSource;
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::error::ApiError;

/// E2B's names of templates, and ours.
const STANDS_FOR: [(&str, &str); 3] = [
    ("code-interpreter-v1", "code-interpreter"),
    ("e2bdev/code-interpreter", "code-interpreter"),
    ("e2bdev/base", "base"),
];

/// Snapshots that were built as templates have this before their name.
const BUILT: &str = "e2b-template:";
/// Templates that are tags given afterwards are described by this and the name.
const TAG_OF: &str = "E2B's ";
/// The tag of a name that has none.
const DEFAULT_TAG: &str = "default";

/// A template's name in two parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) name: String,
    pub(super) tag: String,
}

impl Name {
    /// Letters, digits and `.`, `-`, `_`, and slashes between; then perhaps a colon and a tag.
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

    /// The name of the snapshot that holds it.
    pub(super) fn of_snapshot(&self) -> String {
        format!("{BUILT}{}:{}", self.name, self.tag)
    }

    /// The name of the template that stands for a tag which was given afterwards. Any name and tag fit into it.
    fn of_alias(&self) -> String {
        let digest = Sha256::digest(format!("{}:{}", self.name, self.tag));
        let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        format!("e2b-{hex}")
    }

    /// How that template is described.
    fn described(&self) -> String {
        format!("{TAG_OF}{}:{}", self.name, self.tag)
    }

    pub(super) fn from_description(text: &str) -> Option<Self> {
        let (name, tag) = text.strip_prefix(TAG_OF)?.split_once(':')?;
        Some(Self { name: name.to_owned(), tag: tag.to_owned() })
    }

    /// Of a snapshot that was built as a template.
    pub(super) fn from_snapshot(info: &SnapshotInfo) -> Option<Self> {
        let (name, tag) = info.name.as_deref()?.strip_prefix(BUILT)?.split_once(':')?;
        Some(Self { name: name.to_owned(), tag: tag.to_owned() })
    }
}

/// E2B's names of one of our templates.
pub(super) fn theirs(ours: &str) -> impl Iterator<Item = &str> {
    STANDS_FOR.iter().filter(move |(_, name)| *name == ours).map(|(theirs, _)| *theirs)
}

/// Finds what a client means by a template's name: a snapshot's id or name, a template that was built, or one of ours.
pub(super) fn resolve(app: &App, workspace: &str, text: &str) -> Result<TemplateSource, ApiError> {
    if let Some(id) = SnapshotId::parse(text) {
        let found = app.engine.snapshots().find(workspace, &id)?;
        return found
            .map(|info| TemplateSource::Snapshot(Box::new(info)))
            .ok_or_else(|| ApiError::not_found("snapshot"));
    }
    if let Some((_, ours)) = STANDS_FOR.iter().find(|(theirs, _)| *theirs == text) {
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
    Ok(TemplateSource::Template(text.to_owned()))
}

/// The newest snapshot of this name.
fn find_snapshot(app: &App, workspace: &str, text: &str) -> Result<Option<SnapshotInfo>, ApiError> {
    let Ok(wanted) = Name::parse(text) else { return Ok(None) };
    let mut newest_first = app.engine.snapshots().list(workspace)?;
    newest_first.reverse();
    Ok(newest_first.into_iter().find(|info| {
        let plain = info.name.as_deref().and_then(|name| Name::parse(name).ok());
        Name::from_snapshot(info).or(plain).as_ref() == Some(&wanted)
    }))
}

/// What a tag stands for, whether it was built with it or given it afterwards.
pub(super) fn tagged(app: &App, workspace: &str, name: &Name) -> Result<Option<SnapshotInfo>, ApiError> {
    match built(app, workspace, name)? {
        Some(info) => Ok(Some(info)),
        None => Ok(app.engine.snapshots().of_template(workspace, &name.of_alias())?),
    }
}

/// Makes a tag stand for a snapshot, whatever it stood for before.
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

/// Takes a tag away. False if there is none.
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

/// The tags of a template that were given afterwards, with what they stand for.
pub(super) fn aliases(app: &App, workspace: &str, name: &str) -> Result<Vec<(String, SnapshotInfo)>, ApiError> {
    let mut found = Vec::new();
    for template in app.engine.list_templates(workspace)? {
        let Some(tagged) = Name::from_description(&template.description).filter(|tagged| tagged.name == name) else {
            continue;
        };
        found.extend(app.engine.snapshots().of_template(workspace, &template.name)?.map(|info| (tagged.tag, info)));
    }
    Ok(found)
}

/// The newest template that was built under this name.
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
