//! The document that describes the API.

use std::sync::LazyLock;

use axum::http::header;
use axum::routing::get;

use super::document::openapi_json;
use crate::prelude::*;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().route("/openapi.json", get(document))
}

async fn document() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(openapi_json);
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}
