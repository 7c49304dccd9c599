//! Defaults that change under sandboxes that run, sleep or are taken over, and a workspace's that binds.

use std::sync::Arc;
use std::time::Duration;

use sandling_engine::network::{Before, PolicyFrom};
use sandling_engine::{
    CreateSpec, EndReason, Engine, ForkSpec, NetworkChange, NetworkDefaultChange, NetworkSpec, Sandbox,
};
use sandling_network::Verdict;
use sandling_network::policy::{Mode, Policy, Refusal, TlsMode};

use super::world::{World, allow, fetch, hold_connection, is_cut, set};
use crate::harness::{eventually, shell, spec};
use crate::isolated;

const WORKSPACE: &str = "default";
const ONE: &str = "http://example.com/";
const OTHER: &str = "http://other.com/";

fn default(engine: &Engine, template: Option<&str>, policy: Policy) {
    let change = NetworkDefaultChange { policy: policy.into(), ..NetworkDefaultChange::default() };
    engine.networks().change_default(WORKSPACE, template, change).unwrap();
}

fn bind(engine: &Engine, binding: bool) {
    let change = NetworkDefaultChange { binding: Some(binding), ..NetworkDefaultChange::default() };
    engine.networks().change_default(WORKSPACE, None, change).unwrap();
}

/// What it gets from the two servers, and whose policy that is.
async fn reached(sandbox: &Arc<Sandbox>) -> (String, String, PolicyFrom) {
    (fetch(sandbox, ONE).await, fetch(sandbox, OTHER).await, sandbox.effective_policy().from)
}

fn both(one: &str, other: &str, from: PolicyFrom) -> (String, String, PolicyFrom) {
    (one.to_owned(), other.to_owned(), from)
}

/// A request whose host is another than that of its TLS.
async fn fronted(sandbox: &Arc<Sandbox>) -> String {
    let line = "curl -sk -m 60 -o /dev/null -w '%{http_code}' -H 'Host: other.com' https://www.example.com/";
    shell(sandbox, line).await.stdout
}

isolated! {
    async fn who_says_nothing_follows_the_defaults_while_it_runs() {
        let world = World::new().await;
        let engine = &world.engine.engine;
        let follower = world.engine.sandbox().await;
        assert_eq!(reached(&follower).await, both("000", "000", PolicyFrom::Nothing));

        // A default that opens lets it out at once, and one that closes cuts it off.
        default(engine, None, allow(&["example.com"]));
        assert_eq!(reached(&follower).await, both("200", "000", PolicyFrom::Workspace));
        hold_connection(&follower).await;
        default(engine, Some("base"), allow(&["other.com"]));
        assert!(is_cut(&follower).await, "an open connection outlived the default");
        assert_eq!(reached(&follower).await, both("000", "200", PolicyFrom::Template));
        engine.networks().remove_default(WORKSPACE, Some("base")).unwrap();
        assert_eq!(reached(&follower).await, both("200", "000", PolicyFrom::Workspace));

        // A copy follows as well. What has a policy of its own does not, until that is forgotten.
        let child = engine.fork(&follower, ForkSpec { children: 1, ..ForkSpec::default() }).await.unwrap().remove(0).sandbox;
        set(&follower, allow(&["example.com", "other.com"])).await;
        default(engine, None, allow(&["other.com"]));
        assert_eq!(reached(&child).await, both("000", "200", PolicyFrom::Workspace));
        assert_eq!(reached(&follower).await, both("200", "200", PolicyFrom::Sandbox));
        follower.change_network(NetworkChange { before: Before::Forgotten, ..NetworkChange::default() }).await.unwrap();
        assert_eq!(reached(&follower).await, both("000", "200", PolicyFrom::Workspace));
        let events = engine.events().newest(WORKSPACE, Some(child.id()), 100).unwrap();
        assert!(events.iter().any(|event| event.kind == "network_changed"), "{events:?}");

        // Asleep, it has the new one when it wakes; and the next engine knows.
        follower.hibernate().await.unwrap();
        default(engine, None, allow(&["example.com"]));
        assert_eq!(follower.effective_policy().policy, allow(&["example.com"]));
        follower.wake().await.unwrap();
        assert_eq!(reached(&follower).await, both("200", "000", PolicyFrom::Workspace));
        child.hibernate().await.unwrap();
        follower.hibernate().await.unwrap();
        let asleep = child.id().clone();
        drop(child);
        let (world, follower) = world.restart(follower).await;
        let engine = &world.engine.engine;
        assert_eq!(follower.effective_policy().policy, allow(&["example.com"]));
        follower.wake().await.unwrap();
        assert_eq!(reached(&follower).await, both("200", "000", PolicyFrom::Workspace));
        default(engine, None, allow(&["other.com"]));
        assert_eq!(reached(&follower).await, both("000", "200", PolicyFrom::Workspace));
        let child = engine.get(&asleep).expect("it is still there");
        child.wake().await.unwrap();
        assert_eq!(reached(&child).await, both("000", "200", PolicyFrom::Workspace));
        engine.networks().remove_default(WORKSPACE, None).unwrap();
        assert_eq!(reached(&child).await, both("000", "000", PolicyFrom::Nothing));

        // Whenever one changes while it is made or woken, it ends with the new one.
        let turns = [("example.com", "200", "000"), ("other.com", "000", "200")].into_iter().cycle();
        for (after_ms, (name, one, other)) in [0, 20, 60, 150].into_iter().zip(turns) {
            child.hibernate().await.unwrap();
            let making = async {
                let (made, woken) = tokio::join!(engine.create(spec("base")), child.wake());
                woken.unwrap();
                made.unwrap()
            };
            let changing = async {
                tokio::time::sleep(Duration::from_millis(after_ms)).await;
                default(engine, None, allow(&[name]));
            };
            let (made, ()) = tokio::join!(making, changing);
            for sandbox in [&made, &child] {
                assert_eq!(reached(sandbox).await, both(one, other, PolicyFrom::Workspace), "after {after_ms} ms");
            }
            made.end(EndReason::Requested).await.unwrap();
        }
        drop((follower, child));
        world.engine.close().await;
    }

    async fn what_a_workspace_binds_no_sandbox_widens() {
        let world = World::new().await;
        let engine = &world.engine.engine;
        let open = || NetworkSpec { policy: Some(Policy::of(Mode::Open)), ..NetworkSpec::default() };
        let sandbox = engine.create(CreateSpec { network: open(), ..spec("base") }).await.unwrap();
        default(engine, None, allow(&["other.com"]));
        assert_eq!(reached(&sandbox).await, both("200", "200", PolicyFrom::Sandbox), "nothing binds yet");

        hold_connection(&sandbox).await;
        bind(engine, true);
        assert!(is_cut(&sandbox).await, "an open connection outlived what binds");
        assert_eq!(reached(&sandbox).await, both("000", "200", PolicyFrom::Sandbox));
        let refused = |event: &sandling_engine::network::NetworkEvent| {
            event.event.verdict == Verdict::Refused(Refusal::WorkspacePolicy)
        };
        eventually("an event that says why", || sandbox.network_events(0, 1000).iter().any(refused)).await;

        // Whatever it is changed to, by whomever, and whatever is made.
        set(&sandbox, allow(&["example.com", "other.com"])).await;
        default(engine, Some("base"), Policy::of(Mode::Open));
        let made = engine.create(CreateSpec { network: open(), ..spec("base") }).await.unwrap();
        let silent = world.engine.sandbox().await;
        for one in [&sandbox, &made, &silent] {
            assert_eq!((fetch(one, ONE).await, fetch(one, OTHER).await), ("000".into(), "200".into()));
        }
        // It narrows for itself.
        set(&made, Policy::default()).await;
        assert_eq!(fetch(&made, OTHER).await, "000");
        drop((made, silent));

        sandbox.hibernate().await.unwrap();
        let (world, sandbox) = world.restart(sandbox).await;
        let engine = &world.engine.engine;
        sandbox.wake().await.unwrap();
        assert_eq!(reached(&sandbox).await, both("000", "200", PolicyFrom::Sandbox));
        bind(engine, false);
        assert_eq!(reached(&sandbox).await, both("200", "200", PolicyFrom::Sandbox));
        drop(sandbox);
        world.engine.close().await;
    }

    async fn a_default_that_has_tls_opened_opens_it_in_those_that_follow() {
        let world = World::new().await;
        let engine = &world.engine.engine;
        default(engine, None, allow(&["*.example.com"]));
        let (running, paused, asleep) = (world.engine.sandbox().await, world.engine.sandbox().await, world.engine.sandbox().await);
        assert_eq!(fronted(&running).await, "200", "sealed, it is not looked into");
        paused.pause().await.unwrap();
        asleep.hibernate().await.unwrap();

        default(engine, None, Policy { tls: TlsMode::Inspected, ..allow(&["*.example.com"]) });
        // Until its guest trusts the authority nothing passes.
        assert_ne!(fronted(&running).await, "200");
        eventually("an authority", || running.network().has_authority).await;
        paused.resume().await.unwrap();
        asleep.wake().await.unwrap();
        for sandbox in [&running, &paused, &asleep] {
            assert!(sandbox.network().has_authority);
            assert_eq!(fronted(sandbox).await, "403");
            assert_eq!(fetch(sandbox, "https://www.example.com/").await, "200", "the guest trusts it");
        }
        drop((running, paused, asleep));
        world.engine.close().await;
    }
}
