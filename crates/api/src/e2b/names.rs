//! What a template's name stands for: one of ours, a snapshot, or what was built from a client's own steps.

use sandling_engine::{SnapshotId, SnapshotInfo};

use crate::app::App;
use crate::build::Source;
use crate::error::ApiError;

/// E2B's names of templates, and ours.
const STANDS_FOR: [(&str, &str); 3] = [
    ("code-interpreter-v1", "code-interpreter"),
    ("e2bdev/code-interpreter", "code-interpreter"),
    ("e2bdev/base", "base"),
];

/// Snapshots that were built as templates have this before their name.
const BUILT: &str = "e2b-template:";
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

    /// Of a snapshot that was built as a template.
    pub(super) fn from_snapshot(info: &SnapshotInfo) -> Option<Self> {
        let (name, tag) = info.name.as_deref()?.strip_prefix(BUILT)?.split_once(':')?;
        Some(Self { name: name.to_owned(), tag: tag.to_owned() })
    }
}

/// Finds what a client means by a template's name: a snapshot's id or name, a template that was built, or one of ours.
pub(super) fn resolve(app: &App, workspace: &str, text: &str) -> Result<Source, ApiError> {
    if let Some(id) = SnapshotId::parse(text) {
        let found = app.engine.find_snapshot(workspace, &id)?;
        return found.map(|info| Source::Snapshot(Box::new(info))).ok_or_else(|| ApiError::not_found("snapshot"));
    }
    if let Some((_, ours)) = STANDS_FOR.iter().find(|(theirs, _)| *theirs == text) {
        return Ok(Source::Template((*ours).to_owned()));
    }
    if let Some(info) = find_snapshot(app, workspace, text)? {
        return Ok(Source::Snapshot(Box::new(info)));
    }
    if let Some(info) = app.engine.snapshot_of_template(workspace, text)? {
        return Ok(Source::Saved { name: text.to_owned(), snapshot: Box::new(info) });
    }
    Ok(Source::Template(text.to_owned()))
}

/// The newest snapshot of this name.
fn find_snapshot(app: &App, workspace: &str, text: &str) -> Result<Option<SnapshotInfo>, ApiError> {
    let Ok(wanted) = Name::parse(text) else { return Ok(None) };
    let mut newest_first = app.engine.list_snapshots(workspace)?;
    newest_first.reverse();
    Ok(newest_first.into_iter().find(|info| {
        let plain = info.name.as_deref().and_then(|name| Name::parse(name).ok());
        Name::from_snapshot(info).or(plain).as_ref() == Some(&wanted)
    }))
}

/// The newest template that was built under this name.
pub(super) fn built(app: &App, workspace: &str, name: &Name) -> Result<Option<SnapshotInfo>, ApiError> {
    let mut newest_first = app.engine.list_snapshots(workspace)?;
    newest_first.reverse();
    Ok(newest_first.into_iter().find(|info| Name::from_snapshot(info).as_ref() == Some(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
