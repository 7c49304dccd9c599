use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::super::{Client, RegistryError, RegistryOptions};
use super::image::{descriptor, image, platform};
use super::server::{Answer, Server, options};

fn with_mirrors(registry: &Server, mirrors: &[String]) -> Client {
    let mirrors = BTreeMap::from([(registry.address.to_string(), mirrors.to_vec())]);
    Client::new(RegistryOptions { mirrors, ..options() }).unwrap()
}

#[tokio::test]
async fn a_mirror_is_asked_first() {
    let (mirror, origin) = (Server::start(|seen| image().answer(seen)).await, Server::start(|_| Answer::ok(b"")).await);
    let client = with_mirrors(&origin, &[format!("{}/cache", mirror.address)]);
    client.resolve(&origin.reference(), &platform()).await.unwrap();
    assert_eq!(mirror.count("/v2/cache/a/b/manifests/1"), 1);
    assert!(origin.seen().is_empty());
}

#[tokio::test]
async fn the_registry_is_asked_after_a_mirror_that_fails_or_lies() {
    let origin = Server::start(|seen| image().answer(seen)).await;
    let lying = Server::start(|_| Answer::ok(&[0; 100_000])).await;
    let lacking = Server::start(|_| Answer::new(404, &[], b"")).await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mirrors = [lying.address.to_string(), lacking.address.to_string(), gone.to_string()];
    let client = with_mirrors(&origin, &mirrors);
    client.resolve(&origin.reference(), &platform()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layer");
    client.fetch_blob(&origin.reference(), &descriptor(&image().layer), &path, &|_, _| {}).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), image().layer);
    assert!(!lying.seen().is_empty() && !lacking.seen().is_empty());
}

#[tokio::test]
async fn a_mirror_gets_its_own_credentials_only() {
    let origin = Server::start(|seen| image().answer(seen)).await;
    let mirror = Server::start(|_| Answer::new(401, &[("www-authenticate", "Basic realm=x")], b"")).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let credentials = Arc::new(move |registry: &str| {
        log.lock().unwrap().push(registry.to_owned());
        Ok(None)
    });
    let mirrors = BTreeMap::from([(origin.address.to_string(), vec![mirror.address.to_string()])]);
    let client = Client::new(RegistryOptions { mirrors, credentials, ..options() }).unwrap();
    client.resolve(&origin.reference(), &platform()).await.unwrap();
    let asked = asked.lock().unwrap();
    assert!(!asked.is_empty() && asked.iter().all(|registry| *registry == mirror.address.to_string()));
}

#[test]
fn a_bad_mirror_is_refused_at_the_start() {
    for bad in ["https://mirror.example", "mirror.example/Upper", "mirror.example/", ""] {
        let mirrors = BTreeMap::from([("docker.io".to_owned(), vec![bad.to_owned()])]);
        let error = Client::new(RegistryOptions { mirrors, ..options() }).err().unwrap();
        assert!(matches!(error, RegistryError::BadMirror { .. }), "{bad}: {error}");
    }
}
