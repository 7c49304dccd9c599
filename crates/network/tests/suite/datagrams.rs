//! UDP: allowed datagrams are answered by the right host only, all limits hold, and exchanges end at once.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use sandling_network::policy::{Mode, Policy, Range, Refusal};
use sandling_network::{EventKind, Gateway, Group, Member, Verdict};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::frames::{datagram, datagram_of, is_nobody_there, is_unreachable};
use crate::guest::PATIENCE;
use crate::isolated;
use crate::namespace::ip;
use crate::world::{SHARED, STRANGER, World, allow, guest};

/// The port of the servers that send datagrams back.
const ECHO: u16 = 9999;
/// How long to wait for something that should not happen.
const MOMENT: Duration = Duration::from_millis(300);

/// A server of one test.
async fn server(address: Ipv4Addr, port: u16) -> UdpSocket {
    UdpSocket::bind((address, port)).await.unwrap()
}

async fn all_over(world: &World) {
    let deadline = Instant::now() + PATIENCE;
    while world.gateway().stats().connections_open > 0 {
        assert!(Instant::now() < deadline, "{:?}", world.gateway().stats());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn visits(world: &World) -> usize {
    world.log.lock().unwrap().visits.len()
}

isolated! {
    async fn listed_destinations_are_answered() {
        let mut world = World::new(allow(&["45.33.32.0/24:9999", "example.com:9999"])).await;
        assert_eq!(world.guest.ask_udp(SHARED, ECHO, b"early", MOMENT).await, None, "its name was not asked for yet");
        world.refused(EventKind::Connect, Refusal::NotListed).await;
        world.guest.resolve("example.com").await;
        for address in [SHARED, STRANGER] {
            let socket = world.guest.datagrams();
            for text in [&b"one"[..], b"", b"three"] {
                socket.send(address, ECHO, text);
                let (answer, from) = socket.receive_from(PATIENCE).await.expect("no answer");
                assert_eq!((&answer[..], from), (text, (address, ECHO).into()));
            }
            let began = world.event(EventKind::Connect, |event| event.verdict == Verdict::Allowed).await;
            assert_eq!((began.address, began.port, began.udp), (Some(address.into()), Some(ECHO), true));
            assert_eq!(began.name.is_some(), address == SHARED);
        }
        let stats = world.gateway().stats();
        assert_eq!((stats.connections_open, stats.connections_allowed), (2, 2), "one for each, not one for each datagram");
        assert_eq!((stats.bytes_out, stats.bytes_in), (16, 16));
    }

    async fn datagrams_from_other_hosts_are_dropped() {
        let world = World::open().await;
        let asked = server(SHARED, 7000).await;
        let strangers = [server(SHARED, 7001).await, server(STRANGER, 7000).await];
        let socket = world.guest.datagrams();
        socket.send(SHARED, 7000, b"hello");
        let mut room = [0; 100];
        let (count, from) = timeout(PATIENCE, asked.recv_from(&mut room)).await.expect("it did not arrive").unwrap();
        assert_eq!(&room[..count], b"hello");
        for stranger in &strangers {
            stranger.send_to(b"let me in", from).await.unwrap();
        }
        asked.send_to(b"welcome", from).await.unwrap();
        assert_eq!(socket.receive(PATIENCE).await.as_deref(), Some(&b"welcome"[..]));
        assert_eq!(socket.receive(MOMENT).await, None);
        // To the server, another port of the guest is another client.
        let another = world.guest.datagrams();
        another.send(SHARED, 7000, b"hello");
        let (_, other) = timeout(PATIENCE, asked.recv_from(&mut room)).await.unwrap().unwrap();
        assert_ne!(from, other);
    }

    async fn a_revoked_policy_ends_an_exchange_at_once() {
        let mut world = World::new(allow(&["93.184.216.34:7000", "93.184.216.34:9999"])).await;
        let asked = server(SHARED, 7000).await;
        let (socket, kept) = (world.guest.datagrams(), world.guest.datagrams());
        socket.send(SHARED, 7000, b"hello");
        let mut room = [0; 100];
        let (_, from) = timeout(PATIENCE, asked.recv_from(&mut room)).await.unwrap().unwrap();
        asked.send_to(b"welcome", from).await.unwrap();
        assert!(socket.receive(PATIENCE).await.is_some());
        kept.send(SHARED, ECHO, b"mine");
        assert!(kept.receive(PATIENCE).await.is_some());

        // No further datagram passes, whether or not the end of the policy was noticed before.
        world.set_policy(allow(&["93.184.216.34:9999"]));
        world.guest.forget_frames();
        socket.send(SHARED, 7000, b"still there?");
        assert!(world.guest.frame(is_unreachable).await.is_some(), "told at once");
        let closed = world.refused(EventKind::Close, Refusal::PolicyChanged).await;
        assert_eq!((closed.port, closed.bytes_out, closed.bytes_in), (Some(7000), 5, 7));
        world.refused(EventKind::Connect, Refusal::NotListed).await;
        let _ = asked.send_to(b"are you?", from).await;
        assert_eq!(socket.receive(MOMENT).await, None, "an answer came after the end");
        assert!(asked.try_recv(&mut room).is_err(), "a question went after the end");
        kept.send(SHARED, ECHO, b"mine");
        assert!(kept.receive(PATIENCE).await.is_some(), "what is still allowed goes on");
        assert_eq!(world.gateway().stats().connections_open, 1);
    }

    async fn replies_stop_with_the_policy_even_if_the_guest_is_silent() {
        let world = World::open().await;
        let asked = server(SHARED, 7000).await;
        let socket = world.guest.datagrams();
        socket.send(SHARED, 7000, b"hello");
        let mut room = [0; 100];
        let (_, from) = timeout(PATIENCE, asked.recv_from(&mut room)).await.unwrap().unwrap();
        asked.send_to(b"welcome", from).await.unwrap();
        assert!(socket.receive(PATIENCE).await.is_some());
        world.set_policy(Policy::default());
        all_over(&world).await;
        let _ = asked.send_to(b"more", from).await;
        assert_eq!(socket.receive(MOMENT).await, None);
    }

    async fn an_address_that_becomes_the_hosts_own_is_refused() {
        let mut world = World::open().await;
        let socket = world.guest.datagrams();
        socket.send(STRANGER, ECHO, b"hello");
        assert!(socket.receive(PATIENCE).await.is_some());
        ip(&["address", "add", &format!("{STRANGER}/32"), "dev", "lo"]);
        // A missing answer says nothing: on a busy host, answers are late.
        {
            let mut closed = std::pin::pin!(world.refused(EventKind::Close, Refusal::PolicyChanged));
            loop {
                socket.send(STRANGER, ECHO, b"hello");
                tokio::select! { _ = &mut closed => break, () = tokio::time::sleep(MOMENT) => {} }
            }
        }
        socket.send(STRANGER, ECHO, b"hello");
        world.refused(EventKind::Connect, Refusal::Range(Range::Host)).await;
    }

    async fn a_reset_and_a_stop_of_the_gateway_end_exchanges() {
        let mut world = World::open().await;
        let asked = server(SHARED, 7000).await;
        let socket = world.guest.datagrams();
        let mut room = [0; 100];
        for how in ["reset", "stop", "drop"] {
            socket.send(SHARED, 7000, b"hello");
            let (_, from) = timeout(PATIENCE, asked.recv_from(&mut room)).await.unwrap().unwrap();
            match how {
                "reset" => world.gateway().reset_connections(),
                "stop" => world.gateway.take().unwrap().stop().await,
                _ => drop(world.gateway.take()),
            }
            world.event(EventKind::Close, |event| event.port == Some(7000)).await;
            let _ = asked.send_to(b"welcome", from).await;
            assert_eq!(socket.receive(MOMENT).await, None, "{how}");
            match how {
                "reset" => assert_eq!(world.gateway().stats().connections_open, 0),
                _ => world.start(Policy::of(Mode::Open), |_| {}),
            }
        }
        socket.send(SHARED, ECHO, b"hello");
        assert!(socket.receive(PATIENCE).await.is_some(), "the next gateway carries on");
    }

    async fn idle_exchanges_end() {
        let mut world = World::with(Policy::of(Mode::Open), |config| config.limits.idle = Duration::from_secs(1)).await;
        let socket = world.guest.datagrams();
        // Continuous use keeps one exchange alive beyond its idle timeout.
        for _ in 0..8 {
            socket.send(SHARED, ECHO, b"tick");
            assert!(socket.receive(PATIENCE).await.is_some());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let closed = world.event(EventKind::Close, |event| event.port == Some(ECHO)).await;
        assert_eq!((closed.verdict, closed.bytes_in), (Verdict::Allowed, closed.bytes_out));
        assert!(closed.bytes_out > 4, "{closed:?}");
        all_over(&world).await;
        socket.send(SHARED, ECHO, b"again");
        assert!(socket.receive(PATIENCE).await.is_some());
    }

    async fn exchanges_and_connections_are_counted_together() {
        let mut world = World::with(Policy::of(Mode::Open), |config| config.limits.connections = 2).await;
        let stream = world.guest.connect(SHARED, 7).await.unwrap();
        let socket = world.guest.datagrams();
        socket.send(SHARED, ECHO, b"hello");
        assert!(socket.receive(PATIENCE).await.is_some());
        assert_eq!(world.guest.ask_udp(SHARED, ECHO, b"hello", MOMENT).await, None);
        world.refused(EventKind::Connect, Refusal::Connections).await;
        assert!(world.guest.connect(SHARED, 7).await.is_err());
        world.refused(EventKind::Connect, Refusal::Connections).await;
        socket.send(SHARED, ECHO, b"hello");
        assert!(socket.receive(PATIENCE).await.is_some(), "what there is goes on");
        drop(stream);
    }

    async fn a_flood_to_new_destinations_is_bounded() {
        let mut world = World::with(Policy::of(Mode::Open), |config| {
            config.limits.connections = 20;
            config.limits.connections_per_second = 10;
        })
        .await;
        let ends = world.guest.ends;
        for number in 0..3000u32 {
            let to = Ipv4Addr::from(u32::from(STRANGER) + number % 50);
            world.guest.inject(&datagram(&ends, to, 10_000 + (number / 50) as u16, ECHO, b"flood")).await;
        }
        let refused = async {
            while world.gateway().stats().connections_refused < 2900 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, refused).await.expect("not all were read");
        let stats = world.gateway().stats();
        assert_eq!(stats.connections_open, 20, "{stats:?}");
        assert!(visits(&world) <= 20, "{} were reached", visits(&world));
        world.refused(EventKind::Connect, Refusal::Connections).await;
        world.gateway().reset_connections();
        assert!(world.guest.ask_udp(SHARED, ECHO, b"hello", PATIENCE).await.is_some(), "served after the flood");
    }

    async fn a_flood_of_refused_datagrams_is_slowed_down() {
        let world = World::new(allow(&["example.com"])).await;
        let ends = world.guest.ends;
        let refused = datagram(&ends, STRANGER, 10_000, ECHO, b"flood");
        let flood = async {
            loop {
                world.guest.inject(&refused).await;
            }
        };
        let counted = async {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            let (before, start) = (world.gateway().stats().frames_in, Instant::now());
            tokio::time::sleep(Duration::from_secs(2)).await;
            let rate = (world.gateway().stats().frames_in - before) as f64 / start.elapsed().as_secs_f64();
            assert!(rate < 8_000.0, "{rate} datagrams a second were read");
        };
        tokio::select! {
            () = counted => {}
            () = flood => {}
        }
        assert_eq!(visits(&world), 0);
    }

    async fn bytes_out_are_bounded() {
        let mut world = World::with(Policy::of(Mode::Open), |config| config.limits.bytes_out = 3_500).await;
        let socket = world.guest.datagrams();
        for _ in 0..3 {
            socket.send(SHARED, ECHO, &[7; 1000]);
            assert_eq!(socket.receive(PATIENCE).await.map(|answer| answer.len()), Some(1000));
        }
        socket.send(SHARED, ECHO, &[7; 1000]);
        world.refused(EventKind::Close, Refusal::BytesOut).await;
        assert_eq!(socket.receive(MOMENT).await, None);
        world.guest.forget_frames();
        socket.send(SHARED, ECHO, b"x");
        assert!(world.guest.frame(is_unreachable).await.is_some());
        world.refused(EventKind::Connect, Refusal::BytesOut).await;
        assert_eq!(visits(&world), 3);
    }

    async fn bandwidth_is_bounded_and_excess_datagrams_are_dropped() {
        let rate = 65_536;
        let mut world = World::with(Policy::of(Mode::Open), |config| {
            config.limits.bytes_out_per_second = rate;
            config.limits.bytes_in_per_second = rate;
        })
        .await;
        let (ends, asked, start) = (world.guest.ends, server(SHARED, 7000).await, Instant::now());
        for _ in 0..400 {
            world.guest.inject(&datagram(&ends, SHARED, 10_000, 7000, &[7; 1000])).await;
        }
        let (mut room, mut came, mut from) = ([0; 2000], 0, None);
        while let Ok(Ok((_, sender))) = timeout(Duration::from_secs(1), asked.recv_from(&mut room)).await {
            came += 1;
            from = Some(sender);
        }
        // The saved tokens, the allowed run-ahead, and the tokens that were added since.
        let most = |start: Instant| (1.2 + start.elapsed().as_secs_f64()) * rate as f64 / 1028.0;
        assert!(came >= 60 && f64::from(came) <= most(start), "{came} of 400 in {:?}", start.elapsed());

        let start = Instant::now();
        for _ in 0..200 {
            asked.send_to(&[8; 1000], from.unwrap()).await.unwrap();
        }
        let mut came = 0;
        while world.guest.frame_within(Duration::from_secs(1), datagram_of).await.is_some() {
            came += 1;
            assert!(f64::from(came) <= most(start), "{came} in {:?}", start.elapsed());
        }
        assert!(came >= 60, "{came} came");
    }

    async fn datagrams_larger_than_the_mtu_are_dropped() {
        let mut world = World::open().await;
        let asked = server(SHARED, 7000).await;
        let ends = world.guest.ends;
        let largest = usize::from(ends.mtu) - 28;
        world.guest.inject(&datagram(&ends, SHARED, 10_000, 7000, &vec![1; largest])).await;
        let mut room = vec![0; 65536];
        let (count, from) = timeout(PATIENCE, asked.recv_from(&mut room)).await.expect("a large one goes out").unwrap();
        assert_eq!(count, largest);
        for size in [largest + 1, 60_000, largest, 3] {
            asked.send_to(&vec![2; size], from).await.unwrap();
        }
        for size in [largest, 3] {
            assert_eq!(world.guest.frame(datagram_of).await, Some(vec![2; size]));
        }
    }

    async fn a_closed_port_is_reported_to_the_guest() {
        let mut world = World::open().await;
        let socket = world.guest.datagrams();
        world.guest.forget_frames();
        socket.send(SHARED, 7777, b"hello");
        assert!(world.guest.frame(is_nobody_there).await.is_some());
        // A server may start there later.
        let asked = server(SHARED, 7777).await;
        socket.send(SHARED, 7777, b"hello");
        timeout(PATIENCE, asked.recv(&mut [0; 10])).await.expect("it did not arrive").unwrap();
    }

    async fn learned_destinations_are_allowed_with_their_port() {
        let world = World::new(Policy::of(Mode::Learn)).await;
        let steps = async |world: &World| {
            world.guest.resolve("example.com").await;
            let named = world.guest.ask_udp(SHARED, ECHO, b"hello", PATIENCE).await;
            named.is_some() && world.guest.ask_udp(STRANGER, 123, b"hello", PATIENCE).await.is_some()
        };
        assert!(steps(&world).await);
        assert_eq!(world.guest.ask_udp(STRANGER, 443, b"hello", MOMENT).await, None, "what is refused is not learned");
        let learned = world.gateway().learned().policy();
        assert_eq!(learned, allow(&["example.com:9999", "45.33.32.156:123"]));
        world.set_policy(learned);
        assert!(steps(&world).await, "what was learned is enough");
        assert_eq!(world.guest.ask_udp(STRANGER, ECHO, b"hello", MOMENT).await, None, "and no more than that");
    }

    async fn members_of_a_group_exchange_datagrams() {
        let group = Group::new();
        let of = |name: &str| Member::new(group.clone(), name.parse().unwrap());
        let mut world = World::with(Policy::default(), |config| config.peers = Some(of("client"))).await;
        let mut config = world.config("gateway-b", "machine-b");
        config.peers = Some(of("database"));
        let other = Gateway::start(config).unwrap();
        assert!(group.join("database".parse().unwrap(), &other));
        assert!(group.join("client".parse().unwrap(), world.gateway()));
        let neighbour = guest(&world.directory, "machine-b", "gateway-b");
        let [address] = world.guest.resolve("database").await[..] else { panic!("no address") };

        let (ours, theirs) = (world.guest.datagrams(), neighbour.datagrams());
        ours.send(address, theirs.port, b"question");
        let (question, from) = theirs.receive_from(PATIENCE).await.expect("it did not arrive");
        assert_eq!((&question[..], from.addr), (&b"question"[..], neighbour.ends.gateway_address.into()));
        theirs.send(neighbour.ends.gateway_address, from.port, b"answer");
        let (answer, from) = ours.receive_from(PATIENCE).await.expect("no answer");
        assert_eq!((&answer[..], from), (&b"answer"[..], (address, theirs.port).into()));
        assert_eq!((other.stats().bytes_in, other.stats().bytes_out, other.stats().connections_allowed), (8, 6, 1));

        group.leave(&"database".parse().unwrap());
        ours.send(address, theirs.port, b"more");
        world.refused(EventKind::Close, Refusal::PolicyChanged).await;
        assert_eq!(theirs.receive(MOMENT).await, None, "it is still reached from the group that it left");
        other.set_peers(None);
        assert_eq!(other.stats().connections_open, 0);
        assert!(world.nobody_was_reached().await);
    }
}
