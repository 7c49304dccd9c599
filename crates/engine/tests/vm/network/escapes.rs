//! Every way out that the field has seen, tried from inside one guest. What is tried is in `escapes.py`.

use std::net::IpAddr;
use std::time::Duration;

use sandling_engine::{NetworkChange, RunSpec};
use sandling_network::policy::{Policy, Refusal, TlsMode};
use sandling_network::{EventKind, Verdict};
use sandling_protocol::Language;

use super::world::{SHARED, World, allow};
use crate::harness::{run, shell};
use crate::isolated;

const SCRIPT: &str = include_str!("escapes.py");
/// How many ways out there are to try: none gets lost unseen.
const WAYS_OUT: usize = 32;

/// The names of what the script tries.
fn ways_out() -> Vec<&'static str> {
    let marked = SCRIPT.split("\n@way_out\ndef ").skip(1);
    marked.map(|text| text.split_once('(').unwrap().0).collect()
}

isolated! {
    async fn every_way_out_is_closed() {
        let world = World::new().await;
        let (sandbox, witness) = (world.sandbox(&["example.com", "*.example.com"], &[]).await, world.sandbox(&[], &[]).await);
        let code = RunSpec { timeout: Some(Duration::from_secs(240)), ..RunSpec::code(Language::Python, SCRIPT) };
        let ran = run(&sandbox, code).await;
        println!("{}", ran.stdout);
        assert_eq!(ran.exit.code, 0, "{}\n{}", ran.stdout, ran.stderr);
        let tried: Vec<_> = ran.stdout.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
        assert_eq!((&tried, tried.len()), (&ways_out(), WAYS_OUT));

        assert_only_what_is_allowed_was_reached(&world);
        let counts = sandbox.network_counts();
        assert!(counts.connections_refused > 20 && counts.packets_refused > 10, "{counts:?}");
        assert!(counts.received_bytes > 0 && counts.sent_bytes > 0, "{counts:?}");
        let totals = world.engine.engine.networks().totals().decisions();
        for why in [Refusal::Spoofed, Refusal::Fragment, Refusal::FrameMalformed] {
            let counted = (EventKind::Packet, Verdict::Refused(why));
            assert!(totals.iter().any(|known| (known.0, known.1) == counted), "{why}: {totals:?}");
        }
        // Whoever lives beside it noticed nothing.
        assert_eq!(shell(&witness, "echo alive").await.stdout, "alive\n");

        // What sealed TLS hides is seen where it is inspected, whichever of the two names is the allowed one. The name is
        // resolved anew: the last test has pushed it out.
        assert!(world.heard("/sealed-front"));
        let policy = Policy { tls: TlsMode::Inspected, ..allow(&["example.com"]) };
        sandbox.change_network(NetworkChange { policy: policy.into(), ..NetworkChange::default() }).await.unwrap();
        let line = format!(
            "getent hosts example.com >/dev/null; for hosts in 'example.com evil.com' 'evil.com example.com' 'example.com example.com'; do set -- $hosts; \
             curl -s -m 60 -o /dev/null -w '%{{http_code}} ' --resolve $1:443:{SHARED} -H \"Host: $2\" https://$1/inspected-$2-in-$1; done"
        );
        assert_eq!(shell(&sandbox, &line).await.stdout, "403 000 200 ");
        assert!(world.heard("/inspected-example.com-in-example.com") && !world.heard("-evil.com-in-") && !world.heard("-in-evil.com"));
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
    for unheard in ["/fronted", "/slow", "/relayed", "CONNECT"] {
        assert!(!seen.requests.iter().any(|head| head.contains(unheard)), "{unheard} got through");
    }
}
