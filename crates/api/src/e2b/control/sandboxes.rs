//! Creates, reads and ends sandboxes.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::routing::{get, post};
use sandling_engine::{CreateSpec, EndReason, Kept, RunSpec, Sandbox, SandboxInfo, Sleep, VolumeSpec};
use sandling_protocol::Program;
use serde::Deserialize;
use serde_json::Value;

use super::caller::SandboxCall;
use super::network::Network;
use super::view::{SandboxView, detail};
use super::{identity_files, mcp};
use crate::convert::sandbox::{check_env, check_map};
use crate::e2b::names;
use crate::e2b::refusal::{CONTROL, unsupported};
use crate::e2b::settings::Settings;
use crate::idempotency::{Answer, IdempotentRequest, Mark};
use crate::prelude::*;
use crate::preview::host::Origin;

const DEFAULT_TEMPLATE: &str = "base";
/// The default timeout of a sandbox, in seconds.
pub(super) const DEFAULT_TIMEOUT: u64 = 300;
const LONGEST_TIMEOUT: u64 = 366 * 24 * 3600;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/sandboxes", post(create).get(super::list::first))
        .route("/v2/sandboxes", post(create).get(super::list::page))
        .route("/sandboxes/{id}", get(look).delete(kill))
        .route("/health", get(async || StatusCode::NO_CONTENT))
}

/// The body of a create request. Unknown fields are ignored, so that newer clients keep working.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NewSandbox {
    #[serde(rename = "templateID")]
    template_id: Option<String>,
    timeout: Option<i64>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access", alias = "allowInternetAccess")]
    internet: Option<bool>,
    network: Option<Network>,
    iam: Option<Value>,
    mcp: Option<Value>,
    volume_mounts: Option<Vec<Mount>>,
}

/// A volume and its mount point.
#[derive(Debug, Deserialize)]
struct Mount {
    name: String,
    path: String,
}

#[derive(Debug, Deserialize)]
struct AutoResume {
    enabled: bool,
}

async fn create(
    call: Call<Run>,
    origin: Origin,
    headers: HeaderMap,
    body: JsonBody<NewSandbox>,
) -> Result<Response, ApiError> {
    let (call, origin) = (&call, &origin);
    let (app, context, workspace) = (&call.app, &call.context, call.workspace());
    let route = "POST /v2/sandboxes";
    IdempotentRequest { app, context, workspace, headers: &headers, route, body: &body.bytes }
        .answer(|mark| async move {
            let info = create_with_volumes(call, &mark, body.value).await.map_err(|mut error| {
                // The error may be stored as the answer to a retry, which must have the same format.
                error.shape = Some(CONTROL);
                error
            })?;
            Ok(Answer::json(StatusCode::CREATED, &SandboxView::new(app, &call.caller.principal, origin, &info)))
        })
        .await
}

async fn create_with_volumes(call: &Call<Run>, mark: &Mark, request: NewSandbox) -> Result<SandboxInfo, ApiError> {
    let (app, workspace) = (&call.app, call.workspace());
    let has_mcp = request.mcp.is_some();
    let spec = request.into_spec(app, workspace.as_str())?;
    let created = app.service.sandboxes.create(workspace, spec).await;
    let info = created.map_err(|error| no_template(error.into()))?.info();
    call.context.made(info.id.as_str());
    mark.made(info.id.as_str());
    if let Err(error) = prepare(app, &info, has_mcp).await {
        // The client never learns this sandbox's id, so it must not stay running.
        if let Some(sandbox) = app.engine.get(&info.id) {
            let _ = sandbox.end(EndReason::Requested).await;
        }
        return Err(error);
    }
    Ok(info)
}

/// Does what the client's next request relies on.
async fn prepare(app: &App, info: &SandboxInfo, has_mcp: bool) -> Result<(), ApiError> {
    let Some(sandbox) = app.engine.get(&info.id) else { return Ok(()) };
    give_volumes(&sandbox, info).await?;
    if has_mcp {
        mcp::install(&sandbox).await?;
    }
    identity_files::write(&sandbox);
    Ok(())
}

/// E2B's clients expect 404 for an unknown template.
fn no_template(mut error: ApiError) -> ApiError {
    if error.code == "template_unknown" {
        error.status = StatusCode::NOT_FOUND;
    }
    error
}

/// Makes the sandbox's user the owner of its new volumes, which root owns at first.
async fn give_volumes(sandbox: &Arc<Sandbox>, info: &SandboxInfo) -> Result<(), ApiError> {
    if info.volumes.is_empty() {
        return Ok(());
    }
    let script = r#"for at in "$@"; do [ "$(stat -c %u "$at")" != 0 ] || chown "$0": "$at"; done"#;
    let mut argv = ["sh", "-c", script, Settings::of(info).user()].map(str::to_owned).to_vec();
    argv.extend(info.volumes.iter().map(|volume| volume.mount.clone()));
    let spec = RunSpec { timeout: Some(Duration::from_secs(30)), ..RunSpec::new(Program::Argv(argv)) };
    sandbox.run(spec)?.collect().await?;
    Ok(())
}

impl From<Mount> for VolumeSpec {
    fn from(Mount { name, path }: Mount) -> Self {
        Self { name, mount: Some(path), read_only: false }
    }
}

impl NewSandbox {
    fn into_spec(self, app: &App, workspace: &str) -> Result<CreateSpec, ApiError> {
        if self.iam.is_some() {
            return Err(unsupported("iam tokens cannot be had here; leave them out"));
        }
        let template = self.template_id.unwrap_or_else(|| DEFAULT_TEMPLATE.to_owned());
        let source = names::resolve_for_create(app, workspace, &template)?;
        let origin = source.origin().ok_or_else(|| ApiError::not_found("template"))?;
        let mut network = self.network.unwrap_or_default();
        let public_ports = network.allow_public_traffic.unwrap_or(true);
        let request_host = network.request_host()?;
        let https_ports = network.https_ports()?;
        if self.internet == Some(false) {
            network = network.without_internet();
        }
        let network = network.spec(|| Ok(app.engine.networks().usual(workspace, &origin.0)?.policy))?;
        let start = source.process_defaults(&app.engine, workspace)?;
        let (metadata, own_env) = (self.metadata.unwrap_or_default(), self.env_vars.unwrap_or_default());
        check_map("metadata", &metadata)?;
        check_map("envVars", &own_env)?;
        check_env(&own_env)?;
        let mut env = BTreeMap::from([("E2B_SANDBOX".to_owned(), "true".to_owned())]);
        env.insert("E2B_TEMPLATE_ID".to_owned(), template.clone());
        env.extend(start.env.clone());
        env.extend(own_env);
        let settings = Settings {
            template: Some(template),
            auto_resume: self.auto_resume.is_some_and(|wanted| wanted.enabled),
            public_ports,
            internet: self.internet,
            request_host,
            https_ports,
            start,
        };
        let (template, from_snapshot) = origin;
        Ok(CreateSpec {
            template,
            from_snapshot,
            // A timeout of 0 ends the sandbox as soon as it can: the client gets its answer first.
            ttl: Some(Duration::from_secs(timeout(self.timeout)?.unwrap_or(DEFAULT_TIMEOUT).max(1))),
            sleep: Sleep {
                is_free: true,
                at_the_end: self.auto_pause.unwrap_or_default(),
                keeps: kept(self.auto_pause_memory),
            },
            env,
            workspace: workspace.to_owned(),
            metadata,
            settings: settings.stored(),
            network,
            volumes: self.volume_mounts.unwrap_or_default().into_iter().map(VolumeSpec::from).collect(),
            ..CreateSpec::default()
        })
    }
}

/// What a pause saves: the disk, and also the memory unless the client asks for the disk alone.
pub(super) fn kept(memory: Option<bool>) -> Kept {
    if memory == Some(false) { Kept::Disk } else { Kept::Everything }
}

/// Checks an optional timeout in seconds.
pub(super) fn timeout(seconds: Option<i64>) -> Result<Option<u64>, ApiError> {
    let Some(seconds) = seconds else { return Ok(None) };
    let fits = u64::try_from(seconds).ok().filter(|seconds| *seconds <= LONGEST_TIMEOUT);
    let message = format!("timeout must be between 0 and {LONGEST_TIMEOUT} seconds");
    fits.map(Some).ok_or_else(|| ApiError::bad_request(message))
}

async fn look(call: SandboxCall<Read>, origin: Origin) -> Result<Json<Value>, ApiError> {
    Ok(Json(detail(&call.app, &call.caller.principal, &origin, &call.sandbox.info())))
}

async fn kill(call: SandboxCall<Run>) -> Result<StatusCode, ApiError> {
    call.sandbox.end(EndReason::Requested).await?;
    Ok(StatusCode::NO_CONTENT)
}
