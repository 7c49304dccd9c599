//! Requests of E2B's clients about templates: a body names one, or the deletion of one concerns several nodes.

use axum::extract::Request;
use axum::http::{Method, Uri};
use axum::response::Response;
use serde_json::Value;

use super::find::Sought;
use super::here::{Here, Opened, Opening};
use super::list;
use super::member::Fleet;
use crate::app::App;
use crate::e2b;
use crate::error::ApiError;

const BUILDS: &str = "/v3/templates";
const TAGS: &str = "/templates/tags";
const TEMPLATES: &str = "/templates";
const PAGED_TEMPLATES: &str = "/v2/templates";
const SAMPLES: &str = "/sandboxes/metrics";
/// The fields that name a template.
const NAMES: [&str; 3] = ["name", "alias", "target"];

/// Whether the body of a request names a template.
pub(super) fn has_name_in_body(method: &Method, path: &str) -> bool {
    match path {
        BUILDS => *method == Method::POST,
        TAGS => matches!(*method, Method::POST | Method::DELETE),
        _ => false,
    }
}

/// Builds of a name go to the node that has it, and so do its tags. A new name is built on the node that gets the request.
pub(super) async fn answer_named_in_body(
    fleet: &Fleet,
    app: &App,
    request: Request,
    here: Here<'_>,
) -> Result<Response, ApiError> {
    let opened = match Opened::read(app, request).await? {
        Opening::Opened(opened) => opened,
        Opening::NoToken(request) => return Ok(here.answer(request).await),
    };
    let body: Value = serde_json::from_slice(&opened.body).unwrap_or_default();
    let Some(name) = NAMES.iter().find_map(|field| body[field].as_str()) else {
        return Ok(here.answer(opened.request()).await);
    };
    // All tags of a name are on one node.
    let name = name.split(':').next().unwrap_or(name);
    let workspace = opened.principal.workspace.as_str();
    let owner = match opened.parts.uri.path() {
        // A node that does not answer must not stop builds.
        BUILDS => Sought::e2b_build(workspace, name).owner(fleet, app).await.ok().flatten(),
        _ => Sought::e2b_template(workspace, name).owner(fleet, app).await?,
    };
    match owner {
        Some(owner) => fleet.forward(app, &owner, opened.request()).await,
        None => Ok(here.answer(opened.request()).await),
    }
}

/// Deletes what a name stands for. Sandboxes of several nodes may have made snapshots of one name.
pub(super) async fn delete(
    fleet: &Fleet,
    app: &App,
    sought: &Sought,
    request: Request,
    here: Here<'_>,
) -> Result<Response, ApiError> {
    let mut answer = None;
    for member in sought.holders_elsewhere(fleet, app).await? {
        answer = Some(fleet.forward(app, &member, list::copy(&request)).await?);
    }
    match answer {
        Some(answer) if !sought.has_here(app) => Ok(answer),
        _ => Ok(here.answer(request).await),
    }
}

/// Whether a request lists what [`answer_list`] can merge.
pub(super) fn is_list(path: &str) -> bool {
    matches!(path, TEMPLATES | PAGED_TEMPLATES | SAMPLES)
}

/// Lists templates, each name once, or what sandboxes use.
pub(super) async fn answer_list(
    fleet: &Fleet,
    app: &App,
    mut request: Request,
    here: Here<'_>,
) -> Result<Response, ApiError> {
    let uri = request.uri().clone();
    if uri.path() == PAGED_TEMPLATES {
        // Several nodes have the built-in templates, on different pages.
        *request.uri_mut() = Uri::from_static(TEMPLATES);
    }
    let mut lists = match list::gather(fleet, app, request, here).await {
        Ok(lists) => lists,
        Err(refusal) => return Ok(refusal),
    };
    let all = std::mem::take(&mut lists.pages).into_iter().flat_map(|(_, page)| page.items).collect();
    Ok(match uri.path() {
        SAMPLES => lists.respond(&list::one_object(all)),
        TEMPLATES => lists.respond(&newest_of_each_name(all).into()),
        _ => lists.respond_with(e2b::page_of_templates(newest_of_each_name(all), uri.query())?),
    })
}

/// The templates by name.
fn newest_of_each_name(mut all: Vec<Value>) -> Vec<Value> {
    let text = |template: &Value, field: &str| template[field].as_str().unwrap_or_default().to_owned();
    all.sort_by_cached_key(|template| (text(template, "templateID"), list::position(template)));
    all.reverse();
    all.dedup_by_key(|template| text(template, "templateID"));
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_template_is_listed_once_as_it_was_built_last() {
        let template = |name: &str, at: &str| json!({"templateID": name, "createdAt": at});
        let [older, newer] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z"];
        for all in [[older, newer], [newer, older]] {
            let [one, other] = all.map(|at| template("mine", at));
            let listed = newest_of_each_name(vec![one, template("base", older), other]);
            assert_eq!(listed, [template("base", older), template("mine", newer)]);
        }
    }

    #[test]
    fn bodies_name_templates_of_builds_and_tags() {
        assert!(
            has_name_in_body(&Method::POST, "/v3/templates") && has_name_in_body(&Method::DELETE, "/templates/tags")
        );
        assert!(!has_name_in_body(&Method::GET, "/v3/templates") && !has_name_in_body(&Method::POST, "/templates"));
    }
}
