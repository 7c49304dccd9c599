use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::{Client, RegistryError, RegistryOptions};
use super::image::{image, platform};
use super::server::{Answer, Server, client, client_with_password, options, tls};

async fn error_of_redirect(to: &str) -> RegistryError {
    let to = to.to_owned();
    let server = Server::start(move |_| Answer::redirect(&to)).await;
    client_with_password().resolve(&server.reference(), &platform()).await.unwrap_err()
}

#[tokio::test]
async fn redirects_are_followed_without_credentials() {
    let storage = Server::start(|seen| image().answer(seen)).await;
    let target = storage.address;
    let server = Server::start(move |seen| match seen.header("authorization") {
        None => Answer::new(401, &[("www-authenticate", "Basic realm=x")], b""),
        Some(_) => Answer::redirect(&format!("http://{target}{}", seen.path)),
    })
    .await;
    client_with_password().resolve(&server.reference(), &platform()).await.unwrap();
    assert_eq!(server.seen()[1].header("authorization"), Some("Basic bWU6cHc="));
    assert!(!storage.seen().is_empty());
    assert!(storage.seen().iter().all(|seen| seen.header("authorization").is_none()));
}

#[tokio::test]
async fn redirects_may_be_relative_and_keep_credentials_on_the_same_host() {
    let server = Server::start(|seen| match seen.path.strip_prefix("/moved") {
        _ if seen.header("authorization").is_none() => Answer::new(401, &[("www-authenticate", "Basic realm=x")], b""),
        None => Answer::redirect(&format!("/moved{}", seen.path)),
        Some(_) => image().answer(seen),
    })
    .await;
    client_with_password().resolve(&server.reference(), &platform()).await.unwrap();
}

#[tokio::test]
async fn redirects_to_internal_addresses_are_refused() {
    for to in
        ["https://169.254.169.254/latest/meta-data/", "https://10.0.0.1/", "https://[fd00::1]/", "https://0.0.0.0/"]
    {
        let error = error_of_redirect(to).await;
        assert!(matches!(error, RegistryError::ReferralRefused { .. }), "{to}: {error}");
    }
    let error = error_of_redirect("https://169.254.169.254/").await.to_string();
    assert!(error.starts_with("the registry refers to 169.254.169.254 at 169.254.169.254"), "{error}");
    let error = error_of_redirect("http://169.254.169.254/latest/meta-data/").await;
    assert!(matches!(error, RegistryError::Plaintext { .. }), "{error}");
    // Loopback, but not where the registry is. An address in IPv6's clothes is checked as the IPv4 address that it is.
    let other = Server::start_at([127, 0, 0, 2].into(), None, |seen| image().answer(seen)).await;
    for host in ["127.0.0.2", "[::ffff:127.0.0.2]"] {
        let error = error_of_redirect(&format!("http://{host}:{}/", other.address.port())).await;
        assert!(matches!(error, RegistryError::ReferralRefused { .. }), "{host}: {error}");
    }
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn redirects_end_and_lead_to_addresses() {
    let server = Server::start(|_| Answer::redirect("/again")).await;
    let error = client().resolve(&server.reference(), &platform()).await.unwrap_err().to_string();
    assert!(error.contains("redirects more than 5 times"), "{error}");
    assert_eq!(server.seen().len(), 6);
    for to in ["ftp://x/", "http://", "file:///etc/passwd", "https://exa mple/"] {
        let error = error_of_redirect(to).await;
        assert!(matches!(error, RegistryError::BadRedirect { .. }), "{to}: {error}");
    }
}

#[tokio::test]
async fn a_registry_with_tls_is_used_with_its_certificate_and_never_left_for_plaintext() {
    let plain = Server::start(|seen| image().answer(seen)).await;
    let (acceptor, extra_ca) = tls("127.0.0.1");
    let to = plain.url("/");
    let server = Server::start_at([127, 0, 0, 1].into(), Some(acceptor), move |seen| match &*seen.path {
        "/v2/a/b/manifests/redirect" => Answer::redirect(&to),
        "/v2/a/b/manifests/token" => Answer::new(401, &[("www-authenticate", &format!("Bearer realm=\"{to}\""))], b""),
        _ => image().answer(seen),
    })
    .await;
    let trusting = Client::new(RegistryOptions { extra_ca, ..options() }).unwrap();
    trusting.resolve(&server.reference(), &platform()).await.unwrap();
    for tag in ["redirect", "token"] {
        let reference = format!("{}/a/b:{tag}", server.address).parse().unwrap();
        let error = trusting.resolve(&reference, &platform()).await.unwrap_err();
        assert!(matches!(error, RegistryError::Downgrade { .. }), "{error}");
    }
    assert!(plain.seen().is_empty());
    let error = client().resolve(&server.reference(), &platform()).await.unwrap_err();
    assert!(matches!(error, RegistryError::Untrusted { .. }), "{error}");
}

#[tokio::test]
async fn plaintext_is_for_loopback_and_for_hosts_that_the_operator_names() {
    let reference = "192.0.2.1:5000/x".parse().unwrap();
    let client = |insecure: &[&str]| {
        let insecure: BTreeSet<_> = insecure.iter().map(|host| (*host).to_owned()).collect();
        Client::new(RegistryOptions { insecure, ..options() }).unwrap()
    };
    let allows = |insecure: &[&str], host: &str, port| {
        let endpoint = super::super::Endpoint { host: host.to_owned(), port, role: super::super::Role::Registry };
        client(insecure).connector.allows_plaintext(&endpoint)
    };
    assert!(allows(&[], "localhost", 5000) && allows(&[], "127.1.2.3", 80) && allows(&[], "::1", 80));
    assert!(!allows(&[], "192.0.2.1", 5000) && !allows(&[], "localhost.example", 80));
    assert!(allows(&["192.0.2.1:5000"], "192.0.2.1", 5000) && !allows(&["192.0.2.1:5000"], "192.0.2.1", 5001));
    assert!(allows(&["reg.lan"], "reg.lan", 80));
    // The address is refused before anything is sent.
    let error = client(&[]).resolve(&reference, &platform()).await.unwrap_err();
    assert!(matches!(error, RegistryError::AddressRefused { .. }), "{error}");
}

#[tokio::test]
async fn names_are_checked_by_their_addresses() {
    let server = Server::start(|seen| image().answer(seen)).await;
    let reference = format!("localhost:{}/a/b:1", server.address.port()).parse().unwrap();
    client().resolve(&reference, &platform()).await.unwrap();
    let nowhere = RegistryOptions { allow: Arc::new(|_, _| false), ..options() };
    let error = Client::new(nowhere).unwrap().resolve(&reference, &platform()).await.unwrap_err();
    assert!(matches!(error, RegistryError::AddressRefused { .. }), "{error}");
}
