//! What a build stands on: a template of ours, one of the workspace's own, or an image's name that one can honestly
//! stand for.

use sandling_engine::{SnapshotId, SnapshotInfo};

use super::start::Start;
use crate::app::App;
use crate::error::ApiError;

/// What a machine is made of.
pub(crate) enum Source {
    Template(String),
    /// A template that stands for a snapshot, which need not be listed.
    Saved {
        name: String,
        snapshot: Box<SnapshotInfo>,
    },
    Snapshot(Box<SnapshotInfo>),
}

impl Source {
    /// What the template says about everything that is started in it.
    pub(crate) fn start(&self) -> Option<Start> {
        match self {
            Self::Template(_) => None,
            Self::Saved { snapshot, .. } | Self::Snapshot(snapshot) => Some(Start::from_labels(&snapshot.labels)),
        }
    }

    /// What a sandbox of it is made from: a template, and perhaps a snapshot instead.
    pub(crate) fn origin(&self) -> (String, Option<SnapshotId>) {
        match self {
            Self::Template(name) | Self::Saved { name, .. } => (name.clone(), None),
            Self::Snapshot(snapshot) => (snapshot.template.clone(), Some(snapshot.id.clone())),
        }
    }
}

/// Images: their name, how a tag of them begins, the template that stands for them, and what that is if it needs a word.
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

/// Other systems under the same names.
const OTHER_SYSTEMS: [&str; 6] = ["alpine", "bullseye", "buster", "trixie", "windowsservercore", "nanoserver"];

/// Finds what a name stands for, and what is to be told about it.
pub(crate) fn find(app: &App, workspace: &str, text: &str) -> Result<(Source, Option<String>), ApiError> {
    if let Some((template, what)) = stands_in(text) {
        let note = (!what.is_empty()).then(|| format!("{text} is {template} here: {what}"));
        return Ok((Source::Template(template.to_owned()), note));
    }
    if let Ok(known) = sandling_image::resolve(text) {
        let note = known.alias_note.map(str::to_owned);
        return Ok((Source::Template(known.recipe.name.to_string()), note));
    }
    if let Some(snapshot) = app.engine.snapshot_of_template(workspace, text)? {
        return Ok((Source::Saved { name: text.to_owned(), snapshot: Box::new(snapshot) }, None));
    }
    if app.engine.list_templates(workspace)?.iter().any(|template| template.name == text) {
        return Ok((Source::Template(text.to_owned()), None));
    }
    Err(ApiError::bad_request(format!(
        "the image {text:?} cannot be had here, because no images are fetched: begin with a template of yours or with \
         base, code-interpreter, debian:12, python:3.11, node:18 or ubuntu:24.04, which the first two stand for"
    )))
}

/// The template that stands for an image, and what it is.
fn stands_in(image: &str) -> Option<(&'static str, &'static str)> {
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
    fn an_image_is_stood_for_only_by_what_it_is() {
        let template = |image| stands_in(image).map(|(template, _)| template);
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
