//! The changes that a sandbox made to a project.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use ignore::gitignore::Gitignore;
use similar::TextDiff;

use super::tree::{Node, ProjectTree, is_git};

/// Files that tools create as by-products. They are not copied back, unless the project had them.
pub const BY_PRODUCTS: [&str; 7] =
    ["__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules", ".venv", ".ipynb_checkpoints"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub path: String,
    pub before: Option<Node>,
    pub after: Option<Node>,
}

#[derive(Debug, Default)]
pub struct Diff {
    pub changes: Vec<Change>,
    /// Files that are not copied back, and why.
    pub left_out: Vec<(String, &'static str)>,
}

impl Diff {
    pub fn between(before: &ProjectTree, after: ProjectTree, ignored: &Gitignore) -> Self {
        let mut diff = Self::default();
        let names: BTreeSet<String> = before.0.keys().chain(after.0.keys()).cloned().collect();
        let unwanted: Vec<&str> = BY_PRODUCTS.into_iter().filter(|name| !before.has_component(name)).collect();
        let mut after = after.0;
        for path in names {
            let (old, new) = (before.0.get(&path), after.remove(&path));
            if old == new.as_ref() {
                continue;
            }
            if path.split('/').any(|name| unwanted.contains(&name)) {
                continue;
            }
            if let Some(why) = refused(&path, new.as_ref()) {
                diff.left_out.push((path, why));
            } else if old.is_none() && ignored.matched_path_or_any_parents(&path, false).is_ignore() {
                diff.left_out.push((path, "it is in .gitignore"));
            } else {
                diff.changes.push(Change { before: old.cloned(), after: new, path });
            }
        }
        diff
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The diff in the format of `diff -u`.
    pub fn text(&self) -> String {
        self.changes.iter().map(Change::text).collect()
    }
}

fn refused(path: &str, new: Option<&Node>) -> Option<&'static str> {
    if path.split('/').any(|name| is_git(name.as_bytes())) {
        return Some("nothing is written into .git");
    }
    match new {
        Some(Node::Link(target)) if leads_out(path, target) => Some("the link leads out of the project"),
        _ => None,
    }
}

/// Whether a link at this path stays inside the project. It must not go up beyond the project, and must not go up again
/// after going down, because it may go down through another link.
fn leads_out(path: &str, target: &str) -> bool {
    let mut ups = path.matches('/').count();
    for component in Path::new(target).components() {
        match component {
            Component::Normal(_) => ups = 0,
            Component::CurDir => {}
            Component::ParentDir if ups > 0 => ups -= 1,
            _ => return true,
        }
    }
    false
}

impl Change {
    fn text(&self) -> String {
        let (old, new) = (shown(self.before.as_ref()), shown(self.after.as_ref()));
        let name = |prefix: &str, node: &Option<Node>| match node {
            Some(_) => format!("{prefix}/{}", self.path),
            None => "/dev/null".to_owned(),
        };
        let (from, to) = (name("a", &self.before), name("b", &self.after));
        let mut text = format!("diff --git a/{0} b/{0}\n", self.path);
        text += &match (self.before.as_ref().map(Node::mode), self.after.as_ref().map(Node::mode)) {
            (None, Some(mode)) => format!("new file mode {mode}\n"),
            (Some(mode), None) => format!("deleted file mode {mode}\n"),
            (Some(old), Some(new)) if old != new => format!("old mode {old}\nnew mode {new}\n"),
            _ => String::new(),
        };
        match (old, new) {
            (Some(old), Some(new)) => {
                text += &TextDiff::from_lines(&old, &new).unified_diff().header(&from, &to).to_string();
            }
            _ => text += &format!("Binary files {from} and {to} differ\n"),
        }
        text
    }
}

impl Node {
    /// The diff in Git's format. A link looks like a file that contains its target.
    fn mode(&self) -> &'static str {
        match self {
            Self::File { executable: false, .. } => "100644",
            Self::File { executable: true, .. } => "100755",
            Self::Link(_) => "120000",
        }
    }
}

/// The text of a file. None if it is not text.
fn shown(node: Option<&Node>) -> Option<String> {
    match node {
        None => Some(String::new()),
        Some(Node::Link(target)) => Some(format!("{target}\n")),
        Some(Node::File { bytes, .. }) => String::from_utf8(bytes.clone()).ok().filter(|text| !text.contains('\0')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> ProjectTree {
        let file = |text: &str| Node::File { bytes: text.as_bytes().to_vec(), executable: false };
        ProjectTree(files.iter().map(|(name, text)| ((*name).to_owned(), file(text))).collect())
    }

    #[test]
    fn changes_are_found_and_by_products_are_not() {
        let before = tree(&[("a.py", "1\n2\n"), ("gone", "x"), ("same", "x")]);
        let after = tree(&[("a.py", "1\n3\n"), ("same", "x"), ("new", "n\n"), ("__pycache__/a.pyc", "\0")]);
        let diff = Diff::between(&before, after, &Gitignore::empty());
        let paths: Vec<_> = diff.changes.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(paths, ["a.py", "gone", "new"]);
        let text = diff.text();
        assert!(text.contains("--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"), "{text}");
        assert!(text.contains("--- /dev/null\n+++ b/new"), "{text}");
    }

    #[test]
    fn git_hooks_and_links_out_of_the_project_are_skipped() {
        let mut after = tree(&[(".git/hooks/pre-commit", "evil"), ("sub/.GIT/config", "evil"), ("ok", "1")]);
        for (name, target) in [("a/in", "../ok"), ("a/out", "../../etc"), ("abs", "/etc/passwd"), ("up", "a/in/..")] {
            after.0.insert(name.to_owned(), Node::Link(target.to_owned()));
        }
        let diff = Diff::between(&ProjectTree::default(), after, &Gitignore::empty());
        let paths: Vec<_> = diff.changes.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(paths, ["a/in", "ok"]);
        assert_eq!(diff.left_out.len(), 5);
        assert!(
            diff.text().contains("diff --git a/a/in b/a/in\nnew file mode 120000\n"),
            "a link is not taken for a file"
        );
    }
}
