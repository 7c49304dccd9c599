//! What a create asks of the ledger and of other nodes, by the number of nodes.

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

/// For one create: reads and transactions of the ledger, and requests to other nodes. What the nodes do without creates is
/// left out.
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
        let begun = world.calls.counted();
        let creates = make_creates(&world, nodes).await;
        let busy = since(&world, begun);
        std::array::from_fn(|kind| (busy[kind] - idle[kind]) / creates as f64)
    })
}

fn since(world: &World, begun: [u64; 3]) -> [f64; 3] {
    let now = world.calls.counted();
    std::array::from_fn(|kind| (now[kind] - begun[kind]) as f64)
}

/// Creates through random nodes. Returns how many.
async fn make_creates(world: &Arc<World>, nodes: usize) -> usize {
    let count = nodes * SECONDS / SECONDS_PER_CREATE;
    let mut creates = JoinSet::new();
    for number in 0..count {
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
        sleep(Duration::from_secs(SECONDS as u64).div_f64(count as f64)).await;
    }
    creates.join_all().await;
    count
}
