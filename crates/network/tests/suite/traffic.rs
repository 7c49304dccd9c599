//! Allowed traffic works as over any network.

use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::isolated;
use crate::servers::byte_at;
use crate::world::{SHARED, World, allow, say};

isolated! {
    async fn an_allowed_name_resolves_and_is_reached() {
        let world = World::new(allow(&["example.com"])).await;
        assert_eq!(world.guest.resolve("example.com").await, [SHARED]);
        let answer = world.http(SHARED, 80, "GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(world.requests()[0].starts_with("GET /a HTTP/1.1\r\nHost: example.com\r\n"), "{:?}", world.requests());
    }

    async fn tls_passes_sealed() {
        let world = World::new(allow(&["example.com"])).await;
        world.guest.resolve("example.com").await;
        let stream = world.tls_offering(SHARED, "example.com", &["h2", "http/1.1"]).await.unwrap();
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().unwrap()[0].clone();
        assert!(!world.own_authority.certificate_pem().is_empty());
        let answer = crate::world::exchange(stream, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"));
        assert!(!certificate.is_empty());
    }

    async fn ipv6_addresses_are_not_there_but_the_name_is() {
        let world = World::new(allow(&["example.com"])).await;
        let answer = world.guest.query("example.com.", RecordType::AAAA).await;
        assert_eq!((answer.metadata.response_code, answer.answers.len()), (ResponseCode::NoError, 0));
    }

    async fn dns_is_answered_over_tcp_too() {
        let world = World::new(allow(&["example.com"])).await;
        let mut stream = world.guest.connect(world.guest.ends.gateway_address, 53).await.unwrap();
        for (name, addresses) in [("example.com.", 1), ("evil.com.", 0)] {
            let mut question = Message::query();
            question.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
            let question = question.to_vec().unwrap();
            stream.write_u16(question.len() as u16).await.unwrap();
            stream.write_all(&question).await.unwrap();
            let mut answer = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(Message::from_vec(&answer).unwrap().answers.len(), addresses, "{name}");
        }
        assert_eq!(world.asked(), ["example.com"]);
    }

    async fn large_transfers_pass_unchanged_in_both_directions() {
        let mut world = World::open().await;
        world.guest.look_away();
        let count: u64 = 8 << 20;
        let mut stream = world.guest.connect(SHARED, 19).await.unwrap();
        stream.write_u64(count).await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        assert_eq!(received.len() as u64, count);
        assert!(received.iter().enumerate().all(|(place, byte)| *byte == byte_at(place as u64)));

        let mut stream = world.guest.connect(SHARED, 9).await.unwrap();
        stream.write_all(&received).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read_u64().await.unwrap(), count, "half-closed, and still answered");
    }

    async fn a_slow_guest_slows_the_server_down() {
        let world = World::open().await;
        let mut stream = world.guest.dial_with(SHARED, 19, 2048);
        stream.established().await.unwrap();
        stream.write_u64(64 << 20).await.unwrap();
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let stats = world.gateway().stats();
        assert!(stats.bytes_in < 4 << 20, "{} bytes were taken for a guest that reads none", stats.bytes_in);
    }

    async fn a_server_that_speaks_first_is_heard() {
        let world = World::new(allow(&["example.com:22"])).await;
        world.guest.resolve("example.com").await;
        let mut stream = world.guest.connect(SHARED, 22).await.unwrap();
        let mut banner = [0; 14];
        stream.read_exact(&mut banner).await.unwrap();
        assert_eq!(&banner, b"SSH-2.0-test\r\n");
        stream.write_all(b"SSH-2.0-me\r\n").await.unwrap();
        let mut echo = [0; 12];
        stream.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"SSH-2.0-me\r\n");
    }

    async fn a_closed_port_is_refused() {
        let world = World::open().await;
        let refused = world.guest.connect(SHARED, 4444).await;
        assert_eq!(refused.err().unwrap().kind(), std::io::ErrorKind::ConnectionRefused);
    }

    async fn requests_follow_each_other_on_one_connection() {
        let world = World::new(allow(&["example.com"])).await;
        world.guest.resolve("example.com").await;
        let mut stream = world.guest.connect(SHARED, 80).await.unwrap();
        for path in ["/one", "/two", "/three"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n");
            assert!(say(&mut stream, &request).await.unwrap().contains(path));
        }
        assert_eq!(world.requests().len(), 3);
    }

    async fn a_websocket_upgrade_is_relayed() {
        let world = World::new(allow(&["example.com"])).await;
        world.guest.resolve("example.com").await;
        let mut stream = world.guest.connect(SHARED, 80).await.unwrap();
        let request = "GET /socket HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
        assert!(say(&mut stream, request).await.unwrap().starts_with("HTTP/1.1 101"));
        stream.write_all(b"\x81\x02hi").await.unwrap();
        let mut echo = [0; 4];
        stream.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"\x81\x02hi");
    }

    async fn a_guest_that_resets_resets_the_server() {
        let world = World::open().await;
        let mut stream = world.guest.connect(SHARED, 7).await.unwrap();
        stream.write_all(b"hell\n").await.unwrap();
        let mut echo = [0; 5];
        stream.read_exact(&mut echo).await.unwrap();
        stream.abort();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while world.gateway().stats().connections_open > 0 {
            assert!(tokio::time::Instant::now() < deadline, "the connection is still there");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn another_gateway_takes_over() {
        let mut world = World::new(allow(&["example.com:7"])).await;
        world.guest.resolve("example.com").await;
        let mut before = world.guest.connect(SHARED, 7).await.unwrap();
        before.write_all(b"x").await.unwrap();
        let pins = world.gateway().pins();
        // As if the daemon had been killed: the guest is not notified.
        world.guest.set_stopped(true);
        world.start(allow(&["example.com:7"]), |config| config.pins = pins);
        world.guest.set_stopped(false);
        let _ = before.write_all(b"y").await;
        assert!(before.reset().await, "a connection the new gateway does not know");
        let mut after = world.guest.connect(SHARED, 7).await.expect("pinned by the gateway before");
        after.write_all(b"\0").await.unwrap();
        assert_eq!(after.read_u8().await.unwrap(), 0);
    }

    async fn the_machines_end_can_be_bound_again() {
        let mut world = World::open().await;
        world.guest.connect(SHARED, 7).await.unwrap();
        world.guest = crate::world::guest(&world.directory, "machine", "gateway");
        let mut stream = world.guest.connect(SHARED, 7).await.unwrap();
        stream.write_all(b"\0").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 0);
    }

    async fn a_replaced_gateway_does_not_disturb_the_next() {
        let mut world = World::open().await;
        let before = world.gateway.take();
        world.start(sandling_network::policy::Policy::of(sandling_network::policy::Mode::Open), |_| {});
        drop(before);
        world.guest.connect(SHARED, 7).await.expect("the next one is still there");
    }

    async fn a_paused_guest_continues_later() {
        let world = World::open().await;
        let mut stream = world.guest.connect(SHARED, 19).await.unwrap();
        stream.write_u64(2 << 20).await.unwrap();
        stream.read_u8().await.unwrap();
        world.guest.set_stopped(true);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        world.guest.set_stopped(false);
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest.len() as u64, (2 << 20) - 1);
    }
}
