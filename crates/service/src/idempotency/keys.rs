//! What becomes of a request that has an idempotency key.
//!
//! The key is stored before the request runs. Then one of four things happens:
//! - The request ends, and its answer is stored for retries.
//! - The request is known to have had no effect, and its key is released, so that a retry runs.
//! - Its process dies.
//! - The request is dropped half-way, for example by a panic.
//!
//! In the last two cases nobody knows how far the request came. A retry is therefore refused and does not run. The
//! refusal names the object that the request made, if that was recorded in time ([`Pending::attach_object`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use sandling_engine::owner::Owner;
use sandling_engine::store::StoreError;

use super::rows::{IdempotencyRow, KeyClaim, RequestState};
use crate::store::Store;
use crate::workspaces::WorkspaceName;

/// How long an answer is stored.
const RETENTION: Duration = Duration::from_secs(24 * 3600);
/// Larger bodies are not stored.
const LARGEST_BODY: usize = 4 << 20;
const LONGEST_KEY: usize = 255;
/// Old keys are deleted after every so many requests.
const FORGET_EVERY: u32 = 256;

/// A client's name for one request: 1 to 255 printable ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    pub fn parse(text: &str) -> Option<Self> {
        let valid = (1..=LONGEST_KEY).contains(&text.len()) && text.bytes().all(|b| matches!(b, b' '..=b'~'));
        valid.then(|| Self(text.to_owned()))
    }
}

/// Tells a retry from another request with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyHash([u8; 32]);

impl BodyHash {
    pub fn of(body: &[u8]) -> Self {
        Self(*blake3::hash(body).as_bytes())
    }

    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// An answer as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// What to do with a request that has a key.
#[derive(Debug)]
pub enum Begin {
    /// Run the request, and settle the key.
    Fresh(Pending),
    /// The request ran before, and this was the answer.
    Done(StoredAnswer),
}

/// Why a request is neither run nor answered.
#[derive(Debug, thiserror::Error)]
pub enum KeyRefused {
    #[error("the idempotency key was used for another request")]
    Mismatch,
    #[error("the request with this idempotency key is still running")]
    InProgress { object: Option<String> },
    #[error(
        "the request with this idempotency key was cut off and may have taken effect; it is not run again; look at \
         what there is, then use a new key"
    )]
    Interrupted { object: Option<String> },
    #[error(
        "the request with this idempotency key was answered with status {status}; the answer was too large to keep"
    )]
    NotKept { status: u16, object: Option<String> },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A request that is running. If it is dropped before it is settled, its key is refused from then on, because nobody
/// knows what the request did.
#[must_use = "a key that is not settled is refused from then on"]
pub struct Pending {
    store: Arc<Store>,
    claim: KeyClaim,
    settled: bool,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("claim", &self.claim).field("settled", &self.settled).finish()
    }
}

impl Pending {
    /// Records the object that the request makes, as soon as its id is known, so that the refusal of a retry can name it.
    pub fn attach_object(&self, object: &str) -> Result<(), StoreError> {
        self.store.attach_object(&self.claim, object)
    }

    /// Stores the answer for retries.
    pub fn finish(mut self, answer: &StoredAnswer) -> Result<(), StoreError> {
        self.store.finish_key(&self.claim, answer, LARGEST_BODY)?;
        self.settled = true;
        Ok(())
    }

    /// Releases the key, because the request had no effect and may be sent again, for example after a quota refused it.
    pub fn abandon(mut self) -> Result<(), StoreError> {
        self.store.forget_key(&self.claim)?;
        self.settled = true;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        if let Err(error) = self.store.interrupt_key(&self.claim) {
            // The key counts as running until this process ends, and as interrupted afterwards. Both are refused.
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot settle an idempotency key");
        }
    }
}

/// What a stored key means for a request with the same key.
enum Judgement {
    Expired,
    Answer(StoredAnswer),
    Refuse(KeyRefused),
}

/// The idempotency keys of all workspaces of a home.
pub struct Idempotency {
    store: Arc<Store>,
    owner: Arc<Owner>,
    begun: AtomicU32,
}

impl Idempotency {
    /// Opens the keys, and deletes old ones.
    pub(crate) fn open(store: Arc<Store>, owner: Arc<Owner>) -> Result<Self, StoreError> {
        let keys = Self { store, owner, begun: AtomicU32::new(0) };
        keys.forget_old()?;
        Ok(keys)
    }

    /// Whether a request is to be run. `route` is its method and its path, including all ids.
    pub fn begin(
        &self,
        workspace: &WorkspaceName,
        key: &IdempotencyKey,
        route: &str,
        body: &BodyHash,
    ) -> Result<Begin, KeyRefused> {
        self.begin_at(workspace, key, route, body, Timestamp::now())
    }

    fn begin_at(
        &self,
        workspace: &WorkspaceName,
        key: &IdempotencyKey,
        route: &str,
        body: &BodyHash,
        now: Timestamp,
    ) -> Result<Begin, KeyRefused> {
        if self.begun.fetch_add(1, Ordering::Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            self.forget_old()?;
        }
        let owner = self.owner.id().to_owned();
        let claim = KeyClaim { workspace: workspace.as_str().to_owned(), key: key.0.clone(), owner };
        loop {
            let Some(row) = self.store.claim_key(&claim, route, body, now)? else {
                return Ok(Begin::Fresh(Pending { store: self.store.clone(), claim, settled: false }));
            };
            let started_at = row.started_at;
            match judge(row, route, body, now, |owner| self.owner.is_alive(owner)) {
                Judgement::Expired => self.store.expire_key(&claim, started_at)?,
                Judgement::Answer(answer) => return Ok(Begin::Done(answer)),
                Judgement::Refuse(refused) => return Err(refused),
            }
        }
    }

    /// Whether a request with this key has begun here and may have had an effect.
    pub fn has(&self, workspace: &WorkspaceName, key: &IdempotencyKey) -> Result<bool, StoreError> {
        self.store.has_key(workspace.as_str(), &key.0)
    }

    fn forget_old(&self) -> Result<(), StoreError> {
        self.store.forget_keys(Timestamp::now() - RETENTION, |owner| self.owner.is_alive(owner))
    }
}

fn judge(
    row: IdempotencyRow,
    route: &str,
    body: &BodyHash,
    now: Timestamp,
    is_alive: impl FnOnce(&str) -> bool,
) -> Judgement {
    let running = row.state == RequestState::Running && is_alive(&row.owner);
    let object = row.object;
    if !running && row.started_at < now - RETENTION {
        return Judgement::Expired;
    }
    if row.route != route || row.body_hash != *body {
        return Judgement::Refuse(KeyRefused::Mismatch);
    }
    match (row.state, row.answer) {
        (RequestState::Done, Some(answer)) => Judgement::Answer(answer),
        (RequestState::Done, None) => Judgement::Refuse(KeyRefused::NotKept { status: row.status, object }),
        (RequestState::Running, _) if running => Judgement::Refuse(KeyRefused::InProgress { object }),
        (RequestState::Running | RequestState::Interrupted, _) => Judgement::Refuse(KeyRefused::Interrupted { object }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, workspace};

    const ROUTE: &str = "POST /v1/sandboxes";

    fn begin(keys: &Idempotency, key: &str) -> Result<Begin, KeyRefused> {
        begin_at(keys, key, Timestamp::now())
    }

    fn begin_at(keys: &Idempotency, key: &str, now: Timestamp) -> Result<Begin, KeyRefused> {
        let key = IdempotencyKey::parse(key).unwrap();
        keys.begin_at(&WorkspaceName::default(), &key, ROUTE, &BodyHash::of(b"{}"), now)
    }

    fn fresh(answer: Result<Begin, KeyRefused>) -> Pending {
        match answer {
            Ok(Begin::Fresh(pending)) => pending,
            other => panic!("{other:?}"),
        }
    }

    fn answer(size: usize) -> StoredAnswer {
        let headers = vec![("location".to_owned(), "/x".to_owned())];
        StoredAnswer { status: 201, headers, body: vec![7; size] }
    }

    #[test]
    fn a_retry_gets_the_first_answer_also_after_a_restart() {
        let fixture = Fixture::new();
        fresh(begin(&fixture.idempotency, "k")).finish(&answer(100_000)).unwrap();
        let fixture = fixture.restart();
        for _ in 0..2 {
            assert!(
                matches!(begin(&fixture.another_process().idempotency, "k"), Ok(Begin::Done(found)) if found == answer(100_000))
            );
        }
    }

    #[test]
    fn a_request_that_runs_is_not_run_again_by_this_or_another_process() {
        let fixture = Fixture::new();
        let pending = fresh(begin(&fixture.idempotency, "k"));
        pending.attach_object("sandbox-1").unwrap();
        for process in [&fixture, &fixture.another_process()] {
            let refused = begin(&process.idempotency, "k");
            assert!(matches!(refused, Err(KeyRefused::InProgress { object: Some(id) }) if id == "sandbox-1"));
        }
        drop(pending);
    }

    #[test]
    fn a_retry_after_its_process_died_is_refused_and_names_the_object() {
        let fixture = Fixture::new();
        let pending = fresh(begin(&fixture.idempotency, "k"));
        pending.attach_object("sandbox-1").unwrap();
        // As after kill -9: no destructor runs, and the kernel releases the lock.
        std::fs::remove_file(fixture.home.engines().join(fixture.owner.id())).unwrap();
        std::mem::forget(pending);
        let refused = begin(&fixture.another_process().idempotency, "k");
        assert!(matches!(refused, Err(KeyRefused::Interrupted { object: Some(id) }) if id == "sandbox-1"));
    }

    #[test]
    fn a_retry_of_a_request_that_was_dropped_is_refused() {
        let fixture = Fixture::new();
        drop(fresh(begin(&fixture.idempotency, "k")));
        assert!(matches!(begin(&fixture.idempotency, "k"), Err(KeyRefused::Interrupted { object: None })));
    }

    #[test]
    fn a_released_key_can_be_used_again() {
        let fixture = Fixture::new();
        fresh(begin(&fixture.idempotency, "k")).abandon().unwrap();
        fresh(begin(&fixture.idempotency, "k")).abandon().unwrap();
    }

    #[test]
    fn a_key_is_there_until_its_request_is_known_to_have_had_no_effect() {
        let fixture = Fixture::new();
        let default = WorkspaceName::default();
        let has = |key| fixture.idempotency.has(&default, &IdempotencyKey::parse(key).unwrap()).unwrap();
        let [refused, done, cut_off] = ["refused", "done", "cut off"].map(|key| {
            assert!(!has(key));
            fresh(begin(&fixture.idempotency, key))
        });
        assert!(has("refused") && has("done") && has("cut off"));
        refused.abandon().unwrap();
        done.finish(&answer(1)).unwrap();
        drop(cut_off);
        assert!(!has("refused") && has("done") && has("cut off"));
    }

    #[test]
    fn the_same_key_for_another_request_is_refused() {
        let fixture = Fixture::new();
        fresh(begin(&fixture.idempotency, "k")).finish(&answer(1)).unwrap();
        let key = IdempotencyKey::parse("k").unwrap();
        let default = WorkspaceName::default();
        let body = fixture.idempotency.begin(&default, &key, ROUTE, &BodyHash::of(b"{ }"));
        assert!(matches!(body, Err(KeyRefused::Mismatch)));
        let route = fixture.idempotency.begin(&default, &key, "POST /v1/volumes", &BodyHash::of(b"{}"));
        assert!(matches!(route, Err(KeyRefused::Mismatch)));
    }

    #[test]
    fn the_same_key_in_another_workspace_is_another_key() {
        let fixture = Fixture::new();
        fixture.workspaces.create(&workspace("other")).unwrap();
        fresh(begin(&fixture.idempotency, "k")).finish(&answer(1)).unwrap();
        let key = IdempotencyKey::parse("k").unwrap();
        let other = fixture.idempotency.begin(&workspace("other"), &key, ROUTE, &BodyHash::of(b"{}"));
        fresh(other).abandon().unwrap();
    }

    #[test]
    fn an_answer_is_kept_for_a_day() {
        let fixture = Fixture::new();
        let start = Timestamp::now();
        fresh(begin_at(&fixture.idempotency, "k", start)).finish(&answer(1)).unwrap();
        let day = start + RETENTION - Duration::from_secs(1);
        assert!(matches!(begin_at(&fixture.idempotency, "k", day), Ok(Begin::Done(_))));
        fresh(begin_at(&fixture.idempotency, "k", day + Duration::from_secs(2))).abandon().unwrap();
    }

    #[test]
    fn a_request_that_runs_for_more_than_a_day_is_still_not_run_twice() {
        let fixture = Fixture::new();
        let start = Timestamp::now() - RETENTION - RETENTION;
        let pending = fresh(begin_at(&fixture.idempotency, "k", start));
        fixture.idempotency.forget_old().unwrap();
        assert!(matches!(begin(&fixture.idempotency, "k"), Err(KeyRefused::InProgress { .. })));
        drop(pending);
        fixture.idempotency.forget_old().unwrap();
        fresh(begin(&fixture.idempotency, "k")).abandon().unwrap();
    }

    #[test]
    fn an_answer_too_large_to_store_is_refused_with_its_status() {
        let fixture = Fixture::new();
        fresh(begin(&fixture.idempotency, "k")).finish(&answer(LARGEST_BODY + 1)).unwrap();
        assert!(matches!(begin(&fixture.idempotency, "k"), Err(KeyRefused::NotKept { status: 201, .. })));
    }

    #[test]
    fn of_many_simultaneous_requests_with_one_key_one_runs() {
        let fixture = Fixture::new();
        let other = fixture.another_process();
        let runs = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for process in [&fixture, &other].repeat(8) {
                scope.spawn(|| {
                    if let Ok(Begin::Fresh(pending)) = begin(&process.idempotency, "k") {
                        runs.lock().unwrap().push(pending);
                    }
                });
            }
        });
        assert_eq!(runs.lock().unwrap().len(), 1);
    }

    #[test]
    fn keys_are_printable_and_short() {
        assert!(IdempotencyKey::parse("9f1c-üx").is_none());
        assert!(IdempotencyKey::parse("").is_none());
        assert!(IdempotencyKey::parse("a\nb").is_none());
        assert!(IdempotencyKey::parse(&"k".repeat(256)).is_none());
        assert!(IdempotencyKey::parse(&"k".repeat(255)).is_some());
    }
}
