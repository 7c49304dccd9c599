//! Standbys: machines that were restored, exercised and stopped, which wait to be claimed.
//!
//! A pool holds the standbys of one template. After one is claimed, the pool makes another in the background. While the
//! host is short of memory, the pool makes none and ends those it has.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use sandling_protocol::Language;

use super::error::MakeError;
use super::exercise::{EXERCISES, exercise};
use super::factory::MachineFactory;
use super::identify::identify;
use super::ready::ReadyMachine;
use super::template::Template;

/// How often a pool checks the host's memory and whether its standbys are alive.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The sandbox that has just claimed a standby needs the processors first.
const REPLACE_AFTER: Duration = Duration::from_millis(400);
/// The pause after a standby could not be made.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// How many standbys to keep, and when to give them up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StandbySettings {
    /// Per template; 0 for none.
    pub(crate) count: usize,
    /// Standbys are ended while the host has less memory available than this.
    pub(crate) spare_memory_mib: u64,
    pub(crate) available_memory_mib: fn() -> Option<u64>,
}

pub(crate) struct StandbyPool {
    template: Arc<Template>,
    factory: Arc<MachineFactory>,
    settings: StandbySettings,
    ready: Mutex<VecDeque<ReadyMachine>>,
    /// Held while a standby is being made, so that `close` waits for it.
    making: tokio::sync::Mutex<()>,
    closed: AtomicBool,
    /// When one was last claimed.
    taken: Mutex<Instant>,
    /// Counts claims and additions, to wake those who wait for either.
    changed: watch::Sender<u64>,
}

impl StandbyPool {
    pub(super) fn new(template: Arc<Template>, factory: Arc<MachineFactory>, settings: StandbySettings) -> Arc<Self> {
        let pool = Arc::new(Self {
            template,
            factory,
            settings,
            ready: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
            taken: Mutex::new(Instant::now()),
            changed: watch::Sender::new(0),
        });
        tokio::spawn(fill(Arc::downgrade(&pool)));
        pool
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, VecDeque<ReadyMachine>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many standbys are ready.
    pub(super) fn count(&self) -> usize {
        self.ready().len()
    }

    /// Claims a standby that is alive, if there is one.
    pub(crate) fn take(&self) -> Option<ReadyMachine> {
        let taken = {
            let mut ready = self.ready();
            std::iter::from_fn(|| ready.pop_front()).find(ReadyMachine::is_alive)
        };
        if taken.is_some() {
            *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        self.changed.send_modify(|count| *count += 1);
        taken
    }

    /// Waits until the pool is full.
    pub(crate) async fn filled(&self) {
        let mut changed = self.changed.subscribe();
        while self.ready().len() < self.settings.count {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Ends all standbys and makes no more.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let _none_is_being_made = self.making.lock().await;
        let all: Vec<ReadyMachine> = self.ready().drain(..).collect();
        for made in all {
            made.discard().await;
        }
    }

    /// Ends a standby to free its memory. Returns whether there was one.
    pub(crate) async fn give_way(&self) -> bool {
        let given = self.ready().pop_back();
        let Some(made) = given else { return false };
        tracing::info!(template = %self.template.name, "ended a standby: the host is short of memory");
        made.discard().await;
        true
    }

    fn short_of_memory(&self) -> bool {
        (self.settings.available_memory_mib)().is_some_and(|available| available < self.settings.spare_memory_mib)
    }

    /// Takes the next step, or returns how long there is nothing to do.
    async fn tend(&self) -> Option<Duration> {
        let _making = self.making.lock().await;
        if self.closed.load(Ordering::SeqCst) {
            return Some(LOOK_EVERY);
        }
        if self.short_of_memory() {
            return if self.give_way().await { None } else { Some(LOOK_EVERY) };
        }
        self.ready().retain(ReadyMachine::is_alive);
        if self.ready().len() >= self.settings.count {
            return Some(LOOK_EVERY);
        }
        let since_taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        if since_taken < REPLACE_AFTER {
            return Some(REPLACE_AFTER - since_taken);
        }
        self.factory.ensure_cached_process(&self.template).await;
        match make_standby(&self.factory, &self.template).await {
            Ok(made) => {
                self.ready().push_back(made);
                self.changed.send_modify(|count| *count += 1);
                None
            }
            Err(error) => {
                tracing::warn!(template = %self.template.name, error = &error as &dyn std::error::Error, "could not make a standby; retrying");
                Some(RETRY_AFTER)
            }
        }
    }
}

async fn fill(pool: std::sync::Weak<StandbyPool>) {
    loop {
        let Some(strong) = pool.upgrade() else { return };
        let mut changed = strong.changed.subscribe();
        let pause = strong.tend().await;
        drop(strong);
        if let Some(pause) = pause {
            // A claim ends the pause early, and so does the end of the pool.
            if let Ok(Err(_)) = tokio::time::timeout(pause, changed.changed()).await {
                return;
            }
        }
    }
}

/// Restores a machine, exercises it and stops it.
async fn make_standby(factory: &MachineFactory, template: &Template) -> Result<ReadyMachine, MakeError> {
    let source = template.source(&factory.library);
    let made = factory.restore(&source).await?;
    let mut languages = template.warm_languages();
    let mut rounds = EXERCISES;
    if source.cached().is_some() && made.fallback.is_none() {
        // Its code is translated; it only has to touch its memory. Node would take seconds for a new spare interpreter.
        languages.retain(|language| *language == Language::Python);
        rounds = 1;
    }
    exercise(made.link(), &languages, rounds).await?;
    // A placeholder identity: the sandbox that claims it gets its own.
    identify(made.link(), &made.id, 0, None, template.pids()).await?;
    made.link().hold(true);
    made.machine().stop().await?;
    Ok(made)
}
