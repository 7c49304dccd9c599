//! The files that go into the sandbox with the code, and those that come back.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use sandling_agent::{BY_PRODUCTS, Node, ProjectError, ProjectTree};
use sandling_engine::Home;
use sandling_wire::WORKSPACE;

use crate::commands::cp::local;
use crate::options::Run;

/// The most that is copied of a script's directory without being asked for.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
const MAX_FILES: usize = 2000;
/// Scripts in these directories run without their siblings, which belong to the system.
const SYSTEM: [&str; 10] = ["/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/run", "/sbin", "/sys", "/usr"];
/// So do scripts in these directories, whose files have nothing to do with each other.
const SHARED: [&str; 2] = ["/tmp", "/var/tmp"];
/// A tar without entries.
const EMPTY: [u8; 1024] = [0; 1024];
/// Exists once the user was told that a script's siblings are copied.
const TOLD: &str = "told-about-copied-files";

/// Files that have the same path in the sandbox as here.
pub struct Files {
    /// The directory that they are in.
    pub root: PathBuf,
    pub tree: ProjectTree,
    /// Where the code runs.
    pub cwd: PathBuf,
}

impl Files {
    /// The files that the options ask for; `None` if the code needs none.
    pub fn of(options: &Run, script: Option<&Path>) -> anyhow::Result<Option<Self>> {
        let mut files = match (&options.files, script) {
            (Some(directory), _) => {
                let root = directory.canonicalize().with_context(|| format!("cannot read {}", directory.display()))?;
                let tree = ProjectTree::read(&root)?;
                let cwd = if script.is_some() { current_directory()? } else { root.clone() };
                Self { root, tree, cwd }
            }
            (None, Some(script)) => siblings(script)?,
            (None, None) if options.out.is_some() || !options.requirements.is_empty() => {
                let root = PathBuf::from(WORKSPACE);
                Self { cwd: root.clone(), root, tree: ProjectTree::default() }
            }
            (None, None) => return Ok(None),
        };
        for file in script.into_iter().chain(options.requirements.iter().map(PathBuf::as_path)) {
            files.add(file)?;
        }
        Ok(Some(files))
    }

    /// Adds a file that may be outside the directory. The root then moves up to a directory that has both.
    fn add(&mut self, file: &Path) -> anyhow::Result<()> {
        let (path, node) =
            (absolute(file)?, Node::at(file).with_context(|| format!("cannot read {}", file.display()))?);
        let node = node.with_context(|| format!("{} is not a file", file.display()))?;
        while !path.starts_with(&self.root) {
            let name = self.root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let moved = std::mem::take(&mut self.tree.0).into_iter();
            self.tree.0 = moved.map(|(below, node)| (format!("{name}/{below}"), node)).collect();
            self.root.pop();
        }
        let below = path.strip_prefix(&self.root).unwrap_or(&path);
        let below = below.to_str().with_context(|| format!("the path {} is not UTF-8", path.display()))?;
        self.tree.0.insert(below.to_owned(), node);
        Ok(())
    }

    /// Makes a file executable, so that its `#!` line works.
    pub fn make_executable(&mut self, path: &Path) {
        let below = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
        if let Some(Node::File { executable, .. }) = below.and_then(|below| self.tree.0.get_mut(below)) {
            *executable = true;
        }
    }

    /// The archives to unpack, each with its directory.
    pub fn archives(&self) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let text = |path: &Path| path.to_str().map(str::to_owned).context("the path of the directory is not UTF-8");
        let mut archives = vec![(text(&self.root)?, self.tree.to_archive()?)];
        // Unpacking creates its directory and the directories above it.
        if !self.root.starts_with(&self.cwd) {
            archives.push((text(&self.cwd)?, EMPTY.to_vec()));
        }
        Ok(archives)
    }

    /// Writes what the code has changed or created to a directory. Returns the number of files.
    pub fn bring_back(&self, archive: &[u8], out: &Path) -> anyhow::Result<usize> {
        let after = ProjectTree::of_archive(archive)?;
        let is_own = |name: &str| name.split('/').any(|part| BY_PRODUCTS.contains(&part));
        let mut changed = after.changed_since(&self.tree);
        changed.0.retain(|name, _| !is_own(name));
        fs::create_dir_all(out).map_err(|error| local::unwritable(out, error))?;
        let mut links = Vec::new();
        for (name, node) in &changed.0 {
            let path = local::below(out, name)?;
            let parents: Vec<&str> = name.split('/').collect();
            for depth in 1..parents.len() {
                local::directory(&local::below(out, &parents[..depth].join("/"))?, 0o755)?;
            }
            match node {
                Node::File { bytes, executable } => {
                    let mut file = local::NewFile::beside(&path)?;
                    file.write(bytes)?;
                    file.finish(if *executable { 0o755 } else { 0o644 })?;
                }
                Node::Link(target) => links.push((path, target)),
            }
        }
        // Last, so that no file is written through a link from the sandbox.
        for (path, target) in links {
            local::link(&path, target)?;
        }
        Ok(changed.0.len())
    }
}

/// The script's directory if it is small, without hidden files; otherwise nothing but the script.
fn siblings(script: &Path) -> anyhow::Result<Files> {
    let path = absolute(script)?;
    let root = path.parent().unwrap_or(Path::new("/")).to_owned();
    let cwd = current_directory()?;
    let alone = |note: &str| {
        if !note.is_empty() {
            eprintln!("sandling: {note}, so only {} is copied; --files DIR copies a directory", script.display());
        }
        Files { root: root.clone(), tree: ProjectTree::default(), cwd: cwd.clone() }
    };
    let own = Home::from_environment().map(|home| home.root().to_owned());
    let homes = [std::env::var_os("HOME").map(PathBuf::from), own];
    let is_system = SYSTEM.iter().any(|top| root.starts_with(top)) || SHARED.iter().any(|top| root == Path::new(top));
    if root.parent().is_none() || homes.contains(&Some(root.clone())) || is_system {
        return Ok(alone(""));
    }
    Ok(match ProjectTree::read_visible(&root, MAX_BYTES, MAX_FILES) {
        Ok(tree) => {
            if tree.0.len() > 1 {
                tell_once(tree.0.len(), &root);
            }
            Files { root, tree, cwd }
        }
        Err(ProjectError::TooLarge { mib }) => alone(&format!("{} has more than {mib} MiB", root.display())),
        Err(ProjectError::TooMany { most }) => alone(&format!("{} has more than {most} files", root.display())),
        Err(error) => alone(&format!("{} cannot be copied ({error})", root.display())),
    })
}

/// Tells the user once that siblings are copied. If that cannot be stored, the user is told again.
fn tell_once(count: usize, root: &Path) {
    let Some(told) = Home::from_environment().map(|home| home.root().join(TOLD)) else { return };
    if told.exists() {
        return;
    }
    eprintln!(
        "sandling: the sandbox has copies of the {count} files in {} (not hidden ones, nor those in .gitignore). Changes \
         stay in the sandbox; --out DIR brings them back. This is said once.",
        root.display()
    );
    // Like everything in the home, only its owner may read it.
    let _ = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(told);
}

/// The absolute path of a file, without links in its directory.
pub fn absolute(file: &Path) -> anyhow::Result<PathBuf> {
    let name = file.file_name().with_context(|| format!("{} is not a file", file.display()))?;
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().with_context(|| format!("cannot read {}", file.display()))?;
    Ok(parent.join(name))
}

fn current_directory() -> anyhow::Result<PathBuf> {
    std::env::current_dir().and_then(|path| path.canonicalize()).context("cannot find the current directory")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Node {
        Node::File { bytes: text.as_bytes().to_vec(), executable: false }
    }

    #[test]
    fn siblings_come_along_and_hidden_files_stay() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.py", "helper.py", ".env"] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        let script = directory.path().join("a.py");
        let files = siblings(&script).unwrap();
        assert_eq!(files.tree.0.keys().collect::<Vec<_>>(), ["a.py", "helper.py"]);
        assert_eq!(files.root, directory.path().canonicalize().unwrap());
    }

    #[test]
    fn a_file_elsewhere_moves_the_root_up() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("p/src")).unwrap();
        fs::write(top.join("requirements.txt"), "six").unwrap();
        let tree = ProjectTree([("a.py".to_owned(), file("1"))].into());
        let mut files = Files { root: top.join("p/src"), tree, cwd: top.clone() };
        files.add(&top.join("requirements.txt")).unwrap();
        assert_eq!(files.root, top);
        assert_eq!(files.tree.0.keys().collect::<Vec<_>>(), ["p/src/a.py", "requirements.txt"]);
        assert_eq!(files.archives().unwrap().len(), 1, "the working directory is above the files");
    }

    #[test]
    fn only_changes_come_back() {
        let before =
            ProjectTree([("same", "1"), ("changed", "1"), ("gone", "1")].map(|(n, t)| (n.to_owned(), file(t))).into());
        let after = [("same", "1"), ("changed", "2"), ("new/deep", "3"), ("__pycache__/x.pyc", "4")];
        let after = ProjectTree(after.map(|(name, text)| (name.to_owned(), file(text))).into());
        let files = Files { root: "/w".into(), tree: before, cwd: "/w".into() };
        let out = tempfile::tempdir().unwrap();
        let target = out.path().join("out");
        assert_eq!(files.bring_back(&after.to_archive().unwrap(), &target).unwrap(), 2);
        assert_eq!(fs::read_to_string(target.join("changed")).unwrap(), "2");
        assert_eq!(fs::read_to_string(target.join("new/deep")).unwrap(), "3");
        assert!(!target.join("same").exists() && !target.join("__pycache__").exists());
    }
}
