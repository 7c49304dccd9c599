//! Records of which every node has a copy, such as tokens.
//!
//! A record carries a proof that only a node can make, so nobody becomes an operator by writing to the ledger.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::follow::{Update, follow};
use crate::ledger::{Change, Expect, Ledger, LedgerError, Record, Revision, Transaction, Write};
use crate::membership::Membership;
use crate::records::{decode, encode};

const SHARED: &str = "shared/";
const KEY_CONTEXT: &str = "sandling fleet shared record 1";
const SEAL_CONTEXT: &str = "sandling fleet shared secret 1";
const NONCE_CONTEXT: &str = "sandling fleet shared nonce 1";
const NONCE_BYTES: usize = 24;

/// The shared records as this node knows them.
pub struct SharedRecords {
    key: [u8; 32],
    cipher: XChaCha20Poly1305,
    nonce_key: [u8; 32],
    /// `None` before the first ones are read.
    known: Mutex<Option<BTreeMap<String, Known>>>,
}

struct Known {
    /// `None` if the proof is wrong.
    body: Option<String>,
    revision: Revision,
}

#[derive(Serialize, Deserialize)]
struct Proven {
    body: String,
    proof: String,
}

/// The body of such a record, without a check of its proof.
pub(crate) fn unproven(value: &str) -> Option<String> {
    serde_json::from_str::<Proven>(value).ok().map(|proven| proven.body)
}

impl SharedRecords {
    /// `secret` is what only the fleet's nodes know.
    pub fn new(secret: &[u8]) -> Self {
        Self {
            key: blake3::derive_key(KEY_CONTEXT, secret),
            cipher: XChaCha20Poly1305::new(&Key::from(blake3::derive_key(SEAL_CONTEXT, secret))),
            nonce_key: blake3::derive_key(NONCE_CONTEXT, secret),
            known: Mutex::default(),
        }
    }

    /// Encrypts a text of this record, for nodes only. The same text gives the same result, so that all nodes write the same.
    pub fn seal(&self, name: &str, text: &str) -> String {
        let mut nonce = [0; NONCE_BYTES];
        let own = blake3::Hasher::new_keyed(&self.nonce_key)
            .update(name.as_bytes())
            .update(b"\0")
            .update(text.as_bytes())
            .finalize();
        nonce.copy_from_slice(&own.as_bytes()[..NONCE_BYTES]);
        let payload = Payload { msg: text.as_bytes(), aad: name.as_bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload).expect("a text is shorter than 256 GiB");
        STANDARD.encode([&nonce[..], &sealed].concat())
    }

    /// Decrypts what [`Self::seal`] made for the same record.
    pub fn open(&self, name: &str, sealed: &str) -> Option<String> {
        let bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed, aad: name.as_bytes() };
        String::from_utf8(self.cipher.decrypt(&XNonce::from(*nonce), payload).ok()?).ok()
    }

    /// Follows the records, and reports that there is something new. Runs until the future is dropped.
    pub async fn follow<L: Ledger, C: Clock>(&self, membership: &Membership<L, C>, report: impl Fn()) {
        loop {
            let followed = follow(membership.ledger(), SHARED, |update| {
                match update {
                    Update::All(records) => {
                        let known = records.iter().map(|record| self.learn(record)).collect();
                        self.state().replace(known);
                    }
                    Update::One(Change::Put(record)) => {
                        let (name, known) = self.learn(&record);
                        self.known(|all| drop(all.insert(name, known)));
                    }
                    Update::One(Change::Deleted { key }) => self.known(|all| drop(all.remove(name(&key)))),
                }
                report();
            });
            if followed.await.is_err() {
                membership.clock.sleep(Duration::from_secs(1)).await;
            }
        }
    }

    fn learn(&self, record: &Record) -> (String, Known) {
        let name = name(&record.key).to_owned();
        let proven = decode::<Proven>(record).ok().filter(|proven| self.is_genuine(&name, proven));
        let is_new = self.state().as_ref().and_then(|all| Some(all.get(&name)?.revision)) != Some(record.modified);
        if proven.is_none() && is_new {
            tracing::warn!(key = &*record.key, "the fleet's etcd has a record that no node has written");
        }
        (name, Known { body: proven.map(|proven| proven.body), revision: record.modified })
    }

    fn is_genuine(&self, name: &str, proven: &Proven) -> bool {
        // This comparison takes the same time wherever the two differ.
        blake3::Hash::from_hex(&proven.proof).is_ok_and(|given| self.proof(name, &proven.body) == given)
    }

    /// The value of a record that not every node has a copy of.
    pub(crate) fn prove(&self, key: &str, body: &str) -> String {
        encode(&Proven { body: body.to_owned(), proof: self.proof(key, body).to_hex().to_string() })
    }

    /// The body of such a record. `None` if no node has written it.
    pub(crate) fn proven(&self, record: &Record) -> Option<String> {
        let proven = decode::<Proven>(record).ok()?;
        self.is_genuine(&record.key, &proven).then_some(proven.body)
    }

    fn proof(&self, name: &str, body: &str) -> blake3::Hash {
        blake3::Hasher::new_keyed(&self.key).update(name.as_bytes()).update(b"\0").update(body.as_bytes()).finalize()
    }

    /// The records whose names have a prefix, without it. `None` before the first ones are read.
    pub fn all(&self, prefix: &str) -> Option<Vec<(String, String)>> {
        let state = self.state();
        let known = state.as_ref()?.iter();
        let named =
            known.filter_map(|(name, known)| Some((name.strip_prefix(prefix)?.to_owned(), known.body.clone()?)));
        Some(named.collect())
    }

    /// Writes a record. Does nothing if another node has changed it meanwhile: then the caller learns of that first.
    pub async fn put<L: Ledger, C: Clock>(
        &self,
        membership: &Membership<L, C>,
        name: &str,
        body: &str,
    ) -> Result<(), LedgerError> {
        let proven = Proven { body: body.to_owned(), proof: self.proof(name, body).to_hex().to_string() };
        self.write(membership, name, |key| Write::put(key, encode(&proven))).await
    }

    /// Removes a record, unless another node has changed it meanwhile.
    pub async fn remove<L: Ledger, C: Clock>(
        &self,
        membership: &Membership<L, C>,
        name: &str,
    ) -> Result<(), LedgerError> {
        self.write(membership, name, |key| Write::Delete { key }).await
    }

    async fn write<L: Ledger, C: Clock>(
        &self,
        membership: &Membership<L, C>,
        name: &str,
        write: impl FnOnce(String) -> Write,
    ) -> Result<(), LedgerError> {
        let Some(me) = membership.writer() else { return Ok(()) };
        let revision = self.state().as_ref().and_then(|all| Some(all.get(name)?.revision));
        let key = format!("{SHARED}{name}");
        let expected = revision.map_or(Expect::Absent, Expect::Modified);
        let transaction = Transaction::default().when(&key, expected).then(write(key));
        membership.ledger().commit(me.fence(transaction)).await.map(drop)
    }

    fn known(&self, change: impl FnOnce(&mut BTreeMap<String, Known>)) {
        change(self.state().get_or_insert_default());
    }

    fn state(&self) -> MutexGuard<'_, Option<BTreeMap<String, Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(key: &str) -> &str {
    key.strip_prefix(SHARED).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ModelLedger;
    use crate::membership::tests::{member, register};

    /// Reads a record as a node that follows does.
    async fn read(records: &SharedRecords, ledger: &ModelLedger, name: &str) -> Option<String> {
        let (name, known) = records.learn(&ledger.get(&format!("{SHARED}{name}")).await.unwrap()?);
        let body = known.body.clone();
        records.known(|all| drop(all.insert(name, known)));
        body
    }

    #[test]
    fn only_nodes_read_what_is_sealed_and_only_in_its_record() {
        let (ours, theirs) = (SharedRecords::new(b"secret"), SharedRecords::new(b"guess"));
        let sealed = ours.seal("secret/team/KEY", "hunter2");
        assert_eq!(SharedRecords::new(b"secret").open("secret/team/KEY", &sealed).as_deref(), Some("hunter2"));
        assert_eq!(ours.seal("secret/team/KEY", "hunter2"), sealed);
        assert_eq!(ours.open("secret/other/KEY", &sealed), None);
        assert_eq!(theirs.open("secret/team/KEY", &sealed), None);
        assert_eq!(ours.open("secret/team/KEY", "x"), None);
    }

    #[tokio::test]
    async fn only_what_a_node_has_written_is_believed() {
        let ledger = ModelLedger::default();
        let node = member("a", &ledger);
        register(&node).await;
        let (ours, theirs) = (SharedRecords::new(b"secret"), SharedRecords::new(b"guess"));
        theirs.put(&node, "token/1", "forged").await.unwrap();
        assert_eq!(read(&ours, &ledger, "token/1").await, None);
        assert_eq!(ours.all("token/"), Some(vec![]));
        ours.put(&node, "token/1", "real").await.unwrap();
        assert_eq!(read(&ours, &ledger, "token/1").await.as_deref(), Some("real"), "it replaces a forged one");
        assert_eq!(ours.all("token/"), Some(vec![("1".to_owned(), "real".to_owned())]));
        let genuine = ledger.get("shared/token/1").await.unwrap().unwrap();
        let moved = Record { key: "shared/token/2".into(), ..genuine };
        assert!(ours.learn(&moved).1.body.is_none(), "the record of one name is none of another");
    }

    #[tokio::test]
    async fn a_record_that_has_changed_is_not_overwritten() {
        let ledger = ModelLedger::default();
        let node = member("a", &ledger);
        register(&node).await;
        let (one, other) = (SharedRecords::new(b"secret"), SharedRecords::new(b"secret"));
        one.put(&node, "n", "first").await.unwrap();
        other.put(&node, "n", "second").await.unwrap();
        assert_eq!(read(&one, &ledger, "n").await.as_deref(), Some("first"));
        one.put(&node, "n", "third").await.unwrap();
        other.put(&node, "n", "fourth").await.unwrap();
        other.remove(&node, "n").await.unwrap();
        assert_eq!(read(&one, &ledger, "n").await.as_deref(), Some("third"));
        one.remove(&node, "n").await.unwrap();
        assert_eq!(read(&one, &ledger, "n").await, None);
    }
}
