//! The policy changes while the guest runs, and is learned from the guest's traffic.

use std::net::Ipv4Addr;

use sandling_network::policy::{Mode, Policy, Range, Refusal, TlsMode};
use sandling_network::{EventKind, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::isolated;
use crate::world::{SHARED, World, allow, exchange};

/// The address of git.code.com.
const CODE: Ipv4Addr = Ipv4Addr::new(140, 82, 121, 4);

const GET: &str = "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";

isolated! {
    async fn a_revoked_policy_ends_open_connections() {
        let mut world = World::new(allow(&["example.com", "example.com:7"])).await;
        world.guest.resolve("example.com").await;
        let mut stream = world.guest.connect(SHARED, 7).await.unwrap();
        stream.write_all(b"\0").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 0);
        let mut sealed = world.tls(SHARED, "example.com").await.unwrap();
        let mut plain = world.guest.connect(SHARED, 80).await.unwrap();
        crate::world::say(&mut plain, GET).await.unwrap();

        world.set_policy(allow(&["example.com:7"]));
        assert!(sealed.read_u8().await.is_err() && plain.read_u8().await.is_err());
        stream.write_all(b"y").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'y', "still allowed");

        world.set_policy(Policy::default());
        assert!(stream.reset().await);
        let closed = world.refused(EventKind::Close, Refusal::PolicyChanged).await;
        assert!(closed.bytes_out > 0);
        assert!(world.guest.connect(SHARED, 80).await.is_err());
        assert!(world.guest.resolve("example.com").await.is_empty());
    }

    async fn a_wider_policy_applies_at_once() {
        let world = World::new(Policy::default()).await;
        assert!(world.guest.resolve("example.com").await.is_empty());
        world.set_policy(allow(&["example.com"]));
        assert_eq!(world.guest.resolve("example.com").await, [SHARED]);
        assert!(world.http(SHARED, 80, GET).await.unwrap().starts_with("HTTP/1.1 200"));
    }

    async fn a_binding_policy_applies_at_once() {
        let mut world = World::with(Policy::of(Mode::Open), |config| config.bound = Some(allow(&["example.com"]))).await;
        assert_eq!(world.guest.resolve("example.com").await, [SHARED]);
        assert!(world.guest.resolve("other.com").await.is_empty());
        world.refused(EventKind::Dns, Refusal::WorkspacePolicy).await;
        let mut sealed = world.tls(SHARED, "example.com").await.unwrap();
        assert!(world.tls(SHARED, "other.com").await.is_err());
        assert!(world.guest.connect(SHARED, 7).await.is_err());
        world.refused(EventKind::Connect, Refusal::WorkspacePolicy).await;
        let other = "GET / HTTP/1.1\r\nHost: other.com\r\n\r\n";
        assert!(world.http(SHARED, 80, other).await.unwrap().starts_with("HTTP/1.1 403"));

        // The bound narrows the policy, and open connections are judged again.
        world.gateway().set_policies(Policy::of(Mode::Open), Some(allow(&["other.com"])));
        assert!(sealed.read_u8().await.is_err());
        assert!(world.guest.resolve("example.com").await.is_empty());
        world.gateway().set_policies(allow(&["example.com", "other.com"]), Some(allow(&["other.com"])));
        assert!(world.guest.resolve("example.com").await.is_empty());
        assert_eq!(world.guest.resolve("other.com").await, [SHARED]);
        world.set_policy(allow(&["example.com"]));
        assert!(world.http(SHARED, 80, GET).await.unwrap().starts_with("HTTP/1.1 200"));

        // The bound can require interception although the policy does not.
        let mut sealed = world.tls(SHARED, "example.com").await.unwrap();
        let inspected = Policy { tls: TlsMode::Inspected, ..Policy::of(Mode::Open) };
        world.gateway().set_policies(allow(&["example.com"]), Some(inspected));
        assert!(sealed.read_u8().await.is_err());
    }

    async fn starting_inspection_ends_sealed_connections() {
        let world = World::new(allow(&["example.com"])).await;
        world.guest.resolve("example.com").await;
        let mut sealed = world.tls(SHARED, "example.com").await.unwrap();
        world.set_policy(Policy { tls: TlsMode::Inspected, ..allow(&["example.com"]) });
        assert!(sealed.read_u8().await.is_err());
    }

    async fn an_address_needs_no_name() {
        let mut world = World::new(allow(&["93.184.216.0/24:443", "93.184.216.0/24:7"])).await;
        let mut stream = world.guest.connect(SHARED, 7).await.unwrap();
        stream.write_all(b"raw\n").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'r');
        assert!(world.guest.connect(SHARED, 80).await.is_err());
        // If a name is shown, it is judged anyway.
        assert!(world.tls(SHARED, "example.com").await.is_err());
        world.refused(EventKind::Name, Refusal::NotListed).await;
    }

    async fn only_the_operator_can_open_a_range() {
        let private = Ipv4Addr::new(10, 9, 8, 7);
        let mut world = World::with(allow(&["10.9.8.0/24", "inside.example.com"]), |config| {
            config.opened = vec!["10.9.0.0/16".parse().unwrap()];
        })
        .await;
        let own = format!("GET / HTTP/1.1\r\nHost: {private}\r\n\r\n");
        assert!(world.http(private, 80, &own).await.unwrap().starts_with("HTTP/1.1 200"));
        world.zone.lock().unwrap().insert("inside.example.com".to_owned(), vec![private]);
        assert_eq!(world.guest.resolve("inside.example.com").await, [private]);
        assert!(world.guest.connect(Ipv4Addr::new(10, 9, 9, 9), 80).await.is_err(), "opened, but not listed");
        world.set_policy(allow(&["10.0.0.0/8"]));
        assert!(world.guest.connect(Ipv4Addr::new(10, 8, 8, 8), 80).await.is_err());
        world.refused(EventKind::Connect, Refusal::Range(Range::Private)).await;
    }

    async fn learning_returns_the_policy_that_allows_the_traffic() {
        let mut world = World::new(Policy::of(Mode::Learn)).await;
        let steps = async |world: &World| -> std::io::Result<()> {
            world.guest.resolve("example.com").await;
            world.guest.resolve("other.com").await;
            exchange(world.tls(SHARED, "example.com").await?, GET).await?;
            world.http(SHARED, 80, "GET / HTTP/1.1\r\nHost: other.com\r\n\r\n").await?;
            let mut raw = world.guest.connect(SHARED, 7).await?;
            raw.write_all(b"\0raw").await?;
            raw.read_u8().await?;
            // A server that speaks first, with its own name.
            world.guest.resolve("git.code.com").await;
            let mut git = world.guest.connect(CODE, 22).await?;
            git.read_u8().await?;
            Ok(())
        };
        world.zone.lock().unwrap().insert("git.code.com".to_owned(), vec![CODE]);
        steps(&world).await.unwrap();
        let learned = world.gateway().learned();
        let text: Vec<String> = learned.policy().allow.iter().map(ToString::to_string).collect();
        // A connection without a name may mean any name that DNS returned its address for.
        assert_eq!(text, ["example.com:7", "example.com", "git.code.com:22", "other.com:7", "other.com"]);
        world.set_policy(learned.policy());
        steps(&world).await.expect("what was learned is enough");
        assert!(world.guest.connect(SHARED, 22).await.is_err(), "and no more than that");
        world.start(Policy::of(Mode::Learn), |config| config.learned = learned.clone());
        assert_eq!(world.gateway().learned(), learned, "the next gateway knows what the last one learned");
    }

    async fn every_decision_is_reported() {
        let mut world = World::new(allow(&["example.com"])).await;
        world.guest.resolve("example.com").await;
        let dns = world.event(EventKind::Dns, |event| event.verdict == Verdict::Allowed).await;
        assert_eq!((dns.name.unwrap().as_str(), dns.address.unwrap()), ("example.com", SHARED.into()));
        world.http(SHARED, 80, GET).await.unwrap();
        let connect = world.event(EventKind::Connect, |event| event.verdict == Verdict::Allowed).await;
        assert_eq!((connect.address, connect.port), (Some(SHARED.into()), Some(80)));
        let request = world.event(EventKind::Request, |_| true).await;
        assert_eq!((request.name.unwrap().as_str(), request.verdict), ("example.com", Verdict::Allowed));
        let close = world.event(EventKind::Close, |_| true).await;
        assert!(close.bytes_out >= GET.len() as u64 && close.bytes_in > 0, "{close:?}");
        let line = serde_json::to_string(&close).unwrap();
        assert!(line.contains(r#""kind":"close""#), "{line}");
        let stats = world.gateway().stats();
        assert_eq!((stats.connections_allowed, stats.dns_queries, stats.events_lost), (1, 1, 0));
    }
}
