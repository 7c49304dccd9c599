//! Whether a package was installed since a zygote loaded its own. The agent checks this, because the interpreter would
//! need ten times as long.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::message::Message;
use crate::exec::Setting;

#[derive(Default)]
pub struct Packages {
    /// Each with its modification time, if it existed.
    folders: Vec<(PathBuf, Option<i64>)>,
    /// Relative to the user's home directory.
    own_folder: Option<PathBuf>,
}

impl Packages {
    pub fn new(message: &Message<'_>) -> Self {
        Self { folders: message.folders.clone(), own_folder: message.own_folder.clone() }
    }

    /// False also if unknown: an interpreter that was not forked finds new packages itself.
    pub fn are_unchanged(&self, setting: &Setting) -> bool {
        let Some(own) = &self.own_folder else {
            return false;
        };
        let is_own = |folder: &Path| folder.ends_with(own);
        let has_own = || setting.variables.get("HOME").is_some_and(|home| Path::new(home).join(own).exists());
        self.folders.iter().filter(|(folder, _)| !is_own(folder)).all(|(folder, noted)| changed(folder) == *noted)
            && !has_own()
    }
}

fn changed(folder: &Path) -> Option<i64> {
    let metadata = fs::metadata(folder).ok()?;
    Some(metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Variables;

    #[test]
    fn new_packages_are_noticed() {
        let place = std::env::temp_dir().join(format!("packages-{}", std::process::id()));
        let (shared, home) = (place.join("shared"), place.join("home"));
        fs::create_dir_all(&shared).unwrap();
        fs::create_dir_all(&home).unwrap();
        let folders = vec![(shared.clone(), changed(&shared)), (place.join("none"), None)];
        let packages = Packages { folders, own_folder: Some("lib".into()) };
        let variables = Variables::from([("HOME".to_owned(), home.to_str().unwrap().to_owned())]);
        let setting = Setting::ours(variables);
        assert!(packages.are_unchanged(&setting));
        fs::create_dir(home.join("lib")).unwrap();
        assert!(!packages.are_unchanged(&setting));
        fs::remove_dir(home.join("lib")).unwrap();
        assert!(packages.are_unchanged(&setting));
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::create_dir(shared.join("package")).unwrap();
        assert!(!packages.are_unchanged(&setting));
        assert!(!Packages::default().are_unchanged(&setting));
        fs::remove_dir_all(&place).unwrap();
    }
}
