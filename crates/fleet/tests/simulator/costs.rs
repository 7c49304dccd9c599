//! What a create asks of the ledger and of other nodes, by the number of nodes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sandling_fleet::{CreateRequest, Ledger, QuotaRecord, Reply, Settings, Transaction, Write, encode, quota_key};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::world::World;

const SECONDS: usize = 30;
/// Each node gets a create every five seconds.
const SECONDS_PER_CREATE: usize = 5;
/// Before anything is counted, so that the nodes have permits: so many creates for each node, and as many in a second of all
/// nodes together. In a large fleet whose nodes all begin at once, creates have to wait for each other's first permits.
const FIRST_CREATES: usize = 3;
const FIRST_CREATES_PER_SECOND: usize = 20;

/// For one create: reads and transactions of the ledger, and requests to other nodes. What the nodes do without creates is
/// left out, and so are a node's first permits.
pub fn of_a_create(nodes: usize, seed: u64) -> [f64; 3] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::new(nodes, seed, None, Settings::default());
        world.faulty.store(false, Ordering::Relaxed);
        let limit = 1_000_000;
        let quota = QuotaRecord { limit, ..QuotaRecord::default() };
        world.checks().limits.insert("w".to_owned(), limit as usize);
        let put = Write::put(quota_key("w"), encode(&quota));
        world.ledger.commit(Transaction::default().then(put)).await.unwrap();
        (0..nodes).for_each(|at| world.start(at));
        sleep(Duration::from_secs(60)).await;

        let begun = world.calls.counted();
        sleep(Duration::from_secs(SECONDS as u64)).await;
        let idle = since(&world, begun);
        let first = nodes * FIRST_CREATES;
        make_creates(&world, 0..first, first.div_ceil(FIRST_CREATES_PER_SECOND)).await;
        let creates = nodes * SECONDS / SECONDS_PER_CREATE;
        let begun = world.calls.counted();
        make_creates(&world, first..first + creates, SECONDS).await;
        let busy = since(&world, begun);
        std::array::from_fn(|kind| (busy[kind] - idle[kind]) / creates as f64)
    })
}

fn since(world: &World, begun: [u64; 3]) -> [f64; 3] {
    let now = world.calls.counted();
    std::array::from_fn(|kind| (now[kind] - begun[kind]) as f64)
}

/// Creates with these numbers through random nodes, spread over so many seconds.
async fn make_creates(world: &Arc<World>, numbers: Range<usize>, seconds: usize) {
    let nodes = world.slots.len();
    let pause = Duration::from_secs(seconds as u64).div_f64(numbers.len() as f64);
    let mut creates = JoinSet::new();
    for number in numbers {
        let request = CreateRequest {
            workspace: "w".to_owned(),
            idempotency_key: format!("k{number}"),
            digest: "request".to_owned(),
            template: format!("t{}", world.below(8)),
            hardware: "hardware".to_owned(),
        };
        let gateway = world.slot(world.below(nodes)).node.clone().unwrap();
        creates.spawn(async move {
            let reply = gateway.create(&request).await;
            assert!(matches!(reply, Reply::Running { .. }), "{reply:?}");
        });
        sleep(pause).await;
    }
    creates.join_all().await;
}
