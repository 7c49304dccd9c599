//! The network through a sandbox's life: policies that change, pauses, forks, sleep.

use std::sync::Arc;

use sandling_engine::network::LimitRequest;
use sandling_engine::{CreateSpec, ForkSpec, NetworkChange, NetworkSpec, Sandbox, SnapshotSpec};
use sandling_network::policy::{Mode, Policy, Refusal, TlsMode};
use sandling_network::{EventKind, Verdict};

use super::world::{World, allow, fetch, hold_connection, is_cut, placements, set};
use crate::harness::{eventually, shell, spec};
use crate::isolated;

const URL: &str = "http://example.com/";

/// Whether a server that takes everything got so many bytes.
async fn send(sandbox: &Arc<Sandbox>, bytes: usize) -> bool {
    let code = format!(
        "import socket; s = socket.create_connection(('example.com', 9)); s.sendall(bytes({bytes})); s.shutdown(1); \
         print(len(s.recv(8)))"
    );
    shell(sandbox, &format!("python3 -c \"{code}\"")).await.stdout == "8\n"
}

/// Puts something else where the guest's shell was.
async fn replace_shell(sandbox: &Arc<Sandbox>, with: &str) {
    let line = format!(
        "[ -e /bin/sh.own ] || cp -a /bin/sh /bin/sh.own; printf '#!/bin/bash\n%s\n' '{with}' >/bin/sh.new && \
         chmod 755 /bin/sh.new && mv -f /bin/sh.new /bin/sh"
    );
    let ran = shell(sandbox, &line).await;
    assert_eq!(ran.exit.code, 0, "{}", ran.stderr);
}

isolated! {
    async fn a_policy_holds_through_everything_that_happens_to_a_sandbox() {
        let world = World::new().await;
        let sandbox = world.sandbox(&[], &[]).await;
        let ran = shell(&sandbox, "cat /sys/class/net/eth0/mtu; curl -s -m 30 http://example.com/; echo $?").await;
        assert_eq!(ran.stdout, "16000\n6\n", "without a policy names do not resolve, and that is said at once");

        // Changed while it runs, and for connections that are open.
        set(&sandbox, allow(&["example.com"])).await;
        assert_eq!(fetch(&sandbox, URL).await, "200");
        hold_connection(&sandbox).await;
        set(&sandbox, Policy::of(Mode::Deny)).await;
        assert!(is_cut(&sandbox).await, "an open connection outlived the policy");
        assert_eq!(fetch(&sandbox, URL).await, "000");
        set(&sandbox, allow(&["example.com"])).await;

        sandbox.pause().await.unwrap();
        sandbox.resume().await.unwrap();
        assert_eq!(fetch(&sandbox, URL).await, "200");

        // A child has the policy, and none of the connections.
        hold_connection(&sandbox).await;
        let forks = world.engine.engine.fork(&sandbox, ForkSpec { children: 1, ..ForkSpec::default() }).await.unwrap();
        let child = forks[0].sandbox.clone();
        assert_eq!((fetch(&child, URL).await, fetch(&child, "http://other.com/").await), ("200".into(), "000".into()));
        assert!(is_cut(&child).await, "a connection of the parent's went on in the child");
        assert_eq!(fetch(&sandbox, URL).await, "200", "the parent goes on");
        child.end(sandling_engine::EndReason::Requested).await.unwrap();

        sandbox.hibernate().await.unwrap();
        set(&sandbox, allow(&["example.com", "other.com"])).await;
        sandbox.wake().await.unwrap();
        assert!(is_cut(&sandbox).await, "it slept over the end of a connection and was not told");
        assert_eq!((fetch(&sandbox, URL).await, fetch(&sandbox, "http://other.com/").await), ("200".into(), "200".into()));

        assert_eq!(fetch(&sandbox, "http://evil.com/").await, "000");
        let refused = |event: &sandling_engine::network::NetworkEvent| {
            event.event.kind == EventKind::Dns
                && matches!(event.event.verdict, Verdict::Refused(_))
                && event.event.name.as_ref().is_some_and(|name| name.as_str() == "evil.com")
        };
        eventually("an event that says so", || sandbox.network_events(0, 1000).iter().any(refused)).await;
        let stored = world.engine.engine.events().newest("default", Some(sandbox.id()), 1000).unwrap();
        assert!(stored.iter().any(|event| event.kind == "network"), "{stored:?}");
        assert!(sandbox.usage().await.unwrap().network.received_bytes > 0);
        let totals = world.engine.engine.networks().totals();
        assert!(totals.bytes_in() > 0 && totals.dns_queries() > 0);
        assert!(totals.decisions().iter().any(|(kind, verdict, _)| {
            (*kind, *verdict) == (EventKind::Dns, Verdict::Refused(Refusal::NotListed))
        }));
        world.engine.close().await;
    }

    async fn a_guest_that_does_not_help_cannot_keep_its_policy() {
        let world = World::new().await;
        let hosts = vec!["www.example.com".parse().unwrap()];
        world.engine.engine.networks().set_secret("default", "API_KEY", "hunter2".to_owned().into(), hosts, placements()).unwrap();
        let sandbox = world.sandbox(&[], &[]).await;
        let inspected = || Policy { tls: TlsMode::Inspected, ..allow(&["*.example.com"]) };
        let with_secret = || {
            let secrets = Some(vec!["API_KEY".to_owned()]);
            sandbox.change_network(NetworkChange { policy: inspected().into(), secrets, ..NetworkChange::default() })
        };
        let (plain, sealed, other) = ("http://www.example.com/", "https://www.example.com/", "http://other.com/");

        // Its shell fails. Whoever asked is told what is missing, and the rest holds.
        set(&sandbox, Policy::of(Mode::Open)).await;
        assert_eq!(fetch(&sandbox, other).await, "200");
        replace_shell(&sandbox, "exit 7").await;
        let told = with_secret().await.unwrap_err().to_string();
        assert!(told.ends_with("so it was not given API_KEY and its TLS is refused"), "{told}");
        assert_eq!((fetch(&sandbox, plain).await, fetch(&sandbox, other).await), ("200".into(), "000".into()));
        assert_eq!(fetch(&sandbox, sealed).await, "000");
        assert!(sandbox.network().secrets.is_empty());

        // Its shell is never done. Nobody waits for that but who asked, not even the next change.
        set(&sandbox, Policy::of(Mode::Open)).await;
        replace_shell(&sandbox, "while true; do sleep 1; done").await;
        let asking = sandbox.clone();
        let change = NetworkChange { policy: inspected().into(), ..NetworkChange::default() };
        let waiting = tokio::spawn(async move { asking.change_network(change).await });
        eventually("the narrower policy", || sandbox.effective_policy().policy == inspected()).await;
        set(&sandbox, allow(&["example.com"])).await;
        assert!(!waiting.is_finished(), "one change waited for the other's guest");
        assert_eq!((fetch(&sandbox, URL).await, fetch(&sandbox, other).await), ("200".into(), "000".into()));
        waiting.await.unwrap().expect("nothing of it is missing any more");

        // When it helps again, the same change is whole.
        let ran = shell(&sandbox, "mv -f /bin/sh.own /bin/sh").await;
        assert_eq!(ran.exit.code, 0, "{}", ran.stderr);
        let settings = with_secret().await.unwrap();
        assert_eq!((settings.secrets.len(), settings.has_authority), (1, true));
        assert_eq!((fetch(&sandbox, sealed).await, fetch(&sandbox, other).await), ("200".into(), "000".into()));
        world.engine.close().await;
    }

    async fn what_is_made_from_a_snapshot_or_put_back_has_a_network() {
        let world = World::new().await;
        let engine = &world.engine.engine;
        let sandbox = world.sandbox(&["example.com"], &[]).await;
        hold_connection(&sandbox).await;
        let checkpoint = engine.checkpoint(&sandbox, None).await.unwrap();
        let (snapshot, _) = engine.snapshot(&sandbox, SnapshotSpec::default()).await.unwrap();

        // It has what it is given when it is made, and nothing of what the snapshot's had.
        let from = |policy| {
            let network = NetworkSpec { policy, ..NetworkSpec::default() };
            CreateSpec { network, from_snapshot: Some(snapshot.id.clone()), ..spec("base") }
        };
        let silent = engine.create(from(None)).await.unwrap();
        assert_eq!(fetch(&silent, URL).await, "000");
        assert!(is_cut(&silent).await, "a connection of the snapshot's went on");
        let made = engine.create(from(Some(allow(&["other.com"])))).await.unwrap();
        assert_eq!((fetch(&made, URL).await, fetch(&made, "http://other.com/").await), ("000".into(), "200".into()));
        assert_eq!(made.info().from_snapshot, Some(snapshot.id.clone()));

        // What is allowed now is allowed after a rewind, whatever was allowed then.
        set(&sandbox, allow(&["other.com"])).await;
        engine.rewind(&sandbox, &checkpoint.number.to_string()).await.unwrap();
        assert!(is_cut(&sandbox).await, "it was put back to a connection that is not there any more");
        assert_eq!((fetch(&sandbox, URL).await, fetch(&sandbox, "http://other.com/").await), ("000".into(), "200".into()));
        world.engine.close().await;
    }

    async fn what_was_used_while_learning_is_a_policy() {
        let world = World::new().await;
        let sandbox = world.sandbox(&[], &[]).await;
        set(&sandbox, Policy::of(Mode::Learn)).await;
        assert_eq!((fetch(&sandbox, URL).await, fetch(&sandbox, "http://169.254.169.254/").await), ("200".into(), "000".into()));
        let learned = sandbox.learned_policy();
        assert_eq!(learned, allow(&["example.com"]));
        set(&sandbox, learned).await;
        assert_eq!((fetch(&sandbox, URL).await, fetch(&sandbox, "http://other.com/").await), ("200".into(), "000".into()));
        world.engine.close().await;
    }

    async fn what_was_sent_and_learned_is_known_to_the_next_gateway() {
        let world = World::new().await;
        let limits = LimitRequest { sent_bytes: Some(200_000), ..LimitRequest::default() };
        let network = NetworkSpec { policy: Some(Policy::of(Mode::Learn)), limits, ..NetworkSpec::default() };
        let sandbox = world.engine.engine.create(CreateSpec { network, ..spec("base") }).await.unwrap();
        assert!(send(&sandbox, 60_000).await);
        // What shows no name is learned with the one that was resolved.
        let known = |sandbox: &Sandbox| (sandbox.learned_policy(), sandbox.network_counts().sent_bytes >= 60_000);
        let expected = (allow(&["example.com:9"]), true);
        assert_eq!(known(&sandbox), expected);

        let forks = world.engine.engine.fork(&sandbox, ForkSpec { children: 1, ..ForkSpec::default() }).await.unwrap();
        let child = forks[0].sandbox.clone();
        assert_eq!((child.network_counts().sent_bytes, child.learned_policy()), (0, allow(&[])), "a child begins anew");
        child.end(sandling_engine::EndReason::Requested).await.unwrap();
        drop((child, forks));

        let checkpoint = world.engine.engine.checkpoint(&sandbox, None).await.unwrap();
        world.engine.engine.rewind(&sandbox, &checkpoint.number.to_string()).await.unwrap();
        assert_eq!(known(&sandbox), expected, "after a rewind");
        sandbox.hibernate().await.unwrap();
        assert_eq!(known(&sandbox), expected, "asleep");
        let (world, sandbox) = world.restart(sandbox).await;
        assert_eq!(known(&sandbox), expected, "asleep since before a restart");
        sandbox.wake().await.unwrap();
        assert_eq!(known(&sandbox), expected, "awake again");
        assert!(!send(&sandbox, 150_000).await, "it sent more than it may, in all");
        drop(sandbox);
        world.engine.close().await;
    }
}
