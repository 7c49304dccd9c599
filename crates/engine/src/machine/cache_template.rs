//! Caching the process of a template's machine, so that its sandboxes start with all code translated.

use super::desktop;
use super::error::MakeError;
use super::exercise::{EXERCISES, exercise, exercise_ordinary};
use super::factory::{ANSWER_WITHIN, MachineFactory};
use super::identify::identify;
use super::ready::{Live, ReadyMachine, end_and_remove};
use super::step::{OnStep, Step};
use super::template::Template;
use crate::model::DISK;

impl MachineFactory {
    /// Makes a cached process for machines of this template, unless there is one. Without it they are only slower.
    pub(super) async fn ensure_cached_process(&self, template: &Template, on_step: OnStep<'_>) {
        if !self.process_cache.is_enabled() {
            return;
        }
        let _one_at_a_time = template.caching.lock().await;
        if template.cached.get().is_some() {
            return;
        }
        let bake = template.baked.dir();
        if self.process_cache.find(bake).is_none() {
            self.process_cache.sweep(bake);
            on_step(Step { text: "caching a translated process".to_owned(), progress: None });
            if let Err(error) = self.cache_process(template).await {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(template = %template.name, error = cause, "cannot cache a process of the template");
            }
        }
        if let Some(process) = self.process_cache.find(bake) {
            template.cached.get_or_init(|| process);
        }
    }

    /// Restores a machine of this template, exercises it, and stores its process.
    async fn cache_process(&self, template: &Template) -> Result<(), MakeError> {
        let made = self.restore(&template.cold_source(&self.library)).await?;
        exercise(made.link(), &template.warm_languages(), EXERCISES).await?;
        if let Some(desktop) = &template.image.manifest.recipe.desktop {
            desktop::exercise(made.link(), desktop).await?;
        }
        // The guest must expect a new connection, because a resumed machine has one.
        let made = self.reconnect(made).await?;
        let stored = self.store_process(&made, template).await;
        // Not by dropping it: the program may be about to end.
        made.discard().await;
        stored
    }

    /// The same machine with a new link to its guest. If the guest does not answer, the machine is ended.
    async fn reconnect(&self, mut made: ReadyMachine) -> Result<ReadyMachine, MakeError> {
        let (id, dir) = (made.id.clone(), std::mem::take(&mut made.dir));
        // The old link is closed first: QEMU serves one connection at a time.
        let machine = made.into_live().machine;
        match self.greet(&machine, ANSWER_WITHIN).await {
            Ok(link) => Ok(ReadyMachine { id, live: Some(Live { machine, link }), dir, fallback: None }),
            Err(error) => {
                end_and_remove(&machine, &dir).await;
                Err(error)
            }
        }
    }

    async fn store_process(&self, made: &ReadyMachine, template: &Template) -> Result<(), MakeError> {
        exercise(made.link(), &template.warm_languages(), EXERCISES).await?;
        exercise_ordinary(made.link()).await?;
        identify(made.link(), &made.id, 0, None, template.pids()).await?;
        made.link().hold(true);
        made.machine().stop().await?;
        let frozen = made.machine().copy(u64::from(template.hardware.memory_mib) << 20).await?;
        let (bake, cache) = (template.baked.dir().to_owned(), self.process_cache.clone());
        let disk = made.machine().dir().files().join(DISK);
        let storing = move || cache.save_template(&bake, &disk, &frozen);
        let stored = tokio::task::spawn_blocking(storing).await;
        stored.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(MakeError::Directory)
    }
}
