//! Which sandbox a request is about, in any dialect.

use axum::extract::Request;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sandling_engine::SandboxId;
use serde_json::Value;

use crate::e2b;
use crate::preview::host;

/// Where sandboxes are created and listed, in all dialects.
pub(super) fn is_collection(path: &str) -> bool {
    matches!(path, "/v1/sandboxes" | "/sandboxes" | "/v2/sandboxes")
}

/// The host, E2B's header, the path or a preview link names a sandbox, in the order in which the dialects look for it.
pub(super) fn sandbox(request: &Request) -> Option<SandboxId> {
    let (headers, path) = (request.headers(), request.uri().path());
    e2b::sandbox_of(headers, path)
        .or_else(|| host::parse(host::of(headers)).map(|(_, id)| id))
        .or_else(|| in_path(path))
        .or_else(|| linked(path))
}

fn in_path(path: &str) -> Option<SandboxId> {
    let rest = ["/v1", "/v2", ""].iter().find_map(|version| path.strip_prefix(version)?.strip_prefix("/sandboxes/"))?;
    e2b::parse_id(rest.split('/').next()?)
}

/// The sandbox of a preview link. Its node checks the link's signature.
fn linked(path: &str) -> Option<SandboxId> {
    let claims = path.strip_prefix("/v1/p/")?.split(['.', '/']).next()?;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    SandboxId::parse(claims["sandbox"].as_str()?)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;

    use super::*;

    const ID: &str = "0e0b5a3c-7a0b-4e57-9f52-0f7d6f1f3a11";
    const OTHER: &str = "11111111-7a0b-4e57-9f52-0f7d6f1f3a11";

    #[test]
    fn every_way_to_name_a_sandbox_is_found() {
        let compact = ID.replace('-', "");
        let named = |uri: &str, name: &str, value: &str| {
            let request = Request::get(uri).header(name, value).body(Body::empty()).unwrap();
            sandbox(&request).map(|id| id.to_string())
        };
        assert_eq!(named(&format!("/v1/sandboxes/{ID}/exec"), "host", "x").as_deref(), Some(ID));
        assert_eq!(named(&format!("/sandboxes/{compact}"), "host", "x").as_deref(), Some(ID));
        assert_eq!(named(&format!("/v2/sandboxes/{compact}-client/logs"), "host", "x").as_deref(), Some(ID));
        assert_eq!(named("/files?path=x", "e2b-sandbox-id", &compact).as_deref(), Some(ID));
        assert_eq!(named("/", "host", &format!("3000-{ID}.localhost:8080")).as_deref(), Some(ID));
        assert_eq!(named("/", "host", &format!("49983-{compact}.localhost")).as_deref(), Some(ID));
        let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"sandbox":"{ID}"}}"#));
        assert_eq!(named(&format!("/v1/p/{claims}.signature/a"), "host", "x").as_deref(), Some(ID));
        assert_eq!(named(&format!("/v1/p/{claims}.signature/sandboxes/{OTHER}"), "host", "x").as_deref(), Some(ID));
        assert_eq!(named(&format!("/v1/sandboxes/{ID}/fs"), "e2b-sandbox-id", OTHER).as_deref(), Some(ID));
        assert_eq!(named(&format!("/v1/sandboxes/{OTHER}"), "host", &format!("3000-{ID}.x")).as_deref(), Some(ID));
        assert_eq!(named("/v2/sandboxes", "e2b-sandbox-id", &compact), None);
        assert_eq!(named("/v1/sandboxes/web/exec", "host", "x"), None);
        assert_eq!(named(&format!("/v1/snapshots/{ID}"), "host", "x"), None);
    }
}
