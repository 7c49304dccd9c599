//! The drivers' files, written to the disk.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sandling_protocol::Language;

/// Names and contents, from the build script.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/drivers.rs"));

pub struct Drivers {
    folder: PathBuf,
}

/// The mode to start a driver in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Zygote,
    Spare,
    Script,
    Context,
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
    pub fn command(&self, language: Language, mode: Mode) -> Vec<String> {
        let (interpreter, file) = match language {
            Language::Node => ("node", "node.js"),
            Language::Python | Language::Bash => ("python3", "python.py"),
        };
        let mode = match mode {
            Mode::Spare if language == Language::Node => "spare",
            _ if language == Language::Node => "cold",
            Mode::Zygote => "zygote",
            Mode::Spare | Mode::Script => "script",
            Mode::Context => "context",
        };
        vec![interpreter.to_owned(), self.folder.join(file).display().to_string(), mode.to_owned()]
    }
}
