//! The directory that a client uploads for a whole build: an archive, of which each COPY takes a part.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sandling_builder::pattern::{is_pattern, matches};
use tar::{Archive, EntryType, Header};

use super::dockerfile::DockerIgnore;
use super::machine::BuildFailure;

const MOST_ENTRIES: usize = 1_000_000;
const MOST_LINKS: usize = 40;

/// The index of an uploaded directory.
#[derive(Debug, Default)]
pub(super) struct Context {
    path: PathBuf,
    /// By path, without a leading slash. Every directory has an entry.
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    kind: Kind,
    mode: u32,
    modified: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Directory,
    File { offset: u64, size: u64, digest: blake3::Hash },
    Link(String),
}

/// What a step takes of a directory, by the names in the stream for the builder.
pub(super) struct Taken<'a> {
    context: &'a Context,
    files: Vec<(String, &'a Entry)>,
}

impl Context {
    /// Reads the index of an archive. Blocks.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut context = Self { path: path.to_owned(), entries: BTreeMap::new() };
        let mut archive = Archive::new(File::open(path)?);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let Some(name) = normal(&entry.path()?.to_string_lossy()) else {
                return Err(io::Error::other("a file of the build lies outside of its directory"));
            };
            let header = entry.header();
            let (mode, modified) = (header.mode().unwrap_or(0o644) & 0o7777, header.mtime().unwrap_or_default());
            let kind = match header.entry_type() {
                EntryType::Directory => Kind::Directory,
                EntryType::Symlink => {
                    let link = entry.link_name()?.map(|link| link.to_string_lossy().into_owned());
                    Kind::Link(link.unwrap_or_default())
                }
                EntryType::Regular => {
                    let (offset, size) = (entry.raw_file_position(), entry.size());
                    let mut hasher = blake3::Hasher::new();
                    hasher.update_reader(&mut entry)?;
                    Kind::File { offset, size, digest: hasher.finalize() }
                }
                _ => continue,
            };
            if name.is_empty() {
                continue;
            }
            context.add_parents(&name);
            context.entries.insert(name, Entry { kind, mode, modified });
            if context.entries.len() > MOST_ENTRIES {
                return Err(io::Error::other("the directory of the build has too many files"));
            }
        }
        Ok(context)
    }

    fn add_parents(&mut self, name: &str) {
        for (at, _) in name.match_indices('/') {
            let directory = || Entry { kind: Kind::Directory, mode: 0o755, modified: 0 };
            self.entries.entry(name[..at].to_owned()).or_insert_with(directory);
        }
    }

    /// What the sources of a step name. A source that names nothing is an error.
    pub(super) fn take(&self, sources: &[String], excludes: &[String]) -> Result<Taken<'_>, BuildFailure> {
        let excluded = DockerIgnore::parse(&excludes.join("\n"));
        let mut files = Vec::new();
        for source in sources {
            let found = self.find(source);
            if found.is_empty() {
                return Err(BuildFailure::NoSource(source.clone()));
            }
            for path in found {
                self.take_one(&path, &excluded, &mut files);
            }
        }
        Ok(Taken { context: self, files })
    }

    /// The paths that a source names. The empty path is the directory itself.
    fn find(&self, source: &str) -> Vec<String> {
        let parts: Vec<&str> = source.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.is_empty() {
            return vec![String::new()];
        }
        if !parts.iter().any(|part| is_pattern(part)) {
            let path = parts.join("/");
            return if self.entries.contains_key(&path) { vec![path] } else { Vec::new() };
        }
        let fits = |path: &&String| {
            let own: Vec<&str> = path.split('/').collect();
            own.len() == parts.len()
                && parts.iter().zip(own).all(|(part, own)| matches(part.as_bytes(), own.as_bytes()))
        };
        self.entries.keys().filter(fits).cloned().collect()
    }

    fn take_one<'a>(&'a self, path: &str, excluded: &DockerIgnore, files: &mut Vec<(String, &'a Entry)>) {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let path = self.followed(path);
        if let Some(entry) = self.entries.get(&path)
            && entry.kind != Kind::Directory
        {
            if !excluded.ignores(&name) {
                files.push((format!("f/{name}"), entry));
            }
            return;
        }
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        for (below, entry) in self.entries.range(prefix.clone()..) {
            let Some(rest) = below.strip_prefix(&prefix) else { break };
            if !excluded.ignores(rest) {
                files.push((format!("d/{rest}"), entry));
            }
        }
    }

    /// Where a link leads. As in Docker, a source that is a link is followed, and cannot leave the directory.
    fn followed(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let Some(Entry { kind: Kind::Link(target), .. }) = self.entries.get(&path) else { break };
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let from = if target.starts_with('/') { target.clone() } else { format!("{parent}/{target}") };
            let mut parts: Vec<&str> = Vec::new();
            for part in from.split('/') {
                match part {
                    "" | "." => {}
                    ".." => drop(parts.pop()),
                    part => parts.push(part),
                }
            }
            path = parts.join("/");
        }
        path
    }
}

impl Taken<'_> {
    /// A digest of names, modes and contents. Times do not count.
    pub(super) fn digest(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for (name, entry) in &self.files {
            let content = match &entry.kind {
                Kind::Directory => "directory".to_owned(),
                Kind::File { digest, .. } => digest.to_hex().to_string(),
                Kind::Link(target) => format!("link {target:?}"),
            };
            hasher.update(format!("{name:?} {:o} {content}\n", entry.mode).as_bytes());
        }
        hasher.finalize()
    }

    /// Writes the stream for the builder. Blocks.
    pub(super) fn write(&self, out: impl Write) -> io::Result<()> {
        let mut file = File::open(&self.context.path)?;
        let mut tar = tar::Builder::new(out);
        for (name, entry) in &self.files {
            let mut header = Header::new_gnu();
            header.set_mode(entry.mode);
            header.set_mtime(entry.modified);
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(0);
            match &entry.kind {
                Kind::Directory => {
                    header.set_entry_type(EntryType::Directory);
                    tar.append_data(&mut header, name, io::empty())?;
                }
                Kind::Link(target) => {
                    header.set_entry_type(EntryType::Symlink);
                    tar.append_link(&mut header, name, target)?;
                }
                Kind::File { offset, size, .. } => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_size(*size);
                    file.seek(SeekFrom::Start(*offset))?;
                    tar.append_data(&mut header, name, (&mut file).take(*size))?;
                }
            }
        }
        tar.into_inner()?.flush()
    }
}

/// A path without `.` and a leading slash. `None` if it leaves its directory.
fn normal(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.contains(&"..")).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(dir: &Path) -> Context {
        let path = dir.join("context.tar");
        let mut tar = tar::Builder::new(File::create(&path).unwrap());
        for (name, content, mode) in
            [("a.txt", "a", 0o644), ("b.txt", "b", 0o755), ("src/x.c", "x", 0o644), ("src/deep/y.c", "y", 0o644)]
        {
            let mut header = Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(mode);
            tar.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        tar.append_link(&mut header, "link", "./src").unwrap();
        tar.into_inner().unwrap();
        Context::open(&path).unwrap()
    }

    fn names(context: &Context, source: &str) -> Vec<String> {
        let taken = context.take(&[source.to_owned()], &[]);
        taken.map(|taken| taken.files.into_iter().map(|(name, _)| name).collect()).unwrap_or_default()
    }

    #[test]
    fn a_step_takes_what_its_sources_name() {
        let dir = tempfile::tempdir().unwrap();
        let context = context(dir.path());
        assert_eq!(names(&context, "*.txt"), ["f/a.txt", "f/b.txt"]);
        assert_eq!(names(&context, "./src/"), ["d/deep", "d/deep/y.c", "d/x.c"]);
        assert_eq!(names(&context, "/src/x.c"), ["f/x.c"]);
        assert_eq!(names(&context, "link"), names(&context, "src"));
        assert!(names(&context, ".").contains(&"d/src/deep/y.c".to_owned()));
        assert!(matches!(context.take(&["missing".to_owned()], &[]), Err(BuildFailure::NoSource(_))));
        let taken = context.take(&["src".to_owned()], &["*.c".to_owned(), "deep".to_owned()]).unwrap();
        assert!(taken.files.is_empty());
    }

    #[test]
    fn the_digest_changes_with_what_is_taken_and_with_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let context = context(dir.path());
        let digest = |source: &str| context.take(&[source.to_owned()], &[]).unwrap().digest();
        assert_eq!(digest("a.txt"), digest("./a.txt"));
        assert_ne!(digest("a.txt"), digest("b.txt"));
        assert_ne!(digest("src"), digest("src/deep"));
        let mut stream = Vec::new();
        context.take(&["src".to_owned(), "a.txt".to_owned()], &[]).unwrap().write(&mut stream).unwrap();
        let mut archive = Archive::new(stream.as_slice());
        let found: Vec<_> =
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
        assert_eq!(found, ["d/deep", "d/deep/y.c", "d/x.c", "f/a.txt"]);
    }
}
