//! Paths in E2B's format: absolute, or relative to the user's home directory.

use std::sync::Arc;

use sandling_engine::Sandbox;

use crate::convert::files::checked;
use crate::error::ApiError;

const LARGEST_PASSWD: usize = 1024 * 1024;

/// A user's home directory, from the sandbox's `/etc/passwd`.
pub(super) async fn home_of(sandbox: &Arc<Sandbox>, user: &str) -> Result<String, ApiError> {
    if user == "root" {
        return Ok("/root".to_owned());
    }
    let entry = lines(sandbox, "/etc/passwd").await?.into_iter().find(|line| line.split(':').next() == Some(user));
    let home = entry.and_then(|line| line.split(':').nth(5).map(str::to_owned));
    home.ok_or_else(|| {
        let message = format!("there is no user {user:?} in the sandbox");
        ApiError::new(axum::http::StatusCode::UNAUTHORIZED, "no_such_user", message)
    })
}

/// The lines of a small system file.
pub(super) async fn lines(sandbox: &Arc<Sandbox>, path: &str) -> Result<Vec<String>, ApiError> {
    let bytes = sandbox.read_file(path, 0, None)?.collect(LARGEST_PASSWD).await?;
    Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

/// Resolves a client's path.
pub(super) async fn resolve(sandbox: &Arc<Sandbox>, user: &str, path: &str) -> Result<String, ApiError> {
    if path.starts_with('/') {
        return checked(cleaned(path));
    }
    let below = match path.strip_prefix('~') {
        None => path,
        Some("") => "",
        Some(rest) if rest.starts_with('/') => rest,
        Some(_) => return Err(ApiError::bad_request("a path cannot name another user's home")),
    };
    checked(cleaned(&format!("{}/{below}", home_of(sandbox, user).await?)))
}

/// Removes dots, double slashes and a final slash.
pub(in crate::e2b) fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_as_they_are_meant() {
        for (path, meant) in [("/", "/"), ("/a//b/./c/", "/a/b/c"), ("/a/../../b", "/b"), ("//", "/")] {
            assert_eq!(cleaned(path), meant);
        }
    }
}
