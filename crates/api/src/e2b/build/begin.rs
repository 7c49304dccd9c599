//! A build from its beginning to its end, behind the request that asked for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandling_engine::access::WorkspaceName;
use sandling_engine::{CreateSpec, EndReason, NetworkWish, Sandbox};

use super::builds::Build;
use super::run::Workshop;
use super::steps::{Action, Plan, outcome};
use super::uploads;
use crate::app::App;
use crate::e2b::names::{self, Source};
use crate::e2b::settings::Start;
use crate::error::ApiError;
use crate::routes::sandboxes::make;

/// The machine of a build that nobody ends, ends by itself.
const LONGEST: Duration = Duration::from_secs(6 * 3600);

/// Begins a build, if its steps are understood.
pub(in crate::e2b) fn begin(app: &Arc<App>, build: Arc<Build>, plan: Plan) -> Result<(), ApiError> {
    let actions = plan.actions()?;
    build.claim()?;
    let app = app.clone();
    tokio::spawn(async move {
        let turn = app.e2b.builds.turn.clone().acquire_owned().await;
        build.begins();
        let result = work(&app, &build, &plan, &actions).await;
        drop(turn);
        forget_uploads(&app, &build, &actions);
        let result = result.map_err(|(error, step)| {
            build.say(&error.message, "error", None);
            (error.message, step)
        });
        build.ended(result);
    });
    Ok(())
}

/// An error, and the step it is of.
type Failed = (ApiError, String);

async fn work(app: &Arc<App>, build: &Arc<Build>, plan: &Plan, actions: &[Action]) -> Result<(), Failed> {
    let at_base = |error: ApiError| (error, "base".to_owned());
    let base = plan.base().map_err(at_base)?;
    let source = names::resolve(app, &build.workspace, &base).map_err(at_base)?;
    let start = source.start();
    let sandbox = machine(app, build, source, outcome(start.clone(), actions)).await.map_err(at_base)?;
    let mut workshop = Workshop { app: app.clone(), build: build.clone(), sandbox: sandbox.clone(), start };
    let result = steps(&mut workshop, plan, actions).await;
    // Saved or not, its machine has done what it was for.
    let _ = sandbox.end(EndReason::Requested).await;
    result
}

async fn machine(app: &Arc<App>, build: &Build, source: Source, start: Start) -> Result<Arc<Sandbox>, ApiError> {
    let workspace = WorkspaceName::parse(&build.workspace).ok_or_else(|| ApiError::not_found("workspace"))?;
    let (template, from_snapshot) = match source {
        Source::Template(name) => (name, None),
        Source::Snapshot(snapshot) => (snapshot.template, Some(snapshot.id)),
    };
    if from_snapshot.is_some() && (build.vcpus.is_some() || build.memory_mib.is_some()) {
        let message = "a template on top of another has its size; leave cpu_count and memory_mb out";
        build.say(message, "warn", None);
    }
    let spec = CreateSpec {
        template,
        vcpus: build.vcpus.filter(|_| from_snapshot.is_none()),
        memory_mib: build.memory_mib.filter(|_| from_snapshot.is_none()),
        from_snapshot,
        ttl: Some(LONGEST),
        workspace: build.workspace.clone(),
        metadata: BTreeMap::from([("e2b_build".to_owned(), build.id.clone())]),
        labels: start.labels(),
        network: NetworkWish { policy: app.engine.config().network.builds.clone(), ..NetworkWish::default() },
        ..CreateSpec::default()
    };
    let info = make(app, &workspace, spec).await?;
    app.engine.get(&info.id).ok_or_else(|| ApiError::not_found("sandbox"))
}

async fn steps(workshop: &mut Workshop, plan: &Plan, actions: &[Action]) -> Result<(), Failed> {
    for (number, action) in (1..).zip(actions) {
        workshop.step(number, action).await.map_err(|error| (error, number.to_string()))?;
    }
    let at_end = |error: ApiError| (error, "finalize".to_owned());
    if let Some(start) = plan.start_cmd.as_deref().filter(|line| !line.is_empty()) {
        let ready = plan.ready_cmd.as_deref().filter(|line| !line.is_empty());
        workshop.begin(start, ready).await.map_err(at_end)?;
    }
    let Workshop { app, build, sandbox, .. } = workshop;
    for name in &build.names {
        let older = names::built(app, &build.workspace, name).map_err(at_end)?;
        let (info, _) =
            app.engine.snapshot(sandbox, Some(name.of_snapshot()), None).await.map_err(|e| at_end(e.into()))?;
        build.say(&format!("saved {}:{} as {}", name.name, name.tag, info.id), "info", None);
        if let Some(older) = older {
            app.engine.delete_snapshot(&build.workspace, &older.id).await.map_err(|e| at_end(e.into()))?;
        }
    }
    Ok(())
}

fn forget_uploads(app: &App, build: &Build, actions: &[Action]) {
    for action in actions {
        if let Action::Copy { hash, .. } = action
            && let Ok(path) = uploads::path(app, &build.workspace, hash)
        {
            // Two steps may copy the same files.
            let _ = std::fs::remove_file(path);
        }
    }
}
