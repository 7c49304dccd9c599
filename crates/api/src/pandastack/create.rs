//! A create with the fields that only PandaStack has.

use axum::routing::post;
use sandling_service::StartDirectory;
use sandling_wire::CreateSandbox;
use serde_json::{Map, Value};

use crate::create_sandbox;
use crate::prelude::*;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/v1/sandboxes", post(create))
}

async fn create(call: Call<Run>, headers: HeaderMap, body: JsonBody<Map<String, Value>>) -> Result<Response, ApiError> {
    let JsonBody { value, bytes } = body;
    let body = JsonBody { value: translated(value)?, bytes };
    create_sandbox::answer(&call.app, call.workspace(), &call.context, &headers, body, StartDirectory::Home).await
}

/// `disk_gb` becomes `disk_mb`, and `egress_allowlist` becomes a part of `network.allow`.
fn translated(mut body: Map<String, Value>) -> Result<CreateSandbox, ApiError> {
    let read = |error: serde_json::Error| ApiError::bad_request(error.to_string());
    let disk_gb = body.remove("disk_gb").map(serde_json::from_value::<Option<u32>>).transpose().map_err(read)?;
    let allowed = body.remove("egress_allowlist").map(serde_json::from_value::<Option<Vec<String>>>);
    let allowed = allowed.transpose().map_err(read)?.flatten();
    let mut request: CreateSandbox = serde_json::from_value(Value::Object(body)).map_err(read)?;
    request.disk_mb = request.disk_mb.or(disk_gb.flatten().map(|gb| gb.saturating_mul(1024)));
    if let Some(names) = allowed {
        request.network.get_or_insert_default().allow.get_or_insert_default().extend(names);
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn create(body: Value) -> Result<CreateSandbox, ApiError> {
        translated(serde_json::from_value(body).unwrap())
    }

    #[test]
    fn sizes_in_gigabytes_and_allow_lists_are_translated() {
        let request =
            create(json!({"disk_gb": 2, "egress_allowlist": ["pypi"], "network": {"allow": ["npm"]}})).unwrap();
        assert_eq!(request.disk_mb, Some(2048));
        assert_eq!(request.network.unwrap().allow.unwrap(), ["npm", "pypi"]);
        assert_eq!(create(json!({"disk_gb": 2, "disk_mb": 512})).unwrap().disk_mb, Some(512));
    }

    #[test]
    fn values_of_another_type_are_refused() {
        for body in [json!({"disk_gb": "2"}), json!({"egress_allowlist": "pypi"}), json!({"other": 1})] {
            assert!(create(body.clone()).is_err(), "{body}");
        }
    }
}
