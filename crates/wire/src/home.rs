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
        self.prepare_root()?;
        for path in [&self.sandboxes(), &self.snapshots(), &self.volumes(), &self.engines()] {
            private_directory(path)?;
        }
        // A directory that several homes share has permissions of its own.
        if self.templates.starts_with(&self.root) {
            private_directory(&self.templates)
        } else {
            fs::create_dir_all(&self.templates)
        }
    }

    /// Creates the home itself, for a client that starts a server.
    pub fn prepare_root(&self) -> io::Result<()> {
        private_directory(&self.root)
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

    /// Files that builds of templates copy.
    pub fn uploads(&self) -> PathBuf {
        self.root.join("uploads")
    }

    /// Layers of OCI images, by their digests.
    pub fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    /// Transcripts of agents.
    pub fn transcripts(&self) -> PathBuf {
        self.root.join("transcripts")
    }

    /// The history of resource usage.
    pub fn metrics(&self) -> PathBuf {
        self.root.join("metrics")
    }

    /// The secret of preview tokens.
    pub fn previews(&self) -> PathBuf {
        self.root.join("previews")
    }

    /// The certificate of `serve --tls self`.
    pub fn tls(&self) -> PathBuf {
        self.root.join("tls")
    }

    /// What a member of a fleet knows about it: its name, the fleet's certificate authority and where the ledger is.
    pub fn fleet(&self) -> PathBuf {
        self.root.join("fleet")
    }

    /// One file per sandbox that is on its way to or from another node of the fleet.
    pub fn moves(&self) -> PathBuf {
        self.root.join("moves")
    }

    pub fn store(&self) -> PathBuf {
        self.root.join("sandling.db")
    }
}

/// Creates a directory that only its owner can enter, whatever the umask is. Fails if it exists.
pub fn new_private_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// The same with its parents. One that exists is left as it is.
pub fn private_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
