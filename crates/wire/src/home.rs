//! The home directory, which holds all state.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The variable that names the home directory.
pub const HOME_VARIABLE: &str = "SANDLING_HOME";
/// The variable that names another directory for templates, so that several homes can share them.
pub const TEMPLATES_VARIABLE: &str = "SANDLING_TEMPLATES";

/// The layout of a home directory. All other code takes its paths from here.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
    templates: PathBuf,
}

impl Home {
    /// `$SANDLING_HOME`, else the XDG data directory.
    pub fn from_environment() -> Option<Self> {
        let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let root = variable(HOME_VARIABLE)
            .or_else(|| variable("XDG_DATA_HOME").map(|data| data.join("sandling")))
            .or_else(|| variable("HOME").map(|home| home.join(".local/share/sandling")))?;
        let root = std::path::absolute(root).ok()?;
        let templates = match variable(TEMPLATES_VARIABLE) {
            Some(path) => std::path::absolute(path).ok()?,
            None => root.join("templates"),
        };
        Some(Self { root, templates })
    }

    pub fn new(root: PathBuf) -> Self {
        let templates = root.join("templates");
        Self { root, templates }
    }

    pub fn with_templates(mut self, templates: PathBuf) -> Self {
        self.templates = templates;
        self
    }

    /// Creates the directories, readable only by their owner.
    pub fn prepare(&self) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        for path in [&self.root, &self.sandboxes(), &self.snapshots(), &self.volumes(), &self.engines()] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        fs::create_dir_all(&self.templates)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn templates(&self) -> &Path {
        &self.templates
    }

    /// One directory per machine, standbys included.
    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    /// One directory per snapshot.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// One file per volume.
    pub fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// One locked file per running engine.
    pub fn engines(&self) -> PathBuf {
        self.root.join("engines")
    }

    pub fn store(&self) -> PathBuf {
        self.root.join("sandling.db")
    }
}
