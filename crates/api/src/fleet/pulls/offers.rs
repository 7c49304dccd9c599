//! What this node tells and sends other nodes that copy its templates. They show their certificate, so they may read those of
//! all workspaces; each asks for the workspace that gets the copy.

use std::io;
use std::time::Duration;

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use sandling_engine::{DEFAULT_WORKSPACE, TemplateCopyError, TemplateOffer, TemplateSummary, with_causes};
use serde::{Deserialize, Serialize};

use super::super::member::Fleet;
use crate::app::App;
use crate::auth::query_value;
use crate::{extract, piped};

pub(in crate::fleet) const LIST: &str = "/fleet/templates";
pub(in crate::fleet) const OFFER: &str = "/fleet/template";

/// How long an answer about templates may take.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A template that this node has not copied from another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listed {
    pub(super) workspace: String,
    pub(super) name: String,
    /// `None` if it is damaged.
    pub(super) content: Option<String>,
    pub(super) bytes: u64,
    pub(super) used_at: Timestamp,
}

/// Answers what this node has built.
pub(in crate::fleet) fn answer_list(fleet: &Fleet, app: &App) -> Response {
    match list(fleet, app) {
        Ok(listed) => Json(listed).into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}

fn list(fleet: &Fleet, app: &App) -> Result<Vec<Listed>, String> {
    // Without the file, a copy could be taken for this node's own.
    let copies = fleet.pulls.copies.all().map_err(|error| error.to_string())?;
    let mut listed = Vec::new();
    for workspace in app.service.workspaces.list().map_err(|error| with_causes(&error))? {
        let workspace = workspace.name.as_str();
        let templates = app.engine.list_templates(workspace).map_err(|error| with_causes(&error))?;
        for template in templates {
            let is_elsewhere = template.built_in && workspace != DEFAULT_WORKSPACE;
            let exists = template.is_ready() || template.damage.is_some();
            let is_copy = copies.iter().any(|copy| {
                copy.is_of(workspace, &template.name)
                    && template.content().is_none_or(|content| content == copy.content)
            });
            if exists && !is_elsewhere && !is_copy {
                listed.push(described(app, workspace, template));
            }
        }
    }
    Ok(listed)
}

fn described(app: &App, workspace: &str, template: TemplateSummary) -> Listed {
    let is_in_use =
        app.engine.list().iter().any(|sandbox| sandbox.workspace == workspace && sandbox.template == template.name);
    let used_at = match app.engine.machines().used_at(workspace, &template.name) {
        _ if is_in_use => Timestamp::now(),
        Some(used_at) => used_at,
        None => template.created_at.unwrap_or_default(),
    };
    Listed {
        workspace: workspace.to_owned(),
        content: template.content().map(str::to_owned),
        bytes: template.size_bytes,
        used_at,
        name: template.name,
    }
}

/// The template that another node asks for.
struct Asked {
    workspace: String,
    name: String,
    content: String,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let value = |name| query_value(request.uri().query(), name);
        Self { workspace: value("workspace"), name: value("name"), content: value("content") }
    }

    async fn offer(&self, app: &App) -> Result<Option<TemplateOffer>, TemplateCopyError> {
        let all = app.service.workspaces.list()?;
        let all: Vec<_> = all.into_iter().map(|workspace| workspace.name.to_string()).collect();
        let (engine, workspace, name) = (app.engine.clone(), self.workspace.clone(), self.name.clone());
        let offering = tokio::task::spawn_blocking(move || engine.offer_template(&workspace, &name, &all));
        offering.await.unwrap_or(Ok(None))
    }
}

/// Answers what another node must know before it copies a template.
pub(in crate::fleet) async fn answer_offer(app: &App, request: Request) -> Response {
    match Asked::of(&request).offer(app).await {
        Ok(Some(offer)) => Json(offer).into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => unavailable(&error),
    }
}

fn unavailable(error: &TemplateCopyError) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, with_causes(error)).into_response()
}

/// Sends a template. The body names the files that the other node lacks.
pub(in crate::fleet) async fn answer_send(app: &App, request: Request) -> Response {
    let asked = Asked::of(&request);
    let offered = match asked.offer(app).await {
        Ok(Some(offered)) => offered,
        Ok(None) => return StatusCode::NOT_FOUND.into_response(),
        Err(error) => return unavailable(&error),
    };
    if offered.content != asked.content {
        return unavailable(&TemplateCopyError::Changed);
    }
    let Ok(body) = extract::read(request.into_body()).await else { return StatusCode::BAD_REQUEST.into_response() };
    let Ok(lacks) = serde_json::from_slice(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let stream = match app.engine.open_template(offered, &asked.workspace, lacks).await {
        Ok(stream) => stream,
        Err(error) => return unavailable(&error),
    };
    let engine = app.engine.clone();
    let body = piped::outgoing(move |out| engine.send_template(stream, out).map_err(io::Error::other)).await;
    body.map_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response(), IntoResponse::into_response)
}
