//! The document that describes the API.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::harness::Server;

/// Set to write the document anew instead of comparing it.
const UPDATE: &str = "SANDLING_UPDATE_OPENAPI";

#[test]
fn the_document_in_docs_is_the_one_that_is_generated() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let generated = sandling_api::openapi_json();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&kept, &generated).unwrap();
    }
    let found = std::fs::read_to_string(&kept).unwrap_or_default();
    assert!(found == generated, "docs/openapi.json is out of date; `{UPDATE}=1 cargo test -p sandling-api` renews it");
}

#[tokio::test]
async fn the_document_is_served_and_every_operation_says_how_it_can_fail() {
    let server = Server::start().await;
    let served = server.call(None, "GET", "/openapi.json", None).await.json();
    assert_eq!(served, serde_json::from_str::<Value>(&sandling_api::openapi_json()).unwrap());
    let operations: Vec<_> =
        served["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values()).collect();
    assert!(operations.len() > 60, "{}", operations.len());
    let ids: BTreeSet<_> = operations.iter().map(|operation| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), operations.len(), "an id is used twice: {ids:?}");
    for operation in operations {
        assert!(operation["responses"]["401"].is_object() && operation["summary"].is_string(), "{operation}");
    }
    server.stop().await;
}
