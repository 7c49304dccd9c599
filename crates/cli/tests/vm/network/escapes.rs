//! Every way out that the field has seen, tried from inside one guest. What is tried is in `escapes.py`.

use std::net::IpAddr;
use std::time::Duration;

use sandling_engine::RunSpec;
use sandling_protocol::Language;

use super::world::{SHARED, World};
use crate::harness::run;
use crate::isolated;

isolated! {
    async fn every_way_out_is_closed() {
        let world = World::new().await;
        let (sandbox, witness) = (world.sandbox(&["example.com", "*.example.com"], &[]).await, world.sandbox(&[], &[]).await);
        let code = RunSpec { timeout: Some(Duration::from_secs(240)), ..RunSpec::code(Language::Python, include_str!("escapes.py")) };
        let ran = run(&sandbox, code).await;
        println!("{}", ran.stdout);
        assert_eq!(ran.exit.code, 0, "{}\n{}", ran.stdout, ran.stderr);

        assert_only_what_is_allowed_was_reached(&world);
        let counts = sandbox.network_counts();
        assert!(counts.connections_refused > 20 && counts.packets_refused > 10, "{counts:?}");
        assert!(counts.received_bytes > 0 && counts.sent_bytes > 0, "{counts:?}");
        // Whoever lives beside it noticed nothing.
        assert_eq!(crate::harness::shell(&witness, "echo alive").await.stdout, "alive\n");
        world.engine.close().await;
    }
}

/// As the servers outside saw it.
fn assert_only_what_is_allowed_was_reached(world: &World) {
    let seen = world.log.lock().unwrap();
    let strange: Vec<_> = seen
        .visits
        .iter()
        .filter(|visit| visit.ip() != IpAddr::V4(SHARED) || ![80, 443].contains(&visit.port()))
        .collect();
    assert!(strange.is_empty(), "reached: {strange:?}");
    let left: Vec<_> = seen.queries.iter().map(|(name, _)| name.as_str()).collect();
    let alien = |name: &&&str| !name.ends_with("example.com") || name.len() > 100;
    assert_eq!(left.iter().find(alien), None, "asked for outside");
    for forged in ["spoofed-mac", "spoofed-ip", "fragmented", "leak", "txt"] {
        assert!(!left.iter().any(|name| name.starts_with(forged)), "{forged} left");
    }
    assert!(left.iter().filter(|name| name.starts_with("tunnel")).count() < 500);
    for unheard in ["/fronted", "/relayed", "CONNECT"] {
        assert!(!seen.requests.iter().any(|head| head.contains(unheard)), "{unheard} got through");
    }
}
