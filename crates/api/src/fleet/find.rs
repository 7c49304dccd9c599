//! Finds the node that has something by its name. Only the ids of sandboxes tell the node, so all nodes are asked.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{FuturesUnordered, StreamExt};
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use sandling_engine::{CreateError, SandboxId, SnapshotId, TemplateSummary, VolumeError, VolumeView};
use sandling_fleet::Member;
use sandling_service::WorkspaceName;
use tokio::time::{Instant, timeout_at};

use super::builds;
use super::member::{Fleet, unreachable};
use crate::app::App;
use crate::auth::{presented, query_value};
use crate::e2b;
use crate::error::ApiError;
use crate::snapshots;

pub(super) const PATH: &str = "/fleet/find";
/// How long the others may take once a node has said that it has the thing, or when it need not exist.
const ENOUGH_AFTER: Duration = Duration::from_secs(3);
/// How long they may take while nobody has it. It may be on one that is busy.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// What follows `/v1/templates/` and is not a template's name.
const BUILDS: [&str; 2] = ["build", "builds"];
/// What follows `/v1/templates/builds/` and is not a build.
const NOT_BUILDS: [&str; 2] = ["cache", "uploads"];
/// What follows `/v1/snapshots/` and is not a snapshot.
const IMPORT: &str = "import";

/// Something that a workspace has on some nodes, by its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sought {
    workspace: String,
    kind: Kind,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sandbox,
    Template,
    /// By its id or name.
    Snapshot,
    /// By its id or name.
    Volume,
    /// By its id.
    Build,
    /// What a build of this name would replace: a template, or a build that is under way.
    BuildName,
    /// Files for a build, by their hash.
    Upload,
    /// Whatever one of E2B's template names stands for. Of several, it is the newest.
    E2bTemplate,
    /// The same, or a build of this name that is under way.
    E2bBuild,
    /// A sandbox, by a token or a signature.
    Credential,
    /// A preview token, by its id or itself.
    Preview,
}

impl fmt::Display for Sought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::E2bTemplate | Kind::E2bBuild | Kind::BuildName => Kind::Template,
            kind => kind,
        };
        write!(f, "{} `{}`", kind.as_str(), self.name)
    }
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Sandbox,
        Self::Template,
        Self::Snapshot,
        Self::Volume,
        Self::Build,
        Self::BuildName,
        Self::Upload,
        Self::E2bTemplate,
        Self::E2bBuild,
        Self::Credential,
        Self::Preview,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Template => "template",
            Self::Snapshot => "snapshot",
            Self::Volume => "volume",
            Self::Build => "build",
            Self::BuildName => "build-name",
            Self::Upload => "upload",
            Self::E2bTemplate => "e2b-template",
            Self::E2bBuild => "e2b-build",
            Self::Credential => "credential",
            Self::Preview => "preview token",
        }
    }

    /// Whether several nodes may have one. Then the one that says the greatest text has it.
    fn is_ranked(self) -> bool {
        matches!(self, Self::E2bTemplate | Self::E2bBuild | Self::BuildName)
    }
}

/// What the other nodes say about something.
struct Found {
    /// The nodes that have it, and its id there, or when it was made, or how much it counts.
    at: Vec<(Member, String)>,
    /// The nodes that did not answer.
    silent: Vec<Arc<str>>,
}

impl Sought {
    pub(super) fn sandbox(workspace: &str, name: &str) -> Self {
        Self { workspace: workspace.to_owned(), kind: Kind::Sandbox, name: name.to_owned() }
    }

    pub(super) fn template(workspace: &str, name: &str) -> Self {
        Self { workspace: workspace.to_owned(), kind: Kind::Template, name: name.to_owned() }
    }

    pub(super) fn build_name(workspace: &str, name: &str) -> Self {
        Self { workspace: workspace.to_owned(), kind: Kind::BuildName, name: name.to_owned() }
    }

    pub(super) fn upload(workspace: &str, hash: &str) -> Self {
        Self { workspace: workspace.to_owned(), kind: Kind::Upload, name: hash.to_owned() }
    }

    pub(super) fn snapshot(workspace: &str, id_or_name: &str) -> Self {
        Self { workspace: workspace.to_owned(), kind: Kind::Snapshot, name: id_or_name.to_owned() }
    }

    /// The workspace, and the id or name of a snapshot. `None` if something else is sought.
    pub(super) fn as_snapshot(&self) -> Option<(&str, &str)> {
        let is_one = match self.kind {
            Kind::Snapshot => true,
            Kind::E2bTemplate => SnapshotId::parse(&self.name).is_some(),
            _ => false,
        };
        is_one.then_some((&*self.workspace, &*self.name))
    }

    pub(super) fn volume(workspace: &str, name: &str) -> Self {
        Self { workspace: workspace.to_owned(), kind: Kind::Volume, name: name.to_owned() }
    }

    pub(super) fn e2b_template(workspace: &str, name: &str) -> Self {
        Self { workspace: workspace.to_owned(), kind: Kind::E2bTemplate, name: name.to_owned() }
    }

    pub(super) fn e2b_build(workspace: &str, name: &str) -> Self {
        Self { workspace: workspace.to_owned(), kind: Kind::E2bBuild, name: name.to_owned() }
    }

    /// What a request names. `None` if it names nothing, or has no valid token: then this node answers it.
    pub(super) fn of(app: &App, parts: &Parts) -> Option<Self> {
        let Some((kind, name)) = named(&parts.method, parts.uri.path()) else {
            let name = e2b::credential(parts)?;
            return Some(Self { workspace: String::new(), kind: Kind::Credential, name });
        };
        let principal = app.service.tokens.authenticate(&presented(parts)).ok();
        let workspace = principal.map(|principal| principal.workspace).or_else(|| e2b::workspace_of(app, parts))?;
        Some(Self { workspace: workspace.to_string(), kind, name })
    }

    /// Whether a request is to delete what one of E2B's names stands for.
    pub(super) fn is_e2bs_delete(&self, parts: &Parts) -> bool {
        self.kind == Kind::E2bTemplate && parts.method == Method::DELETE
    }

    /// Whether this node answers, so that the others need not be asked. One of them may have a newer template, or the one
    /// that this node has copied.
    pub(super) fn is_here(&self, app: &App) -> bool {
        let is_answered = match self.kind {
            Kind::E2bTemplate | Kind::E2bBuild => e2b::is_built_in(app, &self.workspace, &self.name),
            Kind::BuildName => self.here(app).is_some_and(|rank| rank.starts_with(builds::TEMPLATE)),
            _ => true,
        };
        is_answered && self.has_here(app)
    }

    pub(super) fn has_here(&self, app: &App) -> bool {
        self.here(app).is_some()
    }

    /// The sandbox of this node that it is.
    pub(super) fn sandbox_here(&self, app: &App) -> Option<SandboxId> {
        let is_sandbox = matches!(self.kind, Kind::Sandbox | Kind::Credential);
        SandboxId::parse(&is_sandbox.then(|| self.here(app))??)
    }

    /// Its id, when it was made or how much it counts, if this node has it.
    fn here(&self, app: &App) -> Option<String> {
        match self.kind {
            Kind::Sandbox => app.engine.resolve(&self.workspace, &self.name).map(|id| id.to_string()),
            Kind::Template => {
                let found = sandling_service::find_template(&app.engine, &self.workspace, &self.name);
                let is_it = |template: &TemplateSummary| template.is_ready() || !template.built_in;
                found.ok().flatten().filter(is_it).map(|template| template.name)
            }
            Kind::Snapshot => snapshots::find(app, &self.workspace, &self.name).ok().flatten().map(|id| id.to_string()),
            Kind::Volume => {
                let mut all = app.engine.volumes().list(&self.workspace).ok()?.into_iter();
                let is_it = |volume: &VolumeView| volume.info.id.as_str() == self.name || volume.info.name == self.name;
                all.find(is_it).map(|volume| volume.info.id.to_string())
            }
            Kind::Build => app.service.builds.registry.find(&self.workspace, &self.name).map(|build| build.id.clone()),
            Kind::BuildName => builds::rank(app, &self.workspace, &self.name),
            Kind::Upload => app.service.builds.uploads.open(&self.workspace, &self.name).map(|_| self.name.clone()),
            Kind::E2bTemplate => e2b::made_at(app, &self.workspace, &self.name),
            Kind::E2bBuild => e2b::made_or_begun_at(app, &self.workspace, &self.name),
            Kind::Credential => e2b::sandbox_with(app, &self.name).map(|id| id.to_string()),
            Kind::Preview => {
                let workspace = WorkspaceName::parse(&self.workspace)?;
                app.service.previews.find(&workspace, &self.name).ok().flatten()
            }
        }
    }

    /// The node that has it. `None` if there is none.
    pub(super) async fn holder(&self, fleet: &Fleet, app: &App) -> Result<Option<Member>, ApiError> {
        let owner = if self.is_here(app) { None } else { self.owner(fleet, app).await? };
        let own = || fleet.membership.members().into_iter().find(|member| *member.name == *fleet.membership.name());
        Ok(owner.or_else(|| own().filter(|_| self.has_here(app))))
    }

    /// The other node that has it. `None` if there is none, so that this node says so.
    pub(super) async fn owner(&self, fleet: &Fleet, app: &App) -> Result<Option<Member>, ApiError> {
        // The name of a build need not exist.
        let within = if self.kind == Kind::BuildName { ENOUGH_AFTER } else { ANSWER_WITHIN };
        let Found { mut at, silent } = self.elsewhere(fleet, app, within).await;
        if self.kind.is_ranked()
            && let Some(own) = self.here(app)
        {
            at.retain(|(_, rank)| *rank > own);
            if at.is_empty() {
                return Ok(None);
            }
        }
        at.sort_by(|(_, one), (_, other)| one.cmp(other));
        // A snapshot or a sandbox that moves is on two nodes for a moment.
        let mut ids = BTreeSet::new();
        let may_be_several = self.kind == Kind::Template || self.kind.is_ranked();
        at.retain(|(_, id)| may_be_several || ids.insert(id.clone()));
        // Templates of one name are taken for the same.
        if !may_be_several && at.len() > 1 {
            let kind = self.kind.as_str();
            let ids: Vec<_> = at.iter().map(|(member, id)| format!("{id} on node {}", member.name)).collect();
            let advice = if self.kind == Kind::Volume { "ask one of these nodes" } else { "use an id" };
            let message = format!("several {kind}s have the name `{}`: {}; {advice}", self.name, ids.join(", "));
            return Err(ApiError::conflict("name_ambiguous", message));
        }
        match (at.pop(), silent.first()) {
            (Some((member, _)), _) => Ok(Some(member)),
            // It may be there.
            (None, Some(node)) => Err(unreachable(node, "it was asked for the name")),
            (None, None) => Ok(None),
        }
    }

    /// Refuses the name of a new sandbox or volume that one on any node has. A node that does not answer has no say: it must
    /// not stop all creates.
    pub(super) async fn refuse_taken(&self, fleet: &Fleet, app: &App) -> Result<(), ApiError> {
        let id = match self.here(app) {
            Some(id) => Some(id),
            None => self.elsewhere(fleet, app, ENOUGH_AFTER).await.at.pop().map(|(_, id)| id),
        };
        match (id, self.kind) {
            (None, _) => Ok(()),
            (Some(_), Kind::Volume) => Err(VolumeError::Exists(self.name.clone()).into()),
            (Some(id), _) => {
                Err(CreateError::NameTaken { name: self.name.clone(), by: format!("sandbox {id}") }.into())
            }
        }
    }

    /// The other nodes that have it. The error names one that does not answer, if it is nowhere else.
    pub(super) async fn holders_elsewhere(&self, fleet: &Fleet, app: &App) -> Result<Vec<Member>, ApiError> {
        let Found { at, silent } = self.elsewhere(fleet, app, ANSWER_WITHIN).await;
        match silent.first() {
            Some(node) if at.is_empty() && !self.has_here(app) => Err(unreachable(node, "it was asked for the name")),
            _ => Ok(at.into_iter().map(|(member, _)| member).collect()),
        }
    }

    /// `within` is how long the nodes may take to answer while none of them has it.
    async fn elsewhere(&self, fleet: &Fleet, app: &App, within: Duration) -> Found {
        // Anybody can send a credential.
        let _turn = match self.kind {
            Kind::Credential => fleet.strangers.acquire().await.ok(),
            _ => None,
        };
        let query = [("workspace", &*self.workspace), ("kind", self.kind.as_str()), ("name", &self.name)];
        let path = format!("{PATH}?{}", serde_urlencoded::to_string(query).unwrap_or_default());
        let (path, members) = (&path, fleet.others());
        let silent = members.iter().map(|member| member.name.clone()).collect();
        let asks = members.into_iter().map(|member| async move { (ask(fleet, app, &member, path).await, member) });
        let (mut asks, mut found) = (asks.collect::<FuturesUnordered<_>>(), Found { at: Vec::new(), silent });
        let began = Instant::now();
        loop {
            let patience = if found.at.is_empty() { within } else { ENOUGH_AFTER };
            let Ok(Some((answer, member))) = timeout_at(began + patience, asks.next()).await else { break };
            match answer {
                Ok(id) => {
                    found.silent.retain(|name| *name != member.name);
                    found.at.extend(id.map(|id| (member, id)));
                }
                Err(why) => tracing::debug!(node = &*member.name, why, "a node did not say whether it has a name"),
            }
        }
        found
    }
}

/// What a node has, or that it has nothing.
async fn ask(fleet: &Fleet, app: &App, member: &Member, path: &str) -> Result<Option<String>, String> {
    let response = fleet.ask(app, member, path).await.map_err(|error| error.message)?;
    match response.status() {
        StatusCode::OK => {
            let id = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
            Ok(Some(String::from_utf8_lossy(&id).into_owned()))
        }
        StatusCode::NOT_FOUND => Ok(None),
        status => Err(status.to_string()),
    }
}

/// Answers another node's question.
pub(super) fn answer(app: &App, request: &Request) -> Response {
    let value = |name| query_value(request.uri().query(), name);
    let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == value("kind"));
    let here = kind.and_then(|kind| Sought { workspace: value("workspace"), kind, name: value("name") }.here(app));
    here.map_or_else(|| StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
}

/// What a path names. The ids of sandboxes need no search.
fn named(method: &Method, path: &str) -> Option<(Kind, String)> {
    let (kind, name) = match path.strip_prefix("/v1/") {
        Some(path) => in_own_path(method, path)?,
        None => in_e2bs_path(path)?,
    };
    let name = percent_decode_str(name).decode_utf8().ok()?.into_owned();
    let is_name = match kind {
        Kind::Sandbox => SandboxId::parse(&name).is_none(),
        Kind::Template => !BUILDS.contains(&&*name) && !name.contains('/'),
        _ => true,
    };
    (is_name && !name.is_empty()).then_some((kind, name))
}

fn in_own_path<'a>(method: &Method, path: &'a str) -> Option<(Kind, &'a str)> {
    let (collection, rest) = path.split_once('/')?;
    let first = rest.split('/').next()?;
    Some(match collection {
        "sandboxes" => (Kind::Sandbox, first),
        "templates" if first == "builds" => {
            (Kind::Build, rest.split('/').nth(1).filter(|second| !NOT_BUILDS.contains(second))?)
        }
        "templates" if rest.ends_with("/network") => (Kind::Template, rest.strip_suffix("/network")?),
        "templates" if matches!(*method, Method::GET | Method::DELETE) => {
            (Kind::Template, rest.strip_suffix("/history").unwrap_or(rest))
        }
        "snapshots" if (method, rest) != (&Method::POST, IMPORT) => (Kind::Snapshot, first),
        "volumes" => (Kind::Volume, first),
        "preview-tokens" => (Kind::Preview, first),
        _ => return None,
    })
}

fn in_e2bs_path(path: &str) -> Option<(Kind, &str)> {
    let path = ["/v2/", "/"].iter().find_map(|root| path.strip_prefix(root))?;
    let segments: Vec<&str> = path.split('/').collect();
    Some(match segments[..] {
        ["volumes", id] | ["volumecontent", id, _] => (Kind::Volume, id),
        ["templates", _, "builds", id, ..] => (Kind::Build, id),
        ["templates", name, "files", _] => (Kind::E2bBuild, name),
        // The body names the template.
        ["templates", "tags"] => return None,
        ["templates", "aliases", name] | ["templates", name, "tags"] | ["templates", name] => (Kind::E2bTemplate, name),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sought_and_ids_are_not() {
        let get = |path: &str| named(&Method::GET, path).map(|(kind, name)| (kind.as_str(), name));
        assert_eq!(get("/v1/sandboxes/web/exec"), Some(("sandbox", "web".to_owned())));
        assert_eq!(get("/v1/sandboxes/a%20b"), Some(("sandbox", "a b".to_owned())));
        assert_eq!(get("/v1/templates/mine:v1/history"), Some(("template", "mine:v1".to_owned())));
        assert_eq!(get("/v1/snapshots/golden/export"), Some(("snapshot", "golden".to_owned())));
        assert_eq!(get("/v1/volumes/data"), Some(("volume", "data".to_owned())));
        for other in [
            "/v1/sandboxes",
            "/v1/sandboxes/",
            "/v1/sandboxes/0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11/exec",
            "/v1/templates/builds",
            "/v1/templates/builds/cache",
            "/v1/templates/builds/uploads/0123",
            "/v1/snapshots",
            "/v1/volumes/",
            "/v1/tokens/web",
            "/sandboxes/web",
            "/templates",
            "/templates/tags",
            "/v3/templates",
            "/v2/templates",
            "/snapshots",
            "/volumes",
        ] {
            assert_eq!(get(other), None, "{other}");
        }
        assert_eq!(get("/v1/templates/mine/network"), Some(("template", "mine".to_owned())));
        assert_eq!(get("/v1/templates/builds/1/logs"), Some(("build", "1".to_owned())));
        assert_eq!(get("/v1/preview-tokens/0123"), Some(("preview token", "0123".to_owned())));
        assert_eq!(get("/volumes/1"), Some(("volume", "1".to_owned())));
        assert_eq!(get("/volumecontent/1/path"), Some(("volume", "1".to_owned())));
        assert_eq!(get("/v2/templates/mine/builds/1"), Some(("build", "1".to_owned())));
        assert_eq!(get("/templates/mine/builds/1/status"), Some(("build", "1".to_owned())));
        assert_eq!(get("/templates/mine/files/0"), Some(("e2b-build", "mine".to_owned())));
        for path in ["/templates/a%2Fb:v1", "/v2/templates/a%2Fb:v1", "/templates/aliases/a%2Fb:v1"] {
            assert_eq!(get(path), Some(("e2b-template", "a/b:v1".to_owned())));
        }
        assert!(named(&Method::POST, "/v1/sandboxes/web/exec").is_some());
        assert_eq!(named(&Method::POST, "/v1/templates/build"), None);
        assert_eq!(named(&Method::POST, "/v1/snapshots/import"), None);
    }
}
