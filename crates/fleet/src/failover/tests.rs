use super::*;
use crate::clock::BootClock;
use crate::ledger::{ModelLedger, SqliteLedger};
use crate::membership::LeaseSettings;
use crate::moves::Taken;
use crate::protocol::Protocol;
use crate::records::NodeRecord;
use crate::removal::remove;

const SANDBOX: &str = "0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11";

/// A node with what it knows.
struct Seat<'a, L> {
    membership: Membership<&'a L, BootClock>,
    shared: SharedRecords,
    moves: Moves,
    known: KnownFailovers,
}

impl<'a, L: Ledger> Seat<'a, L> {
    fn new(name: &str, ledger: &'a L) -> Self {
        let about = NodeRecord {
            fingerprint: name.to_owned(),
            hardware: "hardware".to_owned(),
            address: String::new(),
            version: String::new(),
            draining: false,
            protocol: Protocol::OWN,
            unknown: Default::default(),
        };
        let membership = Membership::new(name, about, ledger, BootClock, LeaseSettings::default());
        let known = KnownFailovers(Mutex::new(Some(BTreeMap::new())));
        Self { membership, shared: SharedRecords::new(b"secret"), moves: Moves::new(b"secret"), known }
    }

    async fn register(&self) {
        let me = self.membership.register_or_wait().await.unwrap();
        self.membership.set_ready(&me);
    }

    fn failovers(&self) -> Failovers<'_, &'a L, BootClock> {
        let Self { membership, shared, moves, known } = self;
        Failovers { membership, shared, moves, known }
    }

    async fn put(&self, snapshot: &str) -> bool {
        self.failovers().put_point(SANDBOX, "team", point(snapshot)).await.unwrap()
    }

    async fn hold(&self) -> Held {
        self.failovers().hold(SANDBOX, None).await.unwrap()
    }

    async fn revision(&self) -> Revision {
        self.failovers().find(SANDBOX).await.unwrap().at.unwrap()
    }
}

fn point(snapshot: &str) -> FailoverPoint {
    let (manifest, made_on) = (Digest::of(b"manifest"), "host".to_owned());
    let at = "2026-11-19T12:00:00Z".to_owned();
    FailoverPoint { snapshot: snapshot.to_owned(), manifest, made_on, at, settings: String::new() }
}

async fn lose_lease(ledger: &impl Ledger, node: &str) {
    ledger.commit(Transaction::default().then(Write::Delete { key: node_key(node) })).await.unwrap();
}

async fn take<L: Ledger>(node: &Seat<'_, L>, at: Revision, token: &str) -> TookOver {
    node.failovers().take_over(SANDBOX, at, token).await.unwrap()
}

async fn check_all<L: Ledger>(ledger: &L) {
    let (a, b, c) = (Seat::new("a", ledger), Seat::new("b", ledger), Seat::new("c", ledger));
    assert_eq!(a.hold().await, Held::Fenced);
    for node in [&a, &b, &c] {
        node.register().await;
    }
    assert_eq!(a.hold().await, Held::Mine(None, Turns::default()), "there is no point yet");
    assert!(a.put("1").await && a.put("2").await);
    assert!(!b.put("3").await, "only its owner makes points");
    assert_eq!(b.hold().await, Held::Elsewhere("a".to_owned()));
    let first = a.revision().await;
    assert_eq!(take(&b, first, "b").await, TookOver::Other, "its owner has its lease");

    // The owner is slow, but back before anybody has taken over: it goes on in its new epoch.
    lose_lease(ledger, "a").await;
    a.register().await;
    assert!(!a.put("3").await, "it has to ask first");
    let Held::Mine(Some(record), held_by_a) = a.hold().await else { panic!("nobody has taken over") };
    assert_eq!((record.generation, &*record.point.snapshot), (1, "2"));
    assert_eq!(take(&b, first, "b").await, TookOver::Other, "it has seen an older record");

    // One of two takes over. It may not hear of it, and asks again.
    lose_lease(ledger, "a").await;
    let at = a.revision().await;
    assert_eq!(take(&b, at, "b").await, TookOver::Mine);
    assert_eq!(take(&b, at, "b").await, TookOver::Mine);
    assert_eq!(take(&c, at, "c").await, TookOver::Other);
    assert_eq!(b.moves.whereabouts(&ledger, SANDBOX).await.unwrap().record.unwrap().node, "b");
    a.register().await;
    assert_eq!(a.hold().await, Held::Elsewhere("b".to_owned()));
    let later = a.failovers().hold(SANDBOX, Some(held_by_a)).await.unwrap();
    assert_eq!(later, Held::Elsewhere("b".to_owned()), "this is after its own turn");
    assert!(!a.put("3").await && a.failovers().forget(SANDBOX).await.unwrap());
    let Held::Mine(Some(record), _) = b.hold().await else { panic!("it has taken over") };
    assert_eq!((&*record.node, record.generation), ("b", 2));
    assert!(b.put("4").await);

    // It moves to c, which becomes its owner. Even if b is lost before that, nobody takes over what b no longer has.
    let before = b.moves.whereabouts(&ledger, SANDBOX).await.unwrap();
    assert_eq!(c.moves.take(&c.membership, SANDBOX, before.at, 2, "move").await.unwrap(), Taken::Mine);
    lose_lease(ledger, "b").await;
    assert_eq!(take(&a, c.revision().await, "a").await, TookOver::Other);
    let Held::Mine(Some(record), held_by_c) = c.hold().await else { panic!("it has moved there") };
    assert_eq!((&*record.node, record.generation, &*record.point.snapshot), ("c", 3, "4"));

    // An older copy of etcd says that b has it. The node that had it since then keeps it, and makes a new point.
    let older = FailoverRecord { node: "b".to_owned(), generation: 2, ..*record };
    let moved = b.moves.record(SANDBOX, "b", 1, "b");
    let restore = Transaction::default()
        .then(b.failovers().proven(SANDBOX, &older))
        .then(Write::put(moved_key(SANDBOX), encode(&moved)));
    ledger.commit(restore).await.unwrap();
    assert_eq!(c.hold().await, Held::Elsewhere("b".to_owned()));
    let kept = c.failovers().hold(SANDBOX, Some(held_by_c)).await.unwrap();
    assert!(matches!(kept, Held::Mine(None, turns) if turns.is_after(held_by_c)), "{kept:?}");
    assert_eq!(c.moves.whereabouts(&ledger, SANDBOX).await.unwrap().record.unwrap().node, "c");
    b.register().await;
    assert_eq!(b.hold().await, Held::Elsewhere("c".to_owned()));
    assert!(c.put("5").await && matches!(c.hold().await, Held::Mine(Some(record), _) if record.generation > 3));

    // A node of another fleet writes nothing that counts.
    let forger = Seat { shared: SharedRecords::new(b"guess"), ..Seat::new("a", ledger) };
    assert!(forger.failovers().find(SANDBOX).await.is_err() && a.failovers().forget(SANDBOX).await.unwrap());
    assert_eq!(manifests(ledger, &c.shared).await.unwrap(), [("team".to_owned(), Digest::of(b"manifest"))]);
    assert!(c.failovers().forget(SANDBOX).await.unwrap());
    assert_eq!(manifests(ledger, &c.shared).await.unwrap(), []);
}

#[tokio::test]
async fn one_node_owns_a_sandbox() {
    check_all(&ModelLedger::default()).await;
}

#[tokio::test]
async fn one_node_owns_a_sandbox_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    check_all(&SqliteLedger::open(&directory.path().join("ledger")).unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_owner_is_noticed_after_a_pause_and_one_node_is_first() {
    let ledger = ModelLedger::default();
    let seats = ["a", "b", "c"].map(|name| Seat::new(name, &ledger));
    for seat in &seats {
        seat.register().await;
    }
    let [a, b, c] = &seats;
    assert!(a.put("1").await);
    let watching = async {
        let followers = [b, c].map(|seat| async move {
            let failovers = seat.failovers();
            tokio::join!(failovers.follow(), seat.membership.watch_members());
        });
        futures_util::future::join_all(followers).await;
    };
    let checks = async {
        while [b, c].iter().any(|seat| seat.known.get(SANDBOX).is_none() || seat.membership.members().len() < 3) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut absences = [Absences::default(), Absences::default()];
        let mut due = || {
            let [of_b, of_c] = &mut absences;
            [of_b.due(&b.failovers(), "hardware").len(), of_c.due(&c.failovers(), "hardware").len()]
        };
        assert_eq!(due(), [0, 0]);
        lose_lease(&ledger, "a").await;
        while b.membership.members().len() > 2 || c.membership.members().len() > 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(due(), [0, 0], "its owner may still stop it");
        assert!(Absences::default().due(&b.failovers(), "other").is_empty());
        let lost_for_long =
            || Absences([("a".to_owned(), Duration::ZERO)].into()).due(&b.failovers(), "hardware").len();
        assert_eq!(lost_for_long(), 1);

        // After a rebuild, only the operator knows whether the owner is lost.
        let mut record = b.known.get(SANDBOX).unwrap();
        record.epoch |= 1 << 48;
        b.known.learn(SANDBOX, &record, Revision(i64::MAX));
        assert_eq!(lost_for_long(), 0);
        remove(&ledger, "a").await.unwrap();
        while !matches!(b.membership.by_tag(node_tag("a")), Ok(None)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(lost_for_long(), 1);
    };
    tokio::select! {
        () = checks => {}
        () = watching => {}
    }
}

#[test]
fn a_record_of_the_first_version_is_read() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1/failover.json");
    let text = std::fs::read_to_string(golden).unwrap();
    let record =
        Record { key: key(SANDBOX).into(), value: text.trim().into(), created: Revision(1), modified: Revision(1) };
    let found = read(&SharedRecords::new(b"secret"), &record).unwrap().unwrap();
    let expected = FailoverRecord {
        version: 1,
        node: "b".to_owned(),
        epoch: 7,
        generation: 3,
        workspace: "team".to_owned(),
        point: point("41cce1b9-b5e9-4a71-8807-929161b20143"),
        unknown: Map::new(),
    };
    assert_eq!(found, expected);
}
