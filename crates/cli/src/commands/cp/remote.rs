//! File operations in a sandbox.

use std::io;

use futures_util::Stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::Method;
use hyper::body::{Bytes, Frame, Incoming};
use sandling_wire::ExecRequest;
use serde::Deserialize;
use serde_json::json;

use crate::client::{Body, Client, ClientError, Entry, Listing, Sandbox, query};
use crate::outcome::Failure;

/// The base of relative paths in a sandbox without a working directory.
const HOME: &str = "/root";
/// Maximum depth of one listing.
const DEPTH: u32 = 64;

pub struct Remote<'a> {
    client: &'a Client,
    sandbox: String,
}

impl<'a> Remote<'a> {
    pub fn new(client: &'a Client, sandbox: String) -> Self {
        Self { client, sandbox }
    }

    fn path(&self, route: &str, pairs: &[(&str, Option<String>)]) -> String {
        format!("/v1/sandboxes/{}/{route}{}", self.sandbox, query(pairs))
    }

    /// Converts a path to an absolute one. A relative one starts where commands start.
    pub async fn absolute(&self, path: &str) -> Result<String, ClientError> {
        if path.starts_with('/') {
            return Ok(path.to_owned());
        }
        let sandbox: Sandbox = self.client.get(&format!("/v1/sandboxes/{}", self.sandbox)).await?;
        Ok(absolute(sandbox.workdir.as_deref().unwrap_or(HOME), path))
    }

    /// Looks up a path and follows links. `None` if it does not exist.
    pub async fn find(&self, path: &str) -> Result<Option<Entry>, ClientError> {
        let found = self.stat(path).await?;
        match found {
            // `LINK/.` exists only if the link points to a directory.
            Some(link) if link.mode == "l" => {
                let inside = self.stat(&format!("{}/.", path.trim_end_matches('/'))).await?;
                Ok(Some(inside.unwrap_or(Entry { mode: "f".to_owned(), ..link })))
            }
            found => Ok(found),
        }
    }

    async fn stat(&self, path: &str) -> Result<Option<Entry>, ClientError> {
        let asked = self.client.get(&self.path("fs/stat", &[("path", Some(path.to_owned()))])).await;
        match asked {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.is_no_file() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Everything below a directory; a directory comes before its contents.
    pub async fn walk(&self, directory: &str) -> Result<Vec<Entry>, ClientError> {
        let mut found: Vec<Entry> = Vec::new();
        let mut unseen = vec![directory.to_owned()];
        while let Some(top) = unseen.pop() {
            let path = self.path("fs/dir", &[("path", Some(top.clone())), ("depth", Some(DEPTH.to_string()))]);
            let Listing { entries } = self.client.get(&path).await?;
            let levels = |path: &str| path.matches('/').count();
            let deepest = levels(top.trim_end_matches('/')) + DEPTH as usize;
            let cut_off = entries.iter().filter(|entry| entry.is_dir && levels(&entry.path) >= deepest);
            unseen.extend(cut_off.map(|entry| entry.path.clone()));
            found.extend(entries);
        }
        Ok(found)
    }

    pub async fn make_dir(&self, path: &str, mode: u32) -> Result<(), ClientError> {
        let body = json!({ "path": path, "mode": format!("{mode:04o}"), "parents": true });
        self.client.tell(&self.path("fs/mkdir", &[]), &body).await
    }

    pub async fn write(
        &self,
        path: &str,
        mode: Option<u32>,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), ClientError> {
        let mode = mode.map(|mode| format!("{mode:04o}"));
        let route = self.path("fs", &[("path", Some(path.to_owned())), ("mode", mode)]);
        let frames = futures_util::StreamExt::map(content, |bytes| bytes.map(Frame::data));
        self.client.send(Method::PUT, &route, StreamBody::new(frames).boxed_unsync()).await
    }

    pub async fn read(&self, path: &str) -> Result<Incoming, ClientError> {
        let route = self.path("fs", &[("path", Some(path.to_owned()))]);
        Ok(self.client.get_raw(&route).await?.into_body())
    }

    /// Unpacks a tar into a directory, which is created.
    pub async fn write_archive(&self, directory: &str, body: Body) -> Result<(), ClientError> {
        let route = self.path("fs/tar", &[("path", Some(directory.to_owned()))]);
        self.client.send(Method::PUT, &route, body).await
    }

    /// A directory as a tar.
    pub async fn read_archive(&self, directory: &str) -> Result<Incoming, ClientError> {
        let route = self.path("fs/tar", &[("path", Some(directory.to_owned()))]);
        Ok(self.client.get_raw(&route).await?.into_body())
    }

    /// Creates symbolic links with one command, because the API has no route for them.
    pub async fn link(&self, links: &[(String, String)]) -> anyhow::Result<()> {
        let program = ["xargs", "-0", "-n", "2", "ln", "-sfnT", "--"];
        let request = ExecRequest {
            args: Some(program.map(str::to_owned).to_vec()),
            stdin: Some(links.iter().map(|(target, path)| format!("{target}\0{path}\0")).collect()),
            ..ExecRequest::default()
        };
        let ran: Ran = self.client.post(&self.path("exec", &[]), &request).await?;
        if ran.exit_code == 0 {
            return Ok(());
        }
        Err(Failure::new("cannot create symbolic links in the sandbox", ran.stderr.trim()).into())
    }
}

#[derive(Deserialize)]
struct Ran {
    exit_code: i32,
    stderr: String,
}

/// Converts a sandbox path to an absolute path.
fn absolute(workdir: &str, path: &str) -> String {
    match path {
        "" => workdir.to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => join(workdir, path),
    }
}

/// The last component of a path, or `None` if the path means a directory's contents.
pub fn name(path: &str) -> Option<&str> {
    if path.ends_with("/.") || path.ends_with("/..") || path == "." || path == ".." {
        return None;
    }
    path.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty())
}

pub fn join(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_start_in_the_working_directory() {
        assert_eq!(["", "a/b", "/x"].map(|path| absolute("/work", path)), ["/work", "/work/a/b", "/x"]);
        assert_eq!(join("/a/", "b"), "/a/b");
        assert_eq!(join("/", "b"), "/b");
    }

    #[test]
    fn directory_contents_have_no_name() {
        assert_eq!(name("/a/b/"), Some("b"));
        assert_eq!(name("b"), Some("b"));
        for contents in ["/a/.", ".", "/", "..", "/a/.."] {
            assert_eq!(name(contents), None, "{contents}");
        }
    }
}
