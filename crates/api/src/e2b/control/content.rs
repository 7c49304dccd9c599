//! The files of a volume, for clients that have its token.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts as HttpParts;
use axum::http::{HeaderValue, header};
use axum::routing::get;
use jiff::Timestamp;
use sandling_protocol::WriteMode;
use sandling_service::OpenVolume;
use serde::Deserialize;
use serde_json::{Value, json};

use super::volumes::find;
use crate::auth::presented;
use crate::convert::files::checked;
use crate::e2b::envd::cleaned;
use crate::e2b::place;
use crate::e2b::token;
use crate::file_content::{body, send};
use crate::prelude::*;
use crate::request_limits::{self, Holder};

const DEEPEST: u32 = 64;
/// The `find` format: ten fields per entry, each ended by a NUL.
const FIELDS: &str = r"%p\0%y\0%s\0%m\0%U\0%G\0%A@\0%T@\0%C@\0%l\0";

/// A script that sets a path's owner and mode, if they are given.
const SET_OWNERSHIP: &str = r#"set -e
[ -z "$2" ] || chown -h -- "$2" "$1"
[ -z "$3" ] || chmod -- "$3" "$1""#;

/// The numbers of the user and of the group of that name in the built-in templates.
const USER_ID: u32 = 1000;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/volumecontent/{id}/path", get(look).patch(change).delete(remove))
        .route("/volumecontent/{id}/dir", get(list).post(make_dir))
        .route("/volumecontent/{id}/file", get(read).put(write))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Query {
    path: String,
    depth: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
    force: Option<bool>,
}

impl Query {
    fn path(&self) -> Result<String, ApiError> {
        checked(cleaned(&self.path))
    }

    /// The owner and mode of something new. As with E2B, it belongs to the sandboxes' user, who could not use it
    /// otherwise.
    fn ownership(&self) -> Ownership {
        Ownership { uid: self.uid.or(Some(USER_ID)), gid: self.gid.or(Some(USER_ID)), mode: self.mode }
    }
}

/// An optional owner and mode.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ownership {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
}

impl Ownership {
    async fn apply(&self, volume: &OpenVolume, path: &str) -> Result<(), ApiError> {
        let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        let owner = match (self.uid, self.gid) {
            (None, None) => String::new(),
            (uid, gid) => format!("{}{}", number(uid), gid.map(|gid| format!(":{gid}")).unwrap_or_default()),
        };
        let mode = self.mode.map(|mode| format!("{:o}", mode & 0o7777)).unwrap_or_default();
        if owner.is_empty() && mode.is_empty() {
            return Ok(());
        }
        command(volume, &["sh", "-c", SET_OWNERSHIP, "ownership", &volume.inside(path).await?, &owner, &mode]).await
    }
}

/// The volume that a path names. Extracting it checks the volume's token.
struct VolumeCall {
    volume: OpenVolume,
}

impl FromRequestParts<Arc<App>> for VolumeCall {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut HttpParts, app: &Arc<App>) -> Result<Self, ApiError> {
        let Parts(id) = Parts::<String>::from_request_parts(parts, app).await?;
        let refused = || ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", "this is not the volume's token");
        let holder = token::check_volume(app, &presented(parts), &id).ok_or_else(refused)?;
        request_limits::admit(app, &parts.extensions, &holder.workspace, Holder::Volume(&id))?;
        let name = find(app, holder.workspace.as_str(), &id)?.info.name;
        place::begin(app, parts, &holder, &name)?;
        let volume = app.service.volume_files.open(&holder.workspace, &name).await?;
        Ok(Self { volume })
    }
}

async fn look(VolumeCall { volume }: VolumeCall, Params(query): Params<Query>) -> Result<Json<Value>, ApiError> {
    Ok(Json(entry(&volume, &query.path()?).await?))
}

async fn list(VolumeCall { volume }: VolumeCall, Params(query): Params<Query>) -> Result<Json<Vec<Value>>, ApiError> {
    let path = query.path()?;
    let top = entry(&volume, &path).await?;
    if top["type"] != "directory" {
        return Err(ApiError::bad_request(format!("{path} is not a directory")));
    }
    let depth = query.depth.unwrap_or(1).clamp(1, DEEPEST);
    Ok(Json(entries(&volume, &path, 1, depth).await?))
}

async fn make_dir(
    VolumeCall { volume }: VolumeCall,
    Params(query): Params<Query>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let (path, ownership) = (query.path()?, query.ownership());
    volume.before(&format!("mkdir {path}")).await?;
    let place = volume.inside(&path).await?;
    let mut line = vec!["mkdir", "--", place.as_str()];
    if query.force.unwrap_or_default() {
        line.insert(1, "-p");
    }
    command(&volume, &line).await?;
    ownership.apply(&volume, &path).await?;
    Ok((StatusCode::CREATED, Json(entry(&volume, &path).await?)))
}

async fn change(
    VolumeCall { volume }: VolumeCall,
    Params(query): Params<Query>,
    ownership: JsonBody<Ownership>,
) -> Result<Json<Value>, ApiError> {
    let path = query.path()?;
    entry(&volume, &path).await?;
    volume.before(&format!("change {path}")).await?;
    ownership.value.apply(&volume, &path).await?;
    Ok(Json(entry(&volume, &path).await?))
}

async fn remove(VolumeCall { volume }: VolumeCall, Params(query): Params<Query>) -> Result<StatusCode, ApiError> {
    let path = query.path()?;
    if path == "/" {
        return Err(ApiError::bad_request("the volume itself is deleted by its id"));
    }
    entry(&volume, &path).await?;
    volume.before(&format!("remove {path}")).await?;
    let parent = path.rsplit_once('/').map_or("/", |(parent, _)| if parent.is_empty() { "/" } else { parent });
    volume.inside(parent).await?;
    volume.sandbox.remove(&volume.place(&path), true).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn read(VolumeCall { volume }: VolumeCall, Params(query): Params<Query>) -> Result<Response, ApiError> {
    let path = query.path()?;
    let found = entry(&volume, &path).await?;
    if found["type"] == "directory" {
        return Err(ApiError::bad_request(format!("{path} is a directory")));
    }
    let place = volume.inside(&path).await?;
    let mut response = body(volume.sandbox.read_file(&place, 0, None)?).await?;
    if found["type"] == "file" && found["size"] == 0 {
        // The JavaScript client detects an empty file by this header.
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    }
    Ok(response)
}

async fn write(
    VolumeCall { volume }: VolumeCall,
    Params(query): Params<Query>,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let (path, ownership) = (query.path()?, query.ownership());
    if !query.force.unwrap_or_default() && entry(&volume, &path).await.is_ok() {
        let message = format!("path '{path}' exists already; `force` overwrites it");
        return Err(ApiError::conflict("already_exists", message));
    }
    volume.before(&format!("write {path}")).await?;
    let place = volume.inside(&path).await?;
    let mut upload = volume.sandbox.write_file(&place, WriteMode::Replace, None, None)?;
    send(&mut upload, body).await?;
    upload.finish().await?;
    ownership.apply(&volume, &path).await?;
    Ok((StatusCode::CREATED, Json(entry(&volume, &path).await?)))
}

/// Runs a command and fails unless it exits with 0.
async fn command(volume: &OpenVolume, argv: &[&str]) -> Result<(), ApiError> {
    let said = volume.run(argv).await?;
    match said.code {
        0 => Ok(()),
        _ if said.stderr.contains("No such file or directory") => Err(ApiError::not_found("path")),
        _ if said.stderr.contains("File exists") => Err(ApiError::conflict("already_exists", "it is there already")),
        _ => Err(ApiError::bad_request(said.stderr.lines().last().unwrap_or_default().to_owned())),
    }
}

/// The entry at a path.
async fn entry(volume: &OpenVolume, path: &str) -> Result<Value, ApiError> {
    entries(volume, path, 0, 0).await?.pop().ok_or_else(|| ApiError::not_found("path"))
}

/// The entries at depths `from` to `to` below a path; the path itself has depth 0.
async fn entries(volume: &OpenVolume, path: &str, from: u32, to: u32) -> Result<Vec<Value>, ApiError> {
    let (place, from, to) = (volume.place(path), from.to_string(), to.to_string());
    let said = volume.run(&["find", &place, "-mindepth", &from, "-maxdepth", &to, "-printf", FIELDS]).await?;
    if said.code != 0 && !said.stderr.contains("No such file or directory") {
        return Err(ApiError::new(
            StatusCode::BAD_GATEWAY,
            "listing_failed",
            "what is there could not be listed whole",
        ));
    }
    let root = volume.place("/");
    let text = String::from_utf8_lossy(&said.stdout);
    let fields: Vec<&str> = text.split('\0').collect();
    Ok(fields.chunks_exact(10).map(|fields| stat(&root, fields)).collect())
}

fn stat(root: &str, fields: &[&str]) -> Value {
    let path = fields[0].strip_prefix(root).filter(|path| !path.is_empty()).unwrap_or("/");
    let kind = match fields[1] {
        "f" => "file",
        "d" => "directory",
        "l" => "symlink",
        _ => "unknown",
    };
    let number = |text: &str, radix| u64::from_str_radix(text, radix).unwrap_or_default();
    let mut stat = json!({
        "name": path.rsplit('/').next().unwrap_or_default(), "type": kind, "path": path,
        "size": number(fields[2], 10), "mode": number(fields[3], 8),
        "uid": number(fields[4], 10), "gid": number(fields[5], 10),
        "atime": time(fields[6]), "mtime": time(fields[7]), "ctime": time(fields[8]),
    });
    if kind == "symlink" {
        stat["target"] = fields[9].into();
    }
    stat
}

/// Formats fractional seconds since 1970 as a date.
fn time(seconds: &str) -> String {
    let whole = seconds.split('.').next().and_then(|whole| whole.parse().ok()).unwrap_or_default();
    Timestamp::from_second(whole).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_find_says_is_told_as_the_clients_read_it() {
        let line = ["/mnt/v/a/b", "l", "3", "777", "0", "1000", "1.5", "2.5", "3.5", "to"];
        let told = stat("/mnt/v", &line);
        assert_eq!((&told["path"], &told["name"], &told["target"]), (&json!("/a/b"), &json!("b"), &json!("to")));
        assert_eq!((&told["mode"], &told["mtime"]), (&json!(0o777), &json!("1970-01-01T00:00:02Z")));
        assert_eq!(stat("/mnt/v", &["/mnt/v", "d", "", "", "", "", "", "", "", ""])["path"], "/");
    }
}
