//! Builds templates from code.

use axum::Extension;
use axum::extract::{Request, State};
use axum::routing::{get, post};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sandling_engine::CreateSpec;
use sandling_service::{BaseError, Build, BuildSpec, Level, Line, SaveAs, Stage};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::audit;
use crate::e2b::memory::{BuildOptions, memory};
use crate::e2b::names::{self, Name};
use crate::e2b::plan::{From as Base, Recipe};
use crate::e2b::token;
use crate::prelude::*;
use crate::preview::host::Origin;
use crate::request_limits::{self, Holder};
use crate::service_refusals::explain;

const MOST_LINES: usize = 100;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v3/templates", post(request))
        .route("/templates/{id}/files/{hash}", get(link).put(upload))
        .route("/v2/templates/{id}/builds/{build}", post(begin))
        .route("/templates/{id}/builds/{build}/status", get(look))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BuildRequest {
    name: Option<String>,
    alias: Option<String>,
    tags: Vec<String>,
    cpu_count: Option<u32>,
    #[serde(rename = "memoryMB")]
    memory_mb: Option<u32>,
}

/// Each tag is saved separately, so their number is limited.
const MOST_TAGS: usize = 16;

async fn request(call: Call<Run>, body: JsonBody<BuildRequest>) -> Result<(StatusCode, Json<Value>), ApiError> {
    let request = body.value;
    let text = request.name.or(request.alias).ok_or_else(|| ApiError::bad_request("name is missing"))?;
    let name = Name::parse(&text)?;
    let mut names: Vec<Name> = Vec::new();
    if request.tags.len() > MOST_TAGS {
        return Err(ApiError::bad_request(format!("a template may have {MOST_TAGS} tags")));
    }
    for tag in &request.tags {
        names.push(Name::parse(&format!("{}:{tag}", name.name))?);
    }
    if names.is_empty() || text.contains(':') {
        names.insert(0, name.clone());
    }
    let (vcpus, memory_mib) = (request.cpu_count, request.memory_mb);
    CreateSpec { vcpus, memory_mib, ..CreateSpec::default() }.check()?;
    let workspace = call.workspace().as_str();
    let build = call.app.service.builds.registry.register(workspace, &name.name)?;
    let tags: Vec<_> = names.iter().map(|name| name.tag.clone()).collect();
    let workspace = workspace.to_owned();
    memory(&call.app).store_options(&call.app, &build, BuildOptions { workspace, names, vcpus, memory_mib });
    let view = json!({
        "templateID": name.name, "buildID": build.id, "public": false,
        "names": [name.name], "aliases": [name.name], "tags": tags,
    });
    Ok((StatusCode::ACCEPTED, Json(view)))
}

/// Tells whether the server has a step's files, and the upload URL if not.
async fn link(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts((name, hash)): Parts<(String, String)>,
    origin: Origin,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let workspace = caller.workspace().as_str();
    let present = app.service.builds.uploads.has(workspace, &hash)?;
    let token = token::upload(&app, &caller.principal, &hash);
    // The client uploads without an API key, so the URL contains a token. In a fleet, the name leads to the build's node.
    let name = utf8_percent_encode(&name, NON_ALPHANUMERIC);
    let url = origin.api_url(&format!("/templates/{name}/files/{hash}?token={token}"));
    Ok((StatusCode::CREATED, Json(json!({ "present": present, "url": url }))))
}

#[derive(Debug, Deserialize)]
struct Ticket {
    token: String,
}

async fn upload(
    State(app): State<Arc<App>>,
    Parts((_, hash)): Parts<(String, String)>,
    Params(ticket): Params<Ticket>,
    Extension(context): Extension<RequestContext>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let holder = token::check_upload(&app, &ticket.token, &hash).ok_or_else(|| {
        let message = "this address is not signed by this server, or has expired; ask for a new one";
        ApiError::new(StatusCode::UNAUTHORIZED, "bad_ticket", message)
    })?;
    context.came_from(&holder);
    let token = Holder::Token(&holder.token_prefix);
    request_limits::admit(&app, request.extensions(), &holder.workspace, token)?;
    audit::begin(&app, &context)?;
    let body = request.into_body().into_data_stream();
    app.service.builds.uploads.store(holder.workspace.as_str(), &hash, body).await?;
    Ok(StatusCode::OK)
}

async fn begin(
    State(app): State<Arc<App>>,
    caller: Caller<Run>,
    Parts((_, id)): Parts<(String, String)>,
    body: JsonBody<Recipe>,
) -> Result<StatusCode, ApiError> {
    let (workspace, recipe) = (caller.workspace().as_str(), body.value);
    let found = app.build(workspace, &id)?;
    let plan = recipe.plan()?;
    let (base, note) = match recipe.from() {
        Base::Template(name) => (names::resolve(&app, workspace, name)?, None),
        Base::Image(name) => match app.service.builds.find_base(caller.workspace(), name).await {
            // The clients expect that a build finds its image. They show the line of the build's failed step.
            Err(BaseError::Image(error)) => {
                app.service.builds.fail_at_base(&found, explain(error.into()))?;
                return Ok(StatusCode::ACCEPTED);
            }
            found => found?,
        },
    };
    let options = memory(&app).take_options(&found);
    let BuildOptions { names, vcpus, memory_mib, .. } =
        options.ok_or_else(|| ApiError::conflict("build_begun", "this build has begun already"))?;
    let save_as = SaveAs::Snapshots(names.iter().map(Name::of_snapshot).collect());
    let cache = recipe.cache();
    let spec = BuildSpec { vcpus, memory_mib, cache, ..BuildSpec::of_steps(base, note, plan, save_as) };
    app.service.builds.start(found, spec, explain)?;
    Ok(StatusCode::ACCEPTED)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct From {
    logs_offset: usize,
    limit: Option<usize>,
}

async fn look(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Parts((_, id)): Parts<(String, String)>,
    Params(from): Params<From>,
) -> Result<Json<Value>, ApiError> {
    let found = app.build(caller.workspace().as_str(), &id)?;
    Ok(Json(view(&found, from.logs_offset, from.limit.unwrap_or(MOST_LINES).min(MOST_LINES))))
}

/// The status of a build in E2B's terms.
pub(super) fn status(stage: &Stage) -> &'static str {
    match stage {
        Stage::Registered | Stage::Queued => "waiting",
        Stage::Running => "building",
        Stage::Done { .. } => "ready",
        Stage::Failed { .. } => "error",
    }
}

/// A build, with up to `limit` log lines from line `from` on.
fn view(build: &Build, from: usize, limit: usize) -> Value {
    let progress = build.progress();
    let progress = progress.borrow();
    let lines: Vec<&Line> = progress.lines.iter().skip(from).take(limit).collect();
    let mut view = json!({
        "templateID": build.name, "buildID": build.id, "status": status(&progress.stage),
        "logs": lines.iter().map(|line| &line.text).collect::<Vec<_>>(),
        "logEntries": lines.into_iter().map(entry).collect::<Vec<_>>(),
    });
    if let Stage::Failed { why, step, .. } = &progress.stage {
        view["reason"] = json!({ "message": why, "step": step });
    }
    view
}

fn entry(line: &Line) -> Value {
    let level = match line.level {
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    };
    let mut entry = json!({ "timestamp": line.at.to_string(), "message": line.text, "level": level });
    if let Some(step) = line.step {
        entry["step"] = step.to_string().into();
    }
    entry
}
