use std::sync::Arc;

use super::super::{Client, Credentials, RegistryOptions};
use super::image::{descriptor, image, platform};
use super::server::{Answer, Seen, Server, client, client_with_password, options};

/// Hands out the image to those who have the token.
fn guarded(realm: String) -> impl Fn(&Seen) -> Answer + Send + Sync + 'static {
    let challenge = format!("Bearer realm=\"{realm}\",service=\"the registry\",scope=\"repository:a/b:pull\"");
    move |seen| match seen.header("authorization") {
        Some("Bearer good") => image().answer(seen),
        _ => Answer::new(401, &[("www-authenticate", &challenge)], b""),
    }
}

#[tokio::test]
async fn a_token_is_fetched_once_per_repository() {
    let tokens = Server::start(|_| Answer::ok(br#"{"token": "good", "expires_in": 300}"#)).await;
    let server = Server::start(guarded(tokens.url("/token"))).await;
    let client = client();
    client.resolve(&server.reference(), &platform()).await.unwrap();
    client.may_read(&server.reference(), &descriptor(&image().layer)).await.unwrap();
    let asked: Vec<_> = tokens.seen();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].path, "/token?scope=repository%3Aa%2Fb%3Apull&service=the+registry");
    assert_eq!(asked[0].header("authorization"), None);
    let other = format!("{}/other:1", server.address).parse().unwrap();
    client.resolve(&other, &platform()).await.unwrap();
    assert_eq!(tokens.seen().len(), 2);
}

#[tokio::test]
async fn a_password_goes_to_the_token_server_and_not_to_the_registry() {
    let tokens = Server::start(|seen| match seen.header("authorization") {
        Some("Basic bWU6cHc=") => Answer::ok(br#"{"access_token": "good"}"#),
        _ => Answer::new(401, &[], b""),
    })
    .await;
    let server = Server::start(guarded(tokens.url("/token"))).await;
    client_with_password().resolve(&server.reference(), &platform()).await.unwrap();
    assert!(server.seen().iter().all(|seen| seen.header("authorization").is_none_or(|sent| sent == "Bearer good")));
    let why = client().resolve(&server.reference(), &platform()).await.unwrap_err().to_string();
    assert!(why.contains("asks for credentials"), "{why}");
}

#[tokio::test]
async fn an_identity_token_is_exchanged() {
    let tokens = Server::start(|seen| match (seen.method.as_str(), seen.body.contains("refresh_token=id%2Ftoken")) {
        ("POST", true) => Answer::ok(br#"{"access_token": "good"}"#),
        _ => Answer::new(400, &[], b""),
    })
    .await;
    let server = Server::start(guarded(tokens.url("/token"))).await;
    let with_token = |token: &str| {
        let credentials = Credentials::IdentityToken(token.to_owned());
        let credentials = Arc::new(move |_: &str| Ok(Some(credentials.clone())));
        Client::new(RegistryOptions { credentials, ..options() }).unwrap()
    };
    with_token("id/token").resolve(&server.reference(), &platform()).await.unwrap();
    let why = with_token("old").resolve(&server.reference(), &platform()).await.unwrap_err().to_string();
    assert!(why.contains("refuses the stored credentials"), "{why}");
}

#[tokio::test]
async fn a_token_that_the_registry_no_longer_accepts_is_replaced() {
    let tokens = Server::start(|_| Answer::ok(br#"{"token": "good", "expires_in": 300}"#)).await;
    let challenge = format!("Bearer realm=\"{}\"", tokens.url("/"));
    let server = Server::start(move |seen| {
        let revoked = seen.path.contains("/blobs/") && REVOKED.swap(false, std::sync::atomic::Ordering::SeqCst);
        match seen.header("authorization") {
            Some("Bearer good") if !revoked => image().answer(seen),
            _ => Answer::new(401, &[("www-authenticate", &challenge)], b""),
        }
    })
    .await;
    client().resolve(&server.reference(), &platform()).await.unwrap();
    assert_eq!(tokens.seen().len(), 2);
}

static REVOKED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);

#[tokio::test]
async fn strange_token_servers_are_named() {
    for (answer, why) in [
        ("{}", "its answer has none"),
        ("<html>", "its answer is not JSON"),
        (r#"{"token": ""}"#, "its answer has none"),
        (r#"{"token": "a\nb"}"#, "it is malformed"),
    ] {
        let tokens = Server::start(|_| Answer::ok(answer.as_bytes())).await;
        let server = Server::start(guarded(tokens.url("/"))).await;
        let error = client().resolve(&server.reference(), &platform()).await.unwrap_err().to_string();
        assert!(error.contains("sent no token") && error.contains(why), "{error}");
    }
    for (realm, why) in [("nowhere", "is not a URL"), ("https://169.254.169.254/", "may not use"), ("", "is not a URL")]
    {
        let server = Server::start(guarded(realm.to_owned())).await;
        let error = client().resolve(&server.reference(), &platform()).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let endless = Server::start(|_| Answer::endless(&[("connection", "close")])).await;
    let server = Server::start(guarded(endless.url("/"))).await;
    let error = client().resolve(&server.reference(), &platform()).await.unwrap_err().to_string();
    assert!(error.contains("bytes for a token"), "{error}");
}
