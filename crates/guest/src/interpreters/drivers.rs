//! The drivers' files, written to the disk.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sandling_protocol::Language;

use super::table::Role;

/// Names and contents, from the build script.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/drivers.rs"));

pub struct Drivers {
    folder: PathBuf,
}

impl Drivers {
    /// Writes the drivers into `folder`.
    pub fn install(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        for (name, contents) in FILES {
            let path = folder.join(name);
            fs::write(&path, contents)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// The command that starts a driver. Node's driver always waits for its activation; only a spare warms up first.
    pub fn command(&self, language: Language, role: Role) -> Vec<String> {
        let (interpreter, file, mode) = match (language, role) {
            (Language::Node, Role::Spare) => ("node", "node.js", "spare"),
            (Language::Node, _) => ("node", "node.js", "cold"),
            (_, Role::Zygote) => ("python3", "python.py", "zygote"),
            (_, Role::Spare | Role::Script { .. }) => ("python3", "python.py", "script"),
            (_, Role::Context { .. }) => ("python3", "python.py", "context"),
        };
        vec![interpreter.to_owned(), self.folder.join(file).display().to_string(), mode.to_owned()]
    }
}
