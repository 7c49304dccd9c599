//! What runs in every sandbox of a template: warm interpreters, and a desktop.

use std::time::Duration;

use sandling_image::Recipe;
use sandling_protocol::{Language, Request};

use super::desktop;
use super::error::BakeError;
use super::step::{OnStep, Step};
use crate::link::{Link, LinkError};
use crate::model::SandboxId;

/// Heavy imports, under emulation, with a cold disk.
const WARM_WITHIN: Duration = Duration::from_secs(600);

/// Warms the interpreters of a template. Returns their languages.
pub(super) async fn warm(link: &Link, recipe: &Recipe, on_step: OnStep<'_>) -> Result<Vec<Language>, LinkError> {
    let mut languages = Vec::new();
    for warm in &recipe.warm {
        let text = format!("warming {:?} with {} imports", warm.language, warm.imports.len());
        on_step(Step { text, progress: None });
        let request = Request::Warm { language: warm.language, imports: warm.imports.clone() };
        match link.call_within(WARM_WITHIN, request).await {
            Ok(_) => languages.push(warm.language),
            // An OCI image may have no interpreter, or one that is too old for the driver.
            Err(LinkError::Failed(_)) if recipe.oci.is_some() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(languages)
}

/// Starts all of it in a guest that has booted, in the background. Until interpreters are warm, code runs in cold ones.
pub(crate) fn start_services(link: &Link, recipe: Recipe, sandbox: &SandboxId) {
    let (link, sandbox) = (link.clone(), sandbox.clone());
    tokio::spawn(async move {
        if let Err(error) = start(&link, &recipe).await {
            // The guest may have been stopped meanwhile.
            tracing::info!(%sandbox, error = &error as &dyn std::error::Error, "not everything was started in a sandbox that booted");
        }
    });
}

async fn start(link: &Link, recipe: &Recipe) -> Result<(), BakeError> {
    if let Some(desktop) = &recipe.desktop {
        desktop::start(link, desktop).await?;
    }
    warm(link, recipe, &|_| {}).await?;
    Ok(())
}
