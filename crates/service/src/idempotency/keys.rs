//! Idempotency keys: a request that is sent again is answered again, and runs once.
//!
//! The key is written before anything is done. From then on there are four ways: the answer is kept; the request is
//! known to have had no effect and its key is given back; its process dies; or it is dropped half-way, e.g. by a panic.
//! In the last two nobody can say how far it came, so a retry is refused, with the object that it made if that was
//! noted in time ([`Pending::attach_object`]), and is not run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use sandling_engine::owner;
use sandling_engine::store::StoreError;

use super::rows::{IdempotencyRow, KeyClaim, RequestState};
use crate::access::Access;
use crate::workspaces::WorkspaceName;

/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Larger bodies are not kept.
const LARGEST_BODY: usize = 4 << 20;
const LONGEST_KEY: usize = 255;
/// Old keys are looked for every so many requests.
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

/// By which a retry is told from another request under the same key.
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

/// An answer as it went out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// What to do with a request.
#[derive(Debug)]
pub enum Begin {
    /// Run it, and settle the key.
    Fresh(Pending),
    /// It ran; this was the answer.
    Done(StoredAnswer),
}

/// Why a request is neither run nor answered again.
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

/// A request that runs. If it is dropped unsettled, its key stays refused: nobody knows what it did.
#[must_use = "a key that is not settled is refused from then on"]
pub struct Pending {
    access: Arc<Access>,
    claim: KeyClaim,
    settled: bool,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("claim", &self.claim).field("settled", &self.settled).finish()
    }
}

impl Pending {
    /// Notes what the request made, as soon as its id is known, so that a retry can find it.
    pub fn attach_object(&self, object: &str) -> Result<(), StoreError> {
        self.access.store.attach_object(&self.claim, object)
    }

    /// Keeps the answer for retries.
    pub fn finish(mut self, answer: &StoredAnswer) -> Result<(), StoreError> {
        self.access.store.finish_key(&self.claim, answer, LARGEST_BODY)?;
        self.settled = true;
        Ok(())
    }

    /// Gives the key back: the request had no effect and may be sent again, e.g. after a quota's refusal.
    pub fn abandon(mut self) -> Result<(), StoreError> {
        self.access.store.forget_key(&self.claim)?;
        self.settled = true;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        if let Err(error) = self.access.store.interrupt_key(&self.claim) {
            // The key counts as running until this process ends, and as interrupted afterwards: refused either way.
            tracing::warn!(error = &error as &dyn std::error::Error, "an idempotency key could not be settled");
        }
    }
}

/// What a row means to a request that brings the same key.
enum Judgement {
    Expired,
    Answer(StoredAnswer),
    Refuse(KeyRefused),
}

impl Access {
    /// Whether a request is to be run. `route` is its method and its path with all ids in it.
    pub fn begin(
        self: &Arc<Self>,
        workspace: &WorkspaceName,
        key: &IdempotencyKey,
        route: &str,
        body: &BodyHash,
    ) -> Result<Begin, KeyRefused> {
        self.begin_at(workspace, key, route, body, Timestamp::now())
    }

    fn begin_at(
        self: &Arc<Self>,
        workspace: &WorkspaceName,
        key: &IdempotencyKey,
        route: &str,
        body: &BodyHash,
        now: Timestamp,
    ) -> Result<Begin, KeyRefused> {
        if self.keys_begun.fetch_add(1, Ordering::Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            self.forget_old_keys()?;
        }
        let owner = self.owner.id().to_owned();
        let claim = KeyClaim { workspace: workspace.as_str().to_owned(), key: key.0.clone(), owner };
        loop {
            let Some(row) = self.store.claim_key(&claim, route, body, now)? else {
                return Ok(Begin::Fresh(Pending { access: self.clone(), claim, settled: false }));
            };
            let started_at = row.started_at;
            match judge(row, route, body, now, |owner| self.runs(owner)) {
                Judgement::Expired => self.store.expire_key(&claim, started_at)?,
                Judgement::Answer(answer) => return Ok(Begin::Done(answer)),
                Judgement::Refuse(refused) => return Err(refused),
            }
        }
    }

    pub(crate) fn forget_old_keys(&self) -> Result<(), StoreError> {
        self.store.forget_keys(Timestamp::now() - KEPT, |owner| self.runs(owner))
    }

    pub(crate) fn runs(&self, owner: &str) -> bool {
        owner == self.owner.id() || owner::is_alive(&self.engines, owner)
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
    if !running && row.started_at < now - KEPT {
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
    use crate::AccessSettings;
    use crate::access::tests::{Fixture, workspace};
    use sandling_engine::Home;

    const ROUTE: &str = "POST /v1/sandboxes";

    fn begin(access: &Arc<Access>, key: &str) -> Result<Begin, KeyRefused> {
        begin_at(access, key, Timestamp::now())
    }

    fn begin_at(access: &Arc<Access>, key: &str, now: Timestamp) -> Result<Begin, KeyRefused> {
        let key = IdempotencyKey::parse(key).unwrap();
        access.begin_at(&WorkspaceName::default(), &key, ROUTE, &BodyHash::of(b"{}"), now)
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

    fn reopen(home: &Home) -> Arc<Access> {
        Access::open(home, AccessSettings::default()).unwrap()
    }

    #[test]
    fn a_retry_gets_the_first_answer_also_after_a_restart() {
        let fixture = Fixture::new();
        fresh(begin(&fixture.access, "k")).finish(&answer(100_000)).unwrap();
        let Fixture { access, home, _dir } = fixture;
        drop(access);
        for _ in 0..2 {
            assert!(matches!(begin(&reopen(&home), "k"), Ok(Begin::Done(found)) if found == answer(100_000)));
        }
    }

    #[test]
    fn a_request_that_runs_is_not_run_again_by_this_or_another_process() {
        let fixture = Fixture::new();
        let pending = fresh(begin(&fixture.access, "k"));
        pending.attach_object("sandbox-1").unwrap();
        for access in [&fixture.access, &reopen(&fixture.home)] {
            let refused = begin(access, "k");
            assert!(matches!(refused, Err(KeyRefused::InProgress { object: Some(id) }) if id == "sandbox-1"));
        }
        drop(pending);
    }

    #[test]
    fn a_request_whose_process_died_is_not_run_again_and_names_what_it_made() {
        let fixture = Fixture::new();
        let pending = fresh(begin(&fixture.access, "k"));
        pending.attach_object("sandbox-1").unwrap();
        // As after kill -9: no destructor runs, and the kernel lets go of the lock.
        std::fs::remove_file(fixture.home.engines().join(fixture.access.owner.id())).unwrap();
        std::mem::forget(pending);
        let refused = begin(&reopen(&fixture.home), "k");
        assert!(matches!(refused, Err(KeyRefused::Interrupted { object: Some(id) }) if id == "sandbox-1"));
    }

    #[test]
    fn a_request_that_was_dropped_half_way_is_not_run_again() {
        let fixture = Fixture::new();
        drop(fresh(begin(&fixture.access, "k")));
        assert!(matches!(begin(&fixture.access, "k"), Err(KeyRefused::Interrupted { object: None })));
    }

    #[test]
    fn a_request_without_effect_may_be_sent_again() {
        let fixture = Fixture::new();
        fresh(begin(&fixture.access, "k")).abandon().unwrap();
        fresh(begin(&fixture.access, "k")).abandon().unwrap();
    }

    #[test]
    fn the_same_key_for_another_request_is_refused() {
        let fixture = Fixture::new();
        fresh(begin(&fixture.access, "k")).finish(&answer(1)).unwrap();
        let key = IdempotencyKey::parse("k").unwrap();
        let default = WorkspaceName::default();
        let body = fixture.access.begin(&default, &key, ROUTE, &BodyHash::of(b"{ }"));
        assert!(matches!(body, Err(KeyRefused::Mismatch)));
        let route = fixture.access.begin(&default, &key, "POST /v1/volumes", &BodyHash::of(b"{}"));
        assert!(matches!(route, Err(KeyRefused::Mismatch)));
    }

    #[test]
    fn the_same_key_in_another_workspace_is_another_key() {
        let fixture = Fixture::new();
        fixture.access.create_workspace(&workspace("other")).unwrap();
        fresh(begin(&fixture.access, "k")).finish(&answer(1)).unwrap();
        let key = IdempotencyKey::parse("k").unwrap();
        let other = fixture.access.begin(&workspace("other"), &key, ROUTE, &BodyHash::of(b"{}"));
        fresh(other).abandon().unwrap();
    }

    #[test]
    fn an_answer_is_kept_for_a_day() {
        let fixture = Fixture::new();
        let start = Timestamp::now();
        fresh(begin_at(&fixture.access, "k", start)).finish(&answer(1)).unwrap();
        let day = start + KEPT - Duration::from_secs(1);
        assert!(matches!(begin_at(&fixture.access, "k", day), Ok(Begin::Done(_))));
        fresh(begin_at(&fixture.access, "k", day + Duration::from_secs(2))).abandon().unwrap();
    }

    #[test]
    fn a_request_that_runs_for_more_than_a_day_is_still_not_run_twice() {
        let fixture = Fixture::new();
        let start = Timestamp::now() - KEPT - KEPT;
        let pending = fresh(begin_at(&fixture.access, "k", start));
        fixture.access.forget_old_keys().unwrap();
        assert!(matches!(begin(&fixture.access, "k"), Err(KeyRefused::InProgress { .. })));
        drop(pending);
        fixture.access.forget_old_keys().unwrap();
        fresh(begin(&fixture.access, "k")).abandon().unwrap();
    }

    #[test]
    fn an_answer_too_large_to_keep_is_told_by_its_status_and_not_run_again() {
        let fixture = Fixture::new();
        fresh(begin(&fixture.access, "k")).finish(&answer(LARGEST_BODY + 1)).unwrap();
        assert!(matches!(begin(&fixture.access, "k"), Err(KeyRefused::NotKept { status: 201, .. })));
    }

    #[test]
    fn of_many_that_bring_one_key_at_once_one_runs() {
        let fixture = Fixture::new();
        let other = reopen(&fixture.home);
        let runs = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for access in [&fixture.access, &other].repeat(8) {
                scope.spawn(|| {
                    if let Ok(Begin::Fresh(pending)) = begin(access, "k") {
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
