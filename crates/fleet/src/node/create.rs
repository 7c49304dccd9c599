//! Creates: placed by any node, claimed by the chosen one, answered by the owner.

use std::time::Duration;

use futures_util::future::join_all;

use super::state::{Node, Row};
use crate::claims::{Identity, Written, claim, swap, take_over};
use crate::clock::Clock;
use crate::host::{Ask, CreateRequest, Host, Peers, Reply};
use crate::ledger::{Ledger, LedgerError, Revision};
use crate::permits::{self, Share};
use crate::placement::Member;
use crate::records::{SandboxRecord, SandboxState, decode, sandbox_key};

const ROUNDS: usize = 3;
/// How often a node tries to take permits while other nodes change the same quota. Each pause may be twice as long as the
/// one before, up to the longest.
const TRIES: u32 = 16;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(640);

impl<L: Ledger, C: Clock, P: Peers, H: Host> Node<L, C, P, H> {
    /// Creates a sandbox somewhere in the fleet, or finds the one that an earlier attempt created.
    pub async fn create(&self, request: &CreateRequest) -> Reply {
        let mut last = Reply::Refused("no node has room");
        for round in 0..ROUNDS {
            let Some(target) = self.place(&request.template, &request.hardware, round).await else { continue };
            let Ok(reply) = self.peers.ask(&target, Ask::Create(request.clone())).await else {
                return Reply::Refused("the chosen node did not answer");
            };
            match reply {
                Reply::Elsewhere { key, owner } => {
                    let found = self.peers.ask(&owner, Ask::Find { key }).await;
                    return found.unwrap_or(Reply::Refused("the owner does not answer"));
                }
                Reply::Refused(_) => last = reply,
                reply => return reply,
            }
        }
        last
    }

    /// The cheapest of the candidates that answer.
    pub(super) async fn place(&self, template: &str, hardware: &str, round: usize) -> Option<String> {
        let random = self.state().random.u64(..);
        let candidates = self.member.candidates(template, hardware, round, random);
        let ask = |member: Member| async move {
            let name = member.name;
            let offer = Ask::Offer { template: template.to_owned() };
            match self.peers.ask(&name, offer).await {
                Ok(Reply::Cost(cost)) => Some((cost, name)),
                _ => None,
            }
        };
        let offers = join_all(candidates.into_iter().map(ask)).await;
        offers.into_iter().flatten().min().map(|(_, name)| name.to_string())
    }

    pub(super) fn offer(&self, template: &str) -> Reply {
        match self.host.cost(template) {
            Some(cost) if self.member.writer().is_some() && !self.member.is_draining() => Reply::Cost(cost),
            _ => Reply::Refused("the node takes no sandboxes now"),
        }
    }

    pub(super) async fn create_here(&self, request: &CreateRequest) -> Reply {
        let key = sandbox_key(&request.workspace, &request.idempotency_key);
        let Some(me) = self.member.writer() else { return Reply::Refused("the node has lost its lease") };
        match self.take_permit(&me, &request.workspace).await {
            Ok(true) => {}
            Ok(false) => return self.without_permit(&key, request).await,
            Err(_) => return Reply::Refused("the ledger does not answer"),
        }
        let reply = self.claim_here(&me, &key, request).await;
        if !matches!(&reply, Reply::Running { owner, .. } if *owner == me.node) {
            self.state().permits.give_back(&request.workspace, me.epoch);
        }
        reply
    }

    async fn without_permit(&self, key: &str, request: &CreateRequest) -> Reply {
        match self.member.ledger.get(key).await.and_then(|found| found.as_ref().map(decode).transpose()) {
            Ok(Some(record)) => self.reply_for(key, &record, request),
            Ok(None) => Reply::QuotaExceeded,
            Err(_) => Reply::Refused("the ledger does not answer"),
        }
    }

    fn reply_for(&self, key: &str, record: &SandboxRecord, request: &CreateRequest) -> Reply {
        match &record.state {
            _ if record.digest != request.digest => Reply::Conflict,
            SandboxState::Running => Reply::Elsewhere { key: key.to_owned(), owner: record.owner.clone() },
            SandboxState::Starting | SandboxState::Abandoned => Reply::Refused("the sandbox is starting"),
            SandboxState::Ended | SandboxState::Lost { .. } => Reply::Closed(record.state.clone()),
        }
    }

    pub(super) async fn take_permit(&self, me: &Identity, workspace: &str) -> Result<bool, LedgerError> {
        if self.state().permits.take(workspace, me.epoch, self.member.clock.now()) {
            return Ok(true);
        }
        let _turn = self.permits_turn.lock().await;
        // The one before us may have taken a batch.
        for tries in 0..TRIES {
            if self.state().permits.take(workspace, me.epoch, self.member.clock.now()) {
                return Ok(true);
            }
            let believed = self.state().permits.count(workspace);
            match permits::acquire(&self.member.ledger, me, workspace, believed).await? {
                Share::Count(held) => self.state().permits.set_held(workspace, held, me.epoch),
                Share::Exhausted => return Ok(false),
                Share::Conflict => {
                    let random = self.state().random.f64();
                    let longest = (FIRST_PAUSE * 2u32.pow(tries)).min(LONGEST_PAUSE);
                    self.member.clock.sleep(longest.mul_f64(random)).await;
                }
            }
        }
        Err(LedgerError::Unavailable("the quota changes too fast".to_owned()))
    }

    async fn claim_here(&self, me: &Identity, key: &str, request: &CreateRequest) -> Reply {
        let mut record = SandboxRecord {
            owner: me.node.clone(),
            epoch: me.epoch.0,
            generation: 1,
            nonce: self.state().random.u64(..),
            digest: request.digest.clone(),
            template: request.template.clone(),
            hardware: request.hardware.clone(),
            state: SandboxState::Starting,
            unknown: Default::default(),
        };
        if !self.note(me, key, record.generation) {
            return Reply::Refused("the node has lost its lease");
        }
        let (old, at) = match self.settle(me, || claim(&self.member.ledger, me, key, &record)).await {
            Some(Written::Done(revision)) => return self.bring_up(me, key, revision, record).await,
            Some(Written::Other(old, at)) => (old, at),
            Some(Written::Fenced) | None => return Reply::Refused("the node has lost its lease"),
        };
        let takeable = matches!(old.state, SandboxState::Starting | SandboxState::Abandoned);
        if !takeable || old.digest != request.digest || old.owner == me.node && old.state == SandboxState::Starting {
            self.forget_note(key, 1, &old);
            return self.reply_for(key, &old, request);
        }
        record.generation = old.generation + 1;
        self.forget_note(key, 1, &old);
        if !self.note(me, key, record.generation) {
            return Reply::Refused("the node has lost its lease");
        }
        let taken = self.settle(me, || async {
            match old.state {
                SandboxState::Abandoned => swap(&self.member.ledger, me, key, at, &record).await,
                _ => take_over(&self.member.ledger, me, key, (&old, at), &record).await,
            }
        });
        match taken.await {
            Some(Written::Done(revision)) => self.bring_up(me, key, revision, record).await,
            Some(Written::Other(now, _)) => {
                self.forget_note(key, record.generation, &now);
                self.reply_for(key, &now, request)
            }
            Some(Written::Fenced) | None => Reply::Refused("the node has lost its lease"),
        }
    }

    /// Notes only in the current epoch, so that the next recovery finds every note. False if the epoch is over.
    pub(super) fn note(&self, me: &Identity, key: &str, generation: u32) -> bool {
        let current = self.member.is_current(me);
        if current {
            self.host.note(key, generation);
        }
        current
    }

    /// The note of an attempt that lost, unless another attempt of this node won with the same generation.
    pub(super) fn forget_note(&self, key: &str, generation: u32, found: &SandboxRecord) {
        let open = matches!(found.state, SandboxState::Starting | SandboxState::Running);
        if !open || found.owner != self.member.name || found.generation != generation {
            self.host.discard(key, generation);
        }
    }

    /// From the claim to the first answer. Until the record says running, no command reaches the machine.
    async fn bring_up(&self, me: &Identity, key: &str, at: Revision, mut record: SandboxRecord) -> Reply {
        let generation = record.generation;
        let started = self.host.start(key, generation).await;
        record.state = if started { SandboxState::Running } else { SandboxState::Abandoned };
        match self.settle(me, || swap(&self.member.ledger, me, key, at, &record)).await {
            Some(Written::Done(revision)) if started => {
                if self.member.is_current(me) {
                    self.state().rows.insert(key.to_owned(), Row { record, revision });
                }
                self.host.release(key, generation);
                Reply::Running { key: key.to_owned(), owner: me.node.clone() }
            }
            Some(Written::Done(_)) => {
                self.host.discard(key, generation);
                Reply::Refused("the machine did not start")
            }
            Some(Written::Other(found, _)) => {
                self.forget_note(key, generation, &found);
                Reply::Refused("another node took over")
            }
            // Recovery decides about the machine.
            Some(Written::Fenced) | None => Reply::Refused("the node has lost its lease"),
        }
    }

    /// Answers as the owner. A sandbox that is not here may have moved or ended: then the record says so.
    pub(super) async fn find(&self, key: &str) -> Reply {
        if self.state().rows.contains_key(key) {
            return Reply::Running { key: key.to_owned(), owner: self.member.name.clone() };
        }
        match self
            .member
            .ledger
            .get(key)
            .await
            .and_then(|found| found.as_ref().map(decode::<SandboxRecord>).transpose())
        {
            Ok(Some(SandboxRecord { state: state @ (SandboxState::Ended | SandboxState::Lost { .. }), .. })) => {
                Reply::Closed(state)
            }
            _ => Reply::Refused("the sandbox is not here"),
        }
    }

    /// Ends a sandbox that runs here.
    pub async fn end(&self, key: &str) {
        let Some(me) = self.member.writer() else { return };
        let Some(Row { mut record, revision }) = self.state().rows.remove(key) else { return };
        self.host.stop(key, record.generation);
        record.state = SandboxState::Ended;
        if let Some(Written::Done(_)) =
            self.settle(&me, || swap(&self.member.ledger, &me, key, revision, &record)).await
        {
            self.host.discard(key, record.generation);
            let workspace = key.split('/').nth(1).unwrap_or_default();
            self.state().permits.give_back(workspace, me.epoch);
        }
    }
}
