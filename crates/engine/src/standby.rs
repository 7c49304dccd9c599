//! Standbys: machines that were restored, exercised and stopped, and wait to be claimed.
//!
//! A shelf holds the standbys of one template. Whoever takes one causes another to be made behind the request.
//! Standbys give way when the host is short of memory, and none is made then.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::config::EngineConfig;
use crate::made::{Made, Maker};
use crate::template::Template;

/// How often a shelf looks whether memory has become short, and whether its standbys are still alive.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Whoever has just taken a standby needs the processors for what it does with it.
const REPLACE_AFTER: Duration = Duration::from_millis(400);
/// After a standby could not be made, the next try waits so long.
const RETRY_AFTER: Duration = Duration::from_secs(10);

pub(crate) struct Shelf {
    template: Arc<Template>,
    maker: Arc<Maker>,
    wanted: usize,
    spare_memory_mib: u64,
    available_memory_mib: fn() -> Option<u64>,
    ready: Mutex<VecDeque<Made>>,
    /// Held while a standby is being made; whoever closes the shelf waits for it.
    making: tokio::sync::Mutex<()>,
    closed: AtomicBool,
    /// When somebody last took one.
    taken: Mutex<Instant>,
    /// Counts takes and additions, so that those who wait can look again.
    changed: watch::Sender<u64>,
}

impl Shelf {
    pub(crate) fn new(template: Arc<Template>, maker: Arc<Maker>, config: &EngineConfig) -> Arc<Self> {
        let shelf = Arc::new(Self {
            template,
            maker,
            wanted: config.standbys,
            spare_memory_mib: config.spare_memory_mib,
            available_memory_mib: config.available_memory_mib,
            ready: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
            taken: Mutex::new(Instant::now()),
            changed: watch::Sender::new(0),
        });
        tokio::spawn(fill(Arc::downgrade(&shelf)));
        shelf
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, VecDeque<Made>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a standby that is alive, if there is one.
    pub(crate) fn take(&self) -> Option<Made> {
        let taken = {
            let mut ready = self.ready();
            loop {
                match ready.pop_front() {
                    Some(made) if made.is_alive() => break Some(made),
                    Some(_) => {}
                    None => break None,
                }
            }
        };
        if taken.is_some() {
            *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        self.changed.send_modify(|count| *count += 1);
        taken
    }

    /// Waits until the shelf is full.
    pub(crate) async fn filled(&self) {
        let mut changed = self.changed.subscribe();
        while self.ready().len() < self.wanted {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Makes no more standbys and ends those there are.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let _none_is_being_made = self.making.lock().await;
        let all: Vec<Made> = self.ready().drain(..).collect();
        for made in all {
            made.discard().await;
        }
    }

    /// Ends a standby, if there is one, so that something else has its memory.
    pub(crate) async fn give_way(&self) -> bool {
        let given = self.ready().pop_back();
        let Some(made) = given else { return false };
        tracing::info!(template = %self.template.name, "a standby gives way: memory is short");
        made.discard().await;
        true
    }

    fn short_of_memory(&self) -> bool {
        (self.available_memory_mib)().is_some_and(|available| available < self.spare_memory_mib)
    }

    /// Does the next thing that is to be done, or says how long there is nothing to do.
    async fn tend(&self) -> Option<Duration> {
        let _making = self.making.lock().await;
        if self.closed.load(Ordering::SeqCst) {
            return Some(LOOK_EVERY);
        }
        if self.short_of_memory() {
            return if self.give_way().await { None } else { Some(LOOK_EVERY) };
        }
        self.ready().retain(Made::is_alive);
        if self.ready().len() >= self.wanted {
            return Some(LOOK_EVERY);
        }
        let since_taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        if since_taken < REPLACE_AFTER {
            return Some(REPLACE_AFTER - since_taken);
        }
        self.maker.ensure_cached_process(&self.template).await;
        match self.maker.standby(&self.template).await {
            Ok(made) => {
                self.ready().push_back(made);
                self.changed.send_modify(|count| *count += 1);
                None
            }
            Err(error) => {
                tracing::warn!(template = %self.template.name, error = &error as &dyn std::error::Error, "no standby could be made");
                Some(RETRY_AFTER)
            }
        }
    }
}

async fn fill(shelf: std::sync::Weak<Shelf>) {
    loop {
        let Some(strong) = shelf.upgrade() else { return };
        let mut changed = strong.changed.subscribe();
        let pause = strong.tend().await;
        drop(strong);
        if let Some(pause) = pause {
            // A take wakes it early; the end of the shelf, too.
            if let Ok(Err(_)) = tokio::time::timeout(pause, changed.changed()).await {
                return;
            }
        }
    }
}
