//! The base of a build: a built-in template, a template of the workspace, an image that a template replaces, or any other
//! image.

use sandling_engine::store::StoreError;
use sandling_engine::{Engine, ProcessDefaults, SnapshotId, SnapshotInfo, TemplateError};
use sandling_oci::Config;

use super::start::Builds;
use crate::images::{ImageError, NamedImage, process_defaults};
use crate::process_defaults::of_built_in;
use crate::workspaces::WorkspaceName;

/// The name of an empty image in a Dockerfile.
pub(super) const SCRATCH: &str = "scratch";

/// What a machine is made from.
pub enum TemplateSource {
    Template(String),
    /// A template that is the name of a snapshot, which may be unlisted.
    Saved {
        name: String,
        snapshot: Box<SnapshotInfo>,
    },
    Snapshot(Box<SnapshotInfo>),
    Image(Box<ImageBase>),
    /// An empty file system.
    Scratch,
}

/// An OCI image as a base.
pub struct ImageBase {
    config: Config,
    template: ImageTemplate,
}

enum ImageTemplate {
    /// A template that was made of an image.
    Made(String),
    /// An image that the build pulls first.
    Named(Box<NamedImage>),
}

#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TemplateSource {
    /// A template by name, which may have been made of an image.
    pub fn of_template(engine: &Engine, workspace: &str, name: &str) -> Self {
        match engine.machines().oci_image(workspace, name) {
            Some(image) => image_base(&image.config, ImageTemplate::Made(name.to_owned())),
            None => Self::Template(name.to_owned()),
        }
    }

    /// What the source sets for every process that is started in it.
    pub fn process_defaults(&self, engine: &Engine, workspace: &str) -> Result<ProcessDefaults, StoreError> {
        Ok(match self {
            Self::Scratch => ProcessDefaults::default(),
            Self::Template(name) => of_built_in(engine, workspace, name)?.unwrap_or_default(),
            Self::Image(image) => {
                let defaults = process_defaults(&image.config);
                // As in Docker. The user that E2B's clients have by default may not exist in an image.
                ProcessDefaults { user: defaults.user.or_else(|| Some("root".to_owned())), ..defaults }
            }
            Self::Saved { snapshot, .. } | Self::Snapshot(snapshot) => snapshot.settings.process.clone(),
        })
    }

    /// What the source says about itself besides what applies to processes.
    pub(super) fn config(&self) -> Config {
        match self {
            Self::Template(_) | Self::Scratch => Config::default(),
            Self::Image(image) => image.config.clone(),
            Self::Saved { snapshot, .. } | Self::Snapshot(snapshot) => {
                let stored = snapshot.settings.image_config.clone();
                stored.and_then(|config| serde_json::from_value(config).ok()).unwrap_or_default()
            }
        }
    }

    /// A text that changes if and only if the source's files do.
    pub(super) fn identity(&self, engine: &Engine, workspace: &str) -> Result<String, TemplateError> {
        Ok(match self {
            Self::Scratch => "scratch".to_owned(),
            Self::Template(name) => {
                let listed = engine.list_templates(workspace)?;
                let image =
                    listed.into_iter().find(|template| template.name == *name).and_then(|template| template.image);
                format!("template {name} {}", image.unwrap_or_default())
            }
            Self::Saved { snapshot, .. } | Self::Snapshot(snapshot) => format!("snapshot {}", snapshot.id),
            Self::Image(image) => match &image.template {
                ImageTemplate::Made(name) => format!("made {name}"),
                ImageTemplate::Named(named) => format!("image {}", named.digest()),
            },
        })
    }

    pub(super) fn is_scratch(&self) -> bool {
        matches!(self, Self::Scratch)
    }

    /// Whether a machine of it can have another size.
    pub(super) fn takes_a_size(&self) -> bool {
        matches!(self, Self::Template(_) | Self::Image(_) | Self::Scratch)
    }

    /// The image that has to be pulled first, if there is one.
    pub(super) fn to_pull(&self) -> Option<&NamedImage> {
        match self {
            Self::Image(image) => match &image.template {
                ImageTemplate::Named(named) => Some(named),
                ImageTemplate::Made(_) => None,
            },
            Self::Template(_) | Self::Saved { .. } | Self::Snapshot(_) | Self::Scratch => None,
        }
    }

    /// The template and, if it is made from one, the snapshot of a new sandbox. `None` for an image that was not pulled.
    pub fn origin(&self) -> Option<(String, Option<SnapshotId>)> {
        match self {
            Self::Template(name) | Self::Saved { name, .. } => Some((name.clone(), None)),
            Self::Snapshot(snapshot) => Some((snapshot.template.clone(), Some(snapshot.id.clone()))),
            Self::Image(image) => match &image.template {
                ImageTemplate::Made(name) => Some((name.clone(), None)),
                ImageTemplate::Named(_) => None,
            },
            Self::Scratch => None,
        }
    }
}

/// Images: the name, how a tag begins, the template that replaces the image, and a remark about the difference.
const IMAGES: [(&str, &str, &str, &str); 11] = [
    ("debian", "13", "base", "Debian 13"),
    ("debian", "trixie", "base", "Debian 13"),
    // The defaults of E2B's `from_debian_image`, `from_node_image` and `from_ubuntu_image`.
    ("debian", "stable", "base", "Debian 13"),
    ("node", "lts", "code-interpreter", "Debian 13 with Node 24 and Python"),
    ("ubuntu", "latest", "base", "Debian 13; there is no Ubuntu here"),
    ("python", "3", "base", "Debian 13 and its Python 3.13"),
    ("python", "3.13", "base", "Debian 13 and its Python 3.13"),
    ("node", "24", "code-interpreter", "Debian 13 with Node 24 and Python"),
    ("ubuntu", "24.04", "base", "Debian 13; there is no Ubuntu here"),
    ("e2bdev/base", "latest", "base", ""),
    ("e2bdev/code-interpreter", "latest", "code-interpreter", ""),
];

/// Tags of other systems under the same image names.
const OTHER_SYSTEMS: [&str; 6] = ["alpine", "bookworm", "bullseye", "buster", "windowsservercore", "nanoserver"];

impl Builds {
    /// Finds the base that a name stands for, and a remark for the client about it.
    pub async fn find_base(
        &self,
        workspace: &WorkspaceName,
        text: &str,
    ) -> Result<(TemplateSource, Option<String>), BaseError> {
        if text == SCRATCH {
            return Ok((TemplateSource::Scratch, None));
        }
        if let Some((template, what)) = replacement(text) {
            let note = (!what.is_empty()).then(|| format!("{text} is {template} here: {what}"));
            return Ok((TemplateSource::Template(template.to_owned()), note));
        }
        if let Some(known) = self.engine.built_in(workspace.as_str(), text)? {
            let note = known.alias_note.map(str::to_owned);
            return Ok((TemplateSource::Template(known.recipe.name.to_string()), note));
        }
        if let Some(snapshot) = self.engine.snapshots().of_template(workspace.as_str(), text)? {
            return Ok((TemplateSource::Saved { name: text.to_owned(), snapshot: Box::new(snapshot) }, None));
        }
        if self.engine.list_templates(workspace.as_str())?.iter().any(|template| template.name == text) {
            return Ok((TemplateSource::of_template(&self.engine, workspace.as_str(), text), None));
        }
        let named = self.images.resolve(workspace, text).await?;
        Ok((image_base(&named.config(), ImageTemplate::Named(Box::new(named))), None))
    }
}

fn image_base(config: &Config, template: ImageTemplate) -> TemplateSource {
    TemplateSource::Image(Box::new(ImageBase { config: config.clone(), template }))
}

/// The template that replaces an image, and the remark about it.
pub(super) fn replacement(image: &str) -> Option<(&'static str, &'static str)> {
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
        for image in ["debian:13", "debian:trixie-slim", "docker.io/library/python:3.13-slim", "python:3-trixie"] {
            assert_eq!(template(image), Some("base"), "{image}");
        }
        for image in ["debian:stable", "ubuntu", "ubuntu:latest"] {
            assert_eq!(template(image), Some("base"), "{image}");
        }
        assert_eq!(template("node:lts"), Some("code-interpreter"));
        assert_eq!(template("node:24"), Some("code-interpreter"));
        assert_eq!(template("e2bdev/code-interpreter"), Some("code-interpreter"));
        for image in ["debian", "debian:12", "python:3.12", "python:3.13-alpine", "python:3.13-alpine3.20", "python"] {
            assert_eq!(template(image), None, "{image}");
        }
    }
}
