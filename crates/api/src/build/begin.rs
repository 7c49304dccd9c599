//! A build from its beginning to its end, behind the request that asked for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandling_engine::{CreateSpec, EndReason, NetworkWish, Sandbox, SnapshotInfo, TemplateError};
use sandling_service::WorkspaceName;

use super::base::Source;
use super::builds::{Build, Level};
use super::run::Workshop;
use super::start::Start;
use super::steps::{Action, Plan};
use super::uploads::Wanted;
use crate::app::App;
use crate::error::ApiError;
use crate::native::sandboxes::make;
use crate::native::templates::sizes;

/// Metadata of a build's machine: the build.
pub(super) const BUILD: &str = "build";
/// The machine of a build that nobody ends, ends by itself.
const LONGEST: Duration = Duration::from_secs(6 * 3600);

/// A template that is to be built from steps.
pub(crate) struct Order {
    pub(crate) base: Source,
    /// What the client should know about it.
    pub(crate) note: Option<String>,
    pub(crate) plan: Plan,
    pub(crate) vcpus: Option<u32>,
    pub(crate) memory_mib: Option<u32>,
    /// It has what its base has, or this if it is more.
    pub(crate) disk_mib: Option<u32>,
    pub(crate) keeps: Keeps,
}

/// As what the machine is saved.
pub(crate) enum Keeps {
    /// A snapshot of each of these names, instead of the one that has it.
    Snapshots(Vec<String>),
    Template {
        name: String,
        replaces: bool,
    },
}

/// Begins a build, if its steps can be done.
pub(crate) fn begin(app: &Arc<App>, build: Arc<Build>, order: Order) -> Result<(), ApiError> {
    order.plan.check()?;
    build.queue()?;
    let copied = order.plan.actions.iter().filter_map(|action| match action {
        Action::Copy { hash, .. } => Some(hash.clone()),
        _ => None,
    });
    let wanted = Wanted::new(app, &build.workspace, copied.collect());
    let app = app.clone();
    tokio::spawn(async move {
        let waits_for = app.builds.turn(&build.workspace);
        let turn = waits_for.acquire().await;
        build.runs();
        let result = work(&app, &build, &order).await;
        drop((turn, wanted));
        if app.engine.is_closing() {
            // Its machine was let go of in the middle. The next server ends that, and says what became of the build.
            return;
        }
        let result = result.map_err(|(error, step)| {
            build.say(&error.message, Level::Error, None);
            (error.message, step)
        });
        app.builds.ended(&build, result);
    });
    Ok(())
}

/// An error, and the step it is of.
type Failed = (ApiError, String);

async fn work(app: &Arc<App>, build: &Arc<Build>, order: &Order) -> Result<u64, Failed> {
    if let Some(note) = &order.note {
        build.say(note, Level::Warn, None);
    }
    let start = order.base.start().unwrap_or_default();
    let made = machine(app, build, order, order.plan.outcome(start.clone())).await;
    let sandbox = made.map_err(|error| (error, "base".to_owned()))?;
    let mut workshop = Workshop::new(app, build, &sandbox, start, order.plan.usual);
    let result = steps(&mut workshop, order).await;
    // Saved or not, its machine has done what it was for.
    let _ = sandbox.end(EndReason::Requested).await;
    result
}

async fn machine(app: &Arc<App>, build: &Build, order: &Order, start: Start) -> Result<Arc<Sandbox>, ApiError> {
    let workspace = WorkspaceName::parse(&build.workspace).ok_or_else(|| ApiError::not_found("workspace"))?;
    let (template, from_snapshot) = order.base.origin();
    let mut spec = CreateSpec {
        template,
        from_snapshot,
        ttl: Some(LONGEST),
        workspace: build.workspace.clone(),
        metadata: BTreeMap::from([(BUILD.to_owned(), build.id.clone())]),
        labels: start.labels(),
        network: NetworkWish { policy: Some(app.engine.config().network.builds.clone()), ..NetworkWish::default() },
        ..CreateSpec::default()
    };
    match &order.base {
        Source::Template(name) => {
            let least = sizes(app, &build.workspace, name)?.disk_mib;
            (spec.vcpus, spec.memory_mib) = (order.vcpus, order.memory_mib);
            spec.disk_mib = order.disk_mib.filter(|wanted| *wanted > least);
        }
        Source::Saved { .. } | Source::Snapshot(_) if order.vcpus.is_some() || order.memory_mib.is_some() => {
            let message = "a template on top of another has its size; what was asked for is not kept";
            build.say(message, Level::Warn, None);
        }
        Source::Saved { .. } | Source::Snapshot(_) => {}
    }
    let info = make(app, &workspace, spec).await?;
    app.engine.get(&info.id).ok_or_else(|| ApiError::not_found("sandbox"))
}

async fn steps(workshop: &mut Workshop, order: &Order) -> Result<u64, Failed> {
    for (number, action) in (1..).zip(&order.plan.actions) {
        workshop.step(number, action).await.map_err(|mut error| {
            error.message = format!("{}: {}", action.name(), error.message);
            (error, number.to_string())
        })?;
    }
    let at_end = |error: ApiError| (error, "finalize".to_owned());
    if let Some(start) = &order.plan.start {
        workshop.begin(start, order.plan.ready.as_deref()).await.map_err(at_end)?;
    }
    let Workshop { app, build, sandbox, .. } = workshop;
    save(app, build, sandbox, &order.keeps).await.map_err(at_end)
}

/// Saves the machine as what was asked for; the answer is how many bytes that took.
async fn save(app: &Arc<App>, build: &Build, sandbox: &Arc<Sandbox>, keeps: &Keeps) -> Result<u64, ApiError> {
    let workspace = build.workspace.as_str();
    let mut bytes = 0;
    match keeps {
        Keeps::Snapshots(names) => {
            for name in names {
                let mut all = app.engine.list_snapshots(workspace)?.into_iter();
                let older = all.rfind(|info| info.name.as_ref() == Some(name));
                let (info, _) = app.engine.snapshot(sandbox, Some(name.clone()), None).await?;
                bytes += size(&info);
                build.say(&format!("saved as {}", info.id), Level::Info, None);
                if let Some(older) = older {
                    app.engine.delete_snapshot(workspace, &older.id).await?;
                }
            }
        }
        Keeps::Template { name, replaces } => {
            let (info, _) = app.engine.snapshot(sandbox, None, None).await?;
            bytes = size(&info);
            let named = named(app, workspace, &info, name, *replaces);
            // The name keeps it; without one, nothing does. What the name stood for before goes, too.
            app.engine.delete_snapshot(workspace, &info.id).await?;
            named?;
            build.say(&format!("saved as {name}"), Level::Info, None);
        }
    }
    Ok(bytes)
}

fn named(app: &App, workspace: &str, info: &SnapshotInfo, name: &str, replaces: bool) -> Result<(), TemplateError> {
    let description = format!("built from steps on {}", info.template);
    if replaces && app.engine.template_stands_for(workspace, name, info, &description)? {
        return Ok(());
    }
    app.engine.template_from_snapshot(workspace, info, name, &description).map(drop)
}

fn size(info: &SnapshotInfo) -> u64 {
    info.memory_bytes + info.disk_bytes
}
