//! Whether anything was installed since a zygote loaded its packages. Looked at from here, because the interpreter
//! would need ten times as long for it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::message::Message;
use crate::exec::Setting;

#[derive(Default)]
pub struct Packages {
    /// Each with the time of its last change, if it was there.
    folders: Vec<(PathBuf, Option<i64>)>,
    /// Below the home of whoever runs code.
    own_folder: Option<PathBuf>,
}

impl Packages {
    pub fn new(message: &Message<'_>) -> Self {
        Self { folders: message.folders.clone(), own_folder: message.own_folder.clone() }
    }

    /// False also if it is not known: whoever was not forked finds what there is by itself.
    pub fn are_as_noted(&self, setting: &Setting) -> bool {
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
    fn a_package_of_anybodys_is_noticed() {
        let place = std::env::temp_dir().join(format!("packages-{}", std::process::id()));
        let (shared, home) = (place.join("shared"), place.join("home"));
        fs::create_dir_all(&shared).unwrap();
        fs::create_dir_all(&home).unwrap();
        let folders = vec![(shared.clone(), changed(&shared)), (place.join("none"), None)];
        let packages = Packages { folders, own_folder: Some("lib".into()) };
        let variables = Variables::from([("HOME".to_owned(), home.to_str().unwrap().to_owned())]);
        let setting = Setting::ours(variables);
        assert!(packages.are_as_noted(&setting));
        fs::create_dir(home.join("lib")).unwrap();
        assert!(!packages.are_as_noted(&setting));
        fs::remove_dir(home.join("lib")).unwrap();
        assert!(packages.are_as_noted(&setting));
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::create_dir(shared.join("package")).unwrap();
        assert!(!packages.are_as_noted(&setting));
        assert!(!Packages::default().are_as_noted(&setting));
        fs::remove_dir_all(&place).unwrap();
    }
}
