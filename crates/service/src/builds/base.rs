//! The base of a build: a built-in template, a template of the workspace, or the name of an image that a template can
//! replace.

use sandling_engine::store::StoreError;
use sandling_engine::{ProcessDefaults, SnapshotId, SnapshotInfo, TemplateError};

use super::start::Builds;

/// What a machine is made from.
pub enum TemplateSource {
    Template(String),
    /// A template that is the name of a snapshot, which may be unlisted.
    Saved {
        name: String,
        snapshot: Box<SnapshotInfo>,
    },
    Snapshot(Box<SnapshotInfo>),
}

#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    #[error(
        "the image {0:?} cannot be had here, because no images are fetched: begin with a template of yours or with \
         base, code-interpreter, debian:12, python:3.11, node:18 or ubuntu:24.04, which the first two stand for"
    )]
    UnknownImage(String),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TemplateSource {
    /// What the source sets for every process that is started in it.
    pub fn process_defaults(&self) -> ProcessDefaults {
        match self {
            Self::Template(_) => ProcessDefaults::default(),
            Self::Saved { snapshot, .. } | Self::Snapshot(snapshot) => snapshot.settings.process.clone(),
        }
    }

    /// The template and, if it is made from one, the snapshot of a new sandbox.
    pub fn origin(&self) -> (String, Option<SnapshotId>) {
        match self {
            Self::Template(name) | Self::Saved { name, .. } => (name.clone(), None),
            Self::Snapshot(snapshot) => (snapshot.template.clone(), Some(snapshot.id.clone())),
        }
    }
}

/// Images: the name, how a tag begins, the template that replaces the image, and a remark about the difference.
const IMAGES: [(&str, &str, &str, &str); 8] = [
    ("debian", "12", "base", "Debian 12"),
    ("debian", "bookworm", "base", "Debian 12"),
    ("python", "3", "base", "Debian 12 and its Python 3.11"),
    ("python", "3.11", "base", "Debian 12 and its Python 3.11"),
    ("node", "18", "code-interpreter", "Debian 12 and its Node 18, with Python"),
    ("ubuntu", "24.04", "base", "Debian 12; there is no Ubuntu here"),
    ("e2bdev/base", "latest", "base", ""),
    ("e2bdev/code-interpreter", "latest", "code-interpreter", ""),
];

/// Tags of other systems under the same image names.
const OTHER_SYSTEMS: [&str; 6] = ["alpine", "bullseye", "buster", "trixie", "windowsservercore", "nanoserver"];

impl Builds {
    /// Finds the base that a name stands for, and a remark for the client about it.
    pub fn find_base(&self, workspace: &str, text: &str) -> Result<(TemplateSource, Option<String>), BaseError> {
        if let Some((template, what)) = replacement(text) {
            let note = (!what.is_empty()).then(|| format!("{text} is {template} here: {what}"));
            return Ok((TemplateSource::Template(template.to_owned()), note));
        }
        if let Ok(known) = sandling_image::resolve(text) {
            let note = known.alias_note.map(str::to_owned);
            return Ok((TemplateSource::Template(known.recipe.name.to_string()), note));
        }
        if let Some(snapshot) = self.engine.snapshots().of_template(workspace, text)? {
            return Ok((TemplateSource::Saved { name: text.to_owned(), snapshot: Box::new(snapshot) }, None));
        }
        if self.engine.list_templates(workspace)?.iter().any(|template| template.name == text) {
            return Ok((TemplateSource::Template(text.to_owned()), None));
        }
        Err(BaseError::UnknownImage(text.to_owned()))
    }
}

/// The template that replaces an image, and the remark about it.
fn replacement(image: &str) -> Option<(&'static str, &'static str)> {
    let name = ["docker.io/", "index.docker.io/"].iter().find_map(|host| image.strip_prefix(host)).unwrap_or(image);
    let name = name.strip_prefix("library/").unwrap_or(name);
    let (name, tag) = name.split_once(':').unwrap_or((name, "latest"));
    let (version, variants) = tag.split_once('-').unwrap_or((tag, ""));
    if variants.split('-').any(|variant| OTHER_SYSTEMS.iter().any(|other| variant.starts_with(other))) {
        return None;
    }
    let found = IMAGES.iter().find(|(known, begins, ..)| *known == name && *begins == version);
    found.map(|(_, _, template, what)| (*template, *what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_replaced_only_by_an_equivalent_template() {
        let template = |image| replacement(image).map(|(template, _)| template);
        for image in ["debian:12", "debian:bookworm-slim", "docker.io/library/python:3.11-slim", "python:3-bookworm"] {
            assert_eq!(template(image), Some("base"), "{image}");
        }
        assert_eq!(template("node:18"), Some("code-interpreter"));
        assert_eq!(template("e2bdev/code-interpreter"), Some("code-interpreter"));
        for image in ["debian", "debian:13", "python:3.12", "python:3.11-alpine", "python:3.11-alpine3.20", "python"] {
            assert_eq!(template(image), None, "{image}");
        }
    }
}
