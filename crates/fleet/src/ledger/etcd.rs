//! The ledger of a fleet: etcd, through the JSON gateway that every etcd since 3.4 serves beside gRPC.
//!
//! The crate `etcd-client` would bring tonic and needs `protoc` at build time, which `cargo build` here does not. The
//! gateway needs only the HTTP client that the workspace already has. Its price is JSON with base64 keys and values.
//! Connections to an etcd that the fleet runs itself are mutual TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, header};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::definition::{
    Change, Changes, Condition, Expect, LeaseId, Ledger, LedgerError, Outcome, Page, Record, Revision, Transaction,
    Write,
};
use super::engine::Engine;

/// A connection that was cut off silently looks like one without news. So a watch without news fails after this time, and its
/// caller lists the records anew.
const WATCH_AT_MOST: Duration = Duration::from_secs(30);

pub struct EtcdLedger {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    engine: watch::Sender<Arc<Engine>>,
    current: AtomicUsize,
    answer_within: Duration,
}

/// etcd's JSON writes 64-bit numbers as text and leaves out zeros.
#[derive(Debug, Default, Clone, Copy)]
struct Number(i64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    revision: Number,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    create_revision: Number,
    #[serde(default)]
    mod_revision: Number,
}

#[derive(Deserialize)]
struct RangeAnswer {
    /// Missing inside the answer of a transaction.
    header: Option<Header>,
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct TransactionAnswer {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<OperationAnswer>,
}

#[derive(Deserialize)]
struct OperationAnswer {
    response_range: Option<RangeAnswer>,
}

#[derive(Deserialize)]
struct LeaseAnswer {
    #[serde(rename = "ID", default)]
    id: Number,
    #[serde(rename = "TTL", default)]
    ttl: Number,
}

/// What one member of etcd says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdStatus {
    pub version: String,
    pub size_bytes: u64,
    /// Such as that it has no space left.
    pub alarms: Vec<String>,
}

#[derive(Deserialize)]
struct StatusAnswer {
    version: String,
    #[serde(rename = "dbSize", default)]
    size: Number,
    #[serde(default)]
    errors: Vec<String>,
}

/// One message of a stream.
#[derive(Deserialize)]
struct Message<T> {
    result: T,
}

#[derive(Deserialize)]
struct WatchAnswer {
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    compact_revision: Number,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type", default)]
    kind: String,
    kv: KeyValue,
}

/// What etcd answers instead of a result.
#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    error: Value,
    #[serde(default)]
    message: String,
}

fn unavailable(error: impl std::fmt::Display) -> LedgerError {
    LedgerError::Unavailable(error.to_string())
}

fn unexpected(error: impl std::fmt::Display) -> LedgerError {
    LedgerError::Unexpected(error.to_string())
}

fn decode(text: &str) -> Result<Arc<str>, LedgerError> {
    let bytes = BASE64.decode(text).map_err(unexpected)?;
    Ok(String::from_utf8(bytes).map_err(unexpected)?.into())
}

impl KeyValue {
    fn record(&self, engine: &Engine) -> Result<Record, LedgerError> {
        Ok(Record {
            key: decode(&self.key)?,
            value: decode(&self.value)?,
            created: engine.revision(self.create_revision.0),
            modified: engine.revision(self.mod_revision.0),
        })
    }
}

/// The end of the range of keys with the prefix: its last byte plus one. Our prefixes are ASCII.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn compare(engine: &Engine, condition: &Condition) -> Value {
    // No record of this etcd has a revision of another one.
    let own = |revision| engine.own(revision).unwrap_or(i64::MAX);
    let (target, result, field, revision) = match condition.expect {
        Expect::Absent => ("CREATE", "EQUAL", "create_revision", 0),
        Expect::Modified(revision) => ("MOD", "EQUAL", "mod_revision", own(revision)),
        Expect::Created(revision) => ("CREATE", "EQUAL", "create_revision", own(revision)),
        Expect::NotCreated(revision) => ("CREATE", "NOT_EQUAL", "create_revision", own(revision)),
    };
    json!({"key": BASE64.encode(&condition.key), "target": target, "result": result, field: revision.to_string()})
}

fn operation(write: &Write) -> Value {
    match write {
        Write::Put { key, value, lease } => {
            let lease = lease.map_or(0, |lease| lease.0).to_string();
            json!({"request_put": {"key": BASE64.encode(key), "value": BASE64.encode(value), "lease": lease}})
        }
        Write::Delete { key } => json!({"request_delete_range": {"key": BASE64.encode(key)}}),
    }
}

impl EtcdLedger {
    /// Uses one of the members at a time and the next one after a failure. Members at `https` addresses have a
    /// certificate for this name.
    pub fn new(engine: Engine, name: ServerName<'static>, tls: ClientConfig, answer_within: Duration) -> Self {
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = connector.with_server_name_resolver(FixedServerNameResolver::new(name)).enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let engine = watch::Sender::new(Arc::new(engine));
        Self { client, engine, current: AtomicUsize::new(0), answer_within }
    }

    /// The etcd that this ledger uses now.
    pub fn engine(&self) -> Arc<Engine> {
        self.engine.borrow().clone()
    }

    /// Uses another etcd from now on. What waits for changes of the old one fails.
    pub fn switch_to(&self, engine: Engine) {
        self.engine.send_replace(Arc::new(engine));
    }

    /// Connects without TLS.
    pub fn plain(engine: Engine, answer_within: Duration) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring supports the default versions")
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        Self::new(engine, std::net::Ipv4Addr::LOCALHOST.into(), tls, answer_within)
    }

    pub async fn status(&self) -> Result<EtcdStatus, LedgerError> {
        let answer: StatusAnswer = self.ask(&self.engine(), "maintenance/status", json!({})).await?;
        Ok(EtcdStatus { version: answer.version, size_bytes: answer.size.0.unsigned_abs(), alarms: answer.errors })
    }

    async fn send(&self, engine: &Engine, path: &str, body: &Value) -> Result<Response<Incoming>, LedgerError> {
        let current = self.current.load(Ordering::Relaxed);
        let endpoint = engine.endpoints.get(current % engine.endpoints.len().max(1));
        let endpoint = endpoint.ok_or_else(|| unavailable("it has no address"))?;
        let request = Request::post(format!("{endpoint}/v3/{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(unexpected)?;
        let sent = tokio::time::timeout(self.answer_within, self.client.request(request)).await;
        let failure = match sent {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => unavailable(error),
            Err(_) => unavailable(format!("{endpoint} did not answer in {:?}", self.answer_within)),
        };
        // Several requests that fail together must not skip a member.
        let next = current.wrapping_add(1);
        let _ = self.current.compare_exchange(current, next, Ordering::Relaxed, Ordering::Relaxed);
        Err(failure)
    }

    async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        engine: &Engine,
        path: &str,
        body: Value,
    ) -> Result<T, LedgerError> {
        let response = self.send(engine, path, &body).await?;
        let status = response.status();
        let body = tokio::time::timeout(self.answer_within, response.into_body().collect());
        let body = body.await.map_err(unavailable)?.map_err(unavailable)?.to_bytes();
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(unexpected);
        }
        let failure: Failure = serde_json::from_slice(&body).map_err(unavailable)?;
        let reason = if failure.message.is_empty() { failure.error.to_string() } else { failure.message };
        Err(if reason.contains("lease not found") { LedgerError::LeaseGone } else { unavailable(reason) })
    }

    /// Reads a stream until `pick` finds in a message what it wants, and closes it.
    async fn first_message<T>(
        &self,
        response: Response<Incoming>,
        pick: impl Fn(&[u8]) -> Result<Option<T>, LedgerError>,
    ) -> Result<T, LedgerError> {
        let mut body = response.into_body();
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            text.extend_from_slice(frame.map_err(unavailable)?.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                if let Some(found) = pick(&line)? {
                    return Ok(found);
                }
            }
        }
        Err(unavailable("the stream ended"))
    }
}

fn changes_in(engine: &Engine, line: &[u8], after: Revision) -> Result<Option<Changes>, LedgerError> {
    let Message { result } = serde_json::from_slice::<Message<WatchAnswer>>(line).map_err(unavailable)?;
    if result.compact_revision.0 > 0 {
        return Err(LedgerError::Compacted { after: after.0 });
    }
    if result.canceled {
        return Err(unavailable("the watch was canceled"));
    }
    let change = |event: &Event| match event.kind.as_str() {
        "DELETE" => Ok(Change::Deleted { key: decode(&event.kv.key)? }),
        _ => event.kv.record(engine).map(Change::Put),
    };
    let changes = result.events.iter().map(change).collect::<Result<Vec<_>, _>>()?;
    // The header has the ledger's newest revision, of which the events may come in a later message.
    Ok(result.events.last().map(|last| Changes { changes, until: engine.revision(last.kv.mod_revision.0) }))
}

impl Ledger for EtcdLedger {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, LedgerError> {
        let answer: LeaseAnswer =
            self.ask(&self.engine(), "lease/grant", json!({"TTL": ttl.as_secs().to_string()})).await?;
        Ok(LeaseId(answer.id.0))
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), LedgerError> {
        let answer: Message<LeaseAnswer> =
            self.ask(&self.engine(), "lease/keepalive", json!({"ID": lease.0.to_string()})).await?;
        if answer.result.ttl.0 > 0 { Ok(()) } else { Err(LedgerError::LeaseGone) }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), LedgerError> {
        match self.ask::<Value>(&self.engine(), "lease/revoke", json!({"ID": lease.0.to_string()})).await {
            Ok(_) | Err(LedgerError::LeaseGone) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, LedgerError> {
        let (engine, conditions) = (self.engine(), &transaction.conditions);
        let read = |condition: &Condition| json!({"request_range": {"key": BASE64.encode(&condition.key)}});
        let body = json!({
            "compare": conditions.iter().map(|condition| compare(&engine, condition)).collect::<Vec<_>>(),
            "success": transaction.writes.iter().map(operation).collect::<Vec<_>>(),
            "failure": conditions.iter().map(read).collect::<Vec<_>>(),
        });
        let answer: TransactionAnswer = self.ask(&engine, "kv/txn", body).await?;
        if answer.succeeded {
            return Ok(Outcome::Committed(engine.revision(answer.header.revision.0)));
        }
        let current = answer.responses.iter().map(|operation| {
            let kvs = operation.response_range.as_ref().map_or(&[][..], |range| &range.kvs);
            kvs.first().map(|found| found.record(&engine)).transpose()
        });
        Ok(Outcome::Refused(current.collect::<Result<_, _>>()?))
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, LedgerError> {
        let engine = self.engine();
        let answer: RangeAnswer = self.ask(&engine, "kv/range", json!({"key": BASE64.encode(key)})).await?;
        answer.kvs.first().map(|found| found.record(&engine)).transpose()
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, LedgerError> {
        // The first key after `after` is `after` with a zero byte.
        let from = after.filter(|after| *after >= prefix).map_or(prefix.to_owned(), |after| format!("{after}\0"));
        let body = json!({
            "key": BASE64.encode(from), "range_end": BASE64.encode(end_of(prefix)), "limit": limit.to_string(),
        });
        let engine = self.engine();
        let answer: RangeAnswer = self.ask(&engine, "kv/range", body).await?;
        let records = answer.kvs.iter().map(|found| found.record(&engine)).collect::<Result<_, _>>()?;
        let header = answer.header.ok_or_else(|| unexpected("a list without a header"))?;
        Ok(Page { records, revision: engine.revision(header.revision.0) })
    }

    async fn changes(&self, prefix: &str, after: Revision) -> Result<Changes, LedgerError> {
        let mut switched = self.engine.subscribe();
        let engine = switched.borrow_and_update().clone();
        // Another etcd knows nothing of the changes after this revision.
        let own = engine.own(after).ok_or(LedgerError::Compacted { after: after.0 })?;
        let body = json!({"create_request": {
            "key": BASE64.encode(prefix), "range_end": BASE64.encode(end_of(prefix)),
            "start_revision": (own + 1).to_string(),
        }});
        let response = self.send(&engine, "watch", &body).await?;
        let change = self.first_message(response, |line| changes_in(&engine, line, after));
        tokio::select! {
            change = tokio::time::timeout(WATCH_AT_MOST, change) => {
                change.unwrap_or_else(|_| Err(unavailable(format!("nothing has changed in {WATCH_AT_MOST:?}"))))
            }
            _ = switched.changed() => Err(unavailable("the fleet has another etcd now")),
        }
    }

    async fn compact(&self, until: Revision) -> Result<(), LedgerError> {
        let engine = self.engine();
        let Some(until) = engine.own(until) else { return Ok(()) };
        self.ask::<Value>(&engine, "kv/compaction", json!({"revision": until.to_string()})).await.map(drop)
    }
}
