//! A template from Debian's packages.

use std::sync::Arc;

use sandling_engine::Step;
use sandling_image::Recipe;

use super::builds::{Build, Level};
use crate::app::App;
use crate::error::ApiError;

/// Begins a build, or puts it into the queue.
pub(crate) fn begin(app: &Arc<App>, workspace: &str, name: &str, recipe: Recipe) -> Result<Arc<Build>, ApiError> {
    let build = app.builds.ask(workspace, name)?;
    build.queue()?;
    tokio::spawn(work(app.clone(), build.clone(), recipe));
    Ok(build)
}

async fn work(app: Arc<App>, build: Arc<Build>, recipe: Recipe) {
    let _turn = app.builds.packages.acquire().await.expect("the semaphore is never closed");
    build.runs();
    let heard = build.clone();
    let on_step = move |step: Step| heard.say(&step.text, Level::Info, None);
    let built = app.engine.build_template(recipe, Default::default(), on_step).await;
    let result = built.map(|summary| summary.size_bytes);
    // As a client may know it.
    app.builds.ended(&build, result.map_err(|error| (ApiError::from(error).message, "base".to_owned())));
}
