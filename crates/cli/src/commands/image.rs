//! Sandboxes from OCI images: where an image comes from, and its pull in this process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::bail;
use sandling_engine::{Engine, Step};
use sandling_service::{ImageSettings, Images, WorkspaceName};

use super::open_engine;
use crate::client::{Client, Origin};
use crate::options::Common;
use crate::show;

/// What takes longer than this shows its progress.
pub(super) const QUIET: Duration = Duration::from_secs(2);

/// The value of `--image`.
#[derive(Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// An image in a registry.
    Reference(String),
    /// An archive or an OCI layout on this machine.
    File(PathBuf),
}

impl ImageSource {
    pub fn parse(text: &str) -> Self {
        let schemes = ["docker-archive:", "oci-archive:", "oci:"];
        if let Some(path) = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)) {
            return Self::File(path.into());
        }
        let is_path = text == "." || text == ".." || ["/", "./", "../"].iter().any(|start| text.starts_with(start));
        if is_path { Self::File(text.into()) } else { Self::Reference(text.to_owned()) }
    }
}

/// Pulls an image in this process. Returns its template.
pub async fn template(engine: &Arc<Engine>, settings: ImageSettings, image: &str) -> anyhow::Result<String> {
    let images = Images::without_server(engine.clone(), settings)?;
    let progress = Arc::new(LateProgress::new());
    let steps = progress.clone();
    let made = images.template(&WorkspaceName::default(), image, Arc::new(move |step| steps.step(&step))).await;
    progress.done();
    Ok(made?)
}

/// Makes a template of an image on this machine, in this process. Returns its name.
pub async fn template_of_file(common: &Common, server: Option<&Client>, path: &Path) -> anyhow::Result<String> {
    if server.is_some_and(|client| client.server().origin == Origin::Environment) {
        bail!("an image in a file works only on the server's own machine; push it to a registry instead");
    }
    let engine = open_engine(common).await?;
    let images = Images::without_server(engine.clone(), ImageSettings::default())?;
    let progress = Arc::new(LateProgress::new());
    let steps = progress.clone();
    let path = std::path::absolute(path)?;
    let on_step = Arc::new(move |step| steps.step(&step));
    let made = images.template_of_file(&WorkspaceName::default(), &path, on_step).await;
    progress.done();
    engine.close().await;
    Ok(made?)
}

/// Progress that is shown once it has taken a while.
struct LateProgress {
    started: Instant,
    shown: OnceLock<show::Progress>,
}

impl LateProgress {
    fn new() -> Self {
        Self { started: Instant::now(), shown: OnceLock::new() }
    }

    fn step(&self, step: &Step) {
        if self.started.elapsed() >= QUIET {
            self.shown.get_or_init(show::Progress::new).step(step);
        }
    }

    fn done(&self) {
        if let Some(shown) = self.shown.get() {
            shown.done();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_from_references() {
        for (text, path) in [
            ("docker-archive:app.tar", "app.tar"),
            ("oci-archive:/x/app.tar", "/x/app.tar"),
            ("oci:layout", "layout"),
            ("./app.tar", "./app.tar"),
            ("/tmp/layout", "/tmp/layout"),
            (".", "."),
        ] {
            assert_eq!(ImageSource::parse(text), ImageSource::File(path.into()));
        }
        for text in ["python:3.12-slim", "localhost:5000/a/b", "app.tar", "oci/x"] {
            assert_eq!(ImageSource::parse(text), ImageSource::Reference(text.to_owned()));
        }
    }
}
