//! Credentials for registries, and requests for images that need no registry.

use serde_json::json;

use crate::harness::{Server, TOKEN};

#[tokio::test]
async fn credentials_are_stored_encrypted_and_never_shown() {
    let server = Server::start().await;
    let path = "/v1/registries/localhost%3A5000";
    let login = json!({ "username": "ann", "password": "hunter2-password" });
    let stored = server.call(Some(TOKEN), "PUT", path, Some(login)).await.json();
    assert_eq!((&stored["registry"], &stored["username"]), (&json!("localhost:5000"), &json!("ann")));
    let listed = server.get("/v1/registries").await.json();
    assert_eq!(listed["registries"], json!([stored]));
    assert!(!listed.to_string().contains("hunter2"), "{listed}");
    let sealed: Vec<u8> =
        server.store().query_row("SELECT sealed FROM registry_credentials", [], |row| row.get(0)).unwrap();
    assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
    assert_eq!(server.call(Some(TOKEN), "DELETE", path, None).await.status, 204);
    assert_eq!(server.call(Some(TOKEN), "DELETE", path, None).await.refusal().0, 404);
    assert_eq!(server.get("/v1/registries").await.json(), json!({ "registries": [] }));
    let log = server.get("/v1/audit").await.json();
    let actions: Vec<_> = log["items"].as_array().unwrap().iter().map(|entry| entry["action"].clone()).collect();
    assert!(actions.contains(&json!("registry.login")) && actions.contains(&json!("registry.logout")), "{actions:?}");
    server.stop().await;
}

#[tokio::test]
async fn bad_registries_and_credentials_are_refused() {
    let server = Server::start().await;
    let good = json!({ "username": "ann", "password": "pw" });
    for (path, body) in [
        ("/v1/registries/python", good.clone()),
        ("/v1/registries/https%3A%2F%2Fghcr.io", good),
        ("/v1/registries/ghcr.io", json!({ "username": "a:b", "password": "pw" })),
        ("/v1/registries/ghcr.io", json!({ "username": "ann", "password": "a\nb" })),
        ("/v1/registries/ghcr.io", json!({ "username": "ann", "password": "" })),
    ] {
        let refused = server.call(Some(TOKEN), "PUT", path, Some(body)).await;
        assert_eq!(refused.refusal(), (400, "bad_request".to_owned()), "{path}");
    }
    assert_eq!(server.get("/v1/registries").await.json(), json!({ "registries": [] }));
    server.stop().await;
}

#[tokio::test]
async fn a_request_for_an_image_is_checked_before_anything_is_pulled() {
    let server = Server::start().await;
    for (body, says) in [
        (json!({ "image": "Not A Reference" }), "is not an image reference"),
        (json!({ "image": "https://docker.io/python" }), "leave out `https://`"),
        (json!({ "image": "" }), "is not an image reference"),
        (json!({ "image": "python", "template": "base" }), "one of template, image and from_snapshot"),
        (json!({ "image": "python", "from_snapshot": "x" }), "one of template, image and from_snapshot"),
    ] {
        let refused = server.post("/v1/sandboxes", body).await;
        assert_eq!(refused.refusal(), (400, "bad_request".to_owned()));
        assert!(refused.json()["error"].as_str().unwrap().contains(says), "{}", refused.json());
    }
    // Nothing listens there.
    let unreachable = server.post("/v1/sandboxes", json!({ "image": "localhost:1/x" })).await;
    assert_eq!(unreachable.refusal(), (502, "registry_failed".to_owned()));
    assert_eq!(server.get("/v1/images/pulls").await.json(), json!({ "pulls": [] }));
    assert!(!server.home().join("layers").exists());
    server.stop().await;
}
