//! `.dockerignore`: which files of a directory are no part of a build.

use sandling_builder::pattern::matches;

const MOST_PATTERNS: usize = 2000;

/// The patterns of a `.dockerignore`, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DockerIgnore(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    parts: Vec<String>,
    /// `!`: what it matches is a part of the build after all.
    keeps: bool,
}

impl DockerIgnore {
    pub fn parse(text: &str) -> Self {
        let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
        let patterns = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).filter_map(|line| {
            let (keeps, pattern) = match line.strip_prefix('!') {
                Some(pattern) => (true, pattern.trim()),
                None => (false, line),
            };
            let parts = normal_parts(pattern);
            (!parts.is_empty()).then_some(Pattern { parts, keeps })
        });
        Self(patterns.take(MOST_PATTERNS).collect())
    }

    /// Whether a path, relative to the directory, is left out. The last pattern that matches it, or a directory above it,
    /// decides.
    pub fn ignores(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let covers = |pattern: &Pattern| (1..=parts.len()).any(|count| fits(&pattern.parts, &parts[..count]));
        let last = self.0.iter().rev().find(|pattern| covers(pattern));
        last.is_some_and(|pattern| !pattern.keeps)
    }

    /// Whether nothing below an ignored directory can be a part of the build.
    pub fn has_exceptions(&self) -> bool {
        self.0.iter().any(|pattern| pattern.keeps)
    }
}

/// Removes `.`, and goes back for `..`, as Go's `filepath.Clean` does.
fn normal_parts(pattern: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part.to_owned()),
        }
    }
    parts
}

/// Whether a pattern matches a path. `**` stands for any number of directories.
fn fits(pattern: &[String], path: &[&str]) -> bool {
    // One row of the table of all (pattern, path) pairs, so that no pattern takes long.
    let mut row: Vec<bool> = vec![false; path.len() + 1];
    row[0] = true;
    for part in pattern {
        let any = part == "**";
        let mut next = vec![false; path.len() + 1];
        next[0] = any && row[0];
        for at in 1..=path.len() {
            next[at] = match any {
                true => row[at] || next[at - 1],
                false => row[at - 1] && matches(part.as_bytes(), path[at - 1].as_bytes()),
            };
        }
        row = next;
    }
    row[path.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_work_as_in_docker() {
        let ignore =
            DockerIgnore::parse("# comment\n*.log\n/build\n**/cache\n!keep.log\ndocs/*.md\n!docs/README.md\n./tmp/\n");
        for path in ["x.log", "build", "build/a/b", "cache", "a/b/cache", "a/cache/x", "docs/a.md", "tmp", "tmp/x"] {
            assert!(ignore.ignores(path), "{path}");
        }
        for path in ["a/x.log", "keep.log", "builder", "docs/README.md", "docs/deep/a.md", "src"] {
            assert!(!ignore.ignores(path), "{path}");
        }
        assert!(ignore.has_exceptions());
        let all_but_one = DockerIgnore::parse("*\n!src\n");
        assert!(all_but_one.ignores("x") && !all_but_one.ignores("src/a.c"));
        assert!(!DockerIgnore::default().ignores("x"));
    }
}
