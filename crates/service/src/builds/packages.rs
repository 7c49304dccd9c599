//! Building a template from Debian packages.

use std::sync::Arc;

use sandling_engine::Step;
use sandling_image::Recipe;

use super::machine::BuildFailure;
use super::registry::{Build, Level, RegisterError};
use super::start::{Builds, Explain};

impl Builds {
    /// Starts a build, or queues it behind another one.
    pub fn start_packages(
        self: &Arc<Self>,
        workspace: &str,
        name: &str,
        recipe: Recipe,
        explain: Explain,
    ) -> Result<Arc<Build>, RegisterError> {
        let build = self.register(workspace, name)?;
        build.queue();
        let (builds, queued) = (self.clone(), build.clone());
        tokio::spawn(async move { builds.build_packages(&queued, recipe, explain).await });
        Ok(build)
    }

    async fn build_packages(&self, build: &Arc<Build>, recipe: Recipe, explain: Explain) {
        let _permit = self.registry.packages.acquire().await.expect("the semaphore is never closed");
        build.set_running();
        let logged = build.clone();
        let on_step = move |step: Step| logged.log(&step.text, Level::Info, None);
        let built = self.engine.machines().build_template(recipe, Default::default(), on_step).await;
        let result = built.map(|summary| summary.size_bytes);
        self.registry.ended(build, result.map_err(|error| (explain(BuildFailure::from(error)), "base".to_owned())));
    }
}
