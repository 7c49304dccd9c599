//! Headers that the gateway sets, seen from a real guest: they arrive, and the guest does not know them.

use sandling_engine::{CreateSpec, ForkSpec, NetworkChange, NetworkSpec};
use sandling_network::{HeaderRules, HeadersByHost};

use super::world::{World, allow, fetch};
use crate::harness::{chain, shell, spec};
use crate::isolated;

const VALUE: &str = "hunter2-the-real-one";

fn rules(host: &str) -> HeaderRules {
    let header = [("X-Key".to_owned(), VALUE.to_owned())];
    HeadersByHost::from([(host.to_owned(), header.into())]).try_into().unwrap()
}

/// The key of the request for a path, as it reached the server.
fn key(world: &World, path: &str) -> Option<String> {
    let head =
        world.requests().into_iter().find(|head| head.contains(&format!("GET {path} "))).expect("it was reached");
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("x-key:"))?.to_owned();
    Some(line.split_once(':')?.1.trim().to_owned())
}

isolated! {
    async fn headers_are_set_for_their_host_in_all_that_happens_to_a_sandbox() {
        let world = World::new().await;
        let policy = Some(allow(&["*.example.com", "example.com"]));
        let network = NetworkSpec { policy, header_rules: rules("api.example.com"), ..NetworkSpec::default() };
        let created = world.engine.engine.create(CreateSpec { network, ..spec("base") }).await;
        let sandbox = created.unwrap_or_else(|error| panic!("{}", chain(&error)));
        assert_eq!(shell(&sandbox, "curl -s -m 60 -H 'X-Key: mine' https://api.example.com/tls >/dev/null; echo $?").await.stdout, "0\n");
        assert_eq!(key(&world, "/tls").as_deref(), Some(VALUE), "it replaces the guest's own");
        assert_eq!(fetch(&sandbox, "http://api.example.com/plain").await, "200");
        assert_eq!(key(&world, "/plain").as_deref(), Some(VALUE));
        assert_eq!(fetch(&sandbox, "http://example.com/other").await, "200");
        assert_eq!(key(&world, "/other"), None, "another host gets nothing");
        assert_eq!(shell(&sandbox, "env | grep -c hunter2; grep -rc hunter2 /etc/ssl | grep -v :0").await.stdout, "0\n");
        let row = serde_json::to_string(&sandbox.info().network).unwrap();
        assert!(row.contains("header_rules") && !row.contains(VALUE), "it is stored encrypted: {row}");

        let fork = ForkSpec { children: 1, ..ForkSpec::default() };
        let child = world.engine.engine.fork(&sandbox, fork).await.unwrap().remove(0).sandbox;
        assert_eq!(fetch(&child, "https://api.example.com/child").await, "200");
        assert_eq!(key(&world, "/child").as_deref(), Some(VALUE));

        // Rules of a running sandbox change at once, and its guest learns whom to trust.
        let change = |header_rules| NetworkChange { header_rules: Some(header_rules), ..NetworkChange::default() };
        sandbox.change_network(change(HeaderRules::default())).await.unwrap();
        assert_eq!(fetch(&sandbox, "http://api.example.com/cleared").await, "200");
        assert_eq!(key(&world, "/cleared"), None);
        let plain = world.sandbox(&["*.example.com"], &[]).await;
        plain.change_network(change(rules("*.example.com"))).await.unwrap();
        assert_eq!(fetch(&plain, "https://www.example.com/later").await, "200");
        assert_eq!(key(&world, "/later").as_deref(), Some(VALUE));
        world.engine.close().await;
    }
}
