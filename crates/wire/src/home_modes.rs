//! The permissions of the files in a home: nobody but its owner may read them.
//!
//! Two kinds of files may be read by others, since machines map them under users of their own: the layers of snapshots
//! and templates, and the programs that the engine puts into the home. All of them are in directories that only the
//! owner can enter. The files of machines, and templates while they are built, have permissions of their own and are
//! left alone.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use crate::home::Home;

/// Owner only.
const PRIVATE: u32 = 0o700;
/// Others may read and execute, but not write.
const NOT_WRITABLE: u32 = 0o755;
const STICKY: u32 = 0o1000;
/// The names of programs that machines execute.
const PROGRAMS: [&str; 2] = ["preload-", "resume-"];

/// A file or directory whose permissions were too wide.
#[derive(Debug)]
pub struct WideMode {
    pub path: PathBuf,
    pub found: u32,
    pub wanted: u32,
    /// Why the permissions could not be changed, if that was tried.
    pub error: Option<io::Error>,
}

impl fmt::Display for WideMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has mode {:04o} instead of {:04o}", self.path.display(), self.found, self.wanted)
    }
}

impl Home {
    /// Finds files and directories of the home that others can read or change.
    pub fn wide_modes(&self) -> Vec<WideMode> {
        let mut found = Vec::new();
        // A directory of everybody, such as /tmp, is not a home of its own.
        if let Ok(metadata) = fs::metadata(self.root())
            && metadata.mode() & STICKY == 0
        {
            check(self.root(), PRIVATE, &mut found);
        }
        for path in entries(self.root()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_program = PROGRAMS.iter().any(|program| name.starts_with(program));
            if !path.is_dir() {
                check(&path, if is_program { NOT_WRITABLE } else { PRIVATE }, &mut found);
            }
        }
        for path in [self.sandboxes(), self.root().join("templates")] {
            check(&path, PRIVATE, &mut found);
        }
        let private = [self.volumes(), self.engines(), self.uploads(), self.layers(), self.metrics(), self.previews()];
        for path in private.into_iter().chain([self.tls()]) {
            check_tree(&path, PRIVATE, &mut found);
        }
        check_tree(&self.snapshots(), NOT_WRITABLE, &mut found);
        found
    }

    /// Takes from others what they must not do, and says what was changed.
    pub fn repair_modes(&self) -> Vec<WideMode> {
        let mut found = self.wide_modes();
        for wide in &mut found {
            wide.error = fs::set_permissions(&wide.path, fs::Permissions::from_mode(wide.wanted)).err();
        }
        found
    }
}

/// Checks a directory and all in it. Directories are private whatever their files are.
fn check_tree(path: &Path, files: u32, found: &mut Vec<WideMode>) {
    check(path, PRIVATE, found);
    for entry in entries(path) {
        // A link is not followed: it may lead out of the home.
        if entry.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            check_tree(&entry, files, found);
        } else {
            check(&entry, files, found);
        }
    }
}

fn check(path: &Path, allowed: u32, found: &mut Vec<WideMode>) {
    let Ok(metadata) = path.symlink_metadata() else { return };
    let mode = metadata.mode() & 0o7777;
    if !metadata.is_symlink() && mode & !allowed != 0 {
        found.push(WideMode { path: path.to_owned(), found: mode, wanted: mode & allowed, error: None });
    }
}

fn entries(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        home.prepare().unwrap();
        (dir, home)
    }

    #[test]
    fn a_prepared_home_is_private() {
        let (_dir, home) = home();
        assert!(home.wide_modes().is_empty(), "{:?}", home.wide_modes());
        for path in [home.root(), &home.sandboxes(), &home.volumes(), home.templates()] {
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
    }

    #[test]
    fn what_others_can_read_is_repaired() {
        let (_dir, home) = home();
        let upload = home.uploads().join("team/context.tar");
        fs::create_dir_all(upload.parent().unwrap()).unwrap();
        let planted =
            [home.root().join("token"), home.root().join("sandling.db-wal"), home.engines().join("e"), upload];
        for path in &planted {
            fs::write(path, "").unwrap();
            set(path, 0o644);
        }
        for path in [home.root(), &home.uploads(), &home.uploads().join("team"), &home.volumes()] {
            set(path, 0o777);
        }
        let repaired = home.repair_modes();
        assert!(repaired.iter().all(|wide| wide.error.is_none()), "{repaired:?}");
        assert_eq!(repaired.len(), 8, "{repaired:?}");
        assert!(planted.iter().all(|path| mode(path) == 0o600));
        assert_eq!((mode(home.root()), mode(&home.uploads().join("team"))), (0o700, 0o700));
        assert!(home.repair_modes().is_empty());
    }

    #[test]
    fn layers_and_programs_stay_readable_but_not_writable() {
        let (_dir, home) = home();
        let snapshot = home.snapshots().join("s");
        fs::create_dir(&snapshot).unwrap();
        let (layer, program) = (snapshot.join("pages"), home.root().join("resume-0123456789abcdef"));
        for (path, given) in [(&layer, 0o444), (&program, 0o777)] {
            fs::write(path, "").unwrap();
            set(path, given);
        }
        home.repair_modes();
        assert_eq!((mode(&layer), mode(&program), mode(&snapshot)), (0o444, 0o755, 0o700));
    }

    #[test]
    fn a_link_is_not_followed() {
        let (dir, home) = home();
        let outside = dir.path().join("outside");
        fs::write(&outside, "").unwrap();
        set(&outside, 0o644);
        std::os::unix::fs::symlink(&outside, home.root().join("link")).unwrap();
        std::os::unix::fs::symlink(dir.path(), home.volumes().join("link")).unwrap();
        home.repair_modes();
        assert_eq!(mode(&outside), 0o644);
    }

    /// A mistake such as `SANDLING_HOME=/tmp` must not take the directory away from everybody.
    #[test]
    fn a_directory_of_everybody_keeps_its_mode() {
        let (_dir, home) = home();
        set(home.root(), 0o1777);
        assert!(home.repair_modes().is_empty());
        assert_eq!(mode(home.root()), 0o1777);
    }
}
