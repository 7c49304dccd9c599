//! Known ways to escape a network sandbox, tried from inside.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use sandling_network::EventKind;
use sandling_network::policy::{Mode, Policy, Range, Refusal, TlsMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::client::TlsStream;

use crate::guest::Stream;
use crate::isolated;
use crate::namespace::ip;
use crate::world::{SHARED, STRANGER, World, allow, exchange, say};

const GET: &str = "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";

async fn connecting_fails(world: &World, address: Ipv4Addr, port: u16) {
    let result = world.guest.connect(address, port).await;
    assert_eq!(result.err().map(|error| error.kind()), Some(ErrorKind::ConnectionRefused), "{address}:{port}");
}

/// A world in which only example.com is allowed, and it has been resolved.
async fn example() -> World {
    let world = World::new(allow(&["example.com"])).await;
    assert_eq!(world.guest.resolve("example.com").await, [SHARED]);
    world
}

/// A DNS query.
fn question(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.to_vec().unwrap()
}

/// A TLS client hello without a name.
async fn nameless(world: &World) -> std::io::Result<TlsStream<Stream>> {
    let stream = world.guest.connect(SHARED, 443).await?;
    let mut config = world.tls_config();
    config.enable_sni = false;
    let name = rustls::pki_types::ServerName::try_from("example.com").unwrap();
    tokio_rustls::TlsConnector::from(std::sync::Arc::new(config)).connect(name, stream).await
}

isolated! {
    async fn raw_ip() {
        let mut world = World::new(allow(&["example.com"])).await;
        for port in [80, 443, 22, 8080] {
            connecting_fails(&world, STRANGER, port).await;
            connecting_fails(&world, SHARED, port).await;
        }
        world.refused(EventKind::Connect, Refusal::NotListed).await;
        assert!(world.nobody_was_reached().await);
    }

    async fn everything_without_a_policy() {
        let mut world = World::new(Policy::default()).await;
        assert!(world.guest.resolve("example.com").await.is_empty());
        connecting_fails(&world, SHARED, 443).await;
        world.refused(EventKind::Connect, Refusal::PolicyDenies).await;
        assert!(world.nobody_was_reached().await && world.asked().is_empty());
    }

    async fn another_port_of_an_allowed_name() {
        let mut world = example().await;
        connecting_fails(&world, SHARED, 22).await;
        world.refused(EventKind::Connect, Refusal::PortNotListed).await;
        assert!(world.nobody_was_reached().await);
    }

    async fn allowed_address_with_another_name_in_sni() {
        let mut world = example().await;
        assert!(world.tls(SHARED, "evil.com").await.is_err());
        world.refused(EventKind::Name, Refusal::NotListed).await;
        assert!(world.requests().is_empty());
    }

    async fn allowed_name_in_sni_at_an_address_it_was_not_resolved_for() {
        let mut world = World::new(allow(&["example.com", "other.com", "45.33.32.156"])).await;
        world.guest.resolve("example.com").await;
        assert!(world.tls(STRANGER, "example.com").await.is_err());
        world.refused(EventKind::Name, Refusal::NameNotPinned).await;
        assert!(world.tls(SHARED, "other.com").await.is_err());
        world.refused(EventKind::Name, Refusal::NameNotPinned).await;
    }

    async fn tls_without_a_name() {
        let mut world = example().await;
        assert!(nameless(&world).await.is_err());
        world.refused(EventKind::Name, Refusal::NameMissing).await;
        // Inspected TLS needs a name, even if any address is allowed.
        world.set_policy(Policy::of(Mode::Open));
        let mut sealed = nameless(&world).await.unwrap();
        world.set_policy(Policy { tls: TlsMode::Inspected, ..Policy::of(Mode::Open) });
        assert!(sealed.read_u8().await.is_err(), "an open one goes on");
        assert!(nameless(&world).await.is_err());
        world.refused(EventKind::Name, Refusal::NameMissing).await;
    }

    async fn encrypted_client_hello() {
        let mut world = example().await;
        let mut stream = world.guest.connect(SHARED, 443).await.unwrap();
        stream.write_all(&crate::names::client_hello("example.com", &[0xfe0d])).await.unwrap();
        assert!(stream.read_u8().await.is_err());
        world.refused(EventKind::Name, Refusal::EncryptedName).await;

        // The same holds for connections that were opened, or sent their client hello, before.
        world.set_policy(Policy::of(Mode::Open));
        let hello = crate::names::client_hello("example.com", &[0xfe0d]);
        let mut waiting = world.guest.connect(SHARED, 7).await.unwrap();
        let mut greeted = world.guest.connect(SHARED, 7).await.unwrap();
        greeted.write_all(&hello).await.unwrap();
        assert_eq!(greeted.read_u8().await.unwrap(), hello[0], "the server has it");
        world.set_policy(allow(&["example.com:7"]));
        assert!(greeted.reset().await);
        waiting.write_all(&hello).await.unwrap();
        assert!(waiting.reset().await);
        world.refused(EventKind::Name, Refusal::EncryptedName).await;
    }

    async fn another_protocol_on_a_web_port() {
        let mut world = example().await;
        for port in [80, 443] {
            let mut stream = world.guest.connect(SHARED, port).await.unwrap();
            stream.write_all(b"SSH-2.0-tunnel\r\n").await.unwrap();
            assert!(stream.read_u8().await.is_err());
            world.refused(EventKind::Name, Refusal::OtherProtocol).await;
        }
        assert!(world.requests().is_empty());
    }

    async fn a_greeting_that_is_sent_slowly() {
        let names = ["93.184.216.34", "example.com:8080", "example.com"];
        let mut world = World::new(Policy::default()).await;
        for policy in [allow(&names), allow(&names[1..]), Policy::of(Mode::Open)] {
            world.set_policy(policy);
            world.guest.resolve("example.com").await;
            let hello = crate::names::client_hello("evil.com", &[]);
            let alert = [&[0x15, 3, 1, 0, 2, 1, 0][..], &hello].concat();
            for (first, second) in [
                (&hello[..1], &hello[1..]),
                (&hello[..40], &hello[40..]),
                (&alert[..1], &alert[1..]),
                (b"G", b"ET / HTTP/1.1\r\nHost: evil.com:8080\r\n\r\n"),
                (b"\r\n", b"GET / HTTP/1.1\r\nHost: evil.com:8080\r\n\r\n"),
                (b"\n".repeat(9000).as_slice(), b"GET / HTTP/1.1\r\nHost: evil.com:8080\r\n\r\n"),
                (b"BREW /\xff", b" HTTP/1.1\r\nHost: evil.com:8080\r\n\r\n"),
                (b"BREW /", b"pot HTTP/1.1\r\nHost: evil.com:8080\r\n\r\n"),
            ] {
                let mut stream = world.guest.connect(SHARED, 8080).await.unwrap();
                stream.write_all(first).await.unwrap();
                tokio::time::sleep(Duration::from_millis(400)).await;
                let _ = stream.write_all(second).await;
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer).await;
                assert!(!answer.starts_with(b"HTTP/1.1 200"), "{first:?}");
            }
            assert!(world.requests().iter().all(|head| !head.contains("evil")), "{:?}", world.requests());
            let mut stream = world.guest.connect(SHARED, 8080).await.unwrap();
            for piece in ["G", "ET / HTTP/1.1\r\nHo", "st: example.com:8080\r\n"] {
                stream.write_all(piece.as_bytes()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            assert!(say(&mut stream, "\r\n").await.unwrap().starts_with("HTTP/1.1 200"), "slow, but allowed");
            world.refused(EventKind::Request, Refusal::HttpMalformed).await;
        }
    }

    async fn a_greeting_that_never_ends() {
        let greeting = Duration::from_millis(500);
        let mut world = World::with(Policy::default(), |config| config.limits.greeting = greeting).await;
        for policy in [allow(&["93.184.216.34"]), allow(&["example.com:8080"]), Policy::of(Mode::Open)] {
            world.set_policy(policy);
            world.guest.resolve("example.com").await;
            for first in [&b"\x16"[..], b"\x16\x03\x01", b"G", b"\r\n", b"BREW /pot"] {
                let mut stream = world.guest.connect(SHARED, 8080).await.unwrap();
                stream.write_all(first).await.unwrap();
                assert!(stream.reset().await, "{first:?}");
                world.refused(EventKind::Name, Refusal::SilentTooLong).await;
            }
            // A silent connection is waited for, and judged by what it sends later.
            let mut stream = world.guest.connect(SHARED, 8080).await.unwrap();
            tokio::time::sleep(Duration::from_millis(800)).await;
            let answer = say(&mut stream, "GET / HTTP/1.1\r\nHost: evil.com:8080\r\n\r\n").await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
            assert!(world.requests().is_empty(), "{:?}", world.requests());
        }
    }

    async fn another_name_at_a_resolved_address_where_all_is_open() {
        let mut world = World::open().await;
        world.guest.resolve("example.com").await;
        assert!(world.tls(SHARED, "other.com").await.is_err());
        world.refused(EventKind::Name, Refusal::NameNotPinned).await;
        let answer = world.http(SHARED, 80, "GET / HTTP/1.1\r\nHost: other.com\r\n\r\n").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(world.requests().is_empty());
        world.guest.resolve("other.com").await;
        assert!(world.tls(SHARED, "other.com").await.is_ok());
    }

    async fn host_differs_from_sni() {
        let policy = Policy { tls: TlsMode::Inspected, ..allow(&["example.com"]) };
        let mut world = World::new(policy).await;
        world.guest.resolve("example.com").await;
        assert!(world.https("example.com", GET).await.unwrap().starts_with("HTTP/1.1 200"));
        let answer = world.https("example.com", "GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        let told = world.refused(EventKind::Request, Refusal::HostDiffers).await;
        assert_eq!(told.name.map(|name| name.to_string()).as_deref(), Some("evil.com"));
        assert!(world.https("evil.com", GET).await.is_err());
        world.refused(EventKind::Name, Refusal::NotListed).await;
        assert_eq!(world.requests().len(), 1);
    }

    async fn host_differs_from_sni_where_tls_is_sealed() {
        let mut world = example().await;
        assert!(world.https("evil.com", GET).await.is_err());
        world.refused(EventKind::Name, Refusal::NotListed).await;
        // The gateway cannot see inside sealed TLS. Inspection is for that.
        let answer = world.https("example.com", "GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    async fn http2_inside_inspected_tls() {
        let policy = Policy { tls: TlsMode::Inspected, ..allow(&["example.com"]) };
        let world = World::new(policy).await;
        world.guest.resolve("example.com").await;
        assert!(world.tls_offering(SHARED, "example.com", &["h2"]).await.is_err());
        let stream = world.tls_offering(SHARED, "example.com", &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    }

    async fn another_host_in_plain_http() {
        let mut world = example().await;
        let answer = world.http(SHARED, 80, "GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        world.refused(EventKind::Request, Refusal::NotListed).await;
        assert!(world.requests().is_empty());
    }

    async fn another_host_in_the_second_request() {
        let mut world = example().await;
        let mut stream = world.guest.connect(SHARED, 80).await.unwrap();
        assert!(say(&mut stream, GET).await.unwrap().starts_with("HTTP/1.1 200"));
        let answer = say(&mut stream, "GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        world.refused(EventKind::Request, Refusal::NotListed).await;
        assert_eq!(world.requests().len(), 1);
    }

    async fn a_request_smuggled_in_the_body_of_another() {
        let world = example().await;
        let smuggled = "GET /smuggled HTTP/1.1\r\nHost: evil.com\r\n\r\n";
        let lengths = format!("Content-Length: {}\r\nTransfer-Encoding: chunked", smuggled.len() + 5);
        let request = format!("POST / HTTP/1.1\r\nHost: example.com\r\n{lengths}\r\n\r\n0\r\n\r\n{smuggled}");
        // A request that two servers could read differently is the last one on its connection.
        let mut stream = world.guest.connect(SHARED, 80).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).await.unwrap();
        assert!(!String::from_utf8_lossy(&answers).contains("smuggled"));
        for head in ["Host: example.com\r\nHost: evil.com", "Host : evil.com", "X: y\r\n Host: evil.com", ""] {
            let answer = world.http(SHARED, 80, &format!("GET / HTTP/1.1\r\n{head}\r\n\r\n")).await;
            assert!(answer.is_err() || !answer.unwrap().starts_with("HTTP/1.1 200"), "{head:?}");
        }
        assert!(world.requests().iter().all(|head| !head.contains("evil.com")), "{:?}", world.requests());
    }

    async fn http2_without_tls() {
        let world = example().await;
        let mut stream = world.guest.connect(SHARED, 80).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
        let upgrade = "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
        assert!(world.http(SHARED, 80, upgrade).await.unwrap().starts_with("HTTP/1.1 403"));
        let hidden = "GET /h2c HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade, HTTP2-Settings\r\n\
            Upgrade: websocket\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
        assert!(world.http(SHARED, 80, hidden).await.unwrap().starts_with("HTTP/1.1 403"));
        assert!(world.requests().is_empty());
        // The server switches to a protocol that the guest did not ask for.
        let socket = "GET /h2c HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade, X-Hop\r\n\
            Upgrade: websocket\r\nX-Hop: 1\r\n\r\n";
        assert!(world.http(SHARED, 80, socket).await.unwrap().starts_with("HTTP/1.1 403"));
        assert!(!world.requests()[0].contains("X-Hop"), "{:?}", world.requests());
    }

    async fn a_host_header_that_connection_removes() {
        let mut world = example().await;
        for version in ["1.0", "1.1"] {
            let request = format!("GET / HTTP/{version}\r\nHost: example.com\r\nConnection: host\r\n\r\n");
            let answer = world.http(SHARED, 80, &request).await.unwrap();
            assert!(answer.contains("403"), "{answer}");
            world.refused(EventKind::Request, Refusal::HttpMalformed).await;
        }
        assert!(world.requests().is_empty());
    }

    async fn connect_relay() {
        let mut world = example().await;
        let answer = world.http(SHARED, 80, "CONNECT evil.com:443 HTTP/1.1\r\nHost: evil.com:443\r\n\r\n").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        world.refused(EventKind::Request, Refusal::Relay).await;
        let answer = world.http(SHARED, 80, "GET http://evil.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        world.refused(EventKind::Request, Refusal::Relay).await;
        assert!(world.requests().is_empty());
    }

    async fn redirect_to_a_private_host() {
        let mut world = example().await;
        let answer = world.http(SHARED, 80, "GET /redirect HTTP/1.1\r\nHost: example.com\r\n\r\n").await.unwrap();
        assert!(answer.to_ascii_lowercase().contains("location: http://169.254.169.254/latest"), "{answer}");
        connecting_fails(&world, Ipv4Addr::new(169, 254, 169, 254), 80).await;
        world.refused(EventKind::Connect, Refusal::Range(Range::Metadata)).await;
    }

    async fn metadata_by_all_its_addresses() {
        let mut world = World::new(Policy { mode: Mode::Open, ..allow(&["0.0.0.0/0"]) }).await;
        for mode in [Mode::Open, Mode::Allow] {
            world.set_policy(Policy { mode, ..allow(&["0.0.0.0/0"]) });
            for address in ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16"] {
                connecting_fails(&world, address.parse().unwrap(), 80).await;
                world.refused(EventKind::Connect, Refusal::Range(Range::Metadata)).await;
            }
        }
        assert!(world.nobody_was_reached().await);
    }

    async fn the_host_and_private_networks() {
        let world = World::new(Policy { mode: Mode::Open, ..allow(&["0.0.0.0/0"]) }).await;
        for mode in [Mode::Open, Mode::Allow] {
            world.set_policy(Policy { mode, ..allow(&["0.0.0.0/0"]) });
            for address in ["127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.1"] {
                connecting_fails(&world, address.parse().unwrap(), 80).await;
            }
            for address in ["169.254.1.1", "192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1", "240.0.0.1"] {
                connecting_fails(&world, address.parse().unwrap(), 80).await;
            }
            // The gateway itself serves DNS only.
            connecting_fails(&world, world.guest.ends.gateway_address, 80).await;
        }
        assert!(world.nobody_was_reached().await);
    }

    async fn a_public_address_of_the_host() {
        let mut world = World::new(allow(&["0.0.0.0/0", "home.com"])).await;
        world.zone.lock().unwrap().insert("home.com".to_owned(), vec![STRANGER]);
        let before = world.guest.connect(STRANGER, 7).await.unwrap();
        ip(&["address", "add", &format!("{STRANGER}/32"), "dev", "lo"]);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while world.guest.connect(STRANGER, 80).await.is_ok() {
            assert!(tokio::time::Instant::now() < deadline, "the host is still reached");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        world.refused(EventKind::Connect, Refusal::Range(Range::Host)).await;
        assert!(before.reset().await, "a connection to the host goes on");
        assert!(world.guest.resolve("home.com").await.is_empty());
        world.refused(EventKind::Dns, Refusal::Rebinding(Range::Host)).await;
        world.guest.connect(SHARED, 80).await.expect("what is not the host's is reached");

        let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        world.start(Policy::of(Mode::Open), |config| config.opened = networks(&["45.33.0.0/16"]));
        connecting_fails(&world, STRANGER, 80).await;
        world.start(Policy::of(Mode::Open), |config| config.opened = networks(&["45.33.32.156/32"]));
        world.guest.connect(STRANGER, 80).await.expect("the operator opened it");
    }

    async fn dns_to_another_server() {
        let mut world = World::open().await;
        let bytes = question("example.com.", RecordType::A);
        for address in [STRANGER, Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::LOCALHOST] {
            assert_eq!(world.guest.ask_udp(address, 53, &bytes, Duration::from_millis(300)).await, None);
        }
        world.refused(EventKind::Connect, Refusal::OtherDnsServer).await;
        connecting_fails(&world, STRANGER, 53).await;
        world.refused(EventKind::Connect, Refusal::OtherDnsServer).await;
        assert!(world.nobody_was_reached().await);
    }

    async fn dns_over_tls_and_over_https() {
        let mut world = World::open().await;
        connecting_fails(&world, STRANGER, 853).await;
        world.refused(EventKind::Connect, Refusal::OtherDnsServer).await;
        connecting_fails(&world, Ipv4Addr::new(1, 1, 1, 1), 443).await;
        world.refused(EventKind::Connect, Refusal::PublicResolver).await;
        assert!(world.guest.resolve("dns.google").await.is_empty());
        world.refused(EventKind::Dns, Refusal::PublicResolver).await;
        assert!(world.nobody_was_reached().await);
        assert!(world.tls(STRANGER, "mozilla.cloudflare-dns.com").await.is_err());
        world.refused(EventKind::Name, Refusal::PublicResolver).await;
        assert!(world.asked().is_empty());
    }

    async fn dns_tunnel_through_refused_names() {
        let mut world = World::new(allow(&["example.com"])).await;
        for name in ["data.evil.com", "c2VjcmV0.example.com", "example.com.evil.com", "evilexample.com"] {
            let answer = world.guest.query(&format!("{name}."), RecordType::A).await;
            assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{name}");
        }
        world.refused(EventKind::Dns, Refusal::NotListed).await;
        assert!(world.asked().is_empty(), "{:?}", world.asked());
    }

    async fn dns_tunnel_through_allowed_names() {
        let mut world = World::with(allow(&["*.example.com"]), |config| {
            config.limits.dns_new_names_per_minute = 10;
        })
        .await;
        let long = format!("{}.example.com.", "a".repeat(60));
        assert!(world.guest.resolve(&long).await.is_empty());
        world.refused(EventKind::Dns, Refusal::DnsNameLength).await;
        let deep = format!("{}example.com.", "abcdefgh.".repeat(20));
        assert!(world.guest.resolve(&deep).await.is_empty());
        assert!(world.asked().is_empty());
        for number in 0..50 {
            world.guest.query(&format!("x{number}.example.com."), RecordType::A).await;
        }
        assert!(world.asked().len() <= 11, "{} names left", world.asked().len());
        world.refused(EventKind::Dns, Refusal::DnsRate).await;
        // Upper and lower case carry no data, and a pinned name is not resolved again.
        assert_eq!(world.guest.resolve("X0.eXamPLE.com").await, [SHARED]);
        assert!(world.asked().iter().all(|name| name.to_ascii_lowercase() == *name));
    }

    async fn txt_and_other_records() {
        let mut world = World::open().await;
        for kind in [RecordType::TXT, RecordType::MX, RecordType::NULL, RecordType::CNAME, RecordType::SRV, RecordType::ANY] {
            let answer = world.guest.query("example.com.", kind).await;
            assert_eq!(answer.metadata.response_code, ResponseCode::Refused, "{kind}");
        }
        world.refused(EventKind::Dns, Refusal::RecordType).await;
        assert!(world.asked().is_empty());
    }

    async fn rebinding() {
        let mut world = World::new(allow(&["rebind.com", "mixed.com"])).await;
        assert!(world.guest.resolve("rebind.com").await.is_empty());
        world.refused(EventKind::Dns, Refusal::Rebinding(Range::Metadata)).await;
        world.zone.lock().unwrap().insert("mixed.com".to_owned(), vec![SHARED, Ipv4Addr::new(10, 0, 0, 1)]);
        assert!(world.guest.resolve("mixed.com").await.is_empty());
        world.refused(EventKind::Dns, Refusal::Rebinding(Range::Private)).await;
        connecting_fails(&world, SHARED, 80).await;
        connecting_fails(&world, Ipv4Addr::new(10, 0, 0, 1), 80).await;
        assert!(world.nobody_was_reached().await);
    }

    async fn udp_and_quic() {
        let mut world = example().await;
        let quic = &[&b"\xc3\0\0\0\x01"[..], &[0; 1195]].concat()[..];
        for (policy, address, port, data, why) in [
            (allow(&["example.com"]), SHARED, 123, &b"hello"[..], Refusal::PortNotListed),
            (allow(&["example.com"]), STRANGER, 9999, b"hello", Refusal::NotListed),
            (allow(&["example.com"]), SHARED, 443, quic, Refusal::Quic),
            (allow(&["example.com"]), SHARED, 80, b"hello", Refusal::Quic),
            (allow(&["example.com:9999"]), SHARED, 9999, quic, Refusal::Quic),
            (allow(&["93.184.216.34"]), SHARED, 443, b"hello", Refusal::Quic),
            (allow(&["0.0.0.0/0"]), STRANGER, 5353, b"hello", Refusal::OtherDnsServer),
            (allow(&["0.0.0.0/0"]), Ipv4Addr::new(8, 8, 8, 8), 9999, b"hello", Refusal::PublicResolver),
            (allow(&["0.0.0.0/0"]), Ipv4Addr::new(169, 254, 169, 254), 9999, b"hello", Refusal::Range(Range::Metadata)),
            (allow(&["0.0.0.0/0"]), Ipv4Addr::LOCALHOST, 9999, b"hello", Refusal::Range(Range::Host)),
            (Policy::of(Mode::Open), STRANGER, 443, b"hello", Refusal::Quic),
            (Policy::of(Mode::Open), STRANGER, 9999, quic, Refusal::Quic),
            (Policy::of(Mode::Open), STRANGER, 8853, b"hello", Refusal::OtherDnsServer),
            (Policy::of(Mode::Open), Ipv4Addr::new(10, 0, 0, 1), 9999, b"hello", Refusal::Range(Range::Private)),
            (Policy::of(Mode::Open), world.guest.ends.gateway_address, 9999, b"hello", Refusal::Udp),
            (Policy::of(Mode::Deny), SHARED, 9999, b"hello", Refusal::PolicyDenies),
        ] {
            world.set_policy(policy);
            world.guest.forget_frames();
            let answer = world.guest.ask_udp(address, port, data, Duration::from_millis(200)).await;
            assert_eq!(answer, None, "{address}:{port}, {why}");
            assert!(world.guest.frame(crate::frames::is_unreachable).await.is_some(), "told at once");
            world.refused(EventKind::Connect, why).await;
        }
        assert!(world.nobody_was_reached().await);
    }

    async fn an_address_named_in_the_host() {
        let world = World::new(allow(&["example.com", "93.184.216.34"])).await;
        let own = format!("GET / HTTP/1.1\r\nHost: {SHARED}\r\n\r\n");
        assert!(world.http(SHARED, 80, &own).await.unwrap().starts_with("HTTP/1.1 200"));
        for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "0xa9fea9fe", "2852039166", "localhost"] {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let answer = world.http(SHARED, 80, &request).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
        }
    }

    async fn a_second_sandbox() {
        let world = World::open().await;
        let mut config = world.config("gateway-b", "machine-b");
        config.policy = Policy::of(Mode::Open);
        let _other = sandling_network::Gateway::start(config).unwrap();
        let mut neighbour = crate::world::guest(&world.directory, "machine-b", "gateway-b");
        neighbour.forget_frames();
        // Both sandboxes have the same addresses on different cables. Packets to the own subnet stay on the own cable.
        for address in [world.guest.ends.guest_address, Ipv4Addr::new(10, 83, 76, 3), Ipv4Addr::new(10, 83, 77, 1)] {
            let stream = world.guest.dial(address, 80);
            let _ = tokio::time::timeout(Duration::from_millis(500), stream.established()).await;
        }
        assert!(neighbour.frame_within(Duration::from_millis(200), |_| Some(())).await.is_none());
        assert!(world.nobody_was_reached().await);
        let answer = exchange(neighbour.connect(SHARED, 80).await.unwrap(), GET).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"));
    }
}
