//! What goes along with a sandbox that moves to another node: the keys of requests that it has answered, so that a retry does
//! not run twice, and the secrets with which its tokens were signed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::params;
use sandling_engine::store::StoreError;
use sandling_engine::store::rows::Query;
use serde::{Deserialize, Serialize};

use crate::previews::NodeKeyError;
use crate::service::Service;
use crate::store::Store;

/// So many requests of one sandbox are remembered after a move, the newest ones.
const MOST_REQUESTS: u32 = 10_000;
/// So much of their answers. A retry of a request whose answer stays behind is refused.
const MOST_BODY_BYTES: i64 = 16 << 20;

#[derive(Serialize, Deserialize)]
pub struct CarriedService {
    requests: Vec<CarriedRequest>,
    /// In hexadecimal digits.
    signing_keys: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct CarriedRequest {
    workspace: String,
    key: String,
    route: String,
    body_hash: [u8; 32],
    started_ms: i64,
    /// It has ended, but perhaps nobody knows how.
    is_done: bool,
    object: Option<String>,
    status: Option<u16>,
    headers: Option<String>,
    /// In base64.
    body: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum CarriedError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Key(#[from] NodeKeyError),
}

impl Service {
    /// What another node needs that gets this sandbox.
    pub fn pack(&self, sandbox: &str) -> Result<CarriedService, CarriedError> {
        let requests = self.store.carried_requests(sandbox)?;
        Ok(CarriedService { requests, signing_keys: self.previews.secrets()? })
    }

    /// Stores what another node has packed. It may have been stored before.
    pub fn unpack(&self, carried: &CarriedService) -> Result<(), CarriedError> {
        self.store.adopt_requests(&carried.requests)?;
        for key in &carried.signing_keys {
            self.previews.trust(key)?;
        }
        Ok(())
    }
}

impl Store {
    fn carried_requests(&self, sandbox: &str) -> Result<Vec<CarriedRequest>, StoreError> {
        let mut room = MOST_BODY_BYTES;
        let of_sandbox = "SELECT * FROM idempotency WHERE route LIKE ?1 ORDER BY started_ms DESC LIMIT ?2";
        self.connection().all(of_sandbox, params![format!("%/sandboxes/{sandbox}/%"), MOST_REQUESTS], |row| {
            let bytes: i64 = row.get("body_bytes")?;
            let fits = bytes <= room;
            room -= if fits { bytes } else { 0 };
            let body: Option<Vec<u8>> = if fits { row.get("body")? } else { None };
            Ok(CarriedRequest {
                workspace: row.get("workspace")?,
                key: row.get("key")?,
                route: row.get("route")?,
                body_hash: row.get("body_hash")?,
                started_ms: row.get("started_ms")?,
                is_done: row.get::<_, String>("state")? == "done",
                object: row.get("object")?,
                status: row.get("status")?,
                headers: row.get("headers")?,
                body: body.map(|body| STANDARD.encode(body)),
            })
        })
    }

    fn adopt_requests(&self, requests: &[CarriedRequest]) -> Result<(), StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        for request in requests {
            let body = request.body.as_ref().and_then(|body| STANDARD.decode(body).ok());
            let bytes = body.as_ref().map_or(0, Vec::len) as i64;
            transaction.run(
                "INSERT OR REPLACE INTO idempotency (workspace, key, route, body_hash, owner, started_ms, state, object, \
                 status, headers, body, body_bytes) VALUES (?1, ?2, ?3, ?4, '', ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                params![
                    request.workspace,
                    request.key,
                    request.route,
                    request.body_hash,
                    request.started_ms,
                    if request.is_done { "done" } else { "interrupted" },
                    request.object,
                    request.status,
                    request.headers,
                    body,
                    bytes
                ],
            )?;
        }
        Ok(transaction.commit()?)
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;
    use crate::{Begin, BodyHash, Idempotency, IdempotencyKey, KeyRefused, StoredAnswer, WorkspaceName};

    const ROUTE: &str = "POST /v1/sandboxes/0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11/exec";

    #[test]
    fn a_retry_after_a_move_gets_the_first_answer() {
        let (source, target) = (Fixture::new(), Fixture::new());
        let keys = |fixture: &Fixture| Idempotency::open(fixture.store.clone(), fixture.owner.clone()).unwrap();
        let begin = |fixture: &Fixture, key: &str, route: &str| {
            let key = IdempotencyKey::parse(key).unwrap();
            keys(fixture).begin(&WorkspaceName::default(), &key, route, &BodyHash::of(b"body"))
        };
        let Ok(Begin::Fresh(done)) = begin(&source, "done", ROUTE) else { panic!("it is new") };
        done.finish(&StoredAnswer { status: 200, headers: Vec::new(), body: b"answer".to_vec() }).unwrap();
        let Ok(Begin::Fresh(running)) = begin(&source, "running", ROUTE) else { panic!("it is new") };
        let Ok(Begin::Fresh(other)) = begin(&source, "other", "POST /v1/sandboxes") else { panic!("it is new") };
        let carried = source.store.carried_requests("0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11").unwrap();
        for _ in 0..2 {
            target.store.adopt_requests(&carried).unwrap();
        }
        let again = begin(&target, "done", ROUTE);
        assert!(matches!(again, Ok(Begin::Done(StoredAnswer { body, .. })) if body == b"answer"));
        assert!(matches!(begin(&target, "running", ROUTE), Err(KeyRefused::Interrupted { .. })));
        assert!(matches!(begin(&target, "other", "POST /v1/sandboxes"), Ok(Begin::Fresh(_))));
        drop((running, other));
    }

    #[test]
    fn of_many_large_answers_the_newest_go_along_and_no_request_runs_again() {
        let (source, target) = (Fixture::new(), Fixture::new());
        let keys = |fixture: &Fixture| Idempotency::open(fixture.store.clone(), fixture.owner.clone()).unwrap();
        let begin = |fixture: &Fixture, number: usize| {
            let key = IdempotencyKey::parse(&number.to_string()).unwrap();
            keys(fixture).begin(&WorkspaceName::default(), &key, ROUTE, &BodyHash::of(b"body"))
        };
        for number in 0..6 {
            let Ok(Begin::Fresh(pending)) = begin(&source, number) else { panic!("it is new") };
            pending.finish(&StoredAnswer { status: 200, headers: Vec::new(), body: vec![7; 4 << 20] }).unwrap();
        }
        let carried = source.store.carried_requests("0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11").unwrap();
        assert!(serde_json::to_vec(&carried).unwrap().len() < 24 << 20);
        target.store.adopt_requests(&carried).unwrap();
        let again: Vec<_> = (0..6).map(|number| begin(&target, number)).collect();
        let is_whole = |body: &[u8]| body.len() == 4 << 20 && body.iter().all(|byte| *byte == 7);
        let kept = again.iter().filter(|one| matches!(one, Ok(Begin::Done(answer)) if is_whole(&answer.body))).count();
        let refused = again.iter().filter(|one| matches!(one, Err(KeyRefused::NotKept { status: 200, .. }))).count();
        assert_eq!((kept, refused), (4, 2));
    }
}
