//! Copying a template from another node.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use sandling_engine::{
    DEFAULT_WORKSPACE, MoveError, Step, TemplateArchiveError, TemplateCopyError, TemplateOffer, with_causes,
};
use sandling_fleet::Member;
use sandling_image::ArchiveError;
use sandling_service::WorkspaceName;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;

use super::super::member::{Fleet, unreachable};
use super::copies::{CopiedTemplate, CopiesError, CopyState};
use super::offers::{ANSWER_WITHIN, OFFER};
use crate::app::App;
use crate::error::ApiError;
use crate::piped;

/// With the plan of a snapshot's files.
const LARGEST_OFFER: usize = 64 << 20;
/// The other node computes digests before it sends the first byte.
const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(600);
const REPORT_EVERY: u64 = 32 << 20;

/// A template that another node has.
pub(crate) struct Pull {
    pub(super) from: Member,
    pub(crate) offer: TemplateOffer,
}

/// Whether a template of the name may be replaced with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replace {
    Yes,
    No,
}

/// Takes lines about the progress.
pub(super) type Report = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub(super) enum PullError {
    #[error("{}", .0.message)]
    Refused(ApiError),
    #[error("it has no template `{0}` any more")]
    Gone(String),
    #[error(transparent)]
    Copies(#[from] CopiesError),
    #[error(transparent)]
    Copy(#[from] TemplateCopyError),
    #[error("the work was cut off")]
    CutOff,
}

impl From<ApiError> for PullError {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

impl PullError {
    /// What the client hears. The log has the cause.
    pub(super) fn explain(self, from: &str, name: &str) -> String {
        tracing::warn!(template = name, node = from, error = with_causes(&self), "a template was not copied");
        let why = match self {
            Self::Copy(TemplateCopyError::Archive(TemplateArchiveError::Archive(error))) => of_archive(error),
            Self::Copy(TemplateCopyError::Move(MoveError::Import(error))) => ApiError::from(error).message,
            Self::Copy(TemplateCopyError::Move(MoveError::Io(_) | MoveError::Foreign)) => {
                "its node did not send all of it".to_owned()
            }
            Self::Copy(TemplateCopyError::Template(error)) => ApiError::from(error).message,
            Self::Copy(TemplateCopyError::Network(error)) => ApiError::from(error).message,
            Self::Copy(TemplateCopyError::Store(error)) => ApiError::from(error).message,
            other => other.to_string(),
        };
        format!("template `{name}` was not copied from node {from}: {why}")
    }
}

fn of_archive(error: ArchiveError) -> String {
    match error {
        ArchiveError::Store(error) => ApiError::from(error).message,
        ArchiveError::Load(error) => ApiError::from(error).message,
        ArchiveError::Damaged(what) => {
            format!("what arrived is damaged ({what}); nothing was stored, so pull it again")
        }
        ArchiveError::NotAnArchive => "what arrived is no template; nothing was stored, so pull it again".to_owned(),
        ArchiveError::Read(_) => "the connection was cut; nothing was stored, so pull it again".to_owned(),
        other => other.to_string(),
    }
}

impl Fleet {
    /// The node to copy a template from: the one that is named, or else the one with the newest. Nodes with the same hardware
    /// are preferred, because their bakes fit.
    pub(crate) async fn find_pull(
        &self,
        app: &App,
        workspace: &WorkspaceName,
        name: &str,
        from: Option<&str>,
    ) -> Result<Pull, ApiError> {
        if name.contains('@') {
            return Err(ApiError::bad_request("a version cannot be pulled; pull the template by its name"));
        }
        let mut members = self.others();
        if let Some(node) = from {
            members.retain(|member| *member.name == *node);
            if members.is_empty() {
                let message =
                    format!("the fleet has no other node {node} now; `sandling fleet status` lists its nodes");
                return Err(ApiError::new(StatusCode::NOT_FOUND, "node_unknown", message));
            }
        }
        let asks = members.into_iter().map(|member| async move {
            let offer = self.ask_for_offer(app, &member, workspace.as_str(), name).await;
            (offer, member)
        });
        let (mut found, mut silent): (Option<Pull>, Option<ApiError>) = (None, None);
        let rank = |pull: &Pull| (pull.from.record.hardware == self.hardware, pull.offer.created_at);
        for (offer, from) in join_all(asks).await {
            match offer {
                Ok(Some(offer)) => {
                    let pull = Pull { from, offer };
                    if found.as_ref().is_none_or(|best| rank(&pull) > rank(best)) {
                        found = Some(pull);
                    }
                }
                Ok(None) => {}
                Err(error) => silent = Some(error),
            }
        }
        match (found, silent) {
            (Some(pull), _) => Ok(pull),
            (None, Some(error)) => Err(error),
            (None, None) => {
                let whose =
                    from.map_or_else(|| "no other node has".to_owned(), |node| format!("node {node} does not have"));
                let message = format!("{whose} a template `{name}`; `sandling template ls` shows which nodes have one");
                Err(ApiError::new(StatusCode::NOT_FOUND, "template_unknown", message))
            }
        }
    }

    async fn ask_for_offer(
        &self,
        app: &App,
        member: &Member,
        workspace: &str,
        name: &str,
    ) -> Result<Option<TemplateOffer>, ApiError> {
        let query = serde_urlencoded::to_string([("workspace", workspace), ("name", name)]).unwrap_or_default();
        let path = format!("{OFFER}?{query}");
        let answered = tokio::time::timeout(ANSWER_WITHIN, self.ask_for(app, member, &path)).await;
        answered.unwrap_or_else(|_| Err(unreachable(&member.name, "it was asked for the template")))
    }

    /// An answer in JSON. `None` if there is no such thing.
    pub(in crate::fleet) async fn ask_for<T: DeserializeOwned>(
        &self,
        app: &App,
        member: &Member,
        path: &str,
    ) -> Result<Option<T>, ApiError> {
        let response = self.ask(app, member, path).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST_OFFER).collect().await;
        let body = body.map_err(|error| unreachable(&member.name, &error.to_string()))?.to_bytes();
        match status {
            StatusCode::OK => {
                let value = serde_json::from_slice(&body);
                value.map(Some).map_err(|_| unreachable(&member.name, "it gave an unreadable answer"))
            }
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(unreachable(&member.name, &String::from_utf8_lossy(&body))),
        }
    }

    /// Refuses to replace another template, unless that is wanted.
    pub(crate) fn check_replaces(
        &self,
        app: &App,
        workspace: &WorkspaceName,
        offer: &TemplateOffer,
        replace: Replace,
    ) -> Result<(), ApiError> {
        match content_here(app, workspace.as_str(), &offer.name)? {
            Some(here) if here != offer.content && replace == Replace::No => {
                let message = format!(
                    "this node has another template `{}`; `sandling template pull --replace` replaces it",
                    offer.name
                );
                Err(ApiError::conflict("already_exists", message))
            }
            _ => Ok(()),
        }
    }

    /// Copies a template because somebody has asked for it. Returns its size, or why it was not copied.
    pub(crate) async fn pull(
        &self,
        app: &Arc<App>,
        workspace: &WorkspaceName,
        pull: Pull,
        report: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<u64, String> {
        let report: Report = Arc::new(report);
        let _turn = match self.pulls.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                report("waiting for another template to be copied");
                self.pulls.turn.lock().await
            }
        };
        let (node, name) = (pull.from.name.clone(), pull.offer.name.clone());
        let copied = self.copy_template(app, workspace, pull, CopyState::Stays, &report).await;
        copied.map_err(|error| error.explain(&node, &name))
    }

    /// Copies a template and bakes it, if no bake fits this host. The caller has the turn.
    pub(super) async fn copy_template(
        &self,
        app: &Arc<App>,
        workspace: &WorkspaceName,
        pull: Pull,
        state: CopyState,
        report: &Report,
    ) -> Result<u64, PullError> {
        let Pull { from, offer } = pull;
        let (name, bytes) = (offer.name.clone(), offer.bytes);
        let whose = if offer.built_in { DEFAULT_WORKSPACE } else { workspace.as_str() }.to_owned();
        let before = self.pulls.copies.find(&whose, &name)?;
        let is_here = content_here(app, workspace.as_str(), &name)?.as_ref() == Some(&offer.content);
        if is_here {
            report("this node has it already");
            if let Some(before) = before.filter(|copy| copy.content == offer.content) {
                self.pulls.copies.put(CopiedTemplate { state, ..before })?;
            }
        } else {
            let copy = CopiedTemplate {
                workspace: whose.clone(),
                name: name.clone(),
                content: offer.content.clone(),
                from: from.name.to_string(),
                copied_at: None,
                state,
            };
            self.pulls.copies.put(copy.clone())?;
            if let Err(error) = self.transfer(app, workspace, &from, offer, report).await {
                // The next look at the copies does the same, if this cannot.
                let _ = match before {
                    Some(before) => self.pulls.copies.put(before),
                    None => self.pulls.copies.forget(&whose, &name),
                };
                return Err(error);
            }
            self.pulls.copies.put(CopiedTemplate { copied_at: Some(Timestamp::now()), ..copy })?;
        }
        let steps = report.clone();
        let on_step = Arc::new(move |step: Step| steps(&step.text));
        let baked = app.engine.bake_template(workspace.as_str(), &name, on_step).await;
        baked.map_err(TemplateCopyError::from)?;
        tracing::info!(
            template = name,
            workspace = whose,
            node = &*from.name,
            bytes,
            "a template of another node is here"
        );
        Ok(bytes)
    }

    pub(super) async fn transfer(
        &self,
        app: &Arc<App>,
        workspace: &WorkspaceName,
        from: &Member,
        offer: TemplateOffer,
        report: &Report,
    ) -> Result<(), PullError> {
        let (engine, offered) = (app.engine.clone(), offer.clone());
        let looking = tokio::task::spawn_blocking(move || engine.lacks_of_template(&offered));
        let lacks = looking.await.map_err(|_| PullError::CutOff)??;
        let mib = offer.bytes.div_ceil(1 << 20);
        app.engine.check_space(mib).map_err(ApiError::from)?;
        // Built-in templates belong to no workspace.
        let _place = match offer.built_in {
            true => None,
            false => Some(app.service.sandboxes.reserve_disk(workspace, mib).await.map_err(ApiError::from)?),
        };
        report(&format!("copying {} from node {}: {mib} MiB", offer.name, from.name));
        let response = self.ask_to_send(app, workspace, from, &offer, &lacks).await?;
        let (engine, workspace, steps) = (app.engine.clone(), workspace.to_string(), report.clone());
        let take = move |incoming| {
            let from = Counted { from: incoming, bytes: 0, report: steps };
            Handle::current().block_on(engine.take_template(&workspace, offer, from, Arc::new(|_| ())))
        };
        let taken = piped::incoming(response.into_body(), take).await;
        Ok(taken.map_err(|_| PullError::CutOff)??)
    }

    async fn ask_to_send(
        &self,
        app: &App,
        workspace: &WorkspaceName,
        from: &Member,
        offer: &TemplateOffer,
        lacks: &[usize],
    ) -> Result<Response, PullError> {
        let query = [("workspace", workspace.as_str()), ("name", &offer.name), ("content", &offer.content)];
        let path = format!("{OFFER}?{}", serde_urlencoded::to_string(query).unwrap_or_default());
        let body = Body::from(serde_json::json!(lacks).to_string());
        let request = Request::post(path).header("host", "fleet").body(body);
        let request = request.map_err(|error| unreachable(&from.name, &error.to_string()))?;
        let asking = tokio::time::timeout(FIRST_BYTE_WITHIN, self.forward(app, from, request)).await;
        let response = asking.map_err(|_| unreachable(&from.name, "it was asked for the template"))??;
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::NOT_FOUND => Err(PullError::Gone(offer.name.clone())),
            _ => {
                let why = Limited::new(response.into_body(), 4096).collect().await;
                let why = why.map(|why| String::from_utf8_lossy(&why.to_bytes()).into_owned()).unwrap_or_default();
                Err(unreachable(&from.name, &why).into())
            }
        }
    }
}

/// The content of a template that this node has.
pub(super) fn content_here(app: &App, workspace: &str, name: &str) -> Result<Option<String>, ApiError> {
    let templates = app.engine.list_templates(workspace)?;
    let here = templates.iter().find(|template| template.name == name);
    Ok(here.and_then(|template| template.content()).map(str::to_owned))
}

/// Reports how much has arrived.
struct Counted<R> {
    from: R,
    bytes: u64,
    report: Report,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        let before = self.bytes / REPORT_EVERY;
        self.bytes += read as u64;
        if self.bytes / REPORT_EVERY > before {
            (self.report)(&format!("{} MiB have arrived, compressed", self.bytes >> 20));
        }
        Ok(read)
    }
}
