//! Keeping one spare interpreter of each warm language ready.
//!
//! The next spare is not made at once when one is claimed, because the claimed one needs the processor now. A claim that
//! comes before the next spare is ready gets one that is made on demand.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sandling_protocol::{Failure, FailureKind, Language, Response, StreamId};

use super::spawn::{Purpose, raise_priority};
use crate::agent::state::Agent;
use crate::exec::Setting;
use crate::failure::{failure, io_failure};
use crate::identity::reseed_line;
use crate::interpreters::{Message, Packages, Pool, Prepared, Role};
use crate::timers::Timer;

/// How long after a spare's script has ended the next spare is made.
const REFILL_AFTER: Duration = Duration::from_millis(100);
/// How long after a claim the next spare is made, if the script is still running.
const REFILL_MEANWHILE: Duration = Duration::from_secs(1);
/// The kernel does not report when a socket has been read, so the agent polls. Only `Settle`, before a snapshot, waits
/// for that.
const SETTLE_POLL: Duration = Duration::from_millis(5);
const RETRY_AFTER: Duration = Duration::from_secs(1);
const MOST_FAILURES: u32 = 5;

impl Agent {
    /// Keeps a warm interpreter from now on; the stream ends when the first one is ready.
    pub fn warm(&mut self, stream: StreamId, language: Language, imports: Vec<String>) -> Result<(), Failure> {
        if language == Language::Bash {
            self.streams.end(stream, Ok(Response::Done));
            return Ok(());
        }
        self.stop_pool(language);
        self.interpreters.pools.insert(language, Pool { imports, ..Pool::default() });
        if let Err(error) = self.refill(language) {
            self.interpreters.pools.remove(&language);
            return Err(error);
        }
        if let Some(pool) = self.interpreters.pools.get_mut(&language) {
            pool.waiting.push(stream);
        }
        Ok(())
    }

    /// Ends the stream when a spare is ready to be claimed.
    pub fn settle(&mut self, stream: StreamId, language: Language) -> Result<(), Failure> {
        let Some(pool) = self.interpreters.pools.get_mut(&language).filter(|pool| !pool.spare_is_ready) else {
            self.streams.end(stream, Ok(Response::Done));
            return Ok(());
        };
        pool.waiting.push(stream);
        self.refill(language)?;
        if language == Language::Python {
            self.check_spare(language);
        }
        Ok(())
    }

    /// Ends a language's zygote and spares.
    fn stop_pool(&mut self, language: Language) {
        let Some(pool) = self.interpreters.pools.remove(&language) else {
            return;
        };
        for key in pool.zygote.into_iter().chain(pool.spare).chain(pool.forking) {
            self.drop_interpreter(key);
        }
        for stream in pool.waiting {
            self.streams.end(
                stream,
                Err(failure(FailureKind::Busy, "a later request to warm the interpreter replaced this one")),
            );
        }
    }

    /// Makes a spare, unless there is one or one is being made.
    pub fn refill(&mut self, language: Language) -> Result<(), Failure> {
        let Some(pool) = self.interpreters.pools.get(&language) else {
            return Ok(());
        };
        let needs_zygote = language == Language::Python && pool.zygote.is_none();
        if pool.failures > MOST_FAILURES || pool.spare.is_some() || (!needs_zygote && !self.can_make_spare(language)) {
            return Ok(());
        }
        if needs_zygote {
            return self.start_zygote(language);
        }
        let key = self.make_spare(language, Purpose::Ahead)?;
        if let Some(pool) = self.interpreters.pools.get_mut(&language) {
            pool.spare = Some(key);
            pool.spare_is_ready = false;
        }
        Ok(())
    }

    fn can_make_spare(&self, language: Language) -> bool {
        let pool = self.interpreters.pools.get(&language);
        pool.is_some_and(|pool| language == Language::Node || pool.zygote_ready)
    }

    /// Claims a warm interpreter, if there can be one without a cold start.
    pub fn claim(&mut self, language: Language) -> Option<u64> {
        let pool = self.interpreters.pools.get_mut(&language)?;
        // A spare of Node takes longer to warm up than a cold start; it stays for a later claim.
        if language == Language::Node && !pool.spare_is_ready {
            self.refill_after(REFILL_MEANWHILE, language);
            return None;
        }
        pool.spare_is_ready = false;
        let spare = pool.spare.take();
        self.refill_after(REFILL_MEANWHILE, language);
        if spare.is_some() {
            return spare;
        }
        if !self.can_make_spare(language) {
            return None;
        }
        self.make_spare(language, Purpose::Claimed).ok()
    }

    /// What a claimed interpreter already has, so that its activation can leave it out.
    pub fn prepared(&mut self, key: u64, setting: &Setting) -> Prepared {
        let Some(interpreter) = self.interpreters.get(key) else {
            return Prepared::default();
        };
        let environment = interpreter.rehearsed.clone();
        let pool = interpreter.language;
        let packages = self.interpreters.pools.get(&pool).is_some_and(|pool| pool.packages.are_unchanged(setting));
        Prepared { environment, packages }
    }

    fn make_spare(&mut self, language: Language, purpose: Purpose) -> Result<u64, Failure> {
        match language {
            Language::Node => self.start_driver(language, Role::Spare, &self.driver_variables()),
            _ => self.fork_spare(language, purpose).map_err(|error| io_failure("a warm interpreter", &error)),
        }
    }

    /// Handles a message from a zygote or a spare.
    pub fn pool_message(&mut self, key: u64, language: Language, role: Role, message: &Message<'_>) {
        match role {
            Role::Zygote if message.ready => {
                if let Some(pool) = self.interpreters.pools.get_mut(&language) {
                    pool.zygote_ready = true;
                    pool.failed_imports = message.failed_imports.clone();
                    pool.packages = Packages::new(message);
                }
                self.refill_or_log(language);
            }
            Role::Zygote => self.zygote_answered(language, message),
            _ if message.ready => self.spare_is_ready(key, language),
            _ => {}
        }
    }

    fn zygote_answered(&mut self, language: Language, message: &Message<'_>) {
        let forked = self.interpreters.pools.get_mut(&language).and_then(|pool| pool.forking.pop_front());
        match (forked, message.pid) {
            (Some(key), Some(pid)) => {
                self.has_process(key, pid);
                // A forked spare sends no message when it is ready; it is ready when it has read this line.
                self.send_line(key, reseed_line().as_bytes());
                self.check_spare(language);
            }
            (Some(key), None) => self.interpreter_lost(key, false),
            (None, _) => {}
        }
    }

    /// Checks whether the spare is ready to be activated, if a stream waits for that.
    pub fn check_spare(&mut self, language: Language) {
        let Some(pool) = self.interpreters.pools.get(&language) else {
            return;
        };
        let (Some(key), false) = (pool.spare, pool.waiting.is_empty()) else {
            return;
        };
        match self.interpreters.get(key) {
            Some(spare) if spare.pid.is_some() && spare.control.is_read() => self.spare_is_ready(key, language),
            _ => self.timers.set(SETTLE_POLL, Timer::CheckSpare(language)),
        }
    }

    fn spare_is_ready(&mut self, key: u64, language: Language) {
        if let Some(pid) = self.interpreters.get(key).and_then(|spare| spare.pid) {
            raise_priority(pid);
        }
        let Some(pool) = self.interpreters.pools.get_mut(&language) else {
            return;
        };
        if pool.spare != Some(key) {
            return;
        }
        pool.failures = 0;
        pool.spare_is_ready = true;
        let result = match pool.failed_imports.as_slice() {
            [] => Ok(Response::Done),
            failed => Err(failure(FailureKind::Unsupported, format!("cannot import {}", failed.join(", ")))),
        };
        for stream in std::mem::take(&mut pool.waiting) {
            self.streams.end(stream, result.clone());
        }
    }

    /// A script has ended, so the processor is free for making the next spare.
    pub fn refill_soon(&mut self, key: u64) {
        if let Some(language) = self.interpreters.get(key).map(|interpreter| interpreter.language) {
            self.refill_after(REFILL_AFTER, language);
        }
    }

    fn refill_after(&mut self, pause: Duration, language: Language) {
        if let Some(pool) = self.interpreters.pools.get_mut(&language) {
            pool.refill_at = Some(Instant::now() + pause);
            self.timers.set(pause, Timer::Refill(language));
        }
    }

    pub fn refill_if_due(&mut self, language: Language) {
        let pool = self.interpreters.pools.get(&language);
        if pool.is_some_and(|pool| pool.refill_at.is_none_or(|at| at <= Instant::now())) {
            self.refill_or_log(language);
        }
    }

    /// A zygote or a spare has ended.
    pub fn pool_lost(&mut self, key: u64, language: Language) {
        let Some(pool) = self.interpreters.pools.get_mut(&language) else {
            return;
        };
        pool.failures += 1;
        pool.forking.retain(|forking| *forking != key);
        if pool.spare == Some(key) {
            pool.spare = None;
            pool.spare_is_ready = false;
        }
        let mut orphans = VecDeque::new();
        if pool.zygote == Some(key) {
            pool.zygote = None;
            pool.zygote_ready = false;
            orphans = std::mem::take(&mut pool.forking);
        }
        if pool.failures > MOST_FAILURES || !pool.waiting.is_empty() {
            let ended = failure(FailureKind::Other, "the interpreter ended while it was being warmed");
            for stream in std::mem::take(&mut pool.waiting) {
                self.streams.end(stream, Err(ended.clone()));
            }
        }
        for orphan in orphans {
            self.interpreter_lost(orphan, false);
        }
        self.refill_after(RETRY_AFTER, language);
    }

    pub fn refill_or_log(&mut self, language: Language) {
        if let Err(failure) = self.refill(language) {
            crate::console::log(&format!("cannot start a warm interpreter: {failure}"));
        }
    }
}
