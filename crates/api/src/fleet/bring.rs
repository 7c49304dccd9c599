//! Brings a durable snapshot of another node here, so that a sandbox can be created from it: from nodes that have it, and what
//! they do not give, from the store.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::future::{BoxFuture, join_all};
use http_body_util::{BodyExt, Limited};
use sandling_engine::{ImportError, SnapshotId, SnapshotInfo, with_causes};
use sandling_fleet::Member;
use sandling_fleet::store::{
    Chunk, Digest, FetchFile, PeerChunks, SnapshotRecord, StoreError, StoredFile, StoredSnapshot,
};
use sandling_service::WorkspaceName;

use super::durable::{FleetStore, made_on};
use super::member::{Fleet, unavailable};
use super::sweep::COPIES_FOR;
use crate::app::App;
use crate::auth::query_value;
use crate::error::ApiError;
use crate::snapshots;

pub(super) const PATH: &str = "/fleet/part";
/// Whether a node has a snapshot.
const HAS_WITHIN: Duration = Duration::from_secs(1);
/// One part of a file.
const PART_WITHIN: Duration = Duration::from_secs(20);

impl Fleet {
    /// The record of a durable snapshot, by its id or its name. Of several with one name, it is the newest.
    pub(super) async fn stored(
        &self,
        workspace: &str,
        named: &str,
    ) -> Result<Option<(SnapshotId, SnapshotRecord)>, ApiError> {
        if self.store.is_none() {
            return Ok(None);
        }
        let unreadable = |error: sandling_fleet::LedgerError| {
            unavailable("cannot read which snapshots are durable", &error.to_string())
        };
        if let Some(id) = SnapshotId::parse(named) {
            let found = self.records().get(workspace, named).await.map_err(unreadable)?;
            return Ok(found.filter(|record| record.listed).map(|record| (id, record)));
        }
        let all = self.records().of(workspace).await.map_err(unreadable)?.into_iter();
        let named = all.filter(|(_, record)| record.listed && record.name.as_deref() == Some(named));
        let created = |(_, record): &(String, SnapshotRecord)| record.view["created_at"].to_string();
        Ok(named.max_by_key(created).and_then(|(id, record)| Some((SnapshotId::parse(&id)?, record))))
    }

    /// Whether this host can restore a snapshot with such needs.
    pub(super) fn can_restore(&self, app: &App, fingerprint: &str) -> bool {
        made_on(&app.engine.snapshots().host()).fingerprint() == fingerprint
    }

    /// Makes sure that this node has the snapshot that a create needs, if it is durable. What is neither here nor durable is
    /// for the create itself to refuse.
    pub(super) fn bring<'a>(
        &'a self,
        app: &'a App,
        workspace: &'a WorkspaceName,
        named: &'a str,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        // Boxed: it is large, and few creates need it.
        Box::pin(self.bring_if_needed(app, workspace, named))
    }

    async fn bring_if_needed(&self, app: &App, workspace: &WorkspaceName, named: &str) -> Result<(), ApiError> {
        let Some(store) = &self.store else { return Ok(()) };
        if snapshots::find(app, workspace.as_str(), named)?.is_some() {
            return Ok(());
        }
        let Some((id, record)) = self.stored(workspace.as_str(), named).await? else { return Ok(()) };
        let turn = store.turn(&id);
        let _turn = turn.lock().await;
        let engine_snapshots = app.engine.snapshots();
        if engine_snapshots.fetched(workspace.as_str(), &id)?.is_some() {
            return Ok(());
        }
        let since = jiff::Timestamp::now() - COPIES_FOR;
        engine_snapshots.forget_fetched(workspace.as_str(), since).await?;
        let begun = Instant::now();
        let fetched = self.fetch(app, store, workspace, &id, (&record.manifest, &record.node)).await;
        let (bytes, from_peers) = fetched.map_err(|error| error.refusal(&id))?;
        tracing::info!(snapshot = %id, bytes, from_peers, took = ?begun.elapsed(), "a durable snapshot of another node is here");
        Ok(())
    }

    /// `from` is the snapshot's manifest and the node that made it.
    pub(super) async fn fetch(
        &self,
        app: &App,
        store: &FleetStore,
        workspace: &WorkspaceName,
        id: &SnapshotId,
        (manifest, home): (&Digest, &str),
    ) -> Result<(u64, usize), BringError> {
        let manifest = store.blobs.manifest(workspace.as_str(), manifest).await?;
        let manifest = Arc::new(manifest);
        let (snapshots, asked, name, wanted_id) =
            (app.engine.snapshots().clone(), manifest.clone(), workspace.to_string(), id.clone());
        let beginning = tokio::task::spawn_blocking(move || {
            let digest = |file: &str| Some(*stored_file(&asked, file)?.digest().bytes());
            snapshots.begin_fetch(&name, &wanted_id, asked.export.clone(), digest)
        });
        let incoming = beginning.await.map_err(|_| BringError::CutOff)??;
        let mut files = Vec::new();
        for wanted in incoming.wanted() {
            let file = stored_file(&manifest, &wanted.name).filter(|file| file.bytes == wanted.bytes);
            let file = file.ok_or(ImportError::Damaged("the manifest lacks a file"))?;
            files.push(FetchFile { file, to: wanted.path });
        }
        let bytes: u64 = files.iter().flat_map(|file| &file.file.chunks).map(|chunk| u64::from(chunk.bytes)).sum();
        let _place =
            app.service.sandboxes.reserve_disk(workspace, bytes.div_ceil(1 << 20)).await.map_err(ApiError::from)?;
        let peers = Peers::find(self, app, workspace.as_str(), id, home).await;
        store.blobs.fetch(&files, &peers).await?;
        let from_peers = peers.members.len() - peers.failed.lock().unwrap_or_else(PoisonError::into_inner).len();
        let finishing = tokio::task::spawn_blocking(move || incoming.finish());
        let _: SnapshotInfo = finishing.await.map_err(|_| BringError::CutOff)??;
        Ok((bytes, from_peers))
    }
}

pub(super) fn stored_file<'a>(manifest: &'a StoredSnapshot, name: &str) -> Option<&'a StoredFile> {
    manifest.files.iter().find(|file| file.name == name)
}

impl FleetStore {
    /// Creates that need one snapshot wait for one fetch.
    pub(super) fn turn(&self, id: &SnapshotId) -> Arc<tokio::sync::Mutex<()>> {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        fetching.retain(|_, turn| Arc::strong_count(turn) > 1);
        fetching.entry(id.clone()).or_default().clone()
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum BringError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error("{}", .0.message)]
    Refused(ApiError),
    #[error("the work was cut off")]
    CutOff,
}

impl From<ApiError> for BringError {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

impl BringError {
    /// What the client hears. The log has the cause, which names the operator's store.
    fn refusal(self, id: &SnapshotId) -> ApiError {
        tracing::warn!(snapshot = %id, error = with_causes(&self), "a durable snapshot of another node could not be brought here");
        match self {
            Self::Refused(error) => error,
            Self::Import(error @ (ImportError::Damaged(_) | ImportError::NotOne)) => {
                ApiError::conflict("snapshot_unusable", format!("snapshot {id} cannot be used: {error}"))
            }
            Self::Import(error) => error.into(),
            Self::Store(StoreError::Damaged { why, .. }) => {
                let message = format!("snapshot {id} cannot be used: the fleet's store has wrong bytes of it ({why})");
                ApiError::conflict("snapshot_unusable", message)
            }
            Self::Store(_) | Self::CutOff => {
                let why = "the store does not give it (`sandling fleet status` says why)";
                unavailable(&format!("cannot fetch snapshot {id}"), why)
            }
        }
    }
}

/// The nodes that have a snapshot.
pub(super) struct Peers<'a> {
    fleet: &'a Fleet,
    app: &'a App,
    workspace: &'a str,
    id: &'a SnapshotId,
    members: Vec<Member>,
    failed: Mutex<HashSet<Arc<str>>>,
}

impl<'a> Peers<'a> {
    /// Everything comes from the store.
    pub(super) fn none(fleet: &'a Fleet, app: &'a App, workspace: &'a str, id: &'a SnapshotId) -> Self {
        Self { fleet, app, workspace, id, members: Vec::new(), failed: Mutex::default() }
    }

    async fn find(fleet: &'a Fleet, app: &'a App, workspace: &'a str, id: &'a SnapshotId, home: &str) -> Self {
        let mut peers = Self::none(fleet, app, workspace, id);
        let asks = fleet.others().into_iter().map(|member| {
            let peers = &peers;
            async move {
                let has = tokio::time::timeout(HAS_WITHIN, peers.read(&member, "map", 0, 0)).await;
                matches!(has, Ok(Some(_))).then_some(member)
            }
        });
        let mut members: Vec<_> = join_all(asks).await.into_iter().flatten().collect();
        members.sort_by_key(|member| *member.name != *home);
        peers.members = members;
        peers
    }

    async fn read(&self, member: &Member, file: &str, at: u64, bytes: usize) -> Option<Vec<u8>> {
        let query = [("workspace", self.workspace), ("snapshot", self.id.as_str()), ("file", file)];
        let query = serde_urlencoded::to_string(query).ok()?;
        let response = self.fleet.ask(self.app, member, &format!("{PATH}?{query}&at={at}&bytes={bytes}")).await.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        Some(Limited::new(response.into_body(), bytes).collect().await.ok()?.to_bytes().to_vec())
    }
}

impl PeerChunks for Peers<'_> {
    fn chunk<'a>(&'a self, file: &'a str, chunk: &'a Chunk) -> BoxFuture<'a, Option<Vec<u8>>> {
        Box::pin(self.part(file, chunk))
    }
}

impl Peers<'_> {
    async fn part(&self, file: &str, chunk: &Chunk) -> Option<Vec<u8>> {
        let usable =
            |member: &&Member| !self.failed.lock().unwrap_or_else(PoisonError::into_inner).contains(&member.name);
        let member = self.members.iter().find(usable)?;
        let reading = self.read(member, file, chunk.at, chunk.bytes as usize);
        let bytes = tokio::time::timeout(PART_WITHIN, reading).await.ok().flatten();
        if bytes.is_none() {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(member.name.clone());
        }
        bytes
    }
}

/// Answers another node's question.
pub(super) async fn answer(app: &App, query: Option<&str>) -> Response {
    let value = |name| query_value(query, name);
    let (workspace, file) = (value("workspace"), value("file"));
    let (Some(id), Ok(at), Ok(bytes)) =
        (SnapshotId::parse(&value("snapshot")), value("at").parse(), value("bytes").parse())
    else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let snapshots = app.engine.snapshots().clone();
    let reading = tokio::task::spawn_blocking(move || snapshots.read_part(&workspace, &id, &file, at, bytes));
    match reading.await {
        Ok(Ok(Some(bytes))) => bytes.into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}
