//! Builds of templates: a build goes to the node that has its name or its bases, and that node fetches its files.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use sandling_engine::{FairSlots, Slot};
use sandling_fleet::Member;
use sandling_service::{Scope, UploadError, WorkspaceName};
use sandling_wire::BuildRequest;

use super::find::Sought;
use super::here::{Here, Opened};
use super::member::{Fleet, unavailable, unreachable};
use crate::app::App;
use crate::auth::{presented, query_value};
use crate::build_form;
use crate::error::ApiError;
use crate::extract::too_slow;
use crate::piped;

pub(super) const PATH: &str = "/v1/templates/build";
/// Where a node gets the uploaded files of a build from another one.
pub(super) const FILES: &str = "/fleet/upload";
/// Of how many bases the other nodes are asked.
const MOST_BASES: usize = 16;
/// How many forms of builds a node keeps in memory for its clients, and how many of one workspace.
const FORMS: usize = 8;
const FORMS_PER_WORKSPACE: usize = 2;
/// How long a form may wait for the others, and how long it may take to arrive.
const TURN_WITHIN: Duration = Duration::from_secs(60);
const ARRIVE_WITHIN: Duration = Duration::from_secs(600);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How ranks begin: this node has a copy of another node's template, a build that is under way, or a template of its own.
const COPY: &str = "0";
const UNDER_WAY: &str = "1";
pub(super) const TEMPLATE: &str = "2";

pub(super) fn slots() -> Arc<FairSlots> {
    FairSlots::new(FORMS, FORMS_PER_WORKSPACE)
}

/// A build that a client asks for.
struct Wanted {
    workspace: WorkspaceName,
    build: BuildRequest,
    /// Kept until the request is answered.
    _slot: Option<Slot>,
}

/// Starts a client's build on the node that has its name or its bases.
pub(super) async fn start(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Result<Response, ApiError> {
    let (request, wanted) = read(app, request, Some(&fleet.forms)).await?;
    let Some(wanted) = wanted else { return Ok(here.answer(request).await) };
    if let Some(node) = wanted.node(fleet, app).await {
        return fleet.forward(app, &node, request).await;
    }
    wanted.fetch_files(fleet, app).await?;
    Ok(here.answer(request).await)
}

/// Starts a build that another node passes on for its client. It takes no slot, because that node has one for it.
pub(super) async fn answer_passed_on(
    fleet: &Fleet,
    app: &App,
    request: Request,
    here: Here<'_>,
) -> Result<Response, ApiError> {
    let (request, wanted) = read(app, request, None).await?;
    if let Some(wanted) = wanted {
        wanted.fetch_files(fleet, app).await?;
    }
    Ok(here.answer(request).await)
}

/// Reads what is to be built, and returns the request again. It is `None` if the client may not build, or if the body cannot
/// be understood. Then this node's own answer is the refusal.
async fn read(
    app: &App,
    request: Request,
    slots: Option<&Arc<FairSlots>>,
) -> Result<(Request, Option<Wanted>), ApiError> {
    let (parts, body) = request.into_parts();
    let principal = app.service.tokens.authenticate(&presented(&parts)).ok();
    let Some(principal) = principal.filter(|principal| principal.require(Scope::Run).is_ok()) else {
        return Ok((Request::from_parts(parts, body), None));
    };
    let workspace = principal.workspace.clone();
    let slot = match slots.filter(|_| build_form::has_parts(&parts.headers)) {
        Some(slots) => {
            let turn = tokio::time::timeout(TURN_WITHIN, slots.acquire(workspace.as_str())).await;
            let why = "other builds still send their files";
            Some(turn.map_err(|_| unavailable("cannot read the files of the build", why))?)
        }
        None => None,
    };
    let reading = tokio::time::timeout(ARRIVE_WITHIN, build_form::read_whole(&parts.headers, body));
    let body = reading.await.map_err(|_| too_slow())??;
    let opened = Opened { parts, body, principal };
    let build = build_form::read(opened.request()).await.ok();
    let wanted = build.map(|(build, _)| Wanted { workspace, build, _slot: slot });
    Ok((opened.request(), wanted))
}

impl Wanted {
    /// The other node that has the name, or more of the bases than this one. `None` if this node builds or refuses.
    async fn node(&self, fleet: &Fleet, app: &App) -> Option<Member> {
        let (workspace, name) = (self.workspace.as_str(), &*self.build.name);
        if app.engine.built_in(workspace, name).is_ok_and(|found| found.is_some()) {
            return None;
        }
        let name = Sought::build_name(workspace, name);
        if name.is_here(app) {
            return None;
        }
        // A node that does not answer must not stop builds.
        let owner = name.owner(fleet, app).await.ok().flatten();
        if owner.is_some() || name.has_here(app) {
            return owner;
        }
        let bases = build_form::bases(&self.build).into_iter().take(MOST_BASES);
        let bases: Vec<_> = bases.map(|base| Sought::template(workspace, &base)).collect();
        let here = bases.iter().filter(|base| base.has_here(app)).count();
        if here == bases.len() {
            return None;
        }
        let holders = join_all(bases.iter().map(|base| base.holders_elsewhere(fleet, app))).await;
        with_most(here, holders.into_iter().map(Result::unwrap_or_default))
    }

    /// Fetches the uploaded files, if another node got them. If no node has them, the build says so.
    async fn fetch_files(&self, fleet: &Fleet, app: &App) -> Result<(), ApiError> {
        let Some(hash) = self.build.context.as_deref() else { return Ok(()) };
        let (workspace, uploads) = (self.workspace.as_str(), &app.service.builds.uploads);
        // The build also refuses what can be no hash.
        if !matches!(uploads.has(workspace, hash), Ok(false)) {
            return Ok(());
        }
        let Some(owner) = Sought::upload(workspace, hash).owner(fleet, app).await? else { return Ok(()) };
        let silent = |why: &str| unreachable(&owner.name, why);
        let query = serde_urlencoded::to_string([("workspace", workspace), ("hash", hash)]).unwrap_or_default();
        let path = format!("{FILES}?{query}");
        let asking = tokio::time::timeout(ANSWER_WITHIN, fleet.ask(app, &owner, &path)).await;
        let response = asking.map_err(|_| silent("it was asked for the files of the build"))??;
        match response.status() {
            StatusCode::OK => {}
            // Another build may have fetched them here meanwhile.
            StatusCode::NOT_FOUND if uploads.has(workspace, hash)? => return Ok(()),
            StatusCode::NOT_FOUND => {
                let message = "another build has used the files of this build, so they were deleted; upload them again";
                return Err(ApiError::bad_request(message));
            }
            status => return Err(silent(&format!("asked for the files of the build, it says {status}"))),
        }
        let stored = uploads.store(workspace, hash, response.into_body().into_data_stream()).await;
        stored.map_err(|error| match error {
            UploadError::CutShort | UploadError::TooSlow => silent("it did not send all files of the build"),
            error => error.into(),
        })?;
        // Keeps them until the build has begun.
        uploads.has(workspace, hash)?;
        let taken = Request::delete(&path).header("host", "fleet").body(Body::empty());
        if let Ok(taken) = taken {
            // If that fails, the other node deletes them after a day.
            let _ = tokio::time::timeout(ANSWER_WITHIN, fleet.forward(app, &owner, taken)).await;
        }
        Ok(())
    }
}

/// The node that has the most bases of a build, if it has more of them than this node. One that drains comes last.
fn with_most(here: usize, holders: impl Iterator<Item = Vec<Member>>) -> Option<Member> {
    let mut counts = BTreeMap::<Arc<str>, (usize, Member)>::new();
    for member in holders.flatten() {
        counts.entry(member.name.clone()).or_insert((0, member)).0 += 1;
    }
    let most = counts.into_values().max_by_key(|(count, member)| (*count, !member.record.draining));
    most.filter(|(count, _)| *count > here).map(|(_, member)| member)
}

/// How much this node is the one that builds a name again: a text, and greater ones count more. `None` if the name is new
/// here.
pub(super) fn rank(app: &App, workspace: &str, name: &str) -> Option<String> {
    let found = sandling_service::find_template(&app.engine, workspace, name).ok().flatten();
    let template = found.filter(|template| !template.built_in).map(|template| {
        let is_copy = Fleet::of(app).is_some_and(|fleet| fleet.pulls.is_copy(workspace, &template));
        (if is_copy { COPY } else { TEMPLATE }, template.created_at.unwrap_or_default())
    });
    let builds = app.service.builds.registry.list(workspace).into_iter();
    let under_way = builds.filter(|build| build.name == name && !build.progress().borrow().is_over());
    let under_way = under_way.map(|build| (UNDER_WAY, build.started_at)).max();
    template.max(under_way).map(|(kind, at)| format!("{kind} {:030}", at.as_nanosecond()))
}

/// Sends another node the files of its build.
pub(super) async fn answer_files(app: &App, query: Option<&str>) -> Response {
    let (workspace, hash) = (query_value(query, "workspace"), query_value(query, "hash"));
    let Some(mut files) = app.service.builds.uploads.open(&workspace, &hash) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let body = piped::outgoing(move |out| io::copy(&mut files, out).map(drop)).await;
    body.map_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response(), IntoResponse::into_response)
}

/// Deletes files that another node has now.
pub(super) fn answer_taken(app: &App, query: Option<&str>) -> Response {
    app.service.builds.uploads.forget(&query_value(query, "workspace"), &query_value(query, "hash"));
    StatusCode::NO_CONTENT.into_response()
}

#[cfg(test)]
mod tests {
    use sandling_fleet::{NodeRecord, Protocol};

    use super::*;

    fn member(name: &str, draining: bool) -> Member {
        let record = NodeRecord {
            fingerprint: name.to_owned(),
            hardware: "kvm".to_owned(),
            address: String::new(),
            version: String::new(),
            protocol: Protocol::OWN,
            draining,
            unknown: Default::default(),
        };
        Member::new(name.into(), record)
    }

    #[test]
    fn a_build_goes_to_the_node_with_the_most_of_its_bases() {
        let [a, b, c] = [member("a", false), member("b", true), member("c", false)];
        let chosen = |here: usize, holders: &[&[&Member]]| {
            let holders = holders.iter().map(|all| all.iter().map(|member| (*member).clone()).collect::<Vec<_>>());
            with_most(here, holders).map(|member| member.name.to_string())
        };
        assert_eq!(chosen(0, &[]), None);
        assert_eq!(chosen(0, &[&[]]), None, "an image is nowhere");
        assert_eq!(chosen(0, &[&[&b]]).as_deref(), Some("b"));
        assert_eq!(chosen(1, &[&[&a], &[]]), None, "this node has as many");
        assert_eq!(chosen(1, &[&[&a, &c], &[&a]]).as_deref(), Some("a"));
        assert_eq!(chosen(0, &[&[&a, &b]]).as_deref(), Some("a"), "b drains");
        assert_eq!(chosen(0, &[&[&a, &b], &[&b]]).as_deref(), Some("b"));
    }
}
