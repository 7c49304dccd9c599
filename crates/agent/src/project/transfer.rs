//! Copies a project into a sandbox, and its changes back.

use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Limited};
use ignore::gitignore::Gitignore;
use sandling_client::{ClientError, query};
use sandling_tools::{CallControl, ToolError, Toolbox};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::diff::{BY_PRODUCTS, Diff};
use super::error::ProjectError;
use super::tree::{MAX_BYTES, ProjectTree};

const ARCHIVE: &str = "/tmp/.sandling-project.tar";
/// An archive is somewhat larger than its content.
const MAX_ARCHIVE: usize = 2 * MAX_BYTES as usize;

/// A project on this host, as it was when it was read.
pub struct Project {
    root: PathBuf,
    before: ProjectTree,
}

impl Project {
    pub fn read(root: &Path) -> Result<Self, ProjectError> {
        let unreadable = |source: std::io::Error| ProjectError::Read { path: root.to_owned(), source: source.into() };
        let root = root.canonicalize().map_err(unreadable)?;
        if !root.is_dir() {
            return Err(unreadable(std::io::ErrorKind::NotADirectory.into()));
        }
        Ok(Self { before: ProjectTree::read(&root)?, root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn files(&self) -> usize {
        self.before.0.len()
    }

    /// Copies the project into the sandbox's working directory.
    pub async fn send(&self, toolbox: &Toolbox) -> Result<(), ProjectError> {
        let archive = self.before.to_archive().map_err(ProjectError::Archive)?;
        toolbox.store(ARCHIVE, archive).await?;
        run(toolbox, &format!("tar -xf {ARCHIVE} --no-same-owner && rm -f {ARCHIVE}")).await
    }

    /// The changes that the sandbox has made.
    pub async fn diff(&self, toolbox: &Toolbox) -> Result<Diff, ProjectError> {
        let by_products = BY_PRODUCTS.into_iter().filter(|name| !self.before.has_component(name));
        let excluded: String = by_products.chain([".git"]).map(|name| format!(" --exclude={name}")).collect();
        // tar exits with 1 if a file changes while it is packed, which is not a failure.
        run(toolbox, &format!("tar -cf {ARCHIVE}{excluded} . || [ $? = 1 ]")).await?;
        let bytes = fetch(toolbox).await?;
        let after = tokio::task::spawn_blocking(move || ProjectTree::of_archive(bytes.as_slice()));
        let after = after.await.map_err(|error| ProjectError::Unpacking(std::io::Error::other(error)))??;
        let (ignored, _) = Gitignore::new(self.root.join(".gitignore"));
        // The paths in the tree are relative, as the matcher expects.
        Ok(Diff::between(&self.before, after, &ignored))
    }
}

async fn run(toolbox: &Toolbox, command: &str) -> Result<(), ProjectError> {
    let control = CallControl { cancelled: CancellationToken::new(), watch: &|_, _| {} };
    let ran = toolbox.call("run_command", json!({ "command": command }), &control).await?;
    if ran.exit_code == Some(0) { Ok(()) } else { Err(ProjectError::Packing(ran.text)) }
}

async fn fetch(toolbox: &Toolbox) -> Result<Vec<u8>, ProjectError> {
    let path = toolbox.path(&format!("fs{}", query(&[("path", Some(ARCHIVE.to_owned()))])));
    let response = toolbox.client().get_raw(&path).await.map_err(ToolError::from)?;
    let body = Limited::new(response.into_body(), MAX_ARCHIVE).collect().await;
    let body = body.map_err(|error| ToolError::from(ClientError::broken(error)))?;
    Ok(body.to_bytes().to_vec())
}
