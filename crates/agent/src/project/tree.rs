//! The files of a project, in memory, read from a directory or from a sandbox's archive.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

use ignore::WalkBuilder;

use super::error::ProjectError;

/// The size limit of a project.
pub const MAX_BYTES: u64 = 256 * 1024 * 1024;
const MAX_FILES: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    File { bytes: Vec<u8>, executable: bool },
    Link(String),
}

impl Node {
    /// The file or link at a path. None if it is neither.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        let metadata = fs::symlink_metadata(path)?;
        if metadata.is_symlink() {
            let target = fs::read_link(path)?;
            let target = target.to_str().ok_or(io::ErrorKind::InvalidData)?;
            return Ok(Some(Self::Link(target.to_owned())));
        }
        if !metadata.is_file() {
            return Ok(None);
        }
        Ok(Some(Self::File { bytes: fs::read(path)?, executable: metadata.permissions().mode() & 0o100 != 0 }))
    }

    fn size(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => bytes.len() as u64,
            Self::Link(target) => target.len() as u64,
        }
    }
}

/// Files by their path in the project, with slashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectTree(pub BTreeMap<String, Node>);

impl ProjectTree {
    /// Reads a directory, without `.git` and what `.gitignore` names.
    pub fn read(root: &Path) -> Result<Self, ProjectError> {
        Self::read_within(root, MAX_BYTES, MAX_FILES, false)
    }

    /// The same without hidden files, which may be private. Fails if there are more bytes or files than this.
    pub fn read_visible(root: &Path, max_bytes: u64, max_files: usize) -> Result<Self, ProjectError> {
        Self::read_within(root, max_bytes, max_files, true)
    }

    fn read_within(root: &Path, max_bytes: u64, max_files: usize, skip_hidden: bool) -> Result<Self, ProjectError> {
        let mut tree = Self::default();
        let mut size = 0;
        let walk = WalkBuilder::new(root)
            .hidden(skip_hidden)
            .ignore(false)
            .require_git(false)
            .git_global(false)
            .git_exclude(false)
            .parents(false)
            .filter_entry(|entry| !is_git(entry.file_name().as_encoded_bytes()))
            .build();
        for entry in walk {
            let unreadable = |source| ProjectError::Read { path: root.to_owned(), source };
            let entry = entry.map_err(|error| unreadable(error.into()))?;
            let path = entry.path();
            // Check the size before reading, because the file may be larger than the memory.
            size += entry.metadata().map_or(0, |metadata| if metadata.is_file() { metadata.len() } else { 0 });
            if size > max_bytes {
                return Err(ProjectError::TooLarge { mib: max_bytes >> 20 });
            }
            if tree.0.len() >= max_files {
                return Err(ProjectError::TooMany { most: max_files });
            }
            let node = Node::at(path).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => ProjectError::NotText(path.to_owned()),
                _ => ProjectError::Read { path: path.to_owned(), source: error.into() },
            })?;
            let Some(node) = node else { continue };
            // A file that could not be copied back would look deleted.
            let Some(name) = plain(path.strip_prefix(root).unwrap_or(path)) else {
                return Err(ProjectError::NotText(path.to_owned()));
            };
            tree.add(name, node)?;
        }
        Ok(tree)
    }

    /// The files that are not the same in the other tree.
    pub fn changed_since(self, before: &Self) -> Self {
        Self(self.0.into_iter().filter(|(name, node)| before.0.get(name) != Some(node)).collect())
    }

    pub fn to_archive(&self) -> io::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, node) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_mtime(jiff::Timestamp::now().as_second().max(0).unsigned_abs());
            match node {
                Node::File { bytes, executable } => {
                    header.set_size(bytes.len() as u64);
                    header.set_mode(if *executable { 0o755 } else { 0o644 });
                    archive.append_data(&mut header, name, bytes.as_slice())?;
                }
                Node::Link(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_size(0);
                    header.set_mode(0o777);
                    archive.append_link(&mut header, name, target)?;
                }
            }
        }
        archive.into_inner()
    }

    /// Reads a sandbox's archive. Skips paths that lead out of the project.
    pub fn of_archive(archive: impl Read) -> Result<Self, ProjectError> {
        let mut tree = Self::default();
        let mut size: u64 = 0;
        for entry in tar::Archive::new(archive).entries().map_err(ProjectError::Unpacking)? {
            let mut entry = entry.map_err(ProjectError::Unpacking)?;
            let Some(name) = entry.path().ok().and_then(|path| plain(&path)) else { continue };
            let node = match entry.header().entry_type() {
                tar::EntryType::Regular | tar::EntryType::Continuous => {
                    size = size.saturating_add(entry.size());
                    fits(size)?;
                    let executable = entry.header().mode().unwrap_or_default() & 0o100 != 0;
                    let mut bytes = Vec::new();
                    entry.read_to_end(&mut bytes).map_err(ProjectError::Unpacking)?;
                    Node::File { bytes, executable }
                }
                tar::EntryType::Symlink => {
                    let target = entry.link_name().ok().flatten();
                    let Some(target) = target.and_then(|target| target.to_str().map(str::to_owned)) else { continue };
                    Node::Link(target)
                }
                // A hard link to a file earlier in the archive.
                tar::EntryType::Link => {
                    let first = entry.link_name().ok().flatten().and_then(|target| plain(&target));
                    let Some(node) = first.and_then(|first| tree.0.get(&first).cloned()) else { continue };
                    size += node.size();
                    node
                }
                _ => continue,
            };
            fits(size)?;
            tree.add(name, node)?;
        }
        Ok(tree)
    }

    fn add(&mut self, name: String, node: Node) -> Result<(), ProjectError> {
        if self.0.len() >= MAX_FILES {
            return Err(ProjectError::TooMany { most: MAX_FILES });
        }
        self.0.insert(name, node);
        Ok(())
    }

    /// Whether any path contains this component.
    pub fn has_component(&self, name: &str) -> bool {
        self.0.keys().any(|path| path.split('/').any(|component| component == name))
    }
}

/// Whether a total of this many bytes is within the limit.
fn fits(size: u64) -> Result<(), ProjectError> {
    if size > MAX_BYTES { Err(ProjectError::TooLarge { mib: MAX_BYTES >> 20 }) } else { Ok(()) }
}

/// Whether a name is `.git`, in any case, because some file systems ignore case.
pub fn is_git(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}

/// A path of plain components, without a leading dot.
fn plain(path: &Path) -> Option<String> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_str().filter(|name| !name.contains(char::is_control))?),
            _ => return None,
        }
    }
    (!names.is_empty()).then(|| names.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_files_stay_and_others_are_copied_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("src/main.py", "print(1)\n");
        write(".env", "SECRET=1");
        write(".gitignore", ".env\n");
        write(".git/config", "token");
        std::os::unix::fs::symlink("main.py", dir.path().join("src/link")).unwrap();
        fs::set_permissions(dir.path().join("src/main.py"), fs::Permissions::from_mode(0o700)).unwrap();
        let tree = ProjectTree::read(dir.path()).unwrap();
        let names: Vec<_> = tree.0.keys().map(String::as_str).collect();
        assert_eq!(names, [".gitignore", "src/link", "src/main.py"]);
        assert_eq!(ProjectTree::of_archive(tree.to_archive().unwrap().as_slice()).unwrap(), tree);
    }

    #[test]
    fn a_small_directory_is_read_without_hidden_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in [".secret", "a", "b"] {
            fs::write(dir.path().join(name), name.repeat(100)).unwrap();
        }
        fs::create_dir(dir.path().join(".ssh")).unwrap();
        fs::write(dir.path().join(".ssh/key"), "k").unwrap();
        let tree = ProjectTree::read_visible(dir.path(), 1000, 10).unwrap();
        assert_eq!(tree.0.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(matches!(ProjectTree::read_visible(dir.path(), 150, 10), Err(ProjectError::TooLarge { .. })));
        assert!(matches!(ProjectTree::read_visible(dir.path(), 1000, 1), Err(ProjectError::TooMany { most: 1 })));
        fs::write(dir.path().join("a"), "new").unwrap();
        let changed = ProjectTree::read(dir.path()).unwrap().changed_since(&tree);
        assert_eq!(changed.0.keys().collect::<Vec<_>>(), [".secret", ".ssh/key", "a"]);
    }

    #[test]
    fn paths_out_of_the_project_are_skipped() {
        assert_eq!(plain(Path::new("./a/./b")).as_deref(), Some("a/b"));
        for bad in ["..", "a/../../b", "/etc/passwd", ".", "", "a\nb", "a\x1b[2Jb"] {
            assert_eq!(plain(Path::new(bad)), None, "{bad}");
        }
    }

    #[test]
    fn hard_links_have_the_files_content() {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_mode(0o644);
        archive.append_data(&mut header, "./a", &b"1"[..]).unwrap();
        for (name, target) in [("./b", "./a"), ("./c", "../outside"), ("./d", "./later")] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Link);
            header.set_size(0);
            archive.append_link(&mut header, name, target).unwrap();
        }
        let tree = ProjectTree::of_archive(archive.into_inner().unwrap().as_slice()).unwrap();
        assert_eq!(tree.0.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(tree.0["a"], tree.0["b"]);
    }

    #[test]
    fn sizes_whose_sum_overflows_are_refused() {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(1024);
        archive.append_data(&mut header, "a", &[7_u8; 1024][..]).unwrap();
        // Hard links count as much as their file, so the sum grows faster than the archive.
        for name in ["b", "c", "d", "e", "f", "g", "h", "i"] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Link);
            header.set_size(0);
            archive.append_link(&mut header, name, "a").unwrap();
        }
        let mut header = tar::Header::new_gnu();
        header.set_path("last").unwrap();
        header.set_size(u64::MAX - 8191);
        header.set_cksum();
        let mut archive = archive.get_ref().clone();
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(&[7; 1024]);
        assert!(matches!(ProjectTree::of_archive(&*archive), Err(ProjectError::TooLarge { .. })));
    }

    #[test]
    fn a_path_that_could_not_be_copied_back_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a\nb"), "1").unwrap();
        assert!(matches!(ProjectTree::read(dir.path()), Err(ProjectError::NotText(_))));
    }

    #[test]
    fn random_bytes_are_not_an_archive() {
        assert!(ProjectTree::of_archive(&b"not a tar at all"[..]).map_or(true, |tree| tree.0.is_empty()));
        assert!(ProjectTree::of_archive(&[7_u8; 2048][..]).is_err());
    }
}
