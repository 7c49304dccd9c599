//! Groups of real guests: together if they were put together, and never else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sandling_engine::network::{GroupChange, Membership};
use sandling_engine::{CreateSpec, EndReason, NetworkChange, NetworkSpec, Sandbox};

use super::world::{World, fetch};
use crate::harness::{shell, spec};
use crate::isolated;

fn crawl(hostname: Option<&str>) -> Membership {
    Membership { group: "crawl".to_owned(), hostname: hostname.map(str::to_owned) }
}

/// With a server on port 8000, and nothing that it may reach outside.
async fn sandbox(world: &World, group: Option<Membership>) -> Arc<Sandbox> {
    let network = NetworkSpec { group, ..NetworkSpec::default() };
    let sandbox = world.engine.engine.create(CreateSpec { network, ..spec("base") }).await.unwrap();
    let line = "(setsid python3 -m http.server 8000 >/dev/null 2>&1 &); \
        until curl -s -o /dev/null http://127.0.0.1:8000/; do sleep 0.05; done";
    assert_eq!(shell(&sandbox, line).await.exit.code, 0);
    sandbox
}

async fn set(sandbox: &Sandbox, group: GroupChange) {
    sandbox.change_network(NetworkChange { group: Some(group), ..NetworkChange::default() }).await.unwrap();
}

/// Leaves a process that holds a connection to the database and writes down when it is cut.
async fn hold(sandbox: &Arc<Sandbox>) {
    let code = "import socket
stream = socket.create_connection(('database.internal', 8000))
print('held', flush=True)
try:
    stream.recv(1)
finally:
    open('/tmp/cut', 'w').write('cut')
";
    let line =
        format!("(setsid python3 -c \"{code}\" >/tmp/out 2>&1 &); until grep -q held /tmp/out; do sleep 0.05; done");
    assert_eq!(shell(sandbox, &line).await.exit.code, 0);
}

isolated! {
    async fn a_sandbox_that_serves_its_group_is_not_idle() {
        let world = World::new().await;
        let network = || NetworkSpec { group: Some(crawl(Some("database"))), ..NetworkSpec::default() };
        let client = sandbox(&world, Some(crawl(None))).await;
        // Shorter than the use, and longer than a request takes on a busy host.
        let idle = Some(Duration::from_secs(12));
        let wish = CreateSpec { network: network(), idle, ..spec("base") };
        let database = world.engine.engine.create(wish).await.unwrap();
        shell(&database, "(setsid python3 -m http.server 8000 >/dev/null 2>&1 &)").await;
        let line = "for i in $(seq 16); do curl -s -m 9 -o /dev/null --retry 9 --retry-all-errors --retry-delay 1 \
            http://database.internal:8000/ || exit 1; sleep 1; done";
        assert_eq!(shell(&client, line).await.exit.code, 0, "it was ended while it was used");
        let waits = Instant::now();
        let ended = database.ended().await;
        assert_eq!(ended, EndReason::Idle);
        assert!(waits.elapsed() > Duration::from_secs(2), "it was idle for so long only");
        drop(client);
        world.engine.close().await;
    }

    async fn those_of_a_group_reach_each_other_and_nobody_else_does() {
        let world = World::new().await;
        let database = sandbox(&world, Some(crawl(Some("database")))).await;
        let (client, stranger) = (sandbox(&world, Some(crawl(None))).await, sandbox(&world, None).await);
        let by_id = |sandbox: &Sandbox| format!("http://{}.internal:8000/", sandbox.id());
        let by_name = "http://database.internal:8000/";
        assert_eq!((fetch(&client, by_name).await, fetch(&client, &by_id(&database)).await), ("200".into(), "200".into()));
        assert_eq!(fetch(&database, &by_id(&client)).await, "200");
        assert_eq!(fetch(&client, "http://example.com/").await, "000", "a group is no policy");
        let address = shell(&client, "getent hosts database.internal | cut -d' ' -f1").await.stdout;
        for url in [by_name.to_owned(), by_id(&client), format!("http://{}:8000/", address.trim())] {
            assert_eq!(fetch(&stranger, &url).await, "000", "a stranger reached {url}");
        }
        let taken = NetworkSpec { group: Some(crawl(Some("database"))), ..NetworkSpec::default() };
        let error = world.engine.engine.create(CreateSpec { network: taken, ..spec("base") }).await.err().unwrap();
        assert!(error.to_string().contains("called `database`"), "{error}");

        // Whoever leaves, or ends, is gone at once.
        hold(&client).await;
        set(&database, GroupChange::Leave).await;
        let cut = shell(&client, "for i in $(seq 200); do [ -s /tmp/cut ] && exit 0; sleep 0.05; done; exit 1").await;
        assert_eq!(cut.exit.code, 0, "a connection outlived the group");
        assert_eq!((fetch(&client, by_name).await, fetch(&database, &by_id(&client)).await), ("000".into(), "000".into()));
        set(&stranger, GroupChange::Join(crawl(Some("database")))).await;
        assert_eq!(fetch(&client, by_name).await, "200", "another has the name now");
        stranger.end(EndReason::Requested).await.unwrap();
        assert_eq!(fetch(&client, by_name).await, "000");
        drop((database, client, stranger));
        world.engine.close().await;
    }
}
