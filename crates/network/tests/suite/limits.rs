//! A guest's usage is bounded, and so is its cost to the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sandling_network::policy::{Mode, Policy, Refusal};
use sandling_network::{EventKind, GatewayConfig, Limits, Totals, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::isolated;
use crate::world::{SHARED, STRANGER, World, allow};

async fn all_closed(world: &World) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while world.gateway().stats().connections_open > 0 {
        assert!(Instant::now() < deadline, "{:?}", world.gateway().stats());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

isolated! {
    async fn a_thousand_connections_at_once() {
        let world = World::open().await;
        let mut streams = Vec::new();
        for _ in 0..1000 {
            streams.push(world.guest.dial_with(SHARED, 7, 1024));
            // As fast as the limit for new connections allows. Otherwise the guest would retry after a second.
            if streams.len() % 64 == 0 {
                streams.last().unwrap().established().await.unwrap();
            }
        }
        for stream in &mut streams {
            stream.established().await.unwrap();
            stream.write_all(b"\0").await.unwrap();
        }
        for stream in &mut streams {
            assert_eq!(stream.read_u8().await.unwrap(), 0);
        }
        assert_eq!(world.gateway().stats().connections_open, 1000);
        drop(streams);
        all_closed(&world).await;
    }

    async fn more_connections_than_allowed_are_refused() {
        let mut world = World::with(Policy::of(Mode::Open), |config| config.limits.connections = 5).await;
        let mut streams = Vec::new();
        for _ in 0..5 {
            streams.push(world.guest.connect(SHARED, 7).await.unwrap());
        }
        assert!(world.guest.connect(SHARED, 7).await.is_err());
        world.refused(EventKind::Connect, Refusal::Connections).await;
        drop(streams);
        all_closed(&world).await;
        world.guest.connect(SHARED, 7).await.expect("there is room again");
    }

    async fn nothing_of_a_fenced_guest_passes_before_it_may_send() {
        let may_send = Arc::new(AtomicBool::new(false));
        let asked = may_send.clone();
        let fence = move |config: &mut GatewayConfig| {
            config.fence = Some(Arc::new(move || asked.load(Ordering::SeqCst)));
        };
        let world = World::with(Policy::of(Mode::Open), fence).await;
        let mut stream = world.guest.dial_with(SHARED, 7, 1024);
        let fenced = tokio::time::timeout(Duration::from_millis(500), stream.established()).await;
        assert!(fenced.is_err() && world.nobody_was_reached().await);
        assert_eq!(world.gateway().stats().connections_open, 0);
        may_send.store(true, Ordering::SeqCst);
        stream.established().await.expect("its frames have waited");
        may_send.store(false, Ordering::SeqCst);
        stream.write_all(b"\0").await.unwrap();
        let fenced = tokio::time::timeout(Duration::from_millis(500), stream.read_u8()).await;
        assert!(fenced.is_err(), "an open connection stands still, too");
        may_send.store(true, Ordering::SeqCst);
        assert_eq!(stream.read_u8().await.unwrap(), 0);
    }

    async fn a_replaced_connection_also_ends_at_the_server() {
        let world = World::new(allow(&["example.com"])).await;
        world.guest.resolve("example.com").await;
        let ends = world.guest.ends;
        let waiting = async |wanted: usize| {
            let deadline = Instant::now() + Duration::from_secs(10);
            while world.log.lock().unwrap().waiting != wanted {
                assert!(Instant::now() < deadline, "{} wait", world.log.lock().unwrap().waiting);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let mut streams = Vec::new();
        for _ in 0..3 {
            let mut stream = world.guest.connect(SHARED, 80).await.unwrap();
            stream.write_all(b"GET /never HTTP/1.1\r\nHost: example.com\r\n\r\n").await.unwrap();
            waiting(1).await;
            // The guest uses the port again, as after a restore to an earlier moment.
            world.guest.inject(&crate::frames::syn(&ends, SHARED, stream.port(), 80)).await;
            waiting(0).await;
            streams.push(stream);
        }
    }

    async fn syn_flood() {
        let mut world = World::with(Policy::of(Mode::Open), |config| {
            config.limits.connections_per_second = 10;
            config.limits.connecting = 16;
        })
        .await;
        let ends = world.guest.ends;
        for number in 0..3000u16 {
            world.guest.inject(&crate::frames::syn(&ends, STRANGER, 10_000 + number, 80)).await;
        }
        let stats = world.gateway().stats();
        assert!(stats.connections_open <= 110, "{stats:?}");
        let visits = world.log.lock().unwrap().visits.len();
        assert!(visits <= 110, "{visits} connections were opened for a flood");
        // All are counted, and one event per second is reported.
        assert!(stats.connections_refused > 2000, "{stats:?}");
        let told = world.refused(EventKind::Connect, Refusal::ConnectionRate).await;
        assert_eq!((told.address, told.port), (Some(STRANGER.into()), Some(80)));
        assert_eq!(world.gateway().stats().events_lost, 0);
        // A guest that stops flooding is served again.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        world.guest.connect(SHARED, 7).await.expect("served after the flood");
    }

    async fn half_open_connections_end() {
        let world = World::with(allow(&["example.com"]), |config| {
            config.limits.greeting = Duration::from_secs(1);
            config.limits.idle = Duration::from_secs(2);
        })
        .await;
        world.guest.resolve("example.com").await;
        let ends = world.guest.ends;
        for number in 0..20 {
            world.guest.inject(&crate::frames::syn(&ends, SHARED, 10_000 + number, 443)).await;
        }
        let silent = world.guest.connect(SHARED, 443).await.unwrap();
        assert!(silent.reset().await, "a connection that shows no name");
        all_closed(&world).await;
    }

    async fn idle_connections_end() {
        let mut world = World::with(Policy::of(Mode::Open), |config| config.limits.idle = Duration::from_secs(1)).await;
        let mut stream = world.guest.connect(SHARED, 7).await.unwrap();
        stream.write_all(b"\0").await.unwrap();
        stream.read_u8().await.unwrap();
        assert!(stream.reset().await);
        world.event(EventKind::Close, |event| {
            event.verdict == sandling_network::Verdict::Failed(sandling_network::Failure::Idle)
        })
        .await;
    }

    async fn bytes_out_are_bounded() {
        let mut world = World::with(Policy::of(Mode::Open), |config| {
            config.limits.bytes_out = 100_000;
            config.bytes_out = 40_000;
        })
        .await;
        let mut stream = world.guest.connect(SHARED, 9).await.unwrap();
        stream.write_all(&[0; 50_000]).await.unwrap();
        let _ = stream.write_all(&[0; 200_000]).await;
        assert!(stream.reset().await);
        world.refused(EventKind::Close, Refusal::BytesOut).await;
        assert!(world.guest.connect(SHARED, 9).await.is_err());
        world.refused(EventKind::Connect, Refusal::BytesOut).await;
    }

    async fn bandwidth_is_bounded() {
        let world = World::with(Policy::of(Mode::Open), |config| {
            config.limits.bytes_in_per_second = 1 << 20;
            config.limits.bytes_out_per_second = 1 << 20;
        })
        .await;
        let start = Instant::now();
        let mut stream = world.guest.connect(SHARED, 19).await.unwrap();
        stream.write_u64(2 << 20).await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        let inward = start.elapsed();
        assert!(inward > Duration::from_millis(1400), "2 MiB in {inward:?}");

        let start = Instant::now();
        let mut stream = world.guest.connect(SHARED, 9).await.unwrap();
        stream.write_all(&received).await.unwrap();
        stream.shutdown().await.unwrap();
        stream.read_u64().await.unwrap();
        let outward = start.elapsed();
        assert!(outward > Duration::from_millis(1400), "2 MiB out in {outward:?}");
    }

    async fn dns_queries_are_bounded() {
        let mut world = World::with(allow(&["example.com"]), |config| config.limits.dns_queries_per_second = 5).await;
        let mut answered = 0;
        for _ in 0..60 {
            answered += usize::from(!world.guest.resolve("example.com").await.is_empty());
        }
        assert!((20..50).contains(&answered), "{answered} of 60 were answered");
        world.refused(EventKind::Dns, Refusal::DnsRate).await;
        assert_eq!(world.asked().len(), 1, "a pinned answer is not asked for again");
    }

    async fn dns_queries_over_tcp_are_bounded() {
        let world = World::with(allow(&["example.com"]), |config| config.limits.dns_queries_per_second = 5).await;
        let question = crate::guest::question("example.com", hickory_proto::rr::RecordType::A);
        let many = [&(question.len() as u16).to_be_bytes()[..], &question].concat().repeat(1000);
        let mut stream = world.guest.connect(world.guest.ends.gateway_address, 53).await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(&mut stream);
        let mut answers = Vec::new();
        let _ = tokio::join!(writer.write_all(&many), reader.read_to_end(&mut answers));
        assert!(!answers.is_empty());
        let stats = world.gateway().stats();
        assert!(stats.dns_queries < 50, "{} questions were answered at once", stats.dns_queries);
    }

    async fn new_limits_apply_at_once() {
        let mut world = World::with(Policy::of(Mode::Open), |config| config.limits.connections = 1).await;
        let mut first = world.guest.connect(SHARED, 9).await.unwrap();
        assert!(world.guest.connect(SHARED, 9).await.is_err());
        let limits = Limits { connections: 2, ..Limits::default() };
        world.gateway().set_limits(limits);
        let second = world.guest.connect(SHARED, 9).await.expect("two may be open now");
        drop(second);
        first.write_all(&[0; 1000]).await.unwrap();
        world.gateway().set_limits(Limits { bytes_out: 1000, ..limits });
        let _ = first.write_all(&[0; 1000]).await;
        assert!(first.reset().await, "more bytes than it may send now");
        world.refused(EventKind::Close, Refusal::BytesOut).await;
    }

    async fn totals_outlive_gateways() {
        let totals: Arc<Totals> = Arc::default();
        let counted = totals.clone();
        let mut world = World::with(Policy::default(), |config| config.totals = counted).await;
        assert!(world.guest.connect(SHARED, 7).await.is_err());
        assert!(world.guest.resolve("example.com").await.is_empty());
        let counted = totals.clone();
        world.start(Policy::of(Mode::Open), |config| config.totals = counted);
        let mut stream = world.guest.connect(SHARED, 7).await.unwrap();
        stream.write_all(b"1234\n").await.unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
        let count = |kind, verdict| {
            let decisions = totals.decisions();
            decisions.iter().filter(|known| (known.0, known.1) == (kind, verdict)).map(|known| known.2).sum::<u64>()
        };
        assert_eq!(count(EventKind::Connect, Verdict::Refused(Refusal::PolicyDenies)), 1);
        assert_eq!(count(EventKind::Dns, Verdict::Refused(Refusal::PolicyDenies)), 1);
        assert_eq!(count(EventKind::Connect, Verdict::Allowed), 1);
        assert_eq!((totals.dns_queries(), totals.bytes_out(), totals.bytes_in()), (1, 5, 5));
        assert_eq!(totals.events_lost(), 0);
    }

    async fn events_are_rate_limited() {
        let world = World::new(Policy::default()).await;
        let ends = world.guest.ends;
        for number in 0..8000u16 {
            world.guest.inject(&crate::frames::syn(&ends, STRANGER, 10_000 + number, 80)).await;
        }
        let stats = world.gateway().stats();
        assert!(stats.connections_refused + stats.events_lost > 1000, "{stats:?}");
        assert!(world.events.len() < 4096);
    }
}
