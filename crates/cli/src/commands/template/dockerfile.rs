//! `sandling template build -f`: a Dockerfile with the directory that belongs to it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures_util::TryStreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::Method;
use hyper::body::Frame;
use sandling_service::DockerIgnore;
use sandling_wire::BuildRequest;
use tokio_util::io::ReaderStream;
use walkdir::WalkDir;

use crate::client::Client;
use crate::options::Build;

const CHUNK_SIZE: usize = 256 * 1024;
const STDIN: &str = "-";

/// What a build needs from this machine.
pub struct Source {
    pub text: String,
    pub build_args: BTreeMap<String, String>,
    pub secrets: BTreeMap<String, Vec<u8>>,
    directory: Option<PathBuf>,
    ignore: DockerIgnore,
}

/// An archive of the directory, and the hash of its content.
pub struct Archive {
    pub hash: String,
    pub file: File,
}

impl Source {
    pub fn read(options: &Build) -> anyhow::Result<Self> {
        let directory = options.context.clone();
        if let Some(directory) = &directory
            && !directory.is_dir()
        {
            bail!("{} is no directory", directory.display());
        }
        let file = match (&options.file, &directory) {
            (Some(file), _) => file.clone(),
            (None, Some(directory)) => directory.join("Dockerfile"),
            (None, None) => bail!("name a Dockerfile with -f, or a directory that has one"),
        };
        let text = if file == Path::new(STDIN) {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the Dockerfile from stdin")?;
            text
        } else {
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?
        };
        Ok(Self {
            text,
            build_args: options.build_arg.iter().map(|text| build_arg(text)).collect::<anyhow::Result<_>>()?,
            secrets: options.secret.iter().map(|text| secret(text)).collect::<anyhow::Result<_>>()?,
            ignore: ignore_file(&file, directory.as_deref())?,
            directory,
        })
    }

    /// Packs the directory, without what `.dockerignore` names. Blocks.
    pub fn archive(&self) -> anyhow::Result<Option<Archive>> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let mut tar = tar::Builder::new(BufWriter::with_capacity(CHUNK_SIZE, tempfile::tempfile()?));
        tar.follow_symlinks(false);
        let mut walk = WalkDir::new(directory).sort_by_file_name().min_depth(1).into_iter();
        while let Some(entry) = walk.next() {
            let entry = entry.with_context(|| format!("cannot read {}", directory.display()))?;
            let Ok(name) = entry.path().strip_prefix(directory) else { continue };
            let kind = entry.file_type();
            if self.ignore.ignores(&name.to_string_lossy()) {
                if kind.is_dir() && !self.ignore.has_exceptions() {
                    walk.skip_current_dir();
                }
                continue;
            }
            // Sockets and devices are no part of a build.
            if kind.is_dir() || kind.is_file() || kind.is_symlink() {
                let added = tar.append_path_with_name(entry.path(), name);
                added.with_context(|| format!("cannot read {}", entry.path().display()))?;
            }
        }
        let mut out = tar.into_inner()?;
        out.flush()?;
        let mut file = out.into_inner().map_err(|error| error.into_error())?;
        file.seek(SeekFrom::Start(0))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(&mut file)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Some(Archive { hash: hasher.finalize().to_hex().to_string(), file }))
    }

    /// Sends the directory to the server, and describes the build.
    pub async fn send(self, client: &Client, options: &Build) -> anyhow::Result<BuildRequest> {
        let (source, archive) = tokio::task::spawn_blocking(move || {
            let archive = self.archive();
            (self, archive)
        })
        .await?;
        let context = match archive? {
            None => None,
            Some(Archive { hash, file }) => {
                let chunks = ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK_SIZE);
                let body = StreamBody::new(chunks.map_ok(Frame::data)).boxed_unsync();
                client.send(Method::PUT, &format!("/v1/templates/builds/uploads/{hash}"), body).await?;
                Some(hash)
            }
        };
        let secrets = source.secrets.iter().map(|(id, value)| (id.clone(), BASE64_STANDARD.encode(value)));
        Ok(BuildRequest {
            name: options.name.clone(),
            dockerfile: Some(source.text),
            context,
            build_args: source.build_args,
            target: options.target.clone(),
            secrets: secrets.collect(),
            no_cache: Some(options.ignores_cache()),
            start: Some(options.start),
            warm: options.warm.clone(),
            keep_failed: Some(options.shell_on_failure),
            replace: Some(true),
            cpu: options.cpus,
            memory_mb: options.memory,
            disk_mb: options.disk,
            ..BuildRequest::default()
        })
    }
}

/// As in Docker, `Dockerfile.dockerignore` beside the Dockerfile comes before `.dockerignore` in the directory.
fn ignore_file(dockerfile: &Path, directory: Option<&Path>) -> anyhow::Result<DockerIgnore> {
    let own = PathBuf::from(format!("{}.dockerignore", dockerfile.display()));
    let paths = [Some(own), directory.map(|directory| directory.join(".dockerignore"))];
    let Some(path) = paths.into_iter().flatten().find(|path| path.is_file()) else {
        return Ok(DockerIgnore::default());
    };
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(DockerIgnore::parse(&text))
}

/// `NAME=VALUE`, or `NAME` with the value of the environment variable.
fn build_arg(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => {
            let value = std::env::var(text).with_context(|| format!("--build-arg {text}: the variable is not set"))?;
            Ok((text.to_owned(), value))
        }
    }
}

/// `id=ID,src=FILE` or `id=ID,env=NAME`. Without either, the environment variable or the file that is called like the id.
fn secret(text: &str) -> anyhow::Result<(String, Vec<u8>)> {
    let option = |names: &[&str]| {
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(name, _)| names.contains(name)).map(|(_, value)| value.to_owned())
    };
    let id = option(&["id"]).with_context(|| format!("--secret {text}: needs id=ID"))?;
    if let Some(name) = option(&["env"]) {
        let value = std::env::var(&name).with_context(|| format!("--secret {text}: the variable is not set"))?;
        return Ok((id, value.into_bytes()));
    }
    match (option(&["src", "source"]), std::env::var(&id)) {
        (None, Ok(value)) => Ok((id, value.into_bytes())),
        (file, _) => {
            let file = file.unwrap_or_else(|| id.clone());
            Ok((id, fs::read(&file).with_context(|| format!("--secret {text}: cannot read {file}"))?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_secrets_are_read_as_docker_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        fs::write(&file, "value").unwrap();
        assert_eq!(build_arg("A=b=c").unwrap(), ("A".to_owned(), "b=c".to_owned()));
        assert!(build_arg("NO_SUCH_VARIABLE_HERE").is_err());
        let read = secret(&format!("id=key,src={}", file.display())).unwrap();
        assert_eq!(read, ("key".to_owned(), b"value".to_vec()));
        assert!(secret("src=x").is_err() && secret("id=no-such-file-here").is_err());
        assert_eq!(secret("id=path,env=PATH").unwrap().0, "path");
    }

    #[test]
    fn the_archive_has_the_directory_without_what_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.txt", "b.log", "node_modules/x", "src/main.c"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        std::os::unix::fs::symlink("src", dir.path().join("link")).unwrap();
        fs::write(dir.path().join(".dockerignore"), "*.log\nnode_modules\n").unwrap();
        let directory = Some(dir.path().to_owned());
        let ignore = ignore_file(&dir.path().join("Dockerfile"), directory.as_deref()).unwrap();
        let (text, build_args, secrets) = (String::new(), BTreeMap::new(), BTreeMap::new());
        let source = Source { text, build_args, secrets, directory, ignore };
        let archive = source.archive().unwrap().unwrap();
        let mut tar = tar::Archive::new(archive.file);
        let names = tar.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
        let names: Vec<_> = names.map(|name| name.trim_end_matches('/').to_owned()).collect();
        assert_eq!(names, [".dockerignore", "a.txt", "link", "src", "src/main.c"]);
        assert_eq!(archive.hash, source.archive().unwrap().unwrap().hash);
        fs::write(dir.path().join("Dockerfile.dockerignore"), "*.txt\n").unwrap();
        let own = ignore_file(&dir.path().join("Dockerfile"), Some(dir.path())).unwrap();
        assert!(own.ignores("a.txt") && !own.ignores("b.log"), "it takes the place of .dockerignore");
    }
}
