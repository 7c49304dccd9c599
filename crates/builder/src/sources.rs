//! Finding what the sources of a COPY name: paths with `*`, `?` and `[…]`, and links that are followed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sandling_builder::pattern::{is_pattern, matches};

use crate::Failure;

/// The paths below `base` that a source names, in their order. None is an error.
pub fn find(base: &Path, source: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut found = vec![base.to_owned()];
    for part in source.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            return Err(format!("{source:?} leaves its directory"));
        }
        let mut next = Vec::new();
        for path in &found {
            if is_pattern(part) {
                next.extend(matching(path, part));
            } else {
                let path = path.join(part);
                next.extend(path.symlink_metadata().is_ok().then_some(path));
            }
        }
        found = next;
    }
    if found.is_empty() { Err(format!("there is no {source}")) } else { Ok(found) }
}

fn matching(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<OsString> = names.filter(|name| matches(pattern.as_bytes(), name.as_bytes())).collect();
    names.sort();
    names.into_iter().map(|name| directory.join(name)).collect()
}

/// The last part of a path, for a file that goes into a directory.
pub fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or(OsStr::new("root"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_found_below_its_base() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.txt", "a.txt", "c.md"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let names = |source| {
            find(dir.path(), source).map(|found| found.iter().map(|path| name_of(path).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names("*.txt"), Ok(vec!["a.txt".into(), "b.txt".into()]));
        assert_eq!(names("/./c.md"), Ok(vec!["c.md".into()]));
        assert!(names("missing").unwrap_err().contains("there is no missing") && names("../x").is_err());
        assert_eq!(find(dir.path(), "/").unwrap(), [dir.path()]);
    }
}
