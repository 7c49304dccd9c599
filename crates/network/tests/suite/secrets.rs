//! Secrets are inserted for their hosts, and for no other host.

use base64::Engine;
use sandling_network::policy::{Policy, Refusal};
use sandling_network::{EventKind, Failure, Secret, SecretSet, TrustRoots, Verdict};
use tokio::io::AsyncReadExt;

use crate::isolated;
use crate::servers::forms;
use crate::world::{SHARED, World, allow, exchange, say};

const PLACEHOLDER: &str = "sandling-placeholder-token";
const VALUE: &str = "hunter2-the-real-one";

fn secrets() -> SecretSet {
    let hosts = vec!["api.example.com".parse().unwrap()];
    let placements = ["header Authorization: Bearer", "header X-Key", "query key", "basic"];
    let placements = placements.map(|text| text.parse().unwrap()).to_vec();
    SecretSet::new(vec![Secret::new("token", PLACEHOLDER, VALUE.to_owned(), hosts, placements).unwrap()])
}

async fn world() -> World {
    world_under(allow(&["*.example.com", "example.com"])).await
}

async fn world_under(policy: Policy) -> World {
    let world = World::with(policy, |config| config.secrets = secrets()).await;
    assert_eq!(world.guest.resolve("api.example.com").await, [SHARED]);
    world.guest.resolve("example.com").await;
    world
}

fn request(path: &str, header: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: api.example.com\r\n{header}\r\n\r\n")
}

isolated! {
    async fn a_secret_reaches_its_host_and_not_the_guest() {
        let mut world = world().await;
        let answer = world.https("api.example.com", &request("/v1", &format!("Authorization: Bearer {PLACEHOLDER}"))).await;
        let answer = answer.unwrap();
        assert!(world.requests()[0].contains(&format!("Authorization: Bearer {VALUE}")), "{:?}", world.requests());
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(!answer.contains(VALUE), "the server repeats what it was sent: {answer}");
        assert!(answer.contains("Authorization: Bearer ****"), "{answer}");
        let event = world.event(EventKind::Request, |event| event.verdict == Verdict::Allowed).await;
        assert_eq!(event.secrets, ["token"]);
        assert!(!serde_json::to_string(&event).unwrap().contains(VALUE));
    }

    async fn a_secret_in_the_query_and_in_basic_authentication() {
        let world = world().await;
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("git:{PLACEHOLDER}"));
        let request = request(&format!("/q?key={PLACEHOLDER}&x=1"), &format!("Authorization: Basic {basic}"));
        let answer = world.https("api.example.com", &request).await.unwrap();
        let real = base64::engine::general_purpose::STANDARD.encode(format!("git:{VALUE}"));
        assert!(world.requests()[0].contains(&format!("/q?key={VALUE}&x=1")), "{:?}", world.requests());
        assert!(world.requests()[0].contains(&real));
        assert!(!answer.contains(VALUE) && !answer.contains(&real), "{answer}");
    }

    async fn a_secret_goes_nowhere_but_to_its_placements() {
        let mut world = world().await;
        for (path, header, advice) in [
            (format!("/post?text={PLACEHOLDER}"), "X: y".to_owned(), "--query 'text'"),
            ("/post".to_owned(), format!("X-Note: {PLACEHOLDER}"), "--header 'x-note'"),
            ("/post".to_owned(), format!("Authorization: {PLACEHOLDER}"), "--header 'authorization'"),
            ("/post".to_owned(), format!("Authorization: Bearer my {PLACEHOLDER}"), "--header 'authorization: Bearer my'"),
        ] {
            let answer = world.https("api.example.com", &request(&path, &header)).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 403") && answer.contains(advice), "{answer}");
            let event = world.refused(EventKind::Request, Refusal::SecretMisplaced).await;
            let detail = event.detail.unwrap();
            assert!(detail.contains("the secret token") && detail.ends_with(advice), "{detail}");
        }
        assert!(world.requests().is_empty(), "{:?}", world.requests());
    }

    async fn another_host_gets_only_the_placeholder() {
        let mut world = world().await;
        // Sealed TLS: the gateway does not look inside, where there is only the placeholder.
        let header = format!("GET / HTTP/1.1\r\nHost: example.com\r\nX-Key: {PLACEHOLDER}\r\n\r\n");
        world.https("example.com", &header).await.unwrap();
        assert!(world.requests()[0].contains(PLACEHOLDER));
        // Plain HTTP gets no secret, even to the secret's own host.
        world.guest.resolve("api.example.com").await;
        let answer = world.http(SHARED, 80, &request("/", &format!("X-Key: {PLACEHOLDER}"))).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        world.refused(EventKind::Request, Refusal::SecretMisplaced).await;
        assert!(world.requests().iter().all(|head| !head.contains(VALUE)));
    }

    async fn a_placeholder_where_it_cannot_be_replaced_is_refused() {
        let mut world = world().await;
        let answer = world.https("api.example.com", &request(&format!("/{PLACEHOLDER}"), "X: y")).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        world.refused(EventKind::Request, Refusal::SecretMisplaced).await;
        let fronted = format!("GET / HTTP/1.1\r\nHost: example.com\r\nX-Key: {PLACEHOLDER}\r\n\r\n");
        let answer = world.https("api.example.com", &fronted).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        world.refused(EventKind::Request, Refusal::HostDiffers).await;
        assert!(world.requests().is_empty());
    }

    async fn a_placeholder_in_a_body_is_refused() {
        let mut world = world().await;
        let post = |body: &str| {
            let head = format!("POST /read HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: {}\r\n\r\n", body.len());
            head + body
        };
        let harmless = "x".repeat(100_000);
        assert!(world.https("api.example.com", &post(&harmless)).await.unwrap().starts_with("HTTP/1.1 200"));
        assert!(world.requests()[0].ends_with(&harmless), "a body passes as it is");
        let with_key = post(&format!("{harmless}{{\"key\": \"{PLACEHOLDER}\"}}"));
        let (head, rest) = with_key.split_at(with_key.len() - 12);
        for plain in [false, true] {
            let answer = if plain {
                world.http(SHARED, 80, &with_key).await
            } else {
                let mut stream = world.tls(SHARED, "api.example.com").await.unwrap();
                use tokio::io::AsyncWriteExt;
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                say(&mut stream, rest).await
            };
            assert!(answer.as_ref().is_ok_and(|answer| answer.starts_with("HTTP/1.1 403")), "{answer:?}");
            world.refused(EventKind::Request, Refusal::SecretMisplaced).await;
        }
        assert_eq!(world.requests().len(), 1, "{:?}", world.requests());
    }

    async fn an_answer_that_cannot_be_searched_is_refused() {
        let mut world = world().await;
        let answer = world.https("api.example.com", &request("/gzip", &format!("X-Key: {PLACEHOLDER}"))).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        world.refused(EventKind::Request, Refusal::AnswerEncoded).await;
        // The same without a placeholder, because the server may know the secret from before.
        assert!(world.https("api.example.com", &request("/gzip", "X: y")).await.unwrap().starts_with("HTTP/1.1 403"));
    }

    async fn a_secret_that_a_server_remembers_is_masked() {
        let world = world().await;
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("git:{PLACEHOLDER}"));
        for header in [format!("X-Key: {PLACEHOLDER}"), format!("Authorization: Basic {basic}")] {
            world.https("api.example.com", &request("/keep", &header)).await.unwrap();
            let answer = world.https("api.example.com", &request("/before", "X: y")).await.unwrap();
            assert!(answer.contains("GET /keep") && answer.contains("****"), "{answer}");
            let real = base64::engine::general_purpose::STANDARD.encode(format!("git:{VALUE}"));
            assert!(!answer.contains(VALUE) && !answer.contains(&real[8..16]), "{answer}");
        }
    }

    async fn a_server_cannot_repeat_a_secret_in_another_form() {
        let world = world().await;
        let answer = world.https("api.example.com", &request("/forms", &format!("X-Key: {PLACEHOLDER}"))).await.unwrap();
        assert!(world.requests()[0].contains(VALUE) && answer.contains("X-Echo: ****"), "{answer}");
        for form in forms(VALUE) {
            let part = form.lines().next().unwrap();
            assert!(!answer.contains(&part[part.len() / 2..]), "{form} in {answer}");
        }
    }

    async fn a_range_is_not_passed_on() {
        let mut world = world().await;
        let ranged = |path: &str| request(path, &format!("X-Key: {PLACEHOLDER}\r\nRange: bytes=0-9\r\nIf-Range: \"x\""));
        let answer = world.https("api.example.com", &ranged("/all")).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.to_ascii_lowercase().contains("accept-ranges: none"), "{answer}");
        assert!(!world.requests()[0].to_ascii_lowercase().contains("range"), "{:?}", world.requests());
        let answer = world.https("api.example.com", &ranged("/part")).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        world.refused(EventKind::Request, Refusal::AnswerEncoded).await;
        // A host without secrets gets the range.
        let other = "GET /other HTTP/1.1\r\nHost: example.com\r\nRange: bytes=0-9\r\n\r\n";
        world.https("example.com", other).await.unwrap();
        assert!(world.requests()[2].contains("Range: bytes=0-9"), "{:?}", world.requests());
    }

    async fn status_lines_and_header_names_do_not_repeat_a_secret() {
        let world = world().await;
        let answer = world.https("api.example.com", &request("/phrase", &format!("X-Key: {PLACEHOLDER}"))).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{answer}");
        assert!(world.requests()[0].contains(VALUE) && !answer.to_lowercase().contains(VALUE), "{answer}");
    }

    async fn the_last_bytes_come_before_the_trailers() {
        let world = world().await;
        let mut stream = world.tls(SHARED, "api.example.com").await.unwrap();
        use tokio::io::AsyncWriteExt;
        let asked = request("/trailers", "Connection: close\r\nTE: trailers");
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        let body: String = answer.split("\r\n\r\n").nth(1).unwrap().split("\r\n").skip(1).step_by(2).collect();
        assert_eq!(body, "to the h", "{answer}");
    }

    async fn revocation_is_immediate() {
        let mut world = world().await;
        let mut stream = world.tls(SHARED, "api.example.com").await.unwrap();
        let with_key = request("/", &format!("X-Key: {PLACEHOLDER}"));
        assert!(say(&mut stream, &with_key).await.unwrap().starts_with("HTTP/1.1 200"));
        world.gateway().set_secrets(SecretSet::default());
        assert!(stream.read_u8().await.is_err(), "the open connection ended");
        world.refused(EventKind::Close, Refusal::SecretRevoked).await;
        world.https("api.example.com", &with_key).await.unwrap();
        let requests = world.requests();
        assert!(requests[0].contains(VALUE) && requests[1].contains(PLACEHOLDER) && !requests[1].contains(VALUE));
    }

    async fn an_untrusted_server_gets_nothing() {
        let mut world = World::with(allow(&["*.example.com"]), |config| {
            config.secrets = secrets();
            config.interception.as_mut().unwrap().roots = TrustRoots::none();
        })
        .await;
        world.guest.resolve("api.example.com").await;
        assert!(world.tls(SHARED, "api.example.com").await.is_err());
        world.event(EventKind::Name, |event| event.verdict == Verdict::Failed(Failure::ServerTls)).await;
        assert!(world.requests().is_empty());
    }

    async fn without_an_authority_tls_is_not_intercepted() {
        let mut world = World::with(allow(&["*.example.com"]), |config| {
            config.secrets = secrets();
            config.interception = None;
        })
        .await;
        world.guest.resolve("api.example.com").await;
        assert!(world.tls(SHARED, "api.example.com").await.is_err());
        world.refused(EventKind::Name, Refusal::NoAuthority).await;
        assert!(world.requests().is_empty());
    }

    async fn many_requests_and_a_websocket_inside_tls() {
        let world = world().await;
        let mut stream = world.tls(SHARED, "api.example.com").await.unwrap();
        for path in ["/one", "/two"] {
            let answer = say(&mut stream, &request(path, &format!("X-Key: {PLACEHOLDER}"))).await.unwrap();
            assert!(answer.contains(path) && !answer.contains(VALUE));
        }
        let upgrade = format!("X-Key: {PLACEHOLDER}\r\nUpgrade: websocket\r\nConnection: Upgrade");
        assert!(say(&mut stream, &request("/socket", &upgrade)).await.unwrap().starts_with("HTTP/1.1 101"));
        use tokio::io::AsyncWriteExt;
        stream.write_all(b"\x81\x05frame").await.unwrap();
        let mut echo = [0; 7];
        stream.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"\x81\x05frame");
        assert!(world.requests()[2].contains(VALUE));
        // A server that repeats a secret in two pieces. The test's server repeats what it receives.
        let (first, second) = VALUE.as_bytes().split_at(6);
        for (head, part) in [(0x01, first), (0x80, second)] {
            stream.write_all(&[&[head, part.len() as u8][..], part].concat()).await.unwrap();
        }
        let mut echo = Vec::new();
        while !echo.windows(4).any(|window| window == b"****") {
            echo.push(stream.read_u8().await.unwrap());
        }
        assert!(!String::from_utf8_lossy(&echo).contains("hunter"), "{echo:?}");
    }

    async fn a_websocket_that_cannot_be_searched_ends() {
        let mut world = world().await;
        use tokio::io::AsyncWriteExt;
        let upgrade = format!("X-Key: {PLACEHOLDER}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Extensions: permessage-deflate");
        let mut stream = world.tls(SHARED, "api.example.com").await.unwrap();
        assert!(say(&mut stream, &request("/socket", &upgrade)).await.unwrap().starts_with("HTTP/1.1 101"));
        assert!(!world.requests()[0].to_ascii_lowercase().contains("deflate"), "{:?}", world.requests());
        // The test's server also repeats the mask, which a server must not do.
        stream.write_all(b"\x81\x83\0\0\0\0abc").await.unwrap();
        assert!(stream.read_u8().await.is_err());
        world.event(EventKind::Close, |event| event.verdict == Verdict::Refused(Refusal::AnswerEncoded)).await;
    }

    async fn a_placeholder_in_a_websocket_is_refused() {
        let mut world = world().await;
        use tokio::io::AsyncWriteExt;
        let mut stream = world.tls(SHARED, "api.example.com").await.unwrap();
        let upgrade = request("/socket", "Upgrade: websocket\r\nConnection: Upgrade");
        assert!(say(&mut stream, &upgrade).await.unwrap().starts_with("HTTP/1.1 101"));
        stream.write_all(b"\x81\x02hi").await.unwrap();
        let mut echo = [0; 4];
        stream.read_exact(&mut echo).await.unwrap();
        let masked = PLACEHOLDER.bytes().map(|byte| byte ^ 7);
        let head = [0x81, 0x80 | PLACEHOLDER.len() as u8, 7, 7, 7, 7];
        stream.write_all(&head.into_iter().chain(masked).collect::<Vec<_>>()).await.unwrap();
        assert!(stream.read_u8().await.is_err(), "it came back");
        world.event(EventKind::Close, |event| event.verdict == Verdict::Refused(Refusal::SecretMisplaced)).await;
    }

    async fn only_http1_is_offered_where_a_secret_is() {
        let world = world().await;
        assert!(world.tls_offering(SHARED, "api.example.com", &["h2"]).await.is_err());
        let stream = world.tls_offering(SHARED, "api.example.com", &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert!(exchange(stream, &request("/", "X: y")).await.unwrap().starts_with("HTTP/1.1 200"));
    }
}
