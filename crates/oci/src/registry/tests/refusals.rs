use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::super::{Client, RegistryError, RegistryOptions};
use super::image::{image, platform};
use super::server::{Answer, Seen, Server, client, client_with_password, options};

async fn resolve_error(handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> (RegistryError, usize) {
    let server = Server::start(handler).await;
    let error = client().resolve(&server.reference(), &platform()).await.unwrap_err();
    let why = error.to_string();
    assert!(!why.contains('\n') && !why.ends_with('.'), "{why}");
    (error, server.seen().len())
}

#[tokio::test]
async fn a_missing_image_is_named() {
    let (error, requests) = resolve_error(|_| Answer::new(404, &[], b"")).await;
    let why = error.to_string();
    assert!(why.contains("has no image 127.0.0.1:") && why.ends_with("/a/b:1; check the name and the tag"), "{why}");
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn missing_and_refused_credentials_lead_to_login() {
    let basic = |_: &Seen| Answer::new(401, &[("www-authenticate", "Basic realm=x")], b"");
    let (error, _) = resolve_error(basic).await;
    let why = error.to_string();
    assert!(why.contains("asks for credentials") && why.contains("run `sandling registry login 127.0.0.1:"), "{why}");
    let server = Server::start(basic).await;
    let why = client_with_password().resolve(&server.reference(), &platform()).await.unwrap_err().to_string();
    assert!(why.contains("refuses the stored credentials") && !why.contains("pw"), "{why}");
    let (error, _) = resolve_error(|_| Answer::new(403, &[], b"")).await;
    assert!(error.to_string().contains("denies access to"), "{error}");
    let (error, _) = resolve_error(|_| Answer::new(401, &[("www-authenticate", "Negotiate")], b"")).await;
    assert!(error.to_string().contains("unknown kind (`negotiate`)"), "{error}");
}

#[tokio::test]
async fn unusable_credentials_are_explained() {
    let server = Server::start(|_| Answer::new(401, &[("www-authenticate", "Basic realm=x")], b"")).await;
    let credentials = Arc::new(|_: &str| Err("the credential helper `x` is not supported".to_owned()));
    let client = Client::new(RegistryOptions { credentials, ..options() }).unwrap();
    let why = client.resolve(&server.reference(), &platform()).await.unwrap_err().to_string();
    assert!(why.ends_with("(the credential helper `x` is not supported)"), "{why}");
}

#[tokio::test]
async fn a_rate_limit_is_waited_for_if_it_is_short() {
    let attempts = AtomicUsize::new(0);
    let server = Server::start(move |seen| match attempts.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::new(429, &[("retry-after", "1")], b""),
        _ => image().answer(seen),
    })
    .await;
    let started = Instant::now();
    client().resolve(&server.reference(), &platform()).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
    let (error, requests) = resolve_error(|_| Answer::new(429, &[("retry-after", "3600")], b"")).await;
    assert!(error.to_string().contains("limits the rate of pulls; try again in 60 min"), "{error}");
    assert_eq!(requests, 1);
    let (error, requests) = resolve_error(|_| Answer::new(429, &[], b"")).await;
    assert!(error.to_string().contains("try again later"), "{error}");
    assert_eq!(requests, 3);
}

#[tokio::test]
async fn server_errors_are_retried_and_shown_in_one_line() {
    let message = br#"{"errors": [{"code": "X", "message": "disk\nbroken \u001b[31m"}]}"#;
    let (error, requests) = resolve_error(|_| Answer::new(503, &[], message)).await;
    let why = error.to_string();
    assert!(why.contains("answered 503 (disk\u{fffd}broken \u{fffd}[31m); try again later"), "{why}");
    assert_eq!(requests, 3);
    let attempts = AtomicUsize::new(0);
    let server = Server::start(move |seen| match attempts.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::new(500, &[], b""),
        _ => image().answer(seen),
    })
    .await;
    client().resolve(&server.reference(), &platform()).await.unwrap();
    let (error, requests) = resolve_error(|_| Answer::new(418, &[], b"")).await;
    assert!(error.to_string().contains("answered 418, which a registry does not do"), "{error}");
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn an_endless_manifest_is_cut() {
    for headers in [[("connection", "close")], [("content-length", "99999999999")]] {
        let (error, _) = resolve_error(move |_| Answer::endless(&headers)).await;
        assert!(error.to_string().contains("sends more than 4194304 bytes for a manifest"), "{error}");
    }
    let (error, _) = resolve_error(|_| Answer::raw(&[b'x'; 1_000_000])).await;
    assert!(matches!(error, RegistryError::Broken { .. }), "{error}");
}

#[tokio::test]
async fn a_slow_manifest_is_given_up() {
    let (error, _) = resolve_error(|_| Answer::raw(b"").and_hang()).await;
    assert!(error.to_string().contains("did not answer within 1 s"), "{error}");
    let (error, _) = resolve_error(|_| Answer::ok(&[b' '; 100_000]).and_drip(Duration::from_millis(2))).await;
    assert!(matches!(error, RegistryError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn wrong_digests_are_refused() {
    let server = Server::start(|_| Answer::ok(b"{}")).await;
    let pinned = server.reference().with_digest(crate::Digest::of(b"other"));
    let error = client().resolve(&pinned, &platform()).await.unwrap_err();
    assert!(matches!(error, RegistryError::WrongDigest { .. }), "{error}");
    let digest = crate::Digest::of(b"other");
    let (error, _) =
        resolve_error(move |_| Answer::new(200, &[("docker-content-digest", digest.as_str())], b"{}")).await;
    assert!(matches!(error, RegistryError::WrongDigest { .. }), "{error}");
    let mut image = image();
    image.config[0] ^= 1;
    let config = image.config.clone();
    let (error, _) = resolve_error(move |seen| match seen.path.contains("/blobs/") {
        true => Answer::ok(&config),
        false => super::image::image().answer(seen),
    })
    .await;
    assert!(matches!(error, RegistryError::WrongDigest { .. }), "{error}");
}

#[tokio::test]
async fn an_unreachable_registry_is_named() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let reference = format!("{gone}/x").parse().unwrap();
    let why = client().resolve(&reference, &platform()).await.unwrap_err().to_string();
    assert!(why.starts_with(&format!("cannot reach {gone}: ")), "{why}");
}
