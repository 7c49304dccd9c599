//! Copies of running sandboxes: what they have, and what they must not share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sandling_engine::{CreateSpec, EndReason, Engine, ForkSpec, Sandbox, SnapshotSpec};
use sandling_protocol::{ContextSpec, Language};

use crate::contexts::cell;
use crate::harness::{TestEngine, config, engine, shell, spec};

/// What runs in the background: all that it writes to its open file has gone over its open socket.
const TICKER: &str = "import socket, time\nlines = open('/tmp/ticks', 'w', buffering=1)\n\
    server = socket.create_server(('127.0.0.1', 7002))\nclient = socket.create_connection(('127.0.0.1', 7002))\n\
    peer, _ = server.accept()\nnumber = 0\nwhile True:\n    number += 1\n    client.sendall(b'%d\\n' % number)\n    \
    lines.write(peer.recv(100).decode())\n    time.sleep(0.05)\n";

/// A session with something of everything: a variable, a file, half of one, an interpreter and a process that each have
/// an open file and an open socket.
pub async fn furnish(sandbox: &Arc<Sandbox>) {
    let context =
        ContextSpec { id: "c".to_owned(), language: Language::Python, cwd: None, env: Default::default(), user: None };
    sandbox.create_context(context).await.unwrap();
    let code = "import random, uuid, os, socket, threading\nx = ['a variable']\nhalf = open('/tmp/half', 'w')\n\
        half.write('first half, ')\nserver = socket.create_server(('127.0.0.1', 7001))\n\
        client = socket.create_connection(('127.0.0.1', 7001))\npeer, _ = server.accept()";
    let furnished = cell(sandbox, "c", code).await;
    assert_eq!(furnished.stderr, "");
    let line = format!(
        "echo a file > /root/file; cat > /root/ticker.py <<'EOF'\n{TICKER}EOF\n\
        python3 /root/ticker.py > /tmp/ticker.log 2>&1 & until [ -s /tmp/ticks ]; do sleep 0.05; done"
    );
    let started = shell(sandbox, &line).await;
    assert_eq!(started.exit.code, 0, "{}", started.stderr);
}

/// Looks for all of it, for the so-manieth time in this sandbox and its ancestors.
pub async fn inspect(sandbox: &Arc<Sandbox>, time: usize) {
    assert_eq!(cell(sandbox, "c", "x[0]").await.value, "'a variable'");
    let whole = cell(sandbox, "c", "half.write('second half'); half.flush(); open('/tmp/half').read()").await;
    assert_eq!(whole.value, format!("'first half, {}'", "second half".repeat(time)));
    let sent = cell(sandbox, "c", "client.sendall(b'over the socket'); peer.recv(100)").await;
    assert_eq!(sent.value, "b'over the socket'");
    let ran = shell(
        sandbox,
        "cat /root/file; a=$(wc -l < /tmp/ticks); for look in $(seq 100); do [ $(wc -l < /tmp/ticks) -gt $a ] && break; \
        sleep 0.1; done; [ $(wc -l < /tmp/ticks) -gt $a ] && echo ticks; \
        n=$(wc -l < /tmp/ticks); seq $n > /tmp/all; head -n $n /tmp/ticks | cmp - /tmp/all; cat /tmp/ticker.log",
    );
    assert_eq!(ran.await.stdout, "a file\nticks\n");
}

async fn drawn(sandbox: &Arc<Sandbox>) -> Vec<String> {
    let code = "[random.random(), str(uuid.uuid4()), os.urandom(8).hex()]";
    let in_context = cell(sandbox, "c", code).await.value;
    let fresh = shell(sandbox, "head -c 8 /dev/urandom | od -An -tx1; hostname; cat /etc/machine-id").await.stdout;
    in_context.trim_matches(['[', ']']).split(", ").chain(fresh.lines()).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_fork_has_everything_of_its_parent_and_the_parent_goes_on() {
    let engine = engine().await;
    let parent = engine.sandbox().await;
    furnish(&parent).await;
    let forks = engine.engine.fork(&parent, ForkSpec { children: 2, ..ForkSpec::default() }).await.unwrap();
    let receipt = &forks[0].receipt;
    assert_eq!((&receipt.parent, receipt.reseeded), (parent.id(), true));
    assert!(receipt.clock_error_ms < 50.0 && receipt.stored_bytes > 0, "{receipt:?}");
    let memory_pages = u64::from(parent.info().memory_mib) << 8;
    assert_eq!(receipt.pages_shared + receipt.pages_copied, memory_pages, "{receipt:?}");
    assert!(receipt.pages_copied > 0 && receipt.pages_copied < receipt.pages_shared, "{receipt:?}");
    println!("{receipt:?}");
    shell(&parent, "echo the parent > /root/later").await;
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for sandbox in forks.iter().map(|fork| &fork.sandbox).chain([&parent]) {
        inspect(sandbox, 1).await;
        let values = drawn(sandbox).await;
        total += values.len();
        seen.extend(values);
    }
    assert_eq!(seen.len(), total, "something was drawn twice: {seen:?}");
    assert_eq!(shell(&forks[0].sandbox, "cat /root/later").await.exit.code, 1, "a child sees what came later");

    // A fork of a fork of a fork, after those before it have gone.
    let one = || ForkSpec { children: 1, ..ForkSpec::default() };
    let grandchild = engine.engine.fork(&forks[0].sandbox, one()).await.unwrap().remove(0).sandbox;
    for sandbox in forks.iter().map(|fork| &fork.sandbox).chain([&parent]) {
        sandbox.end(EndReason::Requested).await.unwrap();
    }
    inspect(&grandchild, 2).await;
    let last = engine.engine.fork(&grandchild, one()).await.unwrap().remove(0).sandbox;
    assert_eq!(last.info().parent.as_ref(), Some(grandchild.id()));
    grandchild.end(EndReason::Requested).await.unwrap();
    inspect(&last, 3).await;
    last.end(EndReason::Requested).await.unwrap();
    let left: Vec<_> = std::fs::read_dir(engine.home.path().join("snapshots")).unwrap().flatten().collect();
    assert!(left.is_empty(), "nobody stands on {left:?}");
    engine.close().await;
}

#[tokio::test]
async fn a_snapshot_outlives_its_sandbox_and_is_where_others_begin() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    furnish(&sandbox).await;
    let (first, _) = engine
        .engine
        .snapshot(&sandbox, SnapshotSpec { name: Some("first".to_owned()), ..SnapshotSpec::default() })
        .await
        .unwrap();
    shell(&sandbox, "echo second > /root/file").await;
    let (second, _) = engine.engine.snapshot(&sandbox, SnapshotSpec::default()).await.unwrap();
    assert!(second.memory_bytes < first.memory_bytes, "{} then {}", first.memory_bytes, second.memory_bytes);
    assert_eq!(second.parent.as_ref(), Some(&first.id));
    sandbox.end(EndReason::Requested).await.unwrap();
    let listed = engine.engine.snapshots().list("default").unwrap();
    assert_eq!(listed.iter().map(|info| &info.id).collect::<Vec<_>>(), [&first.id, &second.id]);

    let from = |id| CreateSpec { from_snapshot: Some(id), ..spec("base") };
    let again = engine.engine.create(from(first.id.clone())).await.unwrap();
    inspect(&again, 1).await;
    // The second stands on the first, and goes on doing so.
    engine.engine.snapshots().delete("default", &first.id).await.unwrap();
    assert!(engine.engine.snapshots().find("default", &first.id).unwrap().is_none());
    let later = engine.engine.create(from(second.id.clone())).await.unwrap();
    assert_eq!(shell(&later, "cat /root/file").await.stdout, "second\n");
    assert!(engine.engine.create(CreateSpec { vcpus: Some(2), ..from(second.id.clone()) }).await.is_err());
    engine.close().await;
}

#[tokio::test]
async fn a_sandbox_that_hibernates_holds_no_memory_and_wakes_once_with_everything() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    furnish(&sandbox).await;
    let machine_id = shell(&sandbox, "cat /etc/machine-id").await.stdout;
    let pid = sandbox.usage().await.unwrap().pid;
    sandbox.hibernate().await.unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "its machine still runs");
    assert!(sandbox.hibernates() && sandbox.run(sandling_engine::RunSpec::shell("true")).is_err());
    sandbox.hibernate().await.unwrap();

    let wakers: Vec<_> =
        (0..5).map(|_| sandbox.clone()).map(|one| tokio::spawn(async move { one.wake().await })).collect();
    for waker in wakers {
        waker.await.unwrap().unwrap();
    }
    inspect(&sandbox, 1).await;
    assert_eq!(shell(&sandbox, "cat /etc/machine-id").await.stdout, machine_id);
    // Again: what it is woken from is what it last was, not what it was first.
    shell(&sandbox, "echo newer > /root/file").await;
    sandbox.hibernate().await.unwrap();
    sandbox.wake().await.unwrap();
    assert_eq!(shell(&sandbox, "cat /root/file").await.stdout, "newer\n");
    sandbox.end(EndReason::Requested).await.unwrap();
    engine.close().await;
}

#[tokio::test]
async fn a_sandbox_that_hibernates_outlives_the_engine() {
    let home = tempfile::TempDir::new().unwrap();
    let config = sandling_engine::EngineConfig { takeover: true, ..config(&home) };
    let first = sandling_engine::Engine::open(config.clone()).await.unwrap();
    let sandbox = first.create(CreateSpec { persistent: true, ..spec("base") }).await.unwrap();
    let id = sandbox.id().clone();
    furnish(&sandbox).await;
    // A persistent one hibernates when its engine lets go.
    first.detach().await;
    assert!(sandbox.hibernates());
    drop((sandbox, first));
    let second = sandling_engine::Engine::open(config).await.unwrap();
    second.settled().await;
    let sandbox = second.get(&id).expect("it is still there");
    assert!(sandbox.hibernates());
    sandbox.wake().await.unwrap();
    inspect(&sandbox, 1).await;
    second.close().await;
}

/// A sandbox that has written 150 MiB, whose sum is in `/root/sum`.
async fn large(engine: &TestEngine) -> Arc<Sandbox> {
    let sandbox = engine.engine.create(CreateSpec { memory_mib: Some(512), ..spec("base") }).await.unwrap();
    let line = "mount -o remount,size=300m /dev/shm; head -c 2000000 /dev/urandom > /tmp/part; \
        for n in $(seq 75); do cat /tmp/part; done > /dev/shm/large; cksum < /dev/shm/large > /root/sum; cat /root/sum";
    let made = shell(&sandbox, line).await;
    assert!(made.stdout.ends_with(" 150000000\n"), "{made:?}");
    sandbox
}

async fn is_whole(sandbox: &Arc<Sandbox>) {
    let ran = shell(sandbox, "cksum < /dev/shm/large | cmp - /root/sum && echo whole").await;
    assert_eq!(ran.stdout, "whole\n", "{ran:?}");
}

#[tokio::test]
async fn children_have_all_pages_of_a_parent_that_ends_at_once_and_can_be_saved_at_once() {
    let engine = engine().await;
    let parent = large(&engine).await;
    let three = ForkSpec { children: 3, ..ForkSpec::default() };
    let children: Vec<_> = engine.engine.fork(&parent, three).await.unwrap();
    let [first, second, third] = [0, 1, 2].map(|number: usize| children[number].sandbox.clone());
    println!("{:?}", children[0].receipt);
    let ending = tokio::spawn(async move { parent.end(EndReason::Requested).await });
    first.hibernate().await.unwrap();
    let grandchild = engine.engine.fork(&second, ForkSpec { children: 1, ..ForkSpec::default() }).await.unwrap();
    ending.await.unwrap().unwrap();
    first.wake().await.unwrap();
    for sandbox in [&first, &second, &third, &grandchild[0].sandbox] {
        is_whole(sandbox).await;
        sandbox.end(EndReason::Requested).await.unwrap();
    }
    let left: Vec<_> = std::fs::read_dir(engine.home.path().join("snapshots")).unwrap().flatten().collect();
    assert!(left.is_empty(), "nobody stands on {left:?}");
    engine.close().await;
}

#[tokio::test]
async fn children_end_and_say_why_if_their_parent_cannot_be_written() {
    let engine = engine().await;
    let parent = large(&engine).await;
    let store = rusqlite::Connection::open(engine.home.path().join("sandling.db")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON snapshots BEGIN SELECT RAISE(ABORT, 'refused'); END";
    store.execute_batch(refuse).unwrap();
    let forked = engine.engine.fork(&parent, ForkSpec { children: 2, ..ForkSpec::default() }).await;
    println!("{:?}", forked.as_ref().map(Vec::len).map_err(ToString::to_string));
    for fork in forked.into_iter().flatten() {
        let ended = tokio::time::timeout(Duration::from_secs(60), fork.sandbox.ended()).await.unwrap();
        assert!(ended.to_string().contains("could not be written"), "{ended}");
        let (_, why) = engine.engine.ended(fork.sandbox.id()).unwrap().unwrap();
        assert_eq!(why, ended.to_string());
    }
    store.execute_batch("DROP TRIGGER refuse").unwrap();
    assert_eq!(engine.engine.list().len(), 1);
    is_whole(&parent).await;
    let again = engine.engine.fork(&parent, ForkSpec { children: 1, ..ForkSpec::default() }).await.unwrap();
    is_whole(&again[0].sandbox).await;
    engine.close().await;
}

#[tokio::test]
async fn a_child_whose_parent_was_not_written_when_the_server_died_is_reported_as_lost() {
    let home = tempfile::TempDir::new().unwrap();
    let config = || sandling_engine::EngineConfig { takeover: true, ..config(&home) };
    let first = Engine::open(config()).await.unwrap();
    let parent = first.create(spec("base")).await.unwrap();
    let child = first.fork(&parent, ForkSpec { children: 1, ..ForkSpec::default() }).await.unwrap().remove(0);
    let (id, parent_id, snapshot) = (child.sandbox.id().clone(), parent.id().clone(), child.receipt.snapshot.clone());
    first.detach().await;
    drop((child, parent, first));
    // As a server leaves it that dies before it has written all pages.
    let store = rusqlite::Connection::open(home.path().join("sandling.db")).unwrap();
    assert_eq!(store.execute("DELETE FROM snapshots WHERE id = ?1", [&snapshot]).unwrap(), 1);
    std::fs::write(home.path().join("snapshots").join(&snapshot).join("unwritten"), "").unwrap();
    let second = Engine::open(config()).await.unwrap();
    second.settled().await;
    assert!(second.get(&id).is_none());
    let parent = second.get(&parent_id).unwrap_or_else(|| panic!("{:?}", second.ended(&parent_id)));
    assert_eq!(shell(&parent, "echo here").await.stdout, "here\n");
    let (_, why) = second.ended(&id).unwrap().unwrap();
    assert!(why.contains("before the memory of the sandbox that it was forked from was written"), "{why}");
    second.close().await;
}
