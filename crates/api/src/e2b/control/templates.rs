//! Lists and shows templates: built-in ones, those of the workspace, and those built from code. Also answers E2B's CLI
//! when it publishes one.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::routing::{get, patch};
use jiff::Timestamp;
use sandling_engine::{SnapshotInfo, TemplateSummary};
use sandling_service::{Build, Stage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::builds::status;
use super::list::{Key, Order, paged};
use super::view::ENVD_VERSION;
use crate::e2b::names::{Name, build_id, theirs};
use crate::e2b::refusal::unsupported;
use crate::prelude::*;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/templates", get(all))
        .route("/templates/{id}", get(look).patch(publish))
        .route("/v2/templates", get(page))
        .route("/v2/templates/{id}", patch(publish))
}

#[derive(Debug)]
struct TemplateEntry {
    name: String,
    build_id: String,
    vcpus: u32,
    memory_mib: u32,
    disk_mib: u32,
    created_at: Timestamp,
    built_in: bool,
    description: String,
}

impl TemplateEntry {
    /// `None` if the template is not built yet. An alias tag is listed under the name of its template.
    fn of_template(template: TemplateSummary) -> Option<Self> {
        let tagged = Name::from_description(&template.description).map(|tagged| tagged.name);
        Some(Self {
            build_id: template.image.filter(|_| template.damage.is_none())?,
            created_at: template.created_at?,
            name: tagged.unwrap_or(template.name),
            vcpus: template.vcpus,
            memory_mib: template.memory_mib,
            disk_mib: template.disk_mib,
            built_in: template.built_in,
            description: template.description,
        })
    }

    fn of_snapshot(info: &SnapshotInfo) -> Option<Self> {
        let Name { name, .. } = Name::from_snapshot(info)?;
        Some(Self {
            name,
            build_id: build_id(info),
            vcpus: info.vcpus,
            memory_mib: info.memory_mib,
            disk_mib: info.disk_mib,
            created_at: info.created_at,
            built_in: false,
            description: format!("built from code on {}", info.template),
        })
    }

    fn names(&self) -> Vec<&str> {
        let theirs = theirs(&self.name).filter(|_| self.built_in);
        std::iter::once(self.name.as_str()).chain(theirs).collect()
    }

    /// Creator and usage counts are not tracked.
    fn view(&self) -> Value {
        let (names, at) = (self.names(), self.created_at.to_string());
        json!({
            "templateID": self.name, "buildID": self.build_id, "buildStatus": "ready",
            "names": names, "aliases": names, "description": self.description,
            "cpuCount": self.vcpus, "memoryMB": self.memory_mib, "diskSizeMB": self.disk_mib,
            "public": self.built_in, "isDefault": self.built_in, "envdVersion": ENVD_VERSION,
            "createdAt": at, "updatedAt": at, "createdBy": null, "lastSpawnedAt": null,
            "spawnCount": 0, "buildCount": 1,
        })
    }

    /// The build that made the template.
    fn own_build(&self) -> Value {
        self.build_view(&self.build_id, "ready", self.created_at, Some(self.created_at))
    }

    /// A build of this name.
    fn build(&self, build: &Build) -> Value {
        let stage = build.progress().borrow().stage.clone();
        let ended = match stage {
            Stage::Done { at, .. } | Stage::Failed { at, .. } => Some(at),
            Stage::Registered | Stage::Queued | Stage::Running => None,
        };
        self.build_view(&build.id, status(&stage), build.started_at, ended)
    }

    /// The size of a build is not remembered, so it has the template's.
    fn build_view(&self, id: &str, status: &str, begun: Timestamp, ended: Option<Timestamp>) -> Value {
        let mut view = json!({
            "buildID": id, "status": status,
            "createdAt": begun.to_string(), "updatedAt": ended.unwrap_or(begun).to_string(),
            "cpuCount": self.vcpus, "memoryMB": self.memory_mib, "diskSizeMB": self.disk_mib,
            "envdVersion": ENVD_VERSION,
        });
        if let Some(ended) = ended {
            view["finishedAt"] = ended.to_string().into();
        }
        view
    }
}

/// The newest build of each name.
fn listed(app: &App, workspace: &str) -> Result<Vec<TemplateEntry>, ApiError> {
    let templates = app.engine.list_templates(workspace)?.into_iter().filter_map(TemplateEntry::of_template);
    let snapshots = app.engine.snapshots().list(workspace)?;
    let built = snapshots.iter().filter_map(TemplateEntry::of_snapshot);
    let by_name: BTreeMap<String, TemplateEntry> =
        templates.chain(built).map(|found| (found.name.clone(), found)).collect();
    Ok(by_name.into_values().collect())
}

async fn all(State(app): State<Arc<App>>, caller: Caller<Read>) -> Result<Json<Vec<Value>>, ApiError> {
    Ok(Json(listed(&app, caller.workspace().as_str())?.iter().map(TemplateEntry::view).collect()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageParams {
    limit: Option<usize>,
    next_token: Option<String>,
}

/// A page of the templates that several nodes have listed.
pub(crate) fn page_of_templates(all: Vec<Value>, query: Option<&str>) -> Result<Response, ApiError> {
    let wanted: PageParams = serde_urlencoded::from_str(query.unwrap_or_default()).unwrap_or_default();
    let text = |template: &Value, field: &str| template[field].as_str().unwrap_or_default().to_owned();
    let key = |template: &Value| {
        let created = text(template, "createdAt").parse().unwrap_or_default();
        Key::new(created, &text(template, "templateID"))
    };
    paged(all, Order::NewestFirst, wanted.next_token.as_deref(), wanted.limit, key, Value::clone)
}

async fn page(call: Call<Read>, Params(wanted): Params<PageParams>) -> Result<Response, ApiError> {
    let all = listed(&call.app, call.workspace().as_str())?;
    let key = |template: &TemplateEntry| Key::new(template.created_at, &template.name);
    paged(all, Order::NewestFirst, wanted.next_token.as_deref(), wanted.limit, key, TemplateEntry::view)
}

/// A template of the workspace, or a built-in one, by one of its names.
fn find(app: &App, workspace: &str, text: &str) -> Result<TemplateEntry, ApiError> {
    let wanted = Name::parse(text)?.name;
    let found = listed(app, workspace)?.into_iter().find(|template| template.names().contains(&wanted.as_str()));
    found.ok_or_else(|| ApiError::not_found("template"))
}

/// A template with its builds, newest first: those that the server remembers, and the one that made it.
async fn look(call: Call<Read>) -> Result<Json<Value>, ApiError> {
    let workspace = call.workspace().as_str();
    let template = find(&call.app, workspace, &call.item)?;
    let remembered = call.app.service.builds.registry.list(workspace);
    let own = remembered.iter().filter(|build| !template.built_in && build.name == template.name);
    let mut builds: Vec<Value> = own.map(|build| template.build(build)).collect();
    if builds.iter().all(|build| build["buildID"] != template.build_id) {
        builds.push(template.own_build());
    }
    let mut view = template.view();
    view["buildCount"] = builds.len().into();
    view["builds"] = builds.into();
    Ok(Json(view))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Visibility {
    public: Option<bool>,
}

/// Built-in templates are public and all others belong to a workspace. Neither can be changed.
async fn publish(call: Call<Run>, body: JsonBody<Visibility>) -> Result<Json<Value>, ApiError> {
    let template = find(&call.app, call.workspace().as_str(), &call.item)?;
    let name = &template.name;
    match (body.value.public, template.built_in) {
        (Some(true), false) => Err(unsupported(&format!(
            "the template {name:?} cannot be published: only sandboxes of its own workspace can use it; build it in \
             the other workspace, too"
        ))),
        (Some(false), true) => Err(unsupported(&format!("{name:?} is built in, so every workspace has it"))),
        _ => Ok(Json(json!({ "names": template.names() }))),
    }
}
