//! Standbys: machines that were restored, exercised and stopped, which wait to be claimed.
//!
//! A pool holds the standbys of one template. After one is claimed, the pool makes another in the background. If recent
//! creates call for more or fewer ([`super::standby_demand`]), the pool makes or ends some. While the host is short of
//! memory, the pool makes none and ends those it has.

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
use super::standby_demand::{Demand, Room, Standbys, called_for};
use super::template::Template;
use crate::host::memory_needed_mib;

/// How often a pool checks the host's memory and whether its standbys are alive.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The sandbox that has just claimed a standby needs the processors first.
const REPLACE_AFTER: Duration = Duration::from_millis(400);
/// The pause after a standby could not be made.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// How many standbys to keep, and when to give them up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StandbySettings {
    pub(crate) count: Standbys,
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
    /// While this is set, the pool holds none.
    held: Arc<AtomicBool>,
    /// When one was last claimed.
    taken: Mutex<Instant>,
    demand: Mutex<Demand>,
    /// Counts claims and additions, to wake those who wait for either.
    changed: watch::Sender<u64>,
}

impl StandbyPool {
    pub(super) fn new(
        template: Arc<Template>,
        factory: Arc<MachineFactory>,
        settings: StandbySettings,
        held: Arc<AtomicBool>,
    ) -> Arc<Self> {
        let pool = Arc::new(Self {
            template,
            factory,
            settings,
            ready: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
            held,
            taken: Mutex::new(Instant::now()),
            demand: Mutex::default(),
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

    fn demand(&self) -> std::sync::MutexGuard<'_, Demand> {
        self.demand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many standbys to hold now.
    fn wanted(&self) -> usize {
        if self.held.load(Ordering::SeqCst) {
            return 0;
        }
        let forget_after = match self.settings.count {
            Standbys::Fixed(count) => return count,
            Standbys::Auto { forget_after } => forget_after,
        };
        let available = (self.settings.available_memory_mib)();
        let room = Room {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            free_mib: available.map(|available| available.saturating_sub(self.settings.spare_memory_mib)),
            standby_mib: memory_needed_mib(self.template.hardware.memory_mib),
            ready: self.count(),
        };
        let busiest = self.demand().busiest(Instant::now(), forget_after);
        called_for(busiest, room)
    }

    /// Notes that a sandbox is created, whether or not it gets a standby.
    pub(crate) fn note_create(&self) {
        self.demand().created(Instant::now());
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
        while self.count() < self.wanted() {
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
        let ended = self.end_one().await;
        if ended {
            tracing::info!(template = %self.template.name, "ended a standby: the host is short of memory");
        }
        ended
    }

    async fn end_one(&self) -> bool {
        let given = self.ready().pop_back();
        let Some(made) = given else { return false };
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
        match self.count().cmp(&self.wanted()) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => return Some(LOOK_EVERY),
            std::cmp::Ordering::Greater => {
                self.end_one().await;
                return None;
            }
        }
        let since_taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        if since_taken < REPLACE_AFTER {
            return Some(REPLACE_AFTER - since_taken);
        }
        self.factory.ensure_cached_process(&self.template, &|_| {}).await;
        let begun = Instant::now();
        match make_standby(&self.factory, &self.template).await {
            Ok(made) => {
                self.demand().made(begun.elapsed());
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
